/* SPDX-License-Identifier: MIT */
/*
 * Which packets a work request made, and which packet completed it.
 *
 * A queue pair numbers its packets one after the other (PSN), from the number
 * that it was set to when it went to RTS: so many for a request as its bytes
 * need at the path's MTU, one at least, and for a READ as its answer will need.
 * So the requests that were posted tell which PSN is of which, even where the
 * wire has lost some.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge.h"

#define PSN_BITS 24

/* One request that was accepted. */
struct request {
	struct event *post;
	struct json *wr;
	uint64_t wr_id;
	bool signaled;
	bool completed;
	bool reads; /* it is answered with data */
	bool takes_receive;
	int64_t first, last; /* its packets, counted from the first PSN */
};

/* A packet of a queue pair, as often as it was seen. */
struct seen {
	int64_t offset; /* from the first PSN */
	int at; /* on the wire */
};

struct qp {
	enum side side;
	int64_t number;
	int64_t peer; /* the number of the other end */
	int64_t psn; /* the first */
	int64_t mtu;
	bool datagrams;
	bool sig_all;
	struct request *requests;
	int n_requests;
	int64_t next; /* the first packet of the next request */
	struct seen *seen; /* what it sent */
	int n_seen;
	struct seen *refused; /* NAKs of what it sent: come again */
	int n_refused;
	int done; /* the requests before this one have completed */
	int delivered_to; /* requests that were looked at for these */
	int delivered_at; /* on the wire */
};

static struct qp *qps;
static int n_qps;

static struct qp *find_qp(enum side side, int64_t number)
{
	struct qp *qp;
	int i;

	for (i = 0; i < n_qps; i++)
		if (qps[i].side == side && qps[i].number == number)
			return &qps[i];
	qps = grow(qps, n_qps, sizeof(*qps));
	qp = &qps[n_qps++];
	memset(qp, 0, sizeof(*qp));
	qp->side = side;
	qp->number = number;
	qp->peer = qp->psn = -1;
	qp->mtu = 1024;
	return qp;
}

/* The queue pair at the other end of QP. */
static struct qp *peer_of(const struct qp *qp)
{
	int i;

	for (i = 0; i < n_qps && qp->peer >= 0; i++)
		if (qps[i].side == other(qp->side) &&
		    qps[i].number == qp->peer && qps[i].peer == qp->number)
			return &qps[i];
	return NULL;
}

/* ---- what was posted ------------------------------------------------------ */

static bool has_flag(const struct json *wr, const char *flag)
{
	struct json *flags = json_get(wr, "flags"), *each;

	for (each = flags ? flags->first : NULL; each; each = each->next)
		if (each->text && !strcmp(each->text, flag))
			return true;
	return false;
}

static int64_t packets_of(const struct qp *qp, const struct json *wr)
{
	struct json *sges = json_get(wr, "sges"), *each;
	int64_t bytes = 0;

	if (starts(json_text(wr, "opcode"), "ATOMIC"))
		return 1;
	for (each = sges ? sges->first : NULL; each; each = each->next)
		bytes += json_number(each, "length", 0);
	return bytes > qp->mtu ? (bytes + qp->mtu - 1) / qp->mtu : 1;
}

