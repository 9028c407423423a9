/* SPDX-License-Identifier: MIT */
/* What the pages do: search, contents on a phone, light and dark, diagrams. */
"use strict";

const root = document.documentElement.dataset.root;

function load(file) {
	return new Promise((resolve, reject) => {
		const script = document.createElement("script");
		script.src = root + "assets/" + file;
		script.onload = resolve;
		script.onerror = () => reject(new Error(file + " is missing"));
		document.head.append(script);
	});
}

const isDark = () => document.documentElement.dataset.theme ?
	document.documentElement.dataset.theme === "dark" :
	matchMedia("(prefers-color-scheme: dark)").matches;

/* ---- diagrams ------------------------------------------------------------- */

const diagrams = [...document.querySelectorAll("pre.mermaid")];
const texts = diagrams.map((diagram) => diagram.textContent);

async function draw() {
	if (!diagrams.length)
		return;
	if (!window.mermaid)
		await load("mermaid.js");
	diagrams.forEach((diagram, i) => {
		diagram.removeAttribute("data-processed");
		diagram.textContent = texts[i];
	});
	mermaid.initialize({ startOnLoad: false, theme: isDark() ? "dark" : "default",
			     fontFamily: getComputedStyle(document.body).fontFamily });
	await mermaid.run({ nodes: diagrams });
}

draw();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

document.getElementById("theme").onclick = () => {
	document.documentElement.dataset.theme = isDark() ? "light" : "dark";
	try {
		localStorage.setItem("theme", document.documentElement.dataset.theme);
	} catch {
		/* Then it is chosen for this page alone. */
	}
	draw();
};

/* ---- contents ------------------------------------------------------------- */

const menu = document.getElementById("menu"), contents = document.getElementById("contents");
menu.onclick = () => {
	menu.setAttribute("aria-expanded", String(contents.classList.toggle("open")));
};
const here = contents.querySelector("[aria-current]");
if (here)
	contents.scrollTop = here.offsetTop - contents.clientHeight / 2;

/* ---- search --------------------------------------------------------------- */

const query = document.getElementById("query"), found = document.getElementById("found");
let index = null;

async function prepare() {
	if (index)
		return;
	await Promise.all([load("minisearch.js"), load("parts.js")]);
	index = new MiniSearch({
		fields: ["heading", "title", "text"],
		searchOptions: { prefix: true, fuzzy: (term) => term.length > 5 ? 0.15 : 0,
				 boost: { heading: 4, title: 2 }, combineWith: "AND" },
	});
	index.addAll(PARTS.map((part, id) => ({ id, ...part })));
}

/* The words around the first one that was found. */
function excerpt(text, terms) {
	const low = text.toLowerCase();
	const places = terms.map((term) => low.indexOf(term)).filter((at) => at >= 0);
	const at = Math.max(0, Math.min(...places, text.length) - 50);
	return (at ? "\u2026" : "") + text.slice(at, at + 130).trim() + "\u2026";
}

function show(results) {
	found.replaceChildren();
	for (const result of results.slice(0, 12)) {
		const part = PARTS[result.id];
		const link = document.createElement("a");
		link.href = root + part.page + part.anchor;
		const small = document.createElement("span");
		small.textContent = (part.heading === part.title ? "" : part.title + ": ") +
			excerpt(part.text, result.terms);
		link.append(part.heading, small);
		const item = document.createElement("li");
		item.append(link);
		found.append(item);
	}
	if (!results.length) {
		const nothing = document.createElement("p");
		nothing.textContent = "nothing found";
		found.append(nothing);
	}
	found.hidden = false;
}

async function search() {
	const words = query.value.trim();
	if (!words) {
		found.hidden = true;
		return;
	}
	await prepare();
	show(index.search(words));
}

query.addEventListener("focus", prepare);
query.addEventListener("input", search);
document.getElementById("search").onsubmit = (event) => {
	event.preventDefault();
	found.querySelector("a")?.click();
};
document.addEventListener("keydown", (event) => {
	const typing = /^(INPUT|TEXTAREA)$/.test(event.target.tagName);
	if (event.key === "/" && !typing) {
		event.preventDefault();
		query.focus();
	} else if (event.key === "Escape") {
		found.hidden = true;
		query.blur();
	} else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
		const links = [...found.querySelectorAll("a")];
		if (found.hidden || !links.length)
			return;
		event.preventDefault();
		const at = links.indexOf(document.activeElement);
		const to = at + (event.key === "ArrowDown" ? 1 : -1);
		(links[to] || query).focus();
	} else if (!typing && (event.key === "ArrowLeft" || event.key === "ArrowRight") &&
		   !event.altKey && !event.ctrlKey && !event.metaKey) {
		document.querySelector(event.key === "ArrowLeft" ? "[rel=prev]" : "[rel=next]")?.click();
	}
});
document.addEventListener("click", (event) => {
	if (!event.target.closest("#search"))
		found.hidden = true;
});

/* ---- lines of a source ---------------------------------------------------- */

/* #L10-L20: these lines are marked. */
function mark() {
	document.querySelectorAll("pre.source .on").forEach((line) => line.classList.remove("on"));
	const range = /^#L(\d+)(?:-L(\d+))?$/.exec(location.hash);
	if (!range || !document.querySelector("pre.source"))
		return;
	const first = Number(range[1]), last = Number(range[2] || range[1]);
	for (let i = first; i <= last; i++)
		document.getElementById("L" + i)?.nextSibling.classList.add("on");
	document.getElementById("L" + first)?.scrollIntoView({ block: last - first > 20 ? "start" : "center" });
}

window.addEventListener("hashchange", mark);
mark();
