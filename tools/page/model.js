/* SPDX-License-Identifier: MIT */
/*
 * From the recorded events to what there is at each step: objects, queues,
 * states, memory. What only the cards know (a receive that is full, a completion
 * that waits) is drawn where the packet that caused it was seen on the wire.
 */
"use strict";

const other = (side) => side === "client" ? "server" : "client";
const isOwn = (e) => e.side !== "wire" && !e.lib;
/* a - b in the packets' numbers, which have 24 bits */
const psnDistance = (a, b) => ((a - b + 0x1800000) & 0xffffff) - 0x800000;

/* The library's calls belong to the program's call that they were made in. */
function makeSteps(events) {
	const own = { client: {}, server: {} };
	const steps = [];

	for (const e of events) {
		if (e.side !== "wire" && !isOwn(e))
			continue;
		const step = { e, k: steps.length, inner: [], causes: [], effects: [] };
		steps.push(step);
		if (e.side !== "wire")
			(own[e.side][e.thread] ||= []).push(step);
	}
	for (const list of [...Object.values(own.client), ...Object.values(own.server)])
		list.sort((a, b) => a.e.t0 - b.e.t0);
	for (const e of events) {
		if (e.side === "wire" || !e.lib)
			continue;
		const list = own[e.side][e.thread] || [];
		let low = 0, high = list.length;
		while (low < high) {
			const middle = (low + high) >> 1;
			if (list[middle].e.t0 <= e.t0)
				low = middle + 1;
			else
				high = middle;
		}
		const step = list[low - 1];
		if (step && (step.e.t1 === null || step.e.t1 >= e.t0))
			step.inner.push(e);
	}
	const byNumber = new Map(steps.map((step) => [step.e.n, step]));
	for (const step of steps) {
		step.inner.sort((a, b) => a.t0 - b.t0);
		for (const n of step.e.after || []) {
			const cause = byNumber.get(n);
			/* That a thread's calls follow each other goes without saying. */
			if (!cause || (cause.e.side === step.e.side && step.e.side !== "wire"))
				continue;
			step.causes.push(cause);
			cause.effects.push(step);
		}
	}
	return steps;
}

/* Which requests were refused, so that their bytes did not arrive: those whose
 * number a NAK has. */
function markRefused(steps) {
	const requests = { client: new Map(), server: new Map() };

	for (const { e } of steps) {
		if (e.side !== "wire" || e.psn === undefined || !requests[e.from])
			continue;
		if (e.kind === "request") {
			requests[e.from].set(e.psn, e);
		} else if (/NAK/.test(e.name)) {
			const request = requests[e.to]?.get(e.psn);
			if (request)
				request.refused = e.name;
		}
	}
}

class Machine {
	constructor(name) {
		this.name = name;
		this.objects = new Map();
		this.qps = new Map();
		this.cqs = new Map();
		this.srqs = new Map();
		this.mrs = new Map();
		this.memory = new Map();	/* address: [byte, step] */
		this.connection = "";
	}

	qpByNumber(number) {
		for (const qp of this.qps.values())
			if (qp.num === number)
				return qp;
		return null;
	}

	add(key, kind, label) {
		if (key && !this.objects.has(key))
			this.objects.set(key, { kind, label });
	}

	/* Bytes in hexadecimal, to an address. */
	put(address, hex, step) {
		if (!hex || !Number.isFinite(address))
			return;
		for (let i = 0; i + 1 < hex.length; i += 2)
			this.memory.set(address + i / 2,
				[parseInt(hex.substr(i, 2), 16), step]);
	}
}

class World {
	constructor(steps) {
		this.steps = steps;
		this.go(-1);
	}

	/* What there is after step K. Backwards means once more from the start. */
	go(k) {
		if (this.k === undefined || k < this.k) {
			this.k = -1;
			this.client = new Machine("client");
			this.server = new Machine("server");
			this.written = {};
			this.totals = {};
			this.delivered = {};
		}
		while (this.k < k)
			this.apply(this.steps[++this.k]);
		return this;
	}

	apply(step) {
		if (step.e.side === "wire") {
			this.packet(step.e);
			return;
		}
		const m = this[step.e.side];
		this.call(m, step.e);
		for (const e of step.inner)
			this.inside(m, e);
	}

	/* Of the library's calls only those that change a queue pair matter here. */
	inside(m, e) {
		if (/^ibv_(create_qp|create_qp_ex|modify_qp|destroy_qp)$/.test(e.call))
			this.call(m, e);
	}