static void note_post(struct event *event)
{
	struct json *wrs = json_get(event->json, "wrs"), *wr;
	int64_t ret = json_number(event->json, "ret", 0);
	int64_t bad = json_number(event->json, "bad", ret ? 0 : -1), i = 0;
	struct qp *qp =
		find_qp(event->side, json_number(event->json, "qp_num", -1));

	for (wr = wrs ? wrs->first : NULL; wr && i != bad; wr = wr->next, i++) {
		const char *opcode = json_text(wr, "opcode");
		struct request *request;

		/* These stay at home. */
		if (starts(opcode, "LOCAL_INV") || starts(opcode, "BIND_MW"))
			continue;
		qp->requests = grow(qp->requests, qp->n_requests,
				    sizeof(*qp->requests));
		request = &qp->requests[qp->n_requests++];
		*request = (struct request){
			.post = event,
			.wr = wr,
			.wr_id = json_number(wr, "wr_id", 0),
			.signaled = qp->sig_all || has_flag(wr, "SIGNALED"),
			.reads = starts(opcode, "RDMA_READ") ||
				 starts(opcode, "ATOMIC_CMP") ||
				 starts(opcode, "ATOMIC_FETCH"),
			.takes_receive = starts(opcode, "SEND") ||
					 starts(opcode, "RDMA_WRITE_WITH_IMM"),
			.first = qp->next,
		};
		qp->next += packets_of(qp, wr);
		request->last = qp->next - 1;
	}
}

static void look_at_call(struct event *event)
{
	struct json *json = event->json;
	struct qp *qp;

	if (is_call(event, "ibv_create_qp") ||
	    is_call(event, "ibv_create_qp_ex")) {
		struct json *attr = json_get(json, "attr");

		qp = find_qp(event->side, json_number(json, "qp_num", -1));
		qp->sig_all = json_number(attr, "sq_sig_all", 0);
		qp->datagrams = json_is(attr, "qp_type", "UD");
	} else if (is_call(event, "ibv_modify_qp")) {
		qp = find_qp(event->side, json_number(json, "qp_num", -1));
		qp->peer = json_number(json, "dest_qp_num", qp->peer);
		qp->psn = json_number(json, "sq_psn", qp->psn);
		qp->mtu = json_number(json, "path_mtu", qp->mtu);
	} else if (is_call(event, "ibv_post_send") ||
		   is_call(event, "ibv_wr_complete")) {
		note_post(event);
	}
}

/* ---- what was on the wire ------------------------------------------------- */

/* The queue pair that sent this request. Datagrams name it. */
static struct qp *sender_of(const struct event *packet)
{
	int64_t source = json_number(packet->json, "local_qp", -1);
	int64_t target = json_number(packet->json, "qp", -1);
	enum side side = sender(packet);
	int i;

	for (i = 0; i < n_qps; i++)
		if (qps[i].side == side && qps[i].psn >= 0 &&
		    (qps[i].datagrams ? qps[i].number == source :
					qps[i].peer == target))
			return &qps[i];
	return NULL;
}

/* PSN as a count from the first: the one that is nearest to what came last. */
static int64_t offset_of(const struct qp *qp, int64_t psn)
{
	int64_t last = qp->n_seen ? qp->seen[qp->n_seen - 1].offset : 0;
	int64_t half = 1 << (PSN_BITS - 1), all = 1 << PSN_BITS;
	int64_t step = ((psn - qp->psn - last) % all + all) % all;

	return last + (step < half ? step : step - all);
}

static void look_at_packet(struct event *packet)
{
	struct json *json = packet->json;
	int64_t psn = json_number(json, "psn", -1);
	struct qp *qp;
	int i;

	if (json_is(json, "kind", "request")) {
		qp = sender_of(packet);
		if (!qp)
			return;
		qp->seen = grow(qp->seen, qp->n_seen, sizeof(*qp->seen));
		qp->seen[qp->n_seen] =
			(struct seen){ offset_of(qp, psn), packet->number };
		qp->n_seen++;
		return;
	}
	if (!json_is(json, "name", "RNR NAK") &&
	    !json_is(json, "also", "PSN sequence error"))
		return;
	for (i = 0; i < n_qps; i++) {
		qp = &qps[i];
		if (qp->side == sender(packet) || qp->psn < 0 ||
		    qp->number != json_number(json, "qp", -1))
			continue;
		qp->refused =
			grow(qp->refused, qp->n_refused, sizeof(*qp->refused));
		qp->refused[qp->n_refused] =
			(struct seen){ offset_of(qp, psn), packet->number };
		qp->n_refused++;
	}
}

