/* SPDX-License-Identifier: MIT */
/*
 * Lesson 12: the catalogue of failures. Both programs read it, and
 * docs/error-gallery.md is made from it (client --table).
 *
 * What is in the columns of SoftRoCE was seen in runs on Debian's kernels 6.1,
 * 6.12 and 7.2, and the programs compare each run with it. The first column is
 * what the InfiniBand specification says, and so what a real card should say; NULL
 * there: it says nothing of this. NULL in another column: the same as in the one
 * to its left.
 */
#ifndef CATALOGUE_H
#define CATALOGUE_H

#include <rdma_common.h>

enum column {
	BOOK,
	K6_1,
	K6_12,
	K7_2,
	COLUMNS
};

static const char *const column_names[] = {
	[BOOK] = "a real card",
	[K6_1] = "SoftRoCE of kernel 6.1",
	[K6_12] = "SoftRoCE of kernel 6.12",
	[K7_2] = "SoftRoCE of kernel 7.2",
};

struct failure {
	const char *name;
	const char *what; /* in a few words */
	const char *done; /* by the initiator, which is the client */
	const char *peer; /* by the target, which is the server */
	const char *initiator[COLUMNS]; /* what it sees */
	const char *target[COLUMNS]; /* what it sees; NULL: it is dead */
	const char *note; /* what else there is to know; may be NULL */
	const char *fix;
	const char *help; /* what a person has to do meanwhile, or NULL */
	bool slow; /* takes seconds: not among those shown by default */
	bool no_server; /* the server takes no part */
	uint8_t retry; /* how often the card tries again; 0: 6 times */
};

