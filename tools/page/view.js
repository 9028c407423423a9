/* SPDX-License-Identifier: MIT */
/*
 * The page: what the model says, drawn, and the ways to step.
 */
"use strict";

const $ = (id) => document.getElementById(id);

/* make("div.name", text or children...) */
function make(what, ...children) {
	const [tag, ...classes] = what.split(".");
	const element = document.createElement(tag);
	element.className = classes.join(" ");
	element.append(...children.filter((child) => child !== null && child !== undefined));
	return element;
}

const lines = JSON.parse($("timeline").textContent);
const texts = JSON.parse($("sources").textContent);
const head = lines[0];
const steps = makeSteps(lines.slice(1));
markRefused(steps);
const world = new World(steps);
let current = -1, frame = null, playing = null;

const spaced = (text) => (text || "").replaceAll("_", " ");
const bytes = (n) => n === 1 ? "1 byte" : n + " bytes";
const milliseconds = (ns) => (ns / 1e6).toFixed(3) + " ms";

/* ---- the list of steps ---------------------------------------------------- */

function title(e) {
	if (e.side === "wire")
		return (e.kind === "CM" ? "CM " : "") + e.name + (e.again ? " (again)" : "");
	return e.call.replace(/^_/, "");
}

/* What of the words is not the name of the call. */
function rest(e) {
	const words = e.words || "";
	if (e.side === "wire")
		return e.length ? bytes(e.length) : "";
	return words.startsWith(e.call) ? words.slice(e.call.length).replace(/^: /, "") : words;
}

function makeList() {
	const list = $("steps");
	for (const { e, k } of steps) {
		const row = make("button.row." + e.side + (e.error || e.t1 === null ? ".bad" : ""));
		row.dataset.k = k;
		const lane = make("span.lane");
		lane.textContent = e.side === "wire" ? (e.from === "client" ? "\u2192" : "\u2190") : "";
		if (e.side === "wire" && /NAK|Reject/.test(e.name))
			row.classList.add("bad");
		row.append(lane, make("span.name", title(e)), make("span.rest", rest(e)));
		row.title = milliseconds(e.time) + "  " + e.side + ": " + e.words;
		list.append(row);
	}
	list.classList.toggle("many", steps.length > 1000);
	list.addEventListener("click", (event) => {
		const row = event.target.closest(".row");
		if (row)
			go(Number(row.dataset.k));
	});
}

/* ---- a machine ------------------------------------------------------------ */

const STATES = ["RESET", "INIT", "RTR", "RTS", "ERR"];
const STATE_MEANING = {
	RESET: "new: nothing can be posted",
	INIT: "receives may be posted",
	RTR: "ready to receive",
	RTS: "ready to send",
	ERR: "in error: what is posted is flushed",
};
const REQUEST_STATE = {
	posted: "waits in the queue",
	sent: "is on its way",
	acked: "was acknowledged",
	refused: "was refused",
	flushed: "was flushed",
	filling: "is being filled",
	full: "has a message",
};
const SHORT = { RDMA_WRITE: "WRITE", RDMA_WRITE_WITH_IMM: "WRITE IMM", RDMA_READ: "READ",
		SEND_WITH_IMM: "SEND IMM", ATOMIC_FETCH_AND_ADD: "FETCH ADD",
		ATOMIC_CMP_AND_SWP: "CMP SWAP", RECV_RDMA_WITH_IMM: "RECV IMM" };
const MOST = 6;

function item(entry, label, note) {
	const box = make("span.item." + entry.state, make("b", label), note ? make("i", note) : null);
	box.title = "wr_id " + entry.id + ": " + spaced(entry.opcode) + " of " +
		bytes(entry.length) + " " + (REQUEST_STATE[entry.state] || "");
	return box;
}

function queue(name, hint, entries, size, draw) {
	const box = make("div.queue");
	const row = make("div.items");
	for (const entry of entries.slice(0, MOST))
		row.append(draw(entry));
	if (entries.length > MOST)
		row.append(make("span.more", "+" + (entries.length - MOST)));
	for (let i = entries.length; i < Math.min(size || 3, 3); i++)
		row.append(make("span.slot"));
	const label = make("div.label", make("b", name),
		make("span", entries.length + (size ? " of " + size : "")));
	label.title = hint;
	box.append(label, row);
	if (entries.length)
		box.classList.add("busy");
	return box;
}