	call(m, e) {
		if (e.error && e.call !== "ibv_post_send" && e.call !== "ibv_post_recv")
			return;
		switch (e.call.replace(/_(ex|iova2|iova)$/, "")) {
		case "rdma_create_event_channel":
			return m.add(e.ret, "channel", "event channel");
		case "rdma_destroy_event_channel":
			return m.objects.delete(e.channel);
		case "rdma_create_id":
			return m.add(e.id, "id", "id");
		case "rdma_destroy_id":
			return m.objects.delete(e.id);
		case "rdma_get_cm_event":
			if (e.event === "CONNECT_REQUEST")
				m.add(e.id, "id", "id");
			m.connection = e.event;
			return;
		case "ibv_open_device":
			return m.add(e.ret, "context", "device");
		case "ibv_close_device":
			return m.objects.delete(e.context);
		case "ibv_alloc_pd":
			return m.add(e.ret, "pd", "PD");
		case "ibv_dealloc_pd":
			return m.objects.delete(e.pd);
		case "ibv_create_comp_channel":
			return m.add(e.ret, "cchannel", "completion channel");
		case "ibv_destroy_comp_channel":
			return m.objects.delete(e.comp_channel);
		case "ibv_create_cq":
			if (!m.cqs.has(e.ret))
				m.cqs.set(e.ret, { key: e.ret, size: e.got_cqe || e.cqe,
						   entries: [], armed: false, events: 0 });
			return m.add(e.ret, "cq", "CQ");
		case "ibv_destroy_cq":
			m.cqs.delete(e.cq);
			return m.objects.delete(e.cq);
		case "ibv_create_srq":
			m.srqs.set(e.ret || e.srq, []);
			return m.add(e.ret || e.srq, "srq", "SRQ");
		case "ibv_destroy_srq":
			m.srqs.delete(e.srq);
			return m.objects.delete(e.srq);
		case "rdma_create_qp":
		case "ibv_create_qp":
			return this.newQp(m, e, e.qp || e.ret);
		case "rdma_destroy_qp":
		case "ibv_destroy_qp":
			m.qps.delete(e.qp);
			return m.objects.delete(e.qp);
		case "ibv_modify_qp":
			return this.modifyQp(m, e);
		case "ibv_query_qp":
			if (m.qps.has(e.qp) && e.state)
				m.qps.get(e.qp).state = e.state;
			return;
		case "ibv_reg_mr":
			if (!e.ret)
				return;
			m.mrs.set(e.ret, { key: e.ret, addr: Number(e.addr), length: e.length,
					   rkey: e.rkey, lkey: e.lkey,
					   access: e.access || [] });
			return m.add(e.ret, "mr", "MR");
		case "ibv_dereg_mr":
			m.mrs.delete(e.mr);
			return m.objects.delete(e.mr);
		case "ibv_post_send":
		case "ibv_wr_complete":
			return this.postSend(m, e);
		case "ibv_post_recv":
		case "ibv_post_srq_recv":
			return this.postReceive(m, e);
		case "ibv_req_notify_cq":
			if (m.cqs.has(e.cq))
				m.cqs.get(e.cq).armed = true;
			return;
		case "ibv_get_cq_event":
			if (m.cqs.has(e.cq)) {
				m.cqs.get(e.cq).events = 0;
				m.cqs.get(e.cq).armed = false;
			}
			return;
		case "ibv_poll_cq":
		case "ibv_start_poll":
		case "ibv_next_poll":
			for (const wc of e.wcs || [])
				this.reap(m, e.cq, wc);
		}
	}

	newQp(m, e, key) {
		if (!key || m.qps.has(key))
			return;
		const got = e.got || e.attr || {};
		m.qps.set(key, { key, num: e.qp_num, state: "RESET", peer: null,
				 type: got.qp_type || "RC",
				 sendCq: e.send_cq, recvCq: e.recv_cq, srq: e.srq,
				 sigAll: got.sq_sig_all, maxSend: got.max_send_wr,
				 maxRecv: got.max_recv_wr, mtu: 1024,
				 send: [], receive: [] });
		m.add(key, "qp", "QP");
	}

	modifyQp(m, e) {
		const qp = m.qps.get(e.qp);
		if (!qp)
			return;
		if (e.state)
			qp.state = e.state;
		if (e.dest_qp_num !== undefined)
			qp.peer = e.dest_qp_num;
		if (e.path_mtu)
			qp.mtu = e.path_mtu;
		if (e.state === "RESET")
			qp.send = [], qp.receive = [];
		if (e.state === "ERR")
			this.flush(m, qp);
	}

