/* SPDX-License-Identifier: MIT */
/*
 * rdma_common.h - the shared helper header of the course
 *
 * It holds only what a lesson has already shown in full. Each part names the
 * lesson that takes it apart; common/README.md lists helper and lesson.
 *
 * One idiom for errors: a function that can fail reports what went wrong on
 * stderr, once, where it is found, and returns -1; its caller only tears down
 * and returns. Nothing here exits the program.
 */
#ifndef RDMA_COMMON_H
#define RDMA_COMMON_H

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* What every program of the course returns to its shell. */
enum {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2
};

/*
 * Part 1: error reporting (lesson 01)
 *
 * An error line has three parts: the call, what the kernel said, and the
 * likely cause with its fix. The kernel's part comes from strerror(3),
 * ibv_wc_status_str(3) or rdma_event_str(3); the cause is what we have seen
 * behind it, and stands in the tables below.
 */

struct advice {
	const char *call; /* NULL: whatever the call */
	int err;
	const char *text;
};

/*
 * report_advice - the likely cause and its fix for CALL failing with ERR
 *
 * Returns a text without a newline, or NULL where there is nothing to add to
 * what strerror(3) says.
 */
static inline const char *report_advice(const char *call, int err)
{
	static const struct advice table[] = {
		{ "rdma_resolve_route", ENODEV,
		  "the address belongs to no RDMA device: 127.0.0.1 and ::1 "
		  "never do; use the address of the card, which "
		  "`rdma link` and `ip address` show" },
		{ "rdma_resolve_addr", ENODEV,
		  "no RDMA device is on the way to that address: run make "
		  "softroce, or use LAB=vm" },
		{ "rdma_resolve_addr", EINVAL,
		  "a link-local address (fe80::) needs its zone, as in "
		  "fe80::1%eth0" },
		{ "rdma_resolve_addr", EADDRNOTAVAIL,
		  "the source address is not one of this machine's" },
		{ "rdma_resolve_addr", ENETUNREACH,
		  "there is no route to that address: see `ip route get`" },
		{ "rdma_resolve_addr", EHOSTUNREACH,
		  "there is no route to that address: see `ip route get`" },
		{ "rdma_bind_addr", EADDRNOTAVAIL,
		  "that address is not one of this machine's: see "
		  "`ip address`" },
		{ "rdma_bind_addr", EADDRINUSE,
		  "another RDMA program listens there: `rdma resource show "
		  "cm_id` names it; choose another port with -p" },
		{ "rdma_bind_addr", ENODEV,
		  "no RDMA device has that address: 127.0.0.1 and ::1 never "
		  "are one's; leave -a out to listen on all of them" },
		{ "rdma_bind_addr", EINVAL,
		  "a link-local address (fe80::) needs its zone, as in "
		  "fe80::1%eth0" },
		{ "rdma_listen", EADDRINUSE,
		  "another RDMA program listens there: `rdma resource show "
		  "cm_id` names it; choose another port with -p" },
		{ "ibv_reg_mr", ENOMEM,
		  "more memory than RLIMIT_MEMLOCK lets you pin: see ulimit "
		  "-l, raise it in /etc/security/limits.conf" },
		{ "ibv_reg_mr", EINVAL,
		  "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE beside "
		  "them" },
		{ "ibv_reg_mr", EFAULT,
		  "the range is not mapped, or not writable" },
		{ "ibv_post_send", ENOMEM,
		  "the send queue is full: reap completions first" },
		{ "ibv_post_recv", ENOMEM,
		  "the receive queue is full: post fewer, or ask for a "
		  "deeper one" },
		{ NULL, ENODEV,
		  "this machine has no RDMA device, or rdma_ucm is not "
		  "loaded; run make softroce or LAB=vm" },
		{ NULL, ENOENT,
		  "this machine has no RDMA device, or rdma_ucm is not "
		  "loaded; run make softroce or LAB=vm" },
		{ NULL, EACCES, "no permission: see ls -l /dev/infiniband" },
		{ NULL, EPERM, "no permission: see ls -l /dev/infiniband" },
		{ NULL, EMFILE,
		  "too many open files: see ulimit -n, and what is not "
		  "closed" },
	};
	size_t i;

	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].err == err &&
		    (!table[i].call || !strcmp(table[i].call, call)))
			return table[i].text;
	return NULL;
}

/*
 * report - say on stderr that CALL failed with the errno value ERR
 *
 * Mind where ERR comes from. The rdma_*() calls return -1 and set errno (see
 * rdma_cm(7)); ibv_post_send(3) and its like return the errno value and leave
 * errno alone; ibv_reg_mr(3) and its like return NULL and set errno.
 */
static inline void report(const char *call, int err)
{
	const char *advice = report_advice(call, err);

	fprintf(stderr, "%s: %s%s%s\n", call, strerror(err), advice ? ": " : "",
		advice ? advice : "");
}

/*
 * report_getaddrinfo - say on stderr that rdma_getaddrinfo returned RET
 *
 * rdma_getaddrinfo(3) promises -1 and errno. It also hands on what
 * getaddrinfo(3) returned, which is one of the EAI_ numbers; the two are told
 * apart by their value.
 */
