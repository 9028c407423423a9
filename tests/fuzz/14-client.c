/* SPDX-License-Identifier: MIT */
/* Lesson 14's client: the regions that a server lends, and the head that it writes. */
#include "fuzz.h"

#include "../../lessons/14-ring/client.c"

/* Right private data, and then changes. */
static void lend(struct client *c, const uint8_t **data, size_t *size)
{
	struct ibv_mr ring = { .addr = (void *)4096, .length = c->st.size };
	struct ibv_mr tail = { .addr = (void *)64, .length = 8 };
	uint8_t few;

	remote_region_pack(c->ep.private_data, &ring);
	remote_region_pack(c->ep.private_data + REMOTE_REGION_WIRE_SIZE, &tail);
	fuzz_take(data, size, &few, 1);
	fuzz_change(data, size, c->ep.private_data, few % 33);
	if (!read_regions(c) &&
	    (c->ring.size != c->st.size || c->tail_word.size != 8 ||
	     c->ring.addr + c->st.size <= c->ring.addr ||
	     c->tail_word.addr + 8 <= c->tail_word.addr))
		abort();
}

/* The server says that it has read up to MORE bytes or messages further. */
static int move_head(struct client *c, uint64_t more, const uint8_t **data,
		     size_t *size)
{
	uint64_t before = c->head, word = htobe64(c->head + more);
	uint8_t change;

	fuzz_take(data, size, &change, 1);
	if (change & 1)
		fuzz_change(data, size, &word, sizeof(word));
	c->head_word = word;
	if (c->st.by_send ? read_credit(c) : read_head(c))
		return -1;
	if (c->head < before || c->head > c->sent ||
	    (!c->st.by_send && c->head % 16))
		abort();
	return 0;
}

/*
 * Messages are built where there is room. Flushes there are none, without a
 * card: what is built counts as sent, and as done when the input says so.
 */
static void stream(struct client *c, const uint8_t *data, size_t size)
{
	uint32_t seq = 1;
	uint8_t what;

	while (size > 0 && seq <= c->st.count) {
		fuzz_take(&data, &size, &what, 1);
		if (c->st.by_send) {
			c->sent = seq++;
		} else if (room(c) >= space_of(length_of(&c->st, seq))) {
			put(c, seq++);
			c->sent = c->built;
		}
		if (what & 1)
			c->done = c->sent;
		if (what & 2 && move_head(c, what & 4 ? c->sent - c->head : 0,
					  &data, &size))
			break;
		if (!c->st.by_send && room(c) > c->st.size)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client client = { .st = { .count = 200 } };
	uint8_t how;

	fuzz_take(&data, &size, &how, 1);
	client.st.by_send = how & 1;
	client.st.max = how & 2 ? 100 : 40;
	client.st.size = how & 4 ? 256 : 1024;
	/* Of exactly that size, so that one byte too far is seen. */
	client.mirror = calloc(1, client.st.size);
	if (!client.mirror)
		abort();
	lend(&client, &data, &size);
	stream(&client, data, size);
	free(client.mirror);
	return 0;
}
