/* SPDX-License-Identifier: MIT */
/*
 * Lesson 12: what is not in the catalogue, and why two programs on SoftRoCE
 * cannot show it.
 */
#ifndef UNSEEN_H
#define UNSEEN_H

static const struct unseen {
	const char *name;
	const char *why;
} unseen[] = {
	{ "1 LOC_LEN_ERR",
	  "a receive that is too short is what it is for; SoftRoCE says 2 of "
	  "it (see small-inbox)" },
	{ "3 LOC_EEC_OP_ERR",
	  "of reliable datagrams, which libibverbs does not offer" },
	{ "7 BAD_RESP_ERR",
	  "an answer that fits no request: no program can make its card send "
	  "one" },
	{ "8 LOC_ACCESS_ERR",
	  "a fault in the target's own memory at a WRITE with immediate; nothing that we tried on SoftRoCE gives it" },
	{ "14 LOC_RDD_VIOL_ERR", "of reliable datagrams" },
	{ "15 REM_INV_RD_REQ_ERR", "of reliable datagrams" },
	{ "16 REM_ABORT_ERR", "the other card gave a request up; SoftRoCE "
			      "never does" },
	{ "17 INV_EECN_ERR", "of reliable datagrams" },
	{ "18 INV_EEC_STATE_ERR", "of reliable datagrams" },
	{ "19 FATAL_ERR", "the card has failed" },
	{ "20 RESP_TIMEOUT_ERR", "a driver's choice" },
	{ "21 GENERAL_ERR", "what fits nowhere else; a driver's choice" },
	{ "22 TM_ERR", "of tag matching, which SoftRoCE has not" },
	{ "23 TM_RNDV_INCOMPLETE", "of tag matching; no error" },
	{ "async QP_FATAL", "nothing that we tried on SoftRoCE raises it" },
	{ "async QP_REQ_ERR",
	  "the specification wants it (no-read); SoftRoCE does not raise it" },
	{ "async QP_ACCESS_ERR",
	  "the specification wants it (bad-rkey); of our three kernels only "
	  "7.2 raises it" },
	{ "async PORT_ERR", "`ip link set link0 down` on a node raises it, "
			    "and takes the lab's wire away" },
	{ "ROUTE_ERROR", "with RoCE there is nobody to ask for a route; the "
			 "call itself fails (localhost)" },
	{ "DEVICE_REMOVAL", "`rdma link delete rxe0` raises it: lesson 03" },
	{ "never polled",
	  "a queue that stays full as long as nothing is polled: SoftRoCE frees a place with the acknowledgement (small-cq)" },
	{ "a lost datagram",
	  "whoever sends one sees success, whatever becomes of it" },
	{ NULL, NULL },
};

#endif
