/* SPDX-License-Identifier: MIT */
/*
 * Which event has to be before which. No clock is asked here.
 *
 *	a call		and the next one of the same thread
 *	a packet	and the next one on the wire
 *	CM calls	and their packets, packets and the events that they raise
 *	work requests	and their packets and completions: requests.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge.h"

void *grow(void *list, int count, size_t size)
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

/* ---- connections on the wire ---------------------------------------------- */

enum cm {
	REQUEST,
	REPLY,
	READY,
	REJECT,
	DISCONNECT,
	CMS
};

struct connection {
	int64_t qp[SIDES];
	struct event *packets[SIDES][CMS]; /* the first of each */
};

static struct connection *connections;
static int n_connections;

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
		connections =
			grow(connections, n_connections, sizeof(*connections));
		connection = &connections[n_connections++];
		memset(connection, 0, sizeof(*connection));
		connection->qp[CLIENT] = connection->qp[SERVER] = -1;
	}
	connection = &connections[number - 1];
	if (!connection->packets[from][kind])
		connection->packets[from][kind] = packet;
	if (json_get(packet->json, "local_qp"))
		connection->qp[from] =
			json_number(packet->json, "local_qp", -1);
}

/* ---- the connection manager ----------------------------------------------- */

/* Which connection a cm_id stands for, by its queue pair. */
struct id {
	enum side side;
	const char *name; /* its address, which may be another one's later */
	int64_t since;
	int64_t qp;
	struct connection *connection;
};

static struct id *ids;
static int n_ids;

static struct id *find_id(const struct event *event)
{
	const char *name = json_text(event->json, "id");
	int64_t when = event->end < 0 ? event->begin : event->end;
	struct id *found = NULL;
	int i;

	for (i = 0; name && i < n_ids; i++)
		if (ids[i].side == event->side && ids[i].since <= when &&
		    !strcmp(ids[i].name, name) &&
		    (!found || ids[i].since >= found->since))
			found = &ids[i];
	return found;
}

static struct connection *connection_by_qp(enum side side, int64_t qp)
{
	int i;

	for (i = n_connections - 1; i >= 0; i--)
		if (qp > 0 && connections[i].qp[side] == qp)
			return &connections[i];
	return NULL;
}

static struct connection *connection_of(const struct event *event)
{
	struct id *id = find_id(event);

	if (!id)
		return NULL;
	if (!id->connection)
		id->connection = connection_by_qp(event->side, id->qp);
	return id->connection;
}

static struct event *packet_of(struct connection *connection, enum side from,
			       enum cm kind)
{
	return connection ? connection->packets[from][kind] : NULL;
}

static void new_id(const struct event *event)
{
	const char *name = json_text(event->json, "id");

	if (name) {
		ids = grow(ids, n_ids, sizeof(*ids));
		ids[n_ids++] =
			(struct id){ event->side, name, event->end, -1, NULL };
	}
}

/* First: which ids there are, and which queue pair each has. */
static void note_id(struct event *event)
{
	struct json *json = event->json;
	bool asked = json_is(json, "event", "CONNECT_REQUEST") &&
		     is_call(event, "rdma_get_cm_event");
	struct id *id;

	if (is_call(event, "rdma_create_id") ||
	    is_call(event, "rdma_create_ep") || asked)
		new_id(event);
	id = find_id(event);
	if (id && asked)
		id->connection = connection_by_qp(
			other(event->side), json_number(json, "qp_num", -1));
}

static void note_id_qp(struct event *event)
{
	struct id *id = find_id(event);

	if (id && (is_call(event, "rdma_create_qp") ||
		   is_call(event, "rdma_create_qp_ex") ||
		   is_call(event, "rdma_create_ep")))
		id->qp = json_number(event->json, "qp_num", -1);
	/* A QP made without the CM is named in these. */
	if (id && id->qp < 0 &&
	    (is_call(event, "rdma_connect") || is_call(event, "rdma_accept")))
		id->qp = json_number(event->json, "qp_num", -1);
}

static void look_at_event(struct event *event)
{
	struct json *json = event->json;
	enum side peer = other(event->side);
	struct connection *connection = connection_of(event);

	if (json_is(json, "event", "CONNECT_REQUEST")) {
		cause(packet_of(connection, peer, REQUEST), event);
	} else if (json_is(json, "event", "ESTABLISHED")) {
		cause(packet_of(connection, peer, REPLY), event);
		cause(packet_of(connection, peer, READY), event);
	} else if (json_is(json, "event", "REJECTED")) {
		cause(packet_of(connection, peer, REJECT), event);
	} else if (json_is(json, "event", "DISCONNECTED")) {
		cause(packet_of(connection, peer, DISCONNECT), event);
	}
}

/* Then: what each call asked for, and what each event told of. */
static void look_at_cm(struct event *event)
{
	static const struct {
		const char *call;
		enum cm packet;
	} asking[] = { { "rdma_connect", REQUEST },
		       { "rdma_accept", REPLY },
		       { "rdma_reject", REJECT },
		       { "rdma_disconnect", DISCONNECT } };
	size_t i;

	if (is_call(event, "rdma_get_cm_event"))
		look_at_event(event);
	for (i = 0; i < sizeof(asking) / sizeof(asking[0]); i++)
		if (is_call(event, asking[i].call))
			cause(event, packet_of(connection_of(event),
					       event->side, asking[i].packet));
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
		/* What it calls comes before it returns. */
		if (!inner || !event->tells)
			last[thread][inner] = event;
	}
}

static void for_own_calls(struct run *run, void (*look)(struct event *))
{
	int side, i;

	for (side = CLIENT; side < SIDES; side++)
		for (i = 0; i < run->all[side].count; i++)
			if (is_own(run->all[side].list[i]))
				look(run->all[side].list[i]);
}

void find_causes(struct run *run)
{
	struct event **packets = run->all[WIRE].list;
	int side, i;

	for (i = 0; i < run->all[WIRE].count; i++) {
		packets[i]->number = i;
		if (i)
			cause(packets[i - 1], packets[i]);
		if (json_is(packets[i]->json, "kind", "CM"))
			note_cm(packets[i]);
	}
	for (side = CLIENT; side < SIDES; side++)
		program_order(&run->all[side]);
	find_request_causes(run);
	for_own_calls(run, note_id);
	for_own_calls(run, note_id_qp);
	for_own_calls(run, look_at_cm);
}
