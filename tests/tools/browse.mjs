// SPDX-License-Identifier: MIT
//
// Looks at the pages in a real browser, without network:
//
//	browse.mjs page FILE.html...	pages that step through a run
//	browse.mjs book FOLDER		the site of make book
//
// One complaint a line; status 1 if there was any.

import fs from "node:fs";
import path from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL, fileURLToPath } from "node:url";

const require = createRequire(new URL("../../tools/book/package.json", import.meta.url));
const { chromium } = require("playwright-core");

const [kind, ...files] = process.argv.slice(2);
let complaints = 0;

function complain(...words) {
	console.log(...words);
	complaints++;
}

function same(found, wanted, what) {
	if (JSON.stringify(found) !== JSON.stringify(wanted))
		complain(`${what}: ${JSON.stringify(found)}, should be ${JSON.stringify(wanted)}`);
}

const browser = await chromium.launch({
	executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
	args: ["--no-sandbox", "--allow-file-access-from-files"] });

// open(FILE, OPTIONS): a page that complains by itself
async function open(file, options = {}) {
	const context = await browser.newContext({ viewport: { width: 1366, height: 860 }, offline: true,
						   reducedMotion: "reduce", ...options });
	const page = await context.newPage();
	const name = path.basename(path.dirname(file)) + "/" + path.basename(file);
	page.on("pageerror", (error) => complain(`${name}: ${error.message}`));
	page.on("console", (message) => {
		if (message.type() === "error")
			complain(`${name}: console: ${message.text()}`);
	});
	page.on("request", (request) => {
		if (!/^(file|data|blob):/.test(request.url()))
			complain(`${name} asks the network for ${request.url()}`);
	});
	await page.goto(pathToFileURL(file).href);
	return page;
}

async function close(page) {
	await page.context().close();
}

// Nothing is wider than the window.
async function fits(page, name) {
	const over = await page.evaluate(() =>
		document.documentElement.scrollWidth - document.documentElement.clientWidth);
	if (over > 0)
		complain(`${name}: ${over} pixels wider than the window`);
}

// ---- a page that steps through a run ----------------------------------------

// Runs in the page: forward and back, and what is wrong on the way. Every step is
// looked at, and about thirty of them are drawn.
function walk() {
	const bad = [], seen = [], linesOf = {};
	const apart = Math.ceil(steps.length / 30);
	const picture = () => document.getElementById("client").innerHTML +
		document.getElementById("server").innerHTML;
	for (let k = 0; k < steps.length; k++) {
		const e = steps[k].e;
		if (!meaningOf(e) && !/query|get_device|_gid/.test(e.call))
			bad.push(`nothing is said of ${e.call || e.name}`);
		if (e.source) {
			// The innermost line is the call, or begins it.
			const [, file, line] = /^(.*):(\d+)$/.exec(e.source[0]);
			const text = (linesOf[file] ||= (texts[file] || "").split("\n"))
				.slice(line - 1, Number(line) + 2).join("\n");
			if (!text.includes(e.call.replace(/^_|_(iova2|iova|ex)$/g, "")))
				bad.push(`${e.call} stands at ${e.source[0]}, and there is: ${text.split("\n")[0]}`);
		}
		if (k % apart && k !== steps.length - 1)
			continue;
		go(k);
		if (k % (5 * apart) === 0)
			seen.push([k, picture()]);
		if (document.body.dataset.step !== String(k + 1))
			bad.push(`step ${k + 1} is not shown`);
		if (e.source && !document.querySelector("#source .line.on"))
			bad.push(`${e.call}: its line is not marked`);
	}
	const left = [];
	for (const m of [world.client, world.server])
		for (const { label } of m.objects.values())
			left.push(`${m.name}: ${label}`);
	for (const [k, was] of seen.reverse()) {
		go(k);
		if (picture() !== was && world.k === k)
			bad.push(`step ${k + 1} looks different on the way back`);
	}
	return { bad: [...new Set(bad)], left, count: steps.length,
		 wire: steps.filter(({ e }) => e.side === "wire").length };
}

async function checkRun(file) {
	const name = path.basename(file);
	const page = await open(file);
	const found = await page.evaluate(walk);
	found.bad.slice(0, 10).forEach((each) => complain(`${name}: ${each}`));
	same(found.left, [], `${name}: left at the end`);
	if (found.count < 10)
		complain(`${name}: only ${found.count} steps`);
	await close(page);
	return found;
}