function isTouched(m, qp, e) {
	if (e.side === "wire")
		return e.to === m.name && e.qp === qp.num;
	return e.side === m.name && (e.qp === qp.key || e.qp_num === qp.num ||
		(e.wcs || []).some((wc) => wc.qp_num === qp.num));
}

/* The first of them, and the one that this step is about. */
function some(list, most, about) {
	const shown = list.slice(0, most);
	const at = list.findIndex(about);
	if (at >= most)
		shown[most - 1] = list[at];
	return shown;
}

function drawQp(m, qp, e) {
	const box = make("div.qp");
	const at = STATES.indexOf(qp.state);
	const track = make("div.states");
	STATES.forEach((state, i) => {
		const pill = make("span.state" + (i === at ? ".on" : "") +
			(state === "ERR" ? ".err" : ""), state);
		pill.title = STATE_MEANING[state];
		track.append(pill);
	});
	if (at < 0)
		track.append(make("span.state.on", qp.state));
	box.append(make("div.head", make("b", "QP " + qp.num),
		qp.peer !== null ? make("span.dim", "\u2194 QP " + qp.peer) : null, track));
	const request = (wr) => item(wr, wr.opcode === "RECV" ? bytes(wr.length) :
		(SHORT[wr.opcode] || wr.opcode), wr.opcode === "RECV" ?
		(wr.state === "posted" ? "" : wr.state) : wr.length + " B");
	box.append(queue("send queue", "work requests that the card has not finished, or whose completion nobody took",
		qp.send, qp.maxSend, request));
	if (!qp.srq)
		box.append(queue("receive queue", "buffers that wait for a message",
			qp.receive, qp.maxRecv, request));
	if (isTouched(m, qp, e))
		box.classList.add("touched");
	return box;
}

function drawCq(cq, e) {
	const box = queue("completion queue", "completions that the program has not taken yet",
		cq.entries, cq.size, (entry) => item(entry, SHORT[entry.opcode] || entry.opcode || "?",
			entry.state === "flushed" ? "flushed" : entry.state === "refused" ? "error" :
			entry.kind === "receive" ? entry.length + " B" : "done"));
	box.classList.add("cq");
	if (cq.armed)
		box.firstChild.append(make("em", "armed"));
	if (cq.events)
		box.firstChild.append(make("em.rung", "event"));
	if (e.cq === cq.key)
		box.classList.add("touched");
	return box;
}

/* The known bytes of a region, in rows; a gap where nothing is known. */
function memoryRows(m, mr) {
	const rows = new Map();
	for (const [address, cell] of m.memory) {
		if (address < mr.addr || address >= mr.addr + mr.length)
			continue;
		const offset = address - mr.addr;
		const row = offset - offset % 8;
		if (!rows.has(row))
			rows.set(row, []);
		rows.get(row)[offset % 8] = cell;
	}
	return [...rows.entries()].sort((a, b) => a[0] - b[0]);
}

function drawMemory(m, mr, e) {
	const box = make("div.mr");
	const access = mr.access.filter((right) => right !== "LOCAL_WRITE").map(spaced);
	const headline = make("div.head", make("b", "MR"), make("span", bytes(mr.length)),
		make("code", "0x" + mr.addr.toString(16)));
	const remote = access.length > 0;
	if (remote)
		headline.append(make("code.key", "rkey " + mr.rkey), make("span.dim", access.join(", ")));
	else
		headline.append(make("span.dim", mr.access.length ? "local only" : "local, read only"));
	box.append(headline);
	const rows = memoryRows(m, mr);
	const fresh = rows.findIndex(([, cells]) => cells.some((cell) => cell && cell[1] === world.k));
	let from = Math.max(0, Math.min(fresh < 0 ? 0 : fresh, rows.length - 8));
	const dump = make("div.dump");
	if (from > 0)
		dump.append(make("div.dim", "\u2026"));
	for (const [offset, cells] of rows.slice(from, from + 8)) {
		const hex = make("span.hex"), text = make("span.text");
		for (let i = 0; i < 8 && offset + i < mr.length; i++) {
			const cell = cells[i];
			const name = !cell ? "span.none" : cell[1] === world.k ? "span.new" : "span";
			const printable = cell && cell[0] >= 32 && cell[0] < 127;
			hex.append(make(name, cell ? cell[0].toString(16).padStart(2, "0") : "\u00b7\u00b7"));
			text.append(make(name, !cell ? " " : printable ? String.fromCharCode(cell[0]) : "."));
		}
		dump.append(make("div", make("span.at", "+" + offset), hex, text));
	}
	if (rows.length > from + 8)
		dump.append(make("div.dim", "\u2026"));
	if (rows.length)
		box.append(dump);
	if (fresh >= 0) {
		box.classList.add("touched");
		if (e.side === "wire" && e.to === m.name && /WRITE/.test(e.name))
			box.append(make("div.hit", "the card wrote here; no call of the " +
				m.name + " took part"));
	}
	return box;
}