static int compare_seen(const void *a, const void *b)
{
	const struct seen *x = a, *y = b;

	if (x->offset != y->offset)
		return x->offset < y->offset ? -1 : 1;
	return x->at - y->at;
}

/* The first time that this packet of QP was seen, in the sorted list. */
static const struct seen *first_seen(const struct qp *qp, int64_t offset)
{
	int from = 0, to = qp->n_seen;

	while (from < to) {
		int middle = (from + to) / 2;

		if (qp->seen[middle].offset < offset)
			from = middle + 1;
		else
			to = middle;
	}
	if (from == qp->n_seen || qp->seen[from].offset != offset)
		return NULL;
	return &qp->seen[from];
}

/* Does this kind of request make this kind of packet? */
static bool fits(const char *opcode, const char *packet)
{
	static const char *const kinds[][2] = {
		{ "SEND", "SEND" },
		{ "RDMA_WRITE", "RDMA WRITE" },
		{ "RDMA_READ", "RDMA READ Request" },
		{ "ATOMIC_CMP_AND_SWP", "CmpSwap" },
		{ "ATOMIC_FETCH_AND_ADD", "FetchAdd" },
		{ "ATOMIC_WRITE", "ATOMIC WRITE" },
	};
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (starts(opcode, kinds[i][0]) && starts(packet, kinds[i][1]))
			return true;
	return false;
}

/* The first packet of a request that was seen. */
static int first_packet(const struct qp *qp, const struct request *request)
{
	const struct seen *seen;
	int64_t offset;
	int at = -1;

	for (offset = request->first; offset <= request->last; offset++) {
		seen = first_seen(qp, offset);
		if (seen && (at < 0 || seen->at < at))
			at = seen->at;
		/* The others of a READ are its answer's. */
		if (request->reads)
			break;
	}
	return at;
}

static void match_requests(struct run *run, struct qp *qp)
{
	int i, at;

	qsort(qp->seen, qp->n_seen, sizeof(*qp->seen), compare_seen);
	for (i = 0; i < qp->n_requests; i++) {
		struct request *request = &qp->requests[i];
		struct event *packet;

		at = first_packet(qp, request);
		if (at < 0)
			continue;
		packet = run->all[WIRE].list[at];
		if (fits(json_text(request->wr, "opcode"),
			 json_text(packet->json, "name")))
			cause(request->post, packet);
		else
			run->doubts++;
	}
}

/* ---- completions ---------------------------------------------------------- */

/*
 * The packet that says that REQUEST is done. An acknowledgement may be for
 * several at once, and one that refuses a packet acknowledges all before it.
 */
static struct event *answer_to(struct run *run, const struct qp *qp,
			       const struct request *request)
{
	int64_t all = 1 << PSN_BITS, last = (qp->psn + request->last) % all;
	int i = first_packet(qp, request);

	for (; i >= 0 && i < run->all[WIRE].count; i++) {
		struct event *packet = run->all[WIRE].list[i];
		struct json *json = packet->json;
		bool response = json_is(json, "kind", "response");
		int64_t past;

		if (sender(packet) == qp->side ||
		    json_number(json, "qp", -1) != qp->number ||
		    (!response && !json_is(json, "kind", "ack")))
			continue;
		past = (json_number(json, "psn", 0) - last + all) % all;
		if (past >= all / 2)
			continue;
		if (response)
			return packet;
		if (!request->reads &&
		    (past || json_is(json, "name", "Acknowledge")))
			return packet;
	}
	return NULL;
}

/* The refusal that a completion tells of. */
static struct event *refusal_of(struct run *run, const struct qp *qp,
				const struct request *request)
{
	int i = first_packet(qp, request);

	for (; i >= 0 && i < run->all[WIRE].count; i++) {
		struct event *packet = run->all[WIRE].list[i];

		if (sender(packet) != qp->side &&
		    json_number(packet->json, "qp", -1) == qp->number &&
		    json_is(packet->json, "kind", "ack") &&
		    !json_is(packet->json, "name", "Acknowledge"))
			return packet;
	}
	return NULL;
}