// Keyboard, mouse, light and dark, a phone: of one page.
async function checkHands(file) {
	const name = path.basename(file);
	const page = await open(file, { colorScheme: "dark" });
	const step = () => page.evaluate(() => Number(document.body.dataset.step));
	const count = await page.evaluate(() => steps.length);
	const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

	same(await step(), 1, "the first step");
	await page.keyboard.press("ArrowRight");
	await page.keyboard.press("ArrowRight");
	same(await step(), 3, "two to the right");
	await page.keyboard.press("ArrowLeft");
	same(await step(), 2, "one back");
	await page.keyboard.press("End");
	same(await step(), count, "End");
	same(await page.isDisabled("#next"), true, "the button at the end");
	await page.keyboard.press("Home");
	same(await step(), 1, "Home");
	await page.keyboard.press("PageDown");
	same(await page.getAttribute("#wire", "class"), "active", "the first packet");
	await page.click("#next");
	await page.click("#back");
	await page.click("#steps .row:nth-child(5)");
	same(await step(), 5, "a row of the list");
	await page.fill("#slider", "7");
	same(await step(), 8, "the slider");
	await page.waitForFunction(() => location.hash === "#8");
	const dark = await background();
	await page.click("#theme");
	if (await background() === dark)
		complain(`${name}: light and dark are the same`);
	same(await page.evaluate(() => [...document.querySelectorAll("button, input")]
		.filter((each) => !each.textContent.trim() && !each.getAttribute("aria-label")).length),
		0, "controls without a name");
	await fits(page, name);
	await close(page);

	const phone = await open(file, { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });
	for (const hash of ["#1", `#${Math.round(count / 2)}`, `#${count}`]) {
		await phone.evaluate((to) => {
			location.hash = to;
		}, hash);
		await fits(phone, `${name}${hash} on a phone`);
	}
	await phone.evaluate(() => go(0));
	await phone.tap("#next");
	same(await phone.evaluate(() => document.body.dataset.step), "2", "a tap");
	await close(phone);
}

// The run of lesson 08: the bytes arrive in the server's memory, queues fill and
// drain, the QP goes through its states.
async function checkDoorbell(file) {
	const page = await open(file);
	const found = await page.evaluate(() => {
		const text = (id) => document.getElementById(id).textContent;
		const write = steps.findIndex(({ e }) => e.side === "wire" && /^RDMA WRITE/.test(e.name));
		const states = [], most = { send: 0, cq: 0 };
		// How full the CQ gets is a matter of time: packets and polls tell.
		let came = 0, taken = 0, fullest = 0;
		for (let k = 0; k < steps.length; k++) {
			world.go(k);
			const [qp] = world.client.qps.values(), [cq] = world.client.cqs.values();
			if (qp && states.at(-1) !== qp.state)
				states.push(qp.state);
			most.send = Math.max(most.send, qp?.send.length || 0);
			most.cq = Math.max(most.cq, cq?.entries.length || 0);
			const { e } = steps[k];
			if (e.kind === "ack" && e.from === "server")
				came = e.psn - steps[write].e.psn + 1;
			if (e.side === "client" && e.wcs)
				taken += e.wcs.length;
			fullest = Math.max(fullest, came - taken);
		}
		const last = steps.findLast(({ e }) => e.wcs?.length && e.side === "client").k;
		world.go(last);
		const empty = [...world.client.qps.values()].map((qp) => qp.send.length);
		go(write - 1);
		const before = text("server");
		go(write);
		return { states, most, fullest, empty, before: before.includes("Hello"),
			 after: text("server").includes("Hello"),
			 hit: text("server").includes("the card wrote here"),
			 fresh: document.querySelectorAll("#server .hex .new").length,
			 line: document.querySelector("#source .line.on")?.textContent };
	});
	same(found.states, ["INIT", "RTS", "ERR"], "states of the client's QP at the steps");
	same(found.most, { send: 2, cq: found.fullest }, "the fullest queues");
	same(found.empty, [0], "the send queue after the last completion");
	same([found.before, found.after, found.hit, found.fresh], [false, true, true, 29],
		"the bytes of the WRITE");
	await close(page);
}

// follow(PAGE, SELECTOR): where the first such link leads
async function follow(page, selector) {
	const link = page.locator(selector).first();
	const href = await link.evaluate((each) => each.href);
	await Promise.all([page.waitForURL(href), link.click()]);
}

// ---- the book ---------------------------------------------------------------

function* walkFolder(folder) {
	for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
		const file = path.join(folder, entry.name);
		if (entry.isDirectory())
			yield* walkFolder(file);
		else
			yield file;
	}
}

const unescape = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">")
	.replace(/&quot;/g, '"').replace(/&amp;/g, "&");

