/* SPDX-License-Identifier: MIT */
/*
 * Which event has to be before which. No clock is asked here.
 *
 *	a call		and the next one of the same thread
 *	a packet	and the next one on the wire
 *	a post		and the packets of the message
 *	a message	and the completion of the receive that it went into
 *	an answer	(acknowledgement, data) and the completion of the request
 *	CM calls	and their packets, packets and the events that they raise
 *
 * Messages are matched with requests by their order: a queue pair works on its
 * requests in the order in which they were posted.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge.h"

#define PSN_MASK 0xffffff

/* One request that was accepted. */
struct request {
	struct event *post;
	struct json *wr;
	uint64_t wr_id;
	bool signaled;
	bool completed;
	bool reads; /* it is answered with data */
	struct event *first, *last; /* its packets */
	int64_t psn; /* of the last */
};

/* A message on the wire. */
struct message {
	struct event *first, *last;
	int64_t psn; /* of the last packet */
	bool takes_receive;
	bool refused; /* RNR NAK: it comes again */
};

struct qp {
	enum side side;
	int64_t number;
	int64_t peer; /* the number of the other end */
	bool sig_all;
	struct request *requests;
	int n_requests;
	int received; /* completions of receives, so far */
};

/* The messages from one side to one queue pair of the other. */
struct stream {
	enum side from;
	int64_t qp;
	struct message *messages;
	int n_messages;
};

struct connection {
	int64_t qp[SIDES];
	struct event *packets[SIDES][6];
};

enum cm {
	REQUEST,
	REPLY,
	READY,
	REJECT,
	DISCONNECT,
	CMS
};

static struct qp *qps;
static int n_qps;
static struct stream *streams;
static int n_streams;
static struct connection *connections;
static int n_connections;

static void *grow(void *list, int count, size_t size)
{
	/* At 1, 2, 4, 8, .. there is no room for another. */
	if (count & (count - 1))
		return list;
	list = realloc(list, (count ? 2 * count : 1) * size);
	if (!list) {
		perror("realloc");
		exit(1);
	}
	return list;
}

#define ADD(list, count)                                          \
	(*((list) = grow(list, count, sizeof(*(list))),           \
	   memset(&(list)[count], 0, sizeof(*(list))), (count)++, \
	   &(list)[(count)-1]))

void events_add(struct events *events, struct event *event)
{
	events->list = grow(events->list, events->count, sizeof(*events->list));
	events->list[events->count++] = event;
}

void cause(struct event *first, struct event *second)
{
	int i;

	if (!first || !second || first == second)
		return;
	for (i = 0; i < second->n_after; i++)
		if (second->after[i] == first)
			return;
	second->after =
		grow(second->after, second->n_after, sizeof(*second->after));
	second->after[second->n_after++] = first;
	first->before =
		grow(first->before, first->n_before, sizeof(*first->before));
	first->before[first->n_before++] = second;
}

static enum side other(enum side side)
{
	return side == CLIENT ? SERVER : CLIENT;
}

static enum side sender(const struct event *packet)
{
	return json_is(packet->json, "from", "server") ? SERVER : CLIENT;
}

static bool starts(const char *text, const char *with)
{
	return text && !strncmp(text, with, strlen(with));
}

static bool ends(const char *text, const char *with)
{
	size_t len = text ? strlen(text) : 0, n = strlen(with);

	return len >= n && !strcmp(text + len - n, with);
}

/* ---- queue pairs and what was posted -------------------------------------- */

static struct qp *find_qp(enum side side, int64_t number)
{
	int i;

	for (i = 0; i < n_qps; i++)
		if (qps[i].side == side && qps[i].number == number)
			return &qps[i];
	struct qp *qp = &ADD(qps, n_qps);

	qp->side = side;
	qp->number = number;
	qp->peer = -1;
	return qp;
}

static bool has_flag(const struct json *wr, const char *flag)
{
	struct json *flags = json_get(wr, "flags"), *each;

	for (each = flags ? flags->first : NULL; each; each = each->next)
		if (each->text && !strcmp(each->text, flag))
			return true;
	return false;
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
		request = &ADD(qp->requests, qp->n_requests);
		request->post = event;
		request->wr = wr;
		request->wr_id = json_number(wr, "wr_id", 0);
		request->signaled = qp->sig_all || has_flag(wr, "SIGNALED");
		request->reads = starts(opcode, "RDMA_READ") ||
				 starts(opcode, "ATOMIC");
		/* A datagram's other end is in the request. */
		if (json_get(wr, "remote_qpn"))
			qp->peer = json_number(wr, "remote_qpn", -1);
	}
}