	/* Everything that is posted comes back through the completion queue. */
	flush(m, qp) {
		for (const wr of qp.send)
			if (wr.state === "posted" || wr.state === "sent") {
				wr.state = "flushed";
				this.complete(m, qp, wr, "send");
			}
		for (const wr of qp.receive)
			if (wr.state === "posted") {
				wr.state = "flushed";
				this.complete(m, qp, wr, "receive");
			}
	}

	accepted(e) {
		const wrs = e.wrs || [];
		return e.ret === 0 || e.ret === undefined || e.ret === null ? wrs :
			wrs.slice(0, e.bad ?? 0);
	}

	postSend(m, e) {
		const qp = m.qps.get(e.qp);
		for (const wr of this.accepted(e)) {
			const sges = wr.sges || [];
			const length = sges.reduce((sum, sge) => sum + sge.length, 0);
			const each = { id: wr.wr_id, opcode: wr.opcode, length, sges,
				       signalled: qp?.sigAll ||
						(wr.flags || []).includes("SIGNALED"),
				       state: qp?.state === "ERR" ? "flushed" : "posted",
				       first: null, last: null, offset: 0 };
			let rest = wr.data || "";
			for (const sge of sges) {
				m.put(Number(sge.addr), rest.slice(0, 2 * sge.length), this.k);
				rest = rest.slice(2 * sge.length);
			}
			if (!qp)
				continue;
			qp.send.push(each);
			if (each.state === "flushed")
				this.complete(m, qp, each, "send");
		}
	}

	postReceive(m, e) {
		const qp = m.qps.get(e.qp);
		const queue = e.srq ? m.srqs.get(e.srq) : qp?.receive;
		for (const wr of this.accepted(e)) {
			const sges = wr.sges || [];
			const each = { id: wr.wr_id, opcode: "RECV", sges,
				       length: sges.reduce((sum, sge) => sum + sge.length, 0),
				       state: qp?.state === "ERR" ? "flushed" : "posted",
				       offset: 0, got: 0 };
			queue?.push(each);
			if (each.state === "flushed")
				this.complete(m, qp, each, "receive");
		}
	}

	complete(m, qp, wr, kind) {
		const cq = m.cqs.get(kind === "send" ? qp.sendCq : qp.recvCq);
		wr.completed = true;
		if (!cq)
			return;
		cq.entries.push({ id: wr.id, opcode: wr.opcode, kind, qp: qp.num,
				  length: kind === "send" ? wr.length : wr.got,
				  state: wr.state, step: this.k });
		if (cq.armed) {
			cq.armed = false;
			cq.events = 1;
		}
	}

	/* A completion is taken: its request leaves the queue, and so do those
	 * before it that were to give none. */
	reap(m, cqKey, wc) {
		const cq = m.cqs.get(cqKey);
		const receive = wc.opcode && wc.opcode.startsWith("RECV");
		const qp = m.qpByNumber(wc.qp_num);
		const fits = (entry) => entry.id === wc.wr_id &&
			entry.qp === wc.qp_num &&
			(wc.status !== 0 || (entry.kind === "receive") === !!receive);
		let kind = receive ? "receive" : "send";

		if (cq) {
			const at = cq.entries.findIndex(fits);
			if (at >= 0) {
				kind = cq.entries[at].kind;
				cq.entries.splice(at, 1);
			} else if (wc.status !== 0 && qp &&
				   !qp.send.some((wr) => wr.id === wc.wr_id)) {
				kind = "receive";
			}
		}
		if (!qp)
			return;
		const queue = kind === "send" ? qp.send :
			qp.srq ? m.srqs.get(qp.srq) || [] : qp.receive;
		const at = queue.findIndex((wr) => wr.id === wc.wr_id);
		if (at >= 0)
			queue.splice(kind === "send" ? 0 : at, kind === "send" ? at + 1 : 1);
		/* By the specification, after a failed completion the pair is in ERR. */
		if (wc.status !== 0 && qp.type === "RC" && qp.state !== "ERR") {
			qp.state = "ERR";
			this.flush(m, qp);
		}
	}

	/* ---- packets ---------------------------------------------------- */

	/* Who sent it: the one whose peer it is for, or who says so itself. */
	sender(m, e) {
		if (e.local_qp !== undefined && m.qpByNumber(e.local_qp))
			return m.qpByNumber(e.local_qp);
		let only = null;
		for (const qp of m.qps.values()) {
			if (qp.peer === e.qp)
				return qp;
			only = qp;
		}
		return m.qps.size === 1 ? only : null;
	}