// Every link and every anchor, without the browser.
function checkLinks(folder) {
	const anchors = new Map();
	const html = [...walkFolder(folder)].filter((file) => file.endsWith(".html"));
	const anchorsOf = (file) => {
		if (!anchors.has(file))
			anchors.set(file, new Set([...fs.readFileSync(file, "utf8").matchAll(/\sid="([^"]*)"/g)]
				.map(([, id]) => id)));
		return anchors.get(file);
	};
	let count = 0;
	for (const file of html.filter((each) => path.basename(each) !== "run.html")) {
		const name = path.relative(folder, file);
		for (const [, link] of fs.readFileSync(file, "utf8").matchAll(/\s(?:href|src)="([^"]*)"/g)) {
			if (/^(https?|data|mailto):/.test(link))
				continue;
			count++;
			const url = new URL(unescape(link), pathToFileURL(file));
			const target = fileURLToPath(new URL(url.pathname, "file:///"));
			if (!fs.existsSync(target) || fs.statSync(target).isDirectory()) {
				complain(`${name}: ${link} leads nowhere`);
				continue;
			}
			// L10-L20: the script marks the lines.
			const id = decodeURIComponent(url.hash.slice(1)).replace(/^(L\d+)-L\d+$/, "$1");
			if (id && target.endsWith(".html") && !anchorsOf(target).has(id))
				complain(`${name}: ${link}: no such place`);
		}
	}
	return { pages: html.length, links: count };
}

async function checkBook(folder) {
	const counts = checkLinks(folder);
	if (counts.pages < 20 || counts.links < 500)
		complain(`only ${counts.pages} pages with ${counts.links} links`);

	const page = await open(path.join(folder, "index.html"));
	// From page to page by "next", until there is none: each is drawn.
	const visited = [];
	let diagrams = 0;
	for (;;) {
		visited.push(path.relative(folder, fileURLToPath(page.url().replace(/[?#].*/, ""))));
		// A diagram that cannot be drawn is an error of the page.
		const here = await page.locator("pre.mermaid").count();
		diagrams += here;
		if (here)
			await page.waitForFunction((n) =>
				document.querySelectorAll("pre.mermaid svg").length === n, here, { timeout: 20000 })
				.catch(() => complain(`${visited.at(-1)}: a diagram is not drawn`));
		await fits(page, visited.at(-1));
		if (await page.locator("[rel=next]").count() === 0)
			break;
		await follow(page, "[rel=next]");
	}
	const listed = await page.evaluate(() => document.querySelectorAll("#contents a").length);
	same(visited.length, listed, "pages on the way by next");
	if (!diagrams)
		complain("no diagram on any page");
	await follow(page, "[rel=prev]");
	same(path.relative(folder, fileURLToPath(page.url())), visited.at(-2), "previous");

	// Search, by keyboard.
	await page.keyboard.press("/");
	await page.keyboard.type("doorbell");
	await page.waitForSelector('#found a[href*="08-write-doorbell"]');
	const first = await page.locator("#found a").first().evaluate((each) => each.href);
	await page.keyboard.press("Enter");
	await page.waitForURL(first);
	await page.click("#query");
	await page.keyboard.type("zzyzx");
	await page.waitForSelector("#found p");

	// A link into a source marks its lines.
	await page.goto(pathToFileURL(path.join(folder, "lessons/08-write-doorbell/index.html")).href);
	await follow(page, 'article a[href*="server.c.html#L"]');
	await page.waitForSelector("pre.source .on");

	// And the page that steps through the run, and back.
	await page.goto(pathToFileURL(path.join(folder, "lessons/08-write-doorbell/index.html")).href);
	if (await page.locator("a.run").count()) {
		await page.click("a.run");
		await page.waitForSelector("#steps .row.on");
		await follow(page, "#home");
		await page.waitForSelector("a.run");
	}
	await close(page);

	const phone = await open(path.join(folder, "lessons/08-write-doorbell/index.html"),
		{ viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true, colorScheme: "dark" });
	await fits(phone, "lesson 08 on a phone");
	await phone.tap("#menu");
	await phone.tap('#contents a[href*="07-write-send/index.html"]');
	await phone.waitForURL(/07-write-send/);
	await close(phone);
	console.error(`${counts.pages} pages, ${counts.links} links, ${diagrams} diagrams`);
}

// -----------------------------------------------------------------------------

if (kind === "page") {
	for (const file of files) {
		const found = await checkRun(path.resolve(file));
		console.error(`${path.basename(file)}: ${found.count} steps, ${found.wire} packets`);
	}
	const doorbell = files.find((file) => path.basename(file).startsWith("08-"));
	if (doorbell) {
		await checkHands(path.resolve(doorbell));
		await checkDoorbell(path.resolve(doorbell));
	}
} else if (kind === "book") {
	await checkBook(path.resolve(files[0]));
} else {
	console.error("usage: browse.mjs page FILE.html... | book FOLDER");
	process.exit(2);
}
await browser.close();
process.exit(complaints ? 1 : 0);