static inline void report_getaddrinfo(const char *host, int ret)
{
	if (ret == -1)
		report("rdma_getaddrinfo", errno);
	else
		fprintf(stderr,
			"rdma_getaddrinfo: %s: %s: is the name or address "
			"right?\n",
			host ? host : "*", gai_strerror(ret));
}

/*
 * reject_reason - what the status of a REJECTED event means
 *
 * The numbers are the InfiniBand specification's ("REJ reason codes" in the
 * chapter on communication management).
 */
static inline const char *reject_reason(int status)
{
	switch (status) {
	case 1:
		return "no QP left: the peer is out of resources";
	case 3:
		return "no resources: the peer is out of memory or queues";
	case 4:
		return "timeout: the peer gave up waiting for us";
	case 5:
		return "unsupported request: the peer cannot do what we ask";
	case 8:
		return "invalid service ID: nobody listens on that port; "
		       "start the server first, and compare the two -p";
	case 10:
		return "stale connection: the peer still holds our QP number "
		       "from before; try again";
	case 28:
		return "consumer reject: a server is there and refused "
		       "(rdma_reject), or it exited before it accepted";
	default:
		return "see the REJ reason codes of the specification";
	}
}

/*
 * report_event - say on stderr that EVENT is not what was hoped for
 *
 * Of a REJECTED event the status is a reason code of the specification; of
 * all others it is a negative errno value, or 0 (rdma_get_cm_event(3)).
 */
static inline void report_event(const struct rdma_cm_event *event)
{
	const char *name = rdma_event_str(event->event);
	const char *why;

	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		fprintf(stderr, "%s, status %d: %s\n", name, event->status,
			reject_reason(event->status));
		return;
	case RDMA_CM_EVENT_ADDR_ERROR:
		why = "nobody has that address, or there is no RDMA device on "
		      "the way to it: try ping";
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		why = "the address is known, the way to it is not: is the "
		      "device's port up?";
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
		why = "the machine answers ARP and not RDMA: has it a device, "
		      "and does its firewall let UDP port 4791 in?";
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		why = "the handshake broke off half way: did the peer die, or "
		      "do the two sides' queue settings not fit?";
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		why = "the peer closed the connection or died";
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		why = "the RDMA device was taken away: rdma link shows what "
		      "is left";
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		why = "the old connection's number is free again; harmless";
		break;
	default:
		why = "not an event that belongs here";
		break;
	}
	fprintf(stderr, "%s, status %d%s%s: %s\n", name, event->status,
		event->status < 0 ? " " : "",
		event->status < 0 ? strerror(-event->status) : "", why);
}

/*
 * expect_event - is EVENT the one that this step waits for?
 *
 * Returns 0 if so. Otherwise it reports the event and what was waited for,
 * and returns -1. It does not acknowledge: that is the caller's, either way.
 */
static inline int expect_event(const struct rdma_cm_event *event,
			       enum rdma_cm_event_type wanted)
{
	if (event->event == wanted && event->status == 0)
		return 0;
	fprintf(stderr, "rdma_get_cm_event: waited for %s, got ",
		rdma_event_str(wanted));
	report_event(event);
	return -1;
}

/*
 * wc_advice - the likely causes of a completion's STATUS, the first to check
 * first
 */
static inline const char *wc_advice(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
		return "the message is longer than the port or the receive "
		       "allows";
	case IBV_WC_LOC_QP_OP_ERR:
		return "this device cannot do what was asked, or an lkey is "
		       "wrong";
	case IBV_WC_LOC_PROT_ERR:
		return "the local buffer is not inside its memory region, or "
		       "the region lacks LOCAL_WRITE";
	case IBV_WC_WR_FLUSH_ERR:
		return "the connection was already down: look for the first "
		       "error, this one only follows it";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the peer does not take this kind of request, or its "
		       "receive is too small for the message";
	case IBV_WC_REM_ACCESS_ERR:
		return "the peer's keys refuse it: wrong rkey, past the end "
		       "of the region, or a right that was not given";
	case IBV_WC_REM_OP_ERR:
		return "the peer could not take it: its receive is too small, "
		       "or points to memory that it may not write";
	case IBV_WC_RETRY_EXC_ERR:
		return "no answer from the peer: is it dead or frozen, is UDP "
		       "port 4791 open, is the MTU the same on both sides?";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer has no receive posted: it must post before "
		       "we send";
	default:
		return "see docs/glossary.md, work completion";
	}
}

/*
 * report_wc - say on stderr that the work completion WC failed
 *
 * REQUEST names what was asked for ("SEND", "receive"). It has to come from
 * the caller, who knows it from wr_id: in a failed completion only wr_id,
 * status, qp_num and vendor_err are valid (ibv_poll_cq(3)), opcode is not.
 */
static inline void report_wc(const struct ibv_wc *wc, const char *request)
{
	fprintf(stderr,
		"completion of the %s (wr_id %llu): %s, status %d, vendor "
		"syndrome 0x%x: %s\n",
		request, (unsigned long long)wc->wr_id,
		ibv_wc_status_str(wc->status), wc->status, wc->vendor_err,
		wc_advice(wc->status));
}

#endif