static void look_at_calls(struct run *run, enum side side)
{
	int i;

	for (i = 0; i < run->all[side].count; i++) {
		struct event *event = run->all[side].list[i];
		struct json *json = event->json;
		struct qp *qp;

		if (is_call(event, "ibv_create_qp") ||
		    is_call(event, "ibv_create_qp_ex")) {
			qp = find_qp(side, json_number(json, "qp_num", -1));
			qp->sig_all = json_number(json_get(json, "attr"),
						  "sq_sig_all", 0);
		} else if (is_call(event, "ibv_modify_qp") &&
			   json_get(json, "dest_qp_num")) {
			qp = find_qp(side, json_number(json, "qp_num", -1));
			qp->peer = json_number(json, "dest_qp_num", -1);
		} else if (is_call(event, "ibv_post_send") ||
			   is_call(event, "ibv_wr_complete")) {
			note_post(event);
		}
	}
}

/* ---- what was on the wire ------------------------------------------------- */

static struct stream *find_stream(enum side from, int64_t qp)
{
	int i;

	for (i = 0; i < n_streams; i++)
		if (streams[i].from == from && streams[i].qp == qp)
			return &streams[i];
	struct stream *stream = &ADD(streams, n_streams);

	stream->from = from;
	stream->qp = qp;
	return stream;
}

static enum cm cm_kind(const char *name)
{
	if (starts(name, "ConnectRequest"))
		return REQUEST;
	if (starts(name, "ConnectReply"))
		return REPLY;
	if (starts(name, "ReadyToUse"))
		return READY;
	if (starts(name, "ConnectReject"))
		return REJECT;
	if (starts(name, "Disconnect"))
		return DISCONNECT;
	return CMS;
}

static void note_cm(struct event *packet)
{
	int64_t number = json_number(packet->json, "connection", 0);
	enum cm kind = cm_kind(json_text(packet->json, "name"));
	enum side from = sender(packet);
	struct connection *connection;

	if (number < 1 || kind == CMS)
		return;
	while (n_connections < number) {
		connection = &ADD(connections, n_connections);
		connection->qp[CLIENT] = connection->qp[SERVER] = -1;
	}
	connection = &connections[number - 1];
	if (!connection->packets[from][kind])
		connection->packets[from][kind] = packet;
	if (json_get(packet->json, "local_qp"))
		connection->qp[from] =
			json_number(packet->json, "local_qp", -1);
}

static void note_request(struct event *packet, const char *name)
{
	struct stream *stream = find_stream(
		sender(packet), json_number(packet->json, "qp", -1));
	struct message *message;

	if (json_number(packet->json, "again", 0)) {
		/* Sent again after an RNR NAK: now it is received. */
		int64_t psn = json_number(packet->json, "psn", -1);
		int i;

		for (i = stream->n_messages - 1; i >= 0; i--) {
			message = &stream->messages[i];
			if (message->refused && message->psn == psn) {
				message->last = packet;
				break;
			}
		}
		return;
	}
	if (ends(name, "First") || strstr(name, " Only") ||
	    starts(name, "RDMA READ Request") || starts(name, "CmpSwap") ||
	    starts(name, "FetchAdd")) {
		message = &ADD(stream->messages, stream->n_messages);
		message->first = packet;
	} else if (stream->n_messages) {
		message = &stream->messages[stream->n_messages - 1];
	} else {
		return; /* the capture began in the middle of it */
	}
	message->last = packet;
	message->psn = json_number(packet->json, "psn", -1);
	message->takes_receive = starts(name, "SEND") ||
				 strstr(name, "with Immediate");
}

/* Which message does an RNR NAK refuse? */
static void note_refusal(struct run *run, struct event *nak)
{
	int64_t psn = json_number(nak->json, "psn", -1);
	enum side from = other(sender(nak));
	int i, j;

	(void)run;
	for (i = 0; i < n_streams; i++)
		for (j = streams[i].n_messages - 1;
		     streams[i].from == from && j >= 0; j--)
			if (streams[i].messages[j].psn == psn)
				streams[i].messages[j].refused = true;
}

static void look_at_packets(struct run *run)
{
	int i;

	for (i = 0; i < run->all[WIRE].count; i++) {
		struct event *packet = run->all[WIRE].list[i];
		const char *name = json_text(packet->json, "name");

		if (json_is(packet->json, "kind", "CM"))
			note_cm(packet);
		else if (json_is(packet->json, "kind", "request"))
			note_request(packet, name);
		else if (name && !strcmp(name, "RNR NAK"))
			note_refusal(run, packet);
	}
}

