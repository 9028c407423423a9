/* SPDX-License-Identifier: MIT */
/* Lesson 15's client: the server's terms, its refusals, and its answers. */
#include "fuzz.h"

#include "../../lessons/15-many-clients/client.c"

/* An event for a connection that has nothing to ask, so that nothing is posted. */
static void take_one_event(struct client *c, const uint8_t **data, size_t *size)
{
	static const enum rdma_cm_event_type types[] = {
		RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_DISCONNECTED,
		RDMA_CM_EVENT_REJECTED, RDMA_CM_EVENT_UNREACHABLE,
		RDMA_CM_EVENT_TIMEWAIT_EXIT
	};
	struct rdma_cm_event event = { 0 };
	uint8_t wire[32] = MAGIC, *private_data, how;
	uint32_t window = htobe32(4), slot_size = htobe32(SLOT_SIZE);
	size_t length = 16;
	int ret;

	memcpy(wire + 8, &window, 4);
	memcpy(wire + 12, &slot_size, 4);
	fuzz_take(data, size, &how, 1);
	event.event = types[how % 8 < 5 ? how % 8 : 0];
	fuzz_take(data, size, &event.status, 1);
	if (how & 8)
		fuzz_change(data, size, &length, 1);
	if (length > sizeof(wire))
		length = sizeof(wire);
	fuzz_change(data, size, wire + 8, 8);
	if (how & 16)
		fuzz_change(data, size, wire, 8);
	memcpy(&window, wire + 8, 4);
	memcpy(&slot_size, wire + 12, 4);
	/* Of exactly that size, so that one byte too far is seen. */
	private_data = malloc(length + 1);
	if (!private_data)
		abort();
	memcpy(private_data, wire, length);
	event.param.conn.private_data = length ? private_data : NULL;
	event.param.conn.private_data_len = length;
	ret = on_event(c, c->connections, &event);
	if (!ret && event.event == RDMA_CM_EVENT_ESTABLISHED &&
	    (length < 16 || memcmp(wire, MAGIC, 8) || c->window < 1 ||
	     c->window > MAX_WINDOW || c->window > be32toh(window) ||
	     c->size > be32toh(slot_size)))
		abort();
	free(private_data);
}

static void check_answers(struct client *c, const uint8_t *data, size_t size)
{
	struct connection con = { 0 };
	uint8_t *text = malloc(SLOT_SIZE), few;
	uint32_t length;
	bool right;

	if (!text)
		abort();
	for (; size > 0; con.answered++) {
		fill(c, &con, text, ANSWER, con.answered);
		length = c->size;
		fuzz_change(&data, &size, &length, 2);
		if (length > SLOT_SIZE) /* The card lets no longer one in. */
			length = SLOT_SIZE;
		fuzz_take(&data, &size, &few, 1);
		right = length == c->size;
		if (few < c->size && size > 0) {
			right = right && !*data;
			fuzz_change(&data, &size, text + few, 1);
		}
		if (answer_is_right(c, &con, text, length) != right)
			abort();
	}
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct connection con = { .state = CONNECTING };
	struct client client = { .connections = &con,
				 .clients = 2,
				 .at_once = 1 };
	uint8_t bytes, window;

	fuzz_take(&data, &size, &bytes, 1);
	fuzz_take(&data, &size, &window, 1);
	client.size = bytes < 4 ? SLOT_SIZE : bytes;
	client.window = window % (MAX_WINDOW + 1); /* 0: what it allows */
	take_one_event(&client, &data, &size);
	check_answers(&client, data, size);
	return 0;
}