/*
 * When this packet was taken: the first time that it came, unless it was
 * refused then (no receive, or one before it was missing) and came again.
 */
static int taken_at(const struct qp *qp, int64_t offset)
{
	const struct seen *seen = first_seen(qp, offset), *each;
	int i, at;

	if (!seen)
		return -1;
	at = seen->at;
	for (i = 0; i < qp->n_refused; i++) {
		if (qp->refused[i].offset > offset || qp->refused[i].at < at)
			continue;
		for (each = seen;
		     each < qp->seen + qp->n_seen && each->offset == offset;
		     each++)
			if (each->at > qp->refused[i].at) {
				at = each->at;
				break;
			}
	}
	return at;
}

/* The next message that takes a receive: when has all of it been taken? */
static int next_delivered(struct qp *from)
{
	while (from->delivered_to < from->n_requests) {
		struct request *request = &from->requests[from->delivered_to++];
		int64_t offset;
		int at;

		/* In order: none is taken before those that precede it. */
		for (offset = request->first; offset <= request->last;
		     offset++) {
			at = taken_at(from, offset);
			if (at > from->delivered_at)
				from->delivered_at = at;
			if (request->reads)
				break;
		}
		if (request->takes_receive)
			return first_seen(from, request->last) ?
				       from->delivered_at :
				       -1;
	}
	return -1;
}

static void completed_receive(struct run *run, struct qp *qp,
			      struct event *poll)
{
	struct qp *from = peer_of(qp);
	int at = from && !qp->datagrams ? next_delivered(from) : -1;

	if (at >= 0)
		cause(run->all[WIRE].list[at], poll);
}

static void completed_send(struct run *run, struct qp *qp, struct json *wc,
			   struct event *poll)
{
	uint64_t wr_id = json_number(wc, "wr_id", 0);
	bool failed = json_number(wc, "status", 0) != 0;
	int i;

	for (i = qp->done; i < qp->n_requests; i++) {
		struct request *request = &qp->requests[i];

		if (request->completed || request->wr_id != wr_id ||
		    (!failed && !request->signaled))
			continue;
		request->completed = true;
		/* In order, so those before it have, too. */
		if (!failed)
			qp->done = i + 1;
		cause(request->post, poll);
		/* Nothing comes back for a datagram, or for what is flushed. */
		if (qp->datagrams || json_is(wc, "status_name", "WR_FLUSH_ERR"))
			return;
		cause(failed ? refusal_of(run, qp, request) :
			       answer_to(run, qp, request),
		      poll);
		return;
	}
}

static void look_at_completions(struct run *run, struct event *poll)
{
	struct json *wcs = json_get(poll->json, "wcs"), *wc;

	for (wc = wcs ? wcs->first : NULL; wc; wc = wc->next) {
		struct qp *qp =
			find_qp(poll->side, json_number(wc, "qp_num", -1));

		if (starts(json_text(wc, "opcode"), "RECV"))
			completed_receive(run, qp, poll);
		else
			completed_send(run, qp, wc, poll);
	}
}

void find_request_causes(struct run *run)
{
	int side, i;

	for (side = CLIENT; side < SIDES; side++)
		for (i = 0; i < run->all[side].count; i++)
			look_at_call(run->all[side].list[i]);
	for (i = 0; i < run->all[WIRE].count; i++)
		look_at_packet(run->all[WIRE].list[i]);
	for (i = 0; i < n_qps; i++)
		match_requests(run, &qps[i]);
	for (side = CLIENT; side < SIDES; side++)
		for (i = 0; i < run->all[side].count; i++)
			look_at_completions(run, run->all[side].list[i]);
}