function drawMachine(m, e) {
	const box = $(m.name);
	const counts = new Map();
	for (const { label } of m.objects.values())
		counts.set(label, (counts.get(label) || 0) + 1);
	const chips = make("div.chips");
	for (const [label, count] of counts)
		chips.append(make("span.chip", label + (count > 1 ? " \u00d7" + count : "")));
	if (!counts.size)
		chips.append(make("span.dim", "no objects"));
	if (m.connection)
		chips.append(make("span.chip.event", m.connection));
	const heading = make("div.top", make("h3", m.name),
		make("span.dim", head[m.name]?.program?.replace(/.*\/(lessons|exercises|solutions)\//, "") || ""));
	const parts = [heading, chips];
	for (const qp of some([...m.qps.values()], 4, (each) => isTouched(m, each, e)))
		parts.push(drawQp(m, qp, e));
	if (m.qps.size > 4)
		parts.push(make("div.dim", "and " + (m.qps.size - 4) + " more queue pairs"));
	for (const srq of m.srqs.values())
		parts.push(queue("shared receive queue", "buffers for messages of any of these queue pairs",
			srq, 0, (wr) => item(wr, bytes(wr.length), "")));
	for (const cq of some([...m.cqs.values()], 4, (each) => each.key === e.cq))
		parts.push(drawCq(cq, e));
	const mrs = [...m.mrs.values()];
	for (const mr of some(mrs, 6, (each) => memoryRows(m, each).some(([, cells]) =>
		cells.some((cell) => cell && cell[1] === world.k))))
		parts.push(drawMemory(m, mr, e));
	if (mrs.length > 6)
		parts.push(make("div.dim", "and " + (mrs.length - 6) + " more memory regions"));
	const scroll = box.scrollTop;
	box.replaceChildren(...parts);
	box.classList.toggle("active", e.side === m.name);
	box.classList.toggle("front", e.side === m.name || (e.side === "wire" && e.to === m.name));
	box.scrollTop = scroll;
	const touched = box.querySelector(".mr.touched") || box.querySelector(".cq.touched") ||
		box.querySelector(".qp.touched");
	if (touched && box.scrollHeight > box.clientHeight)
		box.scrollTop = Math.max(0, touched.offsetTop + touched.offsetHeight - box.clientHeight + 8);
}

/* ---- the wire ------------------------------------------------------------- */

function packetKind(e) {
	if (/NAK|Reject/.test(e.name))
		return "no";
	return e.kind === "CM" ? "cm" : e.kind === "request" ? "request" : "answer";
}

function drawPacket(e, now) {
	const box = make("div.packet." + packetKind(e) + ".to-" + (e.to === "client" ? "client" : "server") +
		(now ? ".now" : ""));
	const facts = [];
	if (now) {
		if (e.psn !== undefined && e.kind !== "CM")
			facts.push("PSN " + e.psn);
		if (e.length)
			facts.push(bytes(e.length) + (e.total && e.total !== e.length ? " of " + e.total : ""));
		if (e.addr)
			facts.push((/WRITE/.test(e.name) ? "to " : "at ") + e.addr);
		if (e.rkey)
			facts.push("rkey " + e.rkey);
		if (e.imm)
			facts.push("immediate " + e.imm);
		if (e.also)
			facts.push(e.also);
	}
	const line = make("div.line");
	if (now)
		line.append(make("span.bead"));
	box.append(make("div.what", title(e)), line);
	if (facts.length)
		box.append(make("div.facts", ...facts.map((fact) => make("span", fact))));
	return box;
}

function drawWire(k) {
	const box = $("wire");
	const packets = [];
	for (let i = k; i >= 0 && packets.length < 7; i--)
		if (steps[i].e.side === "wire")
			packets.unshift(i);
	box.replaceChildren(make("div.top", make("h3", "wire")));
	if (!packets.length)
		box.append(make("p.dim", steps.some(({ e }) => e.side === "wire") ?
			"nothing has been sent yet" : "these programs send nothing"));
	for (const i of packets) {
		const packet = drawPacket(steps[i].e, i === k);
		packet.addEventListener("click", () => go(i));
		box.append(packet);
	}
	box.classList.toggle("active", steps[k].e.side === "wire");
	box.scrollTop = box.scrollHeight;
}

/* ---- the source ----------------------------------------------------------- */

const KEYWORDS = new Set(("auto break case char const continue default do double else enum extern " +
	"float for goto if inline int long return short signed sizeof static struct switch typedef " +
	"union unsigned void volatile while bool true false NULL uint8_t uint16_t uint32_t uint64_t " +
	"size_t ssize_t _Atomic").split(" "));

/* C in colours, a line at a time; comments may go over several. */
function colour(text) {
	const out = [];
	let inComment = false;
	for (const line of text.split("\n")) {
		const box = make("span.text");
		let left = line;
		while (left) {
			let found, name = "";
			if (inComment) {
				found = /^.*?\*\/|^.*/.exec(left)[0];
				inComment = !found.endsWith("*/");
				name = "c";
			} else if ((found = /^\/\*.*?\*\/|^\/\/.*|^\/\*.*/.exec(left)?.[0])) {
				inComment = found.startsWith("/*") && !found.endsWith("*/");
				name = "c";
			} else if ((found = /^"(\\.|[^"\\])*"|^'(\\.|[^'\\])*'/.exec(left)?.[0])) {
				name = "s";
			} else if ((found = /^[A-Za-z_]\w*/.exec(left)?.[0])) {
				name = KEYWORDS.has(found) ? "k" :
					/^(ibv|rdma)_/.test(found) ? "v" : "";
			} else if ((found = /^#\s*\w+/.exec(left)?.[0])) {
				name = "k";
			} else {
				found = /^[^A-Za-z_"'/#]+|^./.exec(left)[0];
			}
			box.append(name ? make("span." + name, found) : found);
			left = left.slice(found.length);
		}
		out.push(box);
	}
	return out;
}

const drawn = new Map();
function drawFile(name) {
	if (!drawn.has(name)) {
		const box = make("div.file");
		colour(texts[name]).forEach((text, i) => {
			const row = make("div.line", make("span.no", String(i + 1)), text);
			box.append(row);
		});
		drawn.set(name, box);
	}
	return drawn.get(name);
}

function drawSource(e, why) {
	const frames = (e?.source || []).map((place) => {
		const [, file, line] = /^(.*):(\d+)$/.exec(place);
		return { file, line: Number(line) };
	}).filter(({ file }) => texts[file] !== undefined);
	const tabs = [];
	const box = $("source");
	/* The lesson's own line says more than that of the helper which it calls. */
	if (frame === null)
		frame = Math.max(0, frames.findIndex(({ file }) => !file.startsWith("common/")));
	/* From main to the call itself. */
	frames.map((place, i) => ({ place, i })).reverse().forEach(({ place, i }) => {
		const tab = make("button.frame" + (i === frame ? ".on" : ""),
			place.file.replace(/.*\//, "") + ":" + place.line);
		tab.title = place.file;
		tab.setAttribute("role", "tab");
		tab.setAttribute("aria-selected", String(i === frame));
		tab.addEventListener("click", () => {
			frame = i;
			drawSource(e, why);
		});
		tabs.push(tab);
	});
	$("frames").replaceChildren(...(why ? [make("span.dim", why)] : []), ...tabs);
	$("frames").scrollLeft = $("frames").scrollWidth;
	box.querySelector(".line.on")?.classList.remove("on");
	if (!frames.length) {
		box.replaceChildren(make("p.dim", e ? "no source is known for this call" :
			"no call of the two programs made this packet"));
		return;
	}
	const { file, line } = frames[frame];
	const whole = drawFile(file);
	if (box.firstChild !== whole)
		box.replaceChildren(whole);
	const row = whole.children[line - 1];
	if (row) {
		row.classList.add("on");
		box.scrollTop = row.offsetTop - box.clientHeight / 2 + row.offsetHeight;
	}
}

/* ---- one step ------------------------------------------------------------- */

const HIDDEN = new Set(["n", "side", "time", "until", "after", "moved", "words", "source", "call",
	"thread", "at", "t0", "t1", "lib", "in", "packet", "name", "kind", "from", "to", "refused"]);

function value(key, v) {
	if (v === null)
		return "null";
	if (key === "private_data")
		return v.replace(/(00)+$/, "") || "zeros";
	if (Array.isArray(v))
		return v.map((each) => value("", each)).join("\n") || "none";
	if (typeof v === "object")
		return Object.entries(v).map(([name, each]) => name + " " + value(name, each)).join(", ");
	return String(v);
}

function drawFacts(step) {
	const { e } = step;
	const table = make("dl");
	for (const [key, v] of Object.entries(e)) {
		if (HIDDEN.has(key) || ((key === "error" || key === "bad") && v === null))
			continue;
		table.append(make("dt", key), make("dd", value(key, v)));
	}
	if (e.side !== "wire")
		table.append(make("dt", "took"), make("dd", e.t1 === null ? "it never returned" :
			((e.t1 - e.t0) / 1000).toFixed(1) + " \u00b5s" +
			(e.calls > 1 ? ", " + e.calls + " calls" : "")));
	const parts = [table];
	if (step.inner.length) {
		const list = make("ol");
		for (const inner of step.inner.slice(0, 40))
			list.append(make("li", inner.words));
		parts.push(make("p.dim", "inside, the library called"), list);
	}
	$("facts").replaceChildren(...parts);
}

function link(step) {
	const button = make("button.link." + step.e.side, title(step.e));
	button.title = "step " + (step.k + 1) + ", " + (step.e.side === "wire" ? "wire" : step.e.side);
	button.addEventListener("click", () => go(step.k));
	return button;
}

/* That packets of one side follow each other says little, beside a call. */
function telling(step, list) {
	const others = list.filter((each) => !(step.e.side === "wire" && each.e.side === "wire" &&
		each.e.from === step.e.from));
	return others.length ? others : list;
}

function drawNow(step) {
	const { e } = step;
	const where = e.side === "wire" ? "wire, " + e.from + " to " + e.to : e.side;
	$("where").replaceChildren(make("span.tag." + e.side, where),
		make("span.dim", milliseconds(e.time)),
		e.thread > 1 ? make("span.dim", "thread " + e.thread) : "");
	const rests = rest(e);
	$("words").replaceChildren(make("span", title(e)), " ", make("small", rests));
	$("words").classList.toggle("bad", !!e.error || /NAK|Reject/.test(e.name || ""));
	$("meaning").textContent = meaningOf(e);
	const parts = [];
	if (step.causes.length)
		parts.push("because of ", ...telling(step, step.causes).slice(-3).map(link));
	if (step.effects.length)
		parts.push(step.causes.length ? " \u2003leads to " : "leads to ", ...telling(step, step.effects).slice(0, 3).map(link));
	$("links").replaceChildren(...parts);
}

/* The call whose source stands beside a packet: the first cause that has one. */
function callBehind(step) {
	const seen = new Set();
	let list = [step];
	while (list.length) {
		const before = [];
		for (const each of list) {
			if (each.e.side !== "wire" && each.e.source)
				return each.e;
			for (const cause of [...each.causes].reverse())
				if (!seen.has(cause) && seen.size < 300) {
					seen.add(cause);
					before.push(cause);
				}
		}
		list = before;
	}
	return null;
}

let row = null, address = null;
function go(k) {
	k = Math.max(0, Math.min(steps.length - 1, k));
	if (k === current || !steps.length)
		return;
	frame = null;
	current = k;
	world.go(k);
	const step = steps[k], e = step.e;
	drawNow(step);
	drawMachine(world.client, e);
	drawMachine(world.server, e);
	drawWire(k);
	if (e.side === "wire") {
		const call = callBehind(step);
		drawSource(call, call ? "asked for by the " + call.side : "");
	} else {
		drawSource(e, "");
	}
	drawFacts(step);
	row?.classList.remove("on");
	row?.removeAttribute("aria-current");
	row = $("steps").children[k];
	row.classList.add("on");
	row.setAttribute("aria-current", "step");
	const list = $("steps");
	if (list.scrollHeight > list.clientHeight)
		list.scrollTop = row.offsetTop - list.offsetTop - list.clientHeight / 2;
	$("slider").value = k;
	$("count").textContent = "step " + (k + 1) + " of " + steps.length;
	$("first").disabled = $("back").disabled = k === 0;
	$("last").disabled = $("next").disabled = k === steps.length - 1;
	document.body.dataset.step = k + 1;
	/* Browsers do not like to be told another address many times a second. */
	clearTimeout(address);
	address = setTimeout(() => history.replaceState(null, "", "#" + (current + 1)), 150);
}

function play() {
	if (playing) {
		clearInterval(playing);
		playing = null;
	} else {
		if (current === steps.length - 1)
			go(0);
		playing = setInterval(() => {
			if (current === steps.length - 1)
				play();
			else
				go(current + 1);
		}, 1100);
	}
	$("play").textContent = playing ? "stop" : "play";
}

function stop() {
	if (playing)
		play();
}

const to = (k) => () => {
	stop();
	go(typeof k === "function" ? k() : k);
};

/* The next or previous step on the wire. */
function packetFrom(k, direction) {
	for (k += direction; k >= 0 && k < steps.length; k += direction)
		if (steps[k].e.side === "wire")
			return k;
	return current;
}

function listen() {
	const keys = {
		ArrowRight: to(() => current + 1), ArrowDown: to(() => current + 1),
		ArrowLeft: to(() => current - 1), ArrowUp: to(() => current - 1),
		Home: to(0), End: to(() => steps.length - 1), " ": play,
		PageDown: to(() => packetFrom(current, 1)), PageUp: to(() => packetFrom(current, -1)),
	};
	document.addEventListener("keydown", (event) => {
		const key = keys[event.key];
		if (!key || event.ctrlKey || event.altKey || event.metaKey)
			return;
		if (event.key === " " && event.target.tagName === "BUTTON")
			return;
		event.preventDefault();
		key();
	});
	$("first").onclick = to(0);
	$("back").onclick = keys.ArrowLeft;
	$("next").onclick = keys.ArrowRight;
	$("last").onclick = keys.End;
	$("play").onclick = play;
	$("slider").max = Math.max(0, steps.length - 1);
	$("slider").oninput = to(() => Number($("slider").value));
	window.addEventListener("hashchange", () => go((parseInt(location.hash.slice(1), 10) || 1) - 1));
	$("theme").onclick = () => {
		const root = document.documentElement;
		const dark = root.dataset.theme ? root.dataset.theme === "dark" :
			matchMedia("(prefers-color-scheme: dark)").matches;
		root.dataset.theme = dark ? "light" : "dark";
		try {
			localStorage.setItem("theme", root.dataset.theme);
		} catch {
			/* Then it is chosen for this page alone. */
		}
	};
	/* A finger that is drawn to the side. */
	let x = null, y = null;
	$("scene").addEventListener("touchstart", (event) => {
		x = event.touches[0].clientX;
		y = event.touches[0].clientY;
	}, { passive: true });
	$("scene").addEventListener("touchend", (event) => {
		const dx = event.changedTouches[0].clientX - x;
		const dy = event.changedTouches[0].clientY - y;
		if (Math.abs(dx) > 60 && Math.abs(dx) > 2 * Math.abs(dy))
			to(current + (dx < 0 ? 1 : -1))();
	}, { passive: true });
}

function begin() {
	try {
		const theme = localStorage.getItem("theme");
		if (theme)
			document.documentElement.dataset.theme = theme;
	} catch {
		/* As the system has it. */
	}
	$("title").textContent = head.title || "a run";
	const home = new URLSearchParams(location.search).get("home");
	if (home && /^[\w./-]+$/.test(home) && !home.startsWith("//")) {
		$("home").href = home;
		$("home").hidden = false;
	}
	const clocks = head.client.clock_known && head.server.clock_known;
	$("foot").textContent = "Recorded from a real run. " + (clocks ?
		"The two clocks were compared by the packets." :
		"There were too few packets to compare the two clocks by.") +
		" Queues and memory are drawn from the calls and the packets; of what was sent, the first 64 bytes of each request and packet are known.";
	makeList();
	listen();
	go((parseInt(location.hash.slice(1), 10) || 1) - 1);
}

begin();