static const struct failure catalogue[] = {
	/* ---- completions: this side's own mistakes ---- */
	{
		.name = "bad-lkey",
		.what = "a SEND with a wrong lkey",
		.done = "posted a SEND whose lkey belongs to no region",
		.peer = "posted a receive",
		.initiator = { "4 LOC_PROT_ERR, QP ERR",
			       "2 LOC_QP_OP_ERR, QP ERR",
			       "5 WR_FLUSH_ERR, QP ERR" },
		.target = { "nothing, QP RTS" },
		.fix = "use the lkey of the region that the buffer is in, and "
		       "do not deregister it before the completion",
	},
	{
		.name = "past-region",
		.what = "a SEND from beyond the end of the region",
		.done = "posted a SEND of one byte more than is registered",
		.peer = "posted a receive",
		.initiator = { "4 LOC_PROT_ERR, QP ERR", NULL,
			       "5 WR_FLUSH_ERR, QP ERR" },
		.target = { "nothing, QP RTS" },
		.fix = "addr and length of the SGE have to be inside the "
		       "region, to the last byte",
	},
	{
		.name = "read-only",
		.what = "a READ into memory without LOCAL_WRITE",
		.done = "posted a READ into a region registered with access 0",
		.peer = "lent memory with REMOTE_READ",
		.initiator = { "4 LOC_PROT_ERR, QP ERR" },
		.target = { "nothing, QP RTS" },
		.fix = "what a card is to write to, by READ or receive, needs "
		       "IBV_ACCESS_LOCAL_WRITE",
	},
	{
		.name = "bind",
		.what = "a memory window on a region without MW_BIND",
		.done = "bound a window (ibv_bind_mw) to a region without "
			"IBV_ACCESS_MW_BIND",
		.peer = "posted a receive",
		.initiator = { "6 MW_BIND_ERR, QP ERR", NULL,
			       "5 WR_FLUSH_ERR, QP ERR" },
		.target = { "nothing, QP RTS" },
		.fix = "register the region with IBV_ACCESS_MW_BIND, and with "
		       "every right that the window is to have",
	},
	{
		.name = "flush",
		.what = "a request posted after the QP has failed",
		.done = "moved the QP to ERR (ibv_modify_qp), then posted a "
			"SEND",
		.peer = "posted a receive",
		.initiator = { "5 WR_FLUSH_ERR, QP ERR" },
		.target = { "nothing, QP RTS" },
		.fix = "look for the completion before it that is not 5: that "
		       "one says what happened",
	},
	/* ---- completions: the target says no ---- */
	{
		.name = "no-read",
		.what = "a READ that was not agreed on",
		.done = "connected with an initiator_depth of 0, and posted a READ",
		.peer = "accepted with responder_resources 1",
		.initiator = { "9 REM_INV_REQ_ERR, QP ERR" },
		.target = { "async QP_REQ_ERR, QP ERR",
			    "receive 5 WR_FLUSH_ERR, QP ERR" },
		.fix = "initiator_depth of the one who reads, and "
		       "responder_resources of the other, both 1 or more",
	},
	{
		.name = "qp-right",
		.what = "a WRITE that the QP does not let in",
		.done = "posted a WRITE with the right rkey",
		.peer = "took the remote rights from its QP (ibv_modify_qp, "
			"qp_access_flags 0)",
		.initiator = { "9 REM_INV_REQ_ERR, QP ERR" },
		.target = { "async QP_REQ_ERR, QP ERR",
			    "receive 5 WR_FLUSH_ERR, QP ERR" },
		.fix = "qp_access_flags need IBV_ACCESS_REMOTE_WRITE; the CM "
		       "sets them, by hand it is yours to do",
	},
	{
		.name = "bad-rkey",
		.what = "a WRITE with a wrong rkey",
		.done = "posted a WRITE whose rkey belongs to no region",
		.peer = "lent memory",
		.initiator = { "10 REM_ACCESS_ERR, QP ERR" },
		.target = { "async QP_ACCESS_ERR, QP ERR",
			    "receive 5 WR_FLUSH_ERR, QP ERR", NULL,
			    "async QP_ACCESS_ERR, QP ERR" },
		.fix = "send the rkey, not the lkey; big-endian on both sides; "
		       "take it from the server that you talk to now",
	},
	{
		.name = "gone",
		.what = "a WRITE to a region that is deregistered",
		.done = "posted a WRITE with the rkey that it was given",
		.peer = "deregistered the memory after it was lent",
		.initiator = { "10 REM_ACCESS_ERR, QP ERR" },
		.target = { "async QP_ACCESS_ERR, QP ERR",
			    "receive 5 WR_FLUSH_ERR, QP ERR", NULL,
			    "async QP_ACCESS_ERR, QP ERR" },
		.fix = "do not deregister what is lent before the other side "
		       "has said that it is done",
	},
	{
		.name = "past-end",
		.what = "a WRITE past the end of the region",
		.done = "posted a WRITE that ends one byte past the end",
		.peer = "lent memory",
		.initiator = { "10 REM_ACCESS_ERR, QP ERR" },
		.target = { "async QP_ACCESS_ERR, QP ERR",
			    "receive 5 WR_FLUSH_ERR, QP ERR", NULL,
			    "async QP_ACCESS_ERR, QP ERR" },
		.fix = "compare address and length with what was lent, before "
		       "you post",
	},
	{
		.name = "no-right",
		.what = "a WRITE to a region without REMOTE_WRITE",
		.done = "posted a WRITE",
		.peer = "registered the memory without REMOTE_WRITE",
		.initiator = { "10 REM_ACCESS_ERR, QP ERR" },
		.target = { "async QP_ACCESS_ERR, QP ERR",
			    "receive 5 WR_FLUSH_ERR, QP ERR", NULL,
			    "async QP_ACCESS_ERR, QP ERR" },
		.fix = "register with IBV_ACCESS_REMOTE_WRITE and "
		       "IBV_ACCESS_LOCAL_WRITE",
	},
	{
		.name = "small-inbox",
		.what = "a message longer than the receive",
		.done = "posted a SEND of 65 bytes",
		.peer = "posted a receive of 64 bytes",
		.initiator = { "9 REM_INV_REQ_ERR, QP ERR",
			       "11 REM_OP_ERR, QP ERR" },
		.target = { "receive 1 LOC_LEN_ERR, QP ERR",
			    "receive 2 LOC_QP_OP_ERR, QP ERR" },
		.fix = "receives as large as the longest message: agree on a "
		       "size",
	},
	{
		.name = "bad-inbox",
		.what = "a message for a receive with a wrong lkey",
		.done = "posted a SEND of 64 bytes",
		.peer = "posted a receive whose lkey belongs to no region",
		.initiator = { "11 REM_OP_ERR, QP ERR" },
		.target = { "receive 4 LOC_PROT_ERR, QP ERR",
			    "receive 2 LOC_QP_OP_ERR, QP ERR" },
		.fix = "it is the receiver's mistake: the receive needs the "
		       "lkey of a region with LOCAL_WRITE",
	},
	/* ---- completions: no answer ---- */
	{
		.name = "retry",
		.what = "nobody answers",
		.done = "posted a SEND",
		.peer = "left its QP in RESET, which answers nothing",
		.initiator = { "12 RETRY_EXC_ERR, QP ERR" },
		.target = { "nothing, QP RESET" },
		.note = "the time is (retry_count + 1) x 4.096 us x 2^timeout, "
			"and more; here 2 x 134 ms",
		.fix = "is the peer alive, its QP in RTR, UDP port 4791 open, "
		       "the MTU the same, the GID the right one?",
		.retry = 1,
	},
	{
		.name = "frozen",
		.what = "the peer's machine hangs",
		.done = "posted a WRITE every 100 ms",
		.peer = "stood still, with its whole machine",
		.initiator = { "12 RETRY_EXC_ERR, QP ERR" },
		.target = { "nothing, QP RTS" },
		.note = "no event of the CM comes; who sends nothing learns "
			"nothing",
		.fix = "send something every now and then (a heartbeat), and "
		       "have a deadline",
		.help = "lab/lab freeze server, and after it lab/lab thaw server",
		.slow = true,
		.retry = 1,
	},
	{
		.name = "rnr",
		.what = "a SEND that finds no receive",
		.done = "posted a SEND",
		.peer = "posted no receive, and accepted with rnr_retry_count 0",
		.initiator = { "13 RNR_RETRY_EXC_ERR, QP ERR" },
		.target = { "nothing, QP RTS" },
		.fix = "post receives before the peer may send, and post again "
		       "before you answer",
	},
	{
		.name = "rnr-imm",
		.what = "a WRITE with immediate that finds no receive",
		.done = "posted a WRITE_WITH_IMM",
		.peer = "posted no receive, and accepted with rnr_retry_count 0",
		.initiator = { "13 RNR_RETRY_EXC_ERR, QP ERR" },
		.target = { "nothing, QP RTS" },
		.fix = "the immediate takes a receive: post one for each",
	},
	/* ---- events of the CM ---- */
	{
		.name = "nobody",
		.what = "nobody listens on the port",
		.done = "connected to the next port number",
		.peer = "did not listen there",
		.initiator = { "REJECTED 8, QP ERR" },
		.fix = "start the server first; compare the two ports",
		.no_server = true,
	},
	{
		.name = "refused",
		.what = "the server says no",
		.done = "connected",
		.peer = "called rdma_reject",
		.initiator = { "REJECTED 28, QP ERR" },
		.target = { "CONNECT_REQUEST 0, QP none" },
		.fix = "ask the server: a reject can bring 148 bytes that say "
		       "why",
	},
	{
		.name = "stale",
		.what = "the server still holds our QP number",
		.done = "connected a second time with the same QP number",
		.peer = "accepted the first",
		.initiator = { "REJECTED 10, QP RTS" },
		.target = { "nothing, QP RTS" },
		.fix = "let the old connection end (TIMEWAIT_EXIT), or use a "
		       "new QP",
	},
	{
		.name = "unanswered",
		.what = "the server neither accepts nor refuses",
		.done = "connected",
		.peer = "did nothing at all",
		.initiator = { "nothing, QP INIT" },
		.target = { "CONNECT_REQUEST 0, QP none" },
		.fix = "a deadline of your own: the CM has none that you would "
		       "want to wait for",
		.slow = true,
	},
	{
		.name = "half-way",
		.what = "the answer comes, and our QP is not fit for it",
		.done = "connected, and moved the QP to ERR meanwhile",
		.peer = "accepted",
		.initiator = { "CONNECT_ERROR -1, QP ERR" },
		.target = { "REJECTED 28, QP ERR" },
		.fix = "leave the QP alone while the handshake is under way",
	},
	{
		.name = "nowhere",
		.what = "nobody has the address",
		.done = "resolved an address that nobody has",
		.peer = "was not asked",
		.initiator = { "ADDR_ERROR -110, QP none" },
		.fix = "is the address right? try ping",
		.slow = true,
		.no_server = true,
	},
	{
		.name = "localhost",
		.what = "127.0.0.1, which belongs to no RDMA device",
		.done = "resolved 127.0.0.1",
		.peer = "was not asked",
		.initiator = { "rdma_resolve_route ENODEV, QP none" },
		.fix = "use the address of the RDMA card, also on one and the "
		       "same machine",
		.no_server = true,
	},
	{
		.name = "unreachable",
		.what = "a machine is there, and speaks no RDMA",
		.done = "connected to an address that answers ARP and no more",
		.peer = "was not asked",
		.initiator = { "UNREACHABLE -110, QP INIT" },
		.note = "it takes 100 s on kernel 6.1, and 80 s on 6.12 and 7.2; under make run: SERVER_ARGS=\"-t 200\" LIMIT=250",
		.fix = "has it an RDMA device, and does its firewall let UDP "
		       "port 4791 in?",
		.help = "lab/lab exec client ip neigh replace 10.10.10.254 "
			"lladdr 02:00:00:00:00:fe dev link0",
		.slow = true,
		.no_server = true,
	},
	{
		.name = "leaves",
		.what = "the peer disconnects",
		.done = "waited",
		.peer = "called rdma_disconnect",
		.initiator = { "DISCONNECTED 0, QP RTS" },
		.target = { "nothing, QP RTS" },
		.note = "our QP stays as it was, and our receives with it, "
			"until we call rdma_disconnect as well",
		.fix = "listen to the CM while you wait for completions, and "
		       "disconnect too",
	},
	{
		.name = "killed",
		.what = "the peer's process dies",
		.done = "waited",
		.peer = "died of SIGKILL",
		.initiator = { "DISCONNECTED 0, QP RTS" },
		.note = "its kernel says goodbye for it",
		.fix = "the same as when it leaves: there is no difference to "
		       "see",
	},
	{
		.name = "timewait",
		.what = "the old connection's numbers are free again",
		.done = "called rdma_disconnect, and waited on",
		.peer = "disconnected too",
		.initiator = { "TIMEWAIT_EXIT 0, QP ERR" },
		.target = { "nothing, QP RTS" },
		.fix = "nothing is wrong: ignore it",
		.slow = true,
	},
	/* ---- asynchronous events ---- */
	{
		.name = "small-cq",
		.what = "a CQ that is too small",
		.done = "posted more WRITEs than the CQ has room for, and did "
			"not poll",
		.peer = "lent memory",
		.initiator = { NULL, "async CQ_ERR, QP RTS" },
		.target = { "nothing, QP RTS" },
		.note = "a card need not come to that: where a place in the "
			"send queue is free only after a poll, the post says "
			"ENOMEM first",
		.fix = "as many entries in the CQ as requests can be "
		       "outstanding on all its QPs; poll",
	},
	/* ---- calls that fail at once ---- */
	{
		.name = "full",
		.what = "a send queue that is full",
		.done = "posted SENDs until one was refused",
		.peer = "left its QP in RESET, so that none of them completes",
		.initiator = { "ibv_post_send ENOMEM, QP RTS" },
		.target = { "nothing, QP RESET" },
		.fix = "count what you have posted, and reap a signalled "
		       "completion before you post more",
	},
	{
		.name = "many-sges",
		.what = "more pieces than the queue was made for",
		.done = "posted a SEND with 40 SGEs, where max_send_sge is 1",
		.peer = "posted a receive",
		.initiator = { NULL, "ibv_post_send EINVAL, QP RTS" },
		.target = { "nothing, QP RTS" },
		.note = "no book says which errno: mlx5 has ENOMEM for it",
		.fix = "ask for max_send_sge when you make the QP",
	},
	{
		.name = "misaligned",
		.what = "an atomic at an address that 8 does not divide",
		.done = "posted a fetch-and-add at address + 4",
		.peer = "lent memory with REMOTE_ATOMIC",
		.initiator = { "9 REM_INV_REQ_ERR, QP ERR",
			       "ibv_post_send EINVAL, QP RTS" },
		.target = { "async QP_REQ_ERR, QP ERR", "nothing, QP RTS" },
		.fix = "atomics work on 8 bytes at an address that 8 divides",
	},
	/* ---- nothing at all ---- */
	{
		.name = "no-depth",
		.what = "a READ where no depth was agreed on",
		.done = "connected with an initiator_depth of 1, and posted a READ",
		.peer = "accepted with responder_resources 0",
		.initiator = { NULL, "nothing, QP RTS" },
		.target = { NULL, "nothing, QP RTS" },
		.note = "it waits for ever for its turn",
		.fix = "initiator_depth and responder_resources, 1 or more",
		.slow = true,
	},
	{ .name = NULL },
};

static inline const struct failure *find_failure(const char *name)
{
	const struct failure *f;

	for (f = catalogue; f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}

/* What stands in COLUMN, or in the nearest to its left that is filled. */
static inline const char *expected(const char *const cells[COLUMNS],
				   enum column column)
{
	const char *text = NULL;
	int i;

	for (i = BOOK; i <= (int)column && i < COLUMNS; i++)
		if (cells[i])
			text = cells[i];
	return text;
}

#endif
