// SPDX-License-Identifier: MIT
//
// The course as a static site: the same Markdown files, in the order of the
// course, with the sources that they link to and a page to step through each
// lesson's run. It opens from the disk: nothing is fetched from anywhere.

import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import Prism from "prismjs";
import loadLanguages from "prismjs/components/index.js";

const require = createRequire(import.meta.url);
const top = path.resolve(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname), "../..");
const runs = process.env.BOOK_RUNS || path.join(top, "build/runs");
loadLanguages(["c", "bash", "makefile", "diff", "awk", "json"]);

const exists = (file) => fs.existsSync(path.join(top, file));
const read = (file) => fs.readFileSync(path.join(top, file), "utf8");
const folders = (parent) => fs.readdirSync(path.join(top, parent))
	.filter((name) => /^\d\d-/.test(name) && exists(`${parent}/${name}/README.md`)).sort();

// ---- the pages, in order ----------------------------------------------------

function titleOf(text) {
	return (/^# (.*)$/m.exec(text)?.[1] || "").replace(/`/g, "");
}

function outputOf(source) {
	return source.replace(/(^|\/)README\.md$/, "$1index.html").replace(/\.md$/, ".html");
}

function findPages() {
	const pages = [];
	const add = (group, source, more = {}) => {
		if (!exists(source))
			return;
		const text = read(source);
		pages.push({ group, source, text, title: titleOf(text), output: outputOf(source), ...more });
	};
	const first = ["docs/concepts.md", "docs/verbs-and-sockets.md"];

	add("Start", "README.md", { title: "RDMA in C, step by step" });
	first.forEach((file) => add("Start", file));
	add("Start", "exercises/README.md");
	const exercises = folders("exercises");
	for (const name of folders("lessons")) {
		const number = name.slice(0, 2);
		const run = fs.existsSync(path.join(runs, `${name}.html`));
		add("Lessons", `lessons/${name}/README.md`, { number, run: run ? "run.html" : "" });
		for (const exercise of exercises.filter((each) => each.startsWith(number)))
			add("Lessons", `exercises/${exercise}/README.md`, { exercise: true });
	}
	for (const file of fs.readdirSync(path.join(top, "docs")).sort())
		if (file.endsWith(".md") && !first.includes(`docs/${file}`))
			add("To look up", `docs/${file}`);
	for (const folder of ["common", "tools", "solutions", "tests"])
		add("The house", `${folder}/README.md`);
	return pages;
}

const pages = findPages();
const pageOf = new Map(pages.map((page) => [page.source, page]));
const nameOf = (page) => page && { title: page.title, output: page.output };
pages.forEach((page, i) => {
	page.previous = nameOf(pages[i - 1]);
	page.next = nameOf(pages[i + 1]);
});

// ---- links ------------------------------------------------------------------

const sources = new Set();	// files that are shown as they are
const pictures = new Set();
const missing = new Set();	// links that lead nowhere
const listings = new Set();	// folders without a page of their own

function relative(from, to) {
	return path.posix.relative(path.posix.dirname(from), to) || path.posix.basename(to);
}

// Where a link of SOURCE leads in the site.
function resolve(source, href) {
	const [, file, anchor] = /^([^#]*)(#.*)?$/.exec(href);
	if (/^[a-z]+:/i.test(href) || !file)
		return href;
	let target = path.posix.join(path.posix.dirname(source), decodeURI(file)).replace(/\/$/, "");
	if (target.startsWith("..") || !exists(target)) {
		missing.add(`${source}: ${href} leads nowhere`);
		return href;
	}
	const from = outputOf(source), tail = anchor || "";
	if (fs.statSync(path.join(top, target)).isDirectory()) {
		if (pageOf.has(`${target === "." ? "" : target + "/"}README.md`))
			target = path.posix.join(target, "README.md");
		else {
			listings.add(target);
			return relative(from, `${target}/index.html`) + tail;
		}
	}
	if (pageOf.has(target))
		return relative(from, outputOf(target)) + tail;
	if (/\.(svg|png)$/.test(target)) {
		pictures.add(target);
		return relative(from, target);
	}
	sources.add(target);
	// L10-L20 is where the repository is browsed; a page has one anchor a line.
	return relative(from, `${target}.html`) + tail;
}

// GitHub's way to make an anchor of a heading.
function slug(text) {
	return text.trim().toLowerCase().replace(/[^\p{L}\p{N}\p{M} _-]/gu, "").replace(/ /g, "-");
}

function plain(inline) {
	return (inline.children || []).map((token) => token.type === "softbreak" ? " " :
		token.content || "").join("");
}

const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function colour(text, language) {
	const name = { sh: "bash", shell: "bash", console: "bash" }[language] || language;
	const grammar = Prism.languages[name];
	return grammar && language !== "console" ? Prism.highlight(text, grammar, name) : escape(text);
}

// The text of each heading's part, for the search.
const parts = [];

function markdown(md) {
	md.core.ruler.push("course", (state) => {
		const source = state.env.source;
		const used = new Map();
		let part = null;

		state.tokens.forEach((token, i) => {
			if (token.type === "heading_open") {
				const text = plain(state.tokens[i + 1]);
				let id = slug(text);
				const count = used.get(id) || 0;
				used.set(id, count + 1);
				if (count)
					id += `-${count}`;
				token.attrSet("id", id);
				part = { page: state.env.output, title: state.env.title,
					 heading: text, anchor: token.tag === "h1" ? "" : `#${id}`, text: "" };
				if (source)
					parts.push(part);
			} else if (token.type === "inline") {
				if (part && state.tokens[i - 1].type !== "heading_open")
					part.text += " " + plain(token);
				for (const child of token.children) {
					if (child.type === "link_open")
						child.attrSet("href", resolve(source, child.attrGet("href")));
					else if (child.type === "image")
						child.attrSet("src", resolve(source, child.attrGet("src")));
				}
			} else if (token.type === "fence" && part && token.info !== "mermaid") {
				part.text += " " + token.content;
			}
		});
	});
	md.renderer.rules.fence = (tokens, i) => {
		const { info, content } = tokens[i];
		if (info === "mermaid")
			return `<pre class="mermaid">${escape(content)}</pre>\n`;
		return `<pre class="${info || "text"}"><code>${colour(content, info)}</code></pre>\n`;
	};
	// A table that is wider than the page scrolls by itself.
	md.renderer.rules.table_open = () => `<div class="table"><table>\n`;
	md.renderer.rules.table_close = () => `</table></div>\n`;
}

// ---- pages that are no Markdown ---------------------------------------------

const LANGUAGES = { c: "c", h: "c", awk: "awk", bash: "bash", bats: "bash", json: "json",
		    mk: "makefile", patch: "diff" };

function languageOf(file, text) {
	const name = path.basename(file);
	if (name === "Makefile")
		return "makefile";
	return LANGUAGES[name.split(".")[1]] || (/^#!.*sh/.test(text) ? "bash" : "");
}

function sourcePage(file) {
	const text = read(file).replace(/\n$/, "");
	// A comment or a string over several lines is closed and opened at each.
	const open = [];
	const lines = colour(text, languageOf(file, text)).split("\n").map((line) => {
		const before = open.join("");
		for (const [tag] of line.matchAll(/<span[^>]*>|<\/span>/g))
			if (tag === "</span>")
				open.pop();
			else
				open.push(tag);
		return before + line + "</span>".repeat(open.length);
	});
	return `<h1 class="file">${escape(file)}</h1>\n<pre class="source">` +
		lines.map((line, i) => `<a class="no" id="L${i + 1}" href="#L${i + 1}">${i + 1}</a>` +
			`<span class="line">${line || " "}</span>`).join("\n") + "</pre>";
}

function listingPage(folder) {
	const files = fs.readdirSync(path.join(top, folder), { withFileTypes: true })
		.filter((each) => each.isFile() && !/\.(o|jsonl)$/.test(each.name)).map((each) => each.name);
	return `<h1>${escape(folder)}/</h1><ul>` + files.map((name) => {
		const file = `${folder}/${name}`;
		const text = sources.has(file) ? `<a href="${name}.html">${escape(name)}</a>` : escape(name);
		return `<li>${text}</li>`;
	}).join("") + "</ul>";
}

// ---- the site ---------------------------------------------------------------

export default function (config) {
	config.addGlobalData("contents", pages.map(({ group, title, output, exercise }) =>
		({ group, title, output, exercise })));
	config.addFilter("from", (to, here) => relative(here, to));
	config.amendLibrary("md", markdown);

	// The Markdown's links say which sources have a page; so they are read first.
	for (const page of pages)
		for (const [, href] of page.text.matchAll(/\]\(([^)\s]+)\)/g))
			resolve(page.source, href);
	// In a block of code it need not be a link, so this is asked once more later.
	missing.clear();
	const add = (source, output, content, data) => config.addTemplate(
		`virtual/${source}`, content,
		{ layout: "page.njk", permalink: output, output, ...data });
	for (const page of pages)
		add(page.source, page.output, page.text, {
			source: page.source, title: page.title,
			run: page.run, turn: { previous: page.previous, next: page.next } });
	for (const file of sources)
		add(`${file}.source.html`, `${file}.html`, sourcePage(file), { title: file, wide: true });
	for (const folder of listings)
		add(`${folder}/listing.html`, `${folder}/index.html`, listingPage(folder), { title: folder });

	for (const file of pictures)
		config.addPassthroughCopy({ [path.join(top, file)]: file });
	for (const page of pages)
		if (page.run)
			config.addPassthroughCopy({
				[path.join(runs, `${path.basename(path.dirname(page.source))}.html`)]:
					path.join(path.dirname(page.source), "run.html") });
	config.addPassthroughCopy({ "assets/book.css": "assets/book.css", "assets/book.js": "assets/book.js" });
	config.addPassthroughCopy({
		[require.resolve("@mermaid-js/tiny")]: "assets/mermaid.js",
		"node_modules/minisearch/dist/umd/index.js": "assets/minisearch.js" });
	config.on("eleventy.after", ({ dir }) => {
		for (const each of missing)
			console.error(`book: ${each}`);
		fs.writeFileSync(path.join(dir.output, "assets/parts.js"),
			"var PARTS = " + JSON.stringify(parts) + ";\n");
	});
	config.setUseGitIgnore(false);
	return {
		dir: { input: "pages", output: process.env.BOOK_OUT || "../../build/book" },
		markdownTemplateEngine: false,
		htmlTemplateEngine: false,
	};
}