/* ---- requests and their packets ------------------------------------------- */

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

static void match_requests(struct run *run)
{
	int i, j;

	for (i = 0; i < n_qps; i++) {
		struct qp *qp = &qps[i];
		struct stream *stream = find_stream(qp->side, qp->peer);

		for (j = 0; j < qp->n_requests && j < stream->n_messages; j++) {
			struct request *request = &qp->requests[j];
			struct message *message = &stream->messages[j];

			if (!fits(json_text(request->wr, "opcode"),
				  json_text(message->first->json, "name"))) {
				run->doubts++;
				break;
			}
			request->first = message->first;
			request->last = message->last;
			request->psn = message->psn;
			cause(request->post, message->first);
		}
	}
}

/*
 * The packet that says that REQUEST is done: an acknowledgement may be for
 * several requests at once, and data answers reads, one after the other.
 */
static struct event *answer_to(struct run *run, struct qp *qp,
			       struct request *request)
{
	struct event **packets = run->all[WIRE].list;
	int i = request->first->number;

	for (; i < run->all[WIRE].count; i++) {
		struct json *json = packets[i]->json;
		const char *name = json_text(json, "name");
		int64_t after;

		if (sender(packets[i]) == qp->side ||
		    json_number(json, "qp", -1) != qp->number)
			continue;
		after = (json_number(json, "psn", 0) - request->psn) & PSN_MASK;
		if (after >= PSN_MASK / 2)
			continue;
		if (json_is(json, "kind", "response") &&
		    (!request->reads || ends(name, "Last") ||
		     ends(name, "Only") || ends(name, "Acknowledge")))
			return packets[i];
		if (!request->reads && name && !strcmp(name, "Acknowledge"))
			return packets[i];
	}
	return NULL;
}

/* A refusal of what this queue pair sent, for a completion that failed. */
static struct event *refusal_of(struct run *run, struct qp *qp,
				struct request *request)
{
	int i = request->first->number;

	for (; i < run->all[WIRE].count; i++) {
		struct event *packet = run->all[WIRE].list[i];

		if (sender(packet) != qp->side &&
		    json_number(packet->json, "qp", -1) == qp->number &&
		    json_is(packet->json, "kind", "ack") &&
		    !json_is(packet->json, "name", "Acknowledge"))
			return packet;
	}
	return NULL;
}

/* ---- completions ---------------------------------------------------------- */

static void completed_receive(struct qp *qp, struct event *poll)
{
	struct stream *stream = find_stream(other(qp->side), qp->number);
	int i, count = 0;

	for (i = 0; i < stream->n_messages; i++) {
		if (!stream->messages[i].takes_receive)
			continue;
		if (count++ == qp->received) {
			cause(stream->messages[i].last, poll);
			break;
		}
	}
	qp->received++;
}

static void completed_send(struct run *run, struct qp *qp, struct json *wc,
			   struct event *poll)
{
	uint64_t wr_id = json_number(wc, "wr_id", 0);
	bool failed = json_number(wc, "status", 0) != 0;
	int i;

	for (i = 0; i < qp->n_requests; i++) {
		struct request *request = &qp->requests[i];

		if (request->completed || request->wr_id != wr_id ||
		    (!failed && !request->signaled))
			continue;
		request->completed = true;
		cause(request->post, poll);
		if (!request->first)
			return;
		/* What was flushed needs no packet. */
		if (!failed)
			cause(answer_to(run, qp, request), poll);
		else if (!json_is(wc, "status_name", "WR_FLUSH_ERR"))
			cause(refusal_of(run, qp, request), poll);
		return;
	}
}

static void look_at_completions(struct run *run, struct event *poll)
{
	struct json *wcs = json_get(poll->json, "wcs"), *wc;

	for (wc = wcs ? wcs->first : NULL; wc; wc = wc->next) {
		struct qp *qp =
			find_qp(poll->side, json_number(wc, "qp_num", -1));
		bool received = starts(json_text(wc, "opcode"), "RECV");

		if (received)
			completed_receive(qp, poll);
		else
			completed_send(run, qp, wc, poll);
	}
}

/* ---- the connection manager ----------------------------------------------- */

/* Which connection a cm_id stands for, by its queue pair. */
struct id {
	enum side side;
	const char *name; /* its address */
	int64_t qp;
	struct connection *connection;
};

static struct id *ids;
static int n_ids;

static struct id *find_id(enum side side, const char *name)
{
	int i;

	/* An address may be used again: the last is the one. */
	for (i = n_ids - 1; name && i >= 0; i--)
		if (ids[i].side == side && !strcmp(ids[i].name, name))
			return &ids[i];
	return NULL;
}