	packet(e) {
		const from = this[e.from], to = this[e.to];
		if (!from || !to || e.kind === "CM")
			return;
		if (e.kind === "request")
			this.request(from, to, e);
		else if (/NAK/.test(e.name))
			this.refusal(to, e);
		else if (e.kind === "response" || e.kind === "ack")
			this.answer(to, e);
	}

	request(from, to, e) {
		const qp = this.sender(from, e);
		const starts = / (First|Only)|Request|Fetch|Cmp|Compare/.test(e.name);
		const ends = !/ (First|Middle)/.test(e.name);
		let wr = null;

		if (qp) {
			wr = qp.send.find((each) => each.first !== null &&
				psnDistance(e.psn, each.first) >= 0 &&
				(each.last === null || psnDistance(e.psn, each.last) <= 0));
			if (!wr && starts && !e.again) {
				wr = qp.send.find((each) => each.state === "posted");
				if (wr) {
					wr.state = "sent";
					wr.first = e.psn;
				}
			}
			if (wr && ends && wr.last === null)
				wr.last = /^RDMA READ/.test(e.name) ?
					(e.psn + Math.max(1, Math.ceil((e.total || wr.length) /
						qp.mtu)) - 1) & 0xffffff : e.psn;
			/* A datagram is done when it has left. */
			if (wr && ends && qp.type === "UD") {
				wr.state = "acked";
				if (wr.signalled && !wr.completed)
					this.complete(from, qp, wr, "send");
			}
		}
		if (!e.refused)
			this.deliver(from, to, e, starts, ends);
	}

	deliver(from, to, e, starts, ends) {
		const key = e.from + e.qp;
		const done = this.delivered[key] ||= new Set();
		if (done.has(e.psn))
			return;
		done.add(e.psn);
		if (/^RDMA WRITE/.test(e.name)) {
			if (starts) {
				this.written[key] = Number(e.addr);
				this.totals[key] = e.total ?? e.length ?? 0;
			}
			to.put(this.written[key], e.data, this.k);
			this.written[key] += e.length || 0;
		}
		const target = to.qpByNumber(e.qp);
		const message = /^SEND/.test(e.name);
		if (!target || !(message || (ends && /Immediate/.test(e.name))))
			return;
		const queue = target.srq ? to.srqs.get(target.srq) || [] : target.receive;
		const wr = queue.find((each) => each.state === "posted" ||
			each.state === "filling");
		if (!wr)
			return;
		if (message) {
			let address = Number(wr.sges[0]?.addr) + wr.offset;
			/* A datagram is put behind 40 bytes for the header. */
			if (target.type === "UD")
				address += 40;
			to.put(address, e.data, this.k);
			wr.offset += e.length || 0;
			wr.got += e.length || 0;
			wr.state = "filling";
		}
		if (ends) {
			wr.state = "full";
			if (!message) {
				wr.opcode = "RECV_RDMA_WITH_IMM";
				wr.got = this.totals[key];
			}
			this.complete(to, target, wr, "receive");
		}
	}

	answer(to, e) {
		const qp = to.qpByNumber(e.qp);
		if (!qp)
			return;
		const data = e.kind === "response" && /READ/.test(e.name);
		for (const wr of qp.send) {
			if (wr.first === null || wr.last === null || wr.state !== "sent")
				continue;
			const reads = /READ|ATOMIC/.test(wr.opcode);
			if (data && wr.opcode === "RDMA_READ" &&
			    psnDistance(e.psn, wr.first) >= 0 &&
			    psnDistance(e.psn, wr.last) <= 0) {
				to.put(Number(wr.sges[0]?.addr) +
					psnDistance(e.psn, wr.first) * qp.mtu, e.data, this.k);
			}
			if (psnDistance(e.psn, wr.last) < 0 || (reads && e.kind === "ack" &&
			    !/ATOMIC/.test(e.name)))
				continue;
			wr.state = "acked";
			if (wr.signalled && !wr.completed)
				this.complete(to, qp, wr, "send");
		}
	}

	refusal(to, e) {
		const qp = to.qpByNumber(e.qp);
		const wr = qp?.send.find((each) => each.first !== null &&
			psnDistance(e.psn, each.first) >= 0 &&
			(each.last === null || psnDistance(e.psn, each.last) <= 0));
		/* An RNR NAK, or a packet that was missing: it will be sent again. */
		if (!wr || /^RNR/.test(e.name) || /sequence/.test(e.also || ""))
			return;
		wr.state = "refused";
		if (!wr.completed)
			this.complete(to, qp, wr, "send");
	}
}