static struct connection *connection_by_qp(enum side side, int64_t qp)
{
	int i;

	for (i = n_connections - 1; i >= 0; i--)
		if (qp > 0 && connections[i].qp[side] == qp)
			return &connections[i];
	return NULL;
}

static struct connection *connection_of(enum side side, const char *id_name)
{
	struct id *id = find_id(side, id_name);

	if (!id)
		return NULL;
	if (!id->connection)
		id->connection = connection_by_qp(side, id->qp);
	return id->connection;
}

static struct event *packet_of(struct connection *connection, enum side from,
			       enum cm kind)
{
	return connection ? connection->packets[from][kind] : NULL;
}

static void new_id(enum side side, const char *name)
{
	if (name) {
		ids = grow(ids, n_ids, sizeof(*ids));
		ids[n_ids++] = (struct id){ side, name, -1, NULL };
	}
}

static void look_at_event(struct event *event)
{
	struct json *json = event->json;
	enum side side = event->side, peer = other(side);
	const char *name = json_text(json, "id");
	struct connection *connection;
	struct id *id;

	if (json_is(json, "event", "CONNECT_REQUEST")) {
		new_id(side, name);
		connection =
			connection_by_qp(peer, json_number(json, "qp_num", -1));
		id = find_id(side, name);
		if (id)
			id->connection = connection;
		cause(packet_of(connection, peer, REQUEST), event);
		return;
	}
	connection = connection_of(side, name);
	if (json_is(json, "event", "ESTABLISHED")) {
		cause(packet_of(connection, peer, REPLY), event);
		cause(packet_of(connection, peer, READY), event);
	} else if (json_is(json, "event", "REJECTED")) {
		cause(packet_of(connection, peer, REJECT), event);
	} else if (json_is(json, "event", "DISCONNECTED")) {
		cause(packet_of(connection, peer, DISCONNECT), event);
	}
}

static void look_at_cm(struct event *event)
{
	static const struct {
		const char *call;
		enum cm packet;
	} asking[] = { { "rdma_connect", REQUEST },
		       { "rdma_accept", REPLY },
		       { "rdma_reject", REJECT },
		       { "rdma_disconnect", DISCONNECT } };
	struct json *json = event->json;
	const char *name = json_text(json, "id");
	struct id *id;
	size_t i;

	if (is_call(event, "rdma_create_id")) {
		new_id(event->side, name);
	} else if (is_call(event, "rdma_create_qp") ||
		   is_call(event, "rdma_create_qp_ex") ||
		   is_call(event, "rdma_create_ep")) {
		if (is_call(event, "rdma_create_ep"))
			new_id(event->side, name);
		id = find_id(event->side, name);
		if (id)
			id->qp = json_number(json, "qp_num", -1);
	} else if (is_call(event, "rdma_get_cm_event")) {
		look_at_event(event);
	}
	for (i = 0; i < sizeof(asking) / sizeof(asking[0]); i++)
		if (is_call(event, asking[i].call)) {
			/* A QP made without the CM is named in the call. */
			id = find_id(event->side, name);
			if (id && id->qp < 0 && json_get(json, "qp_num"))
				id->qp = json_number(json, "qp_num", -1);
			cause(event, packet_of(connection_of(event->side, name),
					       event->side, asking[i].packet));
		}
}

/* ---- all together --------------------------------------------------------- */

/* The calls of one thread follow each other; so do calls within calls. */
static void program_order(struct events *events)
{
	struct event *last[64][2] = { { NULL } };
	int i;

	for (i = 0; i < events->count; i++) {
		struct event *event = events->list[i];
		int64_t thread = json_number(event->json, "thread", 0);
		int inner = json_get(event->json, "in") != NULL;

		if (thread < 0 || thread >= 64)
			continue;
		cause(last[thread][inner], event);
		last[thread][inner] = event;
	}
}

void find_causes(struct run *run)
{
	enum side side;
	int i;

	for (i = 0; i < run->all[WIRE].count; i++) {
		run->all[WIRE].list[i]->number = i;
		if (i)
			cause(run->all[WIRE].list[i - 1],
			      run->all[WIRE].list[i]);
	}
	look_at_packets(run);
	for (side = CLIENT; side < SIDES; side++) {
		program_order(&run->all[side]);
		look_at_calls(run, side);
	}
	match_requests(run);
	for (side = CLIENT; side < SIDES; side++)
		for (i = 0; i < run->all[side].count; i++) {
			struct event *event = run->all[side].list[i];

			look_at_completions(run, event);
			if (is_own(event))
				look_at_cm(event);
		}
}
