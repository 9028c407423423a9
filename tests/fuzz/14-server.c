/* SPDX-License-Identifier: MIT */
/* Lesson 14's server: what a client asks for, its tail, and what is in the ring. */
#include "fuzz.h"

#include "../../lessons/14-ring/server.c"

/* A request as a client sends it, and then changes. */
static int read_stream(struct server *s, const uint8_t **data, size_t *size)
{
	struct stream *st = &s->st;
	struct stream right = { .count = 100, .max = 40, .size = 256 };
	struct ibv_mr head = { .addr = (void *)64, .length = 8 };
	size_t length = STREAM_WIRE_SIZE;
	uint8_t wire[STREAM_WIRE_SIZE], how;

	fuzz_take(data, size, &how, 1);
	right.by_send = how & 1;
	if (how % 64 == 48) { /* so large that a wrong length leads far away */
		right.max = MAX_LENGTH;
		right.size = 2 * space_of(MAX_LENGTH);
	}
	stream_pack(wire, &right, &head);
	if (how & 2)
		fuzz_change(data, size, wire + 8, sizeof(wire) - 8);
	if (how & 4)
		fuzz_change(data, size, wire, 8);
	if (how & 8)
		fuzz_change(data, size, &length, 1);
	if (length > sizeof(wire))
		length = sizeof(wire);
	if (stream_unpack(st, &s->head_word, wire, length))
		return -1;
	if (length < sizeof(wire) || st->count < 1 || st->count > MAX_COUNT ||
	    st->size < MIN_RING || st->size > MAX_RING || st->size % 16 ||
	    st->max > MAX_LENGTH || slots_of(st) < 2 ||
	    s->head_word.addr + s->head_word.size <= s->head_word.addr)
		abort();
	if (st->size > 4096) /* It fits. One that we know is enough here. */
		*st = right;
	return 0;
}

/* The next message, from POSITION on, over the end of the ring where it has to. */
static uint32_t write_message(struct server *s, uint64_t position, uint32_t seq)
{
	uint32_t length = length_of(&s->st, seq), i;
	struct header header = { .length = htobe32(length),
				 .seq = htobe32(seq) };

	for (i = 0; i < sizeof(header); i++)
		s->ring[(position + i) % s->st.size] = ((uint8_t *)&header)[i];
	if (s->st.max == MAX_LENGTH) /* It would take its time. */
		return space_of(length);
	for (i = 0; i < length; i++)
		s->ring[(position + sizeof(header) + i) % s->st.size] =
			first_byte(seq) + i;
	return space_of(length);
}

/* Four bytes somewhere in the ring; as a rule near to POSITION. */
static void change_ring(struct server *s, uint64_t position,
			const uint8_t **data, size_t *size)
{
	uint8_t byte, i;

	fuzz_take(data, size, &byte, 1);
	for (i = 0; i < 4; i++)
		fuzz_change(data, size,
			    &s->ring[(position + byte + i) % s->st.size], 1);
}

static void read_ring(struct server *s, const uint8_t *data, size_t size)
{
	uint64_t built = 0, before, skipped, tail;
	uint32_t seq = 1;
	uint8_t what;
	int ret;

	/* So many WRITEs are on their way that it does not post another. */
	s->heads = HEADS;
	while (size > 0) {
		fuzz_take(&data, &size, &what, 1);
		skipped = UINT64_MAX;
		while (what % 4 > 0 &&
		       built + space_of(s->st.max) - s->head <= s->st.size) {
			if (what & 16 && skipped == UINT64_MAX) {
				skipped = built;
				seq++;
			}
			built += write_message(s, built, seq++);
			what--;
		}
		if (what & 4 && skipped == UINT64_MAX)
			change_ring(s, s->head, &data, &size);
		before = s->head;
		tail = built;
		if (what & 8)
			fuzz_change(&data, &size, &tail, sizeof(tail));
		s->tail_word = htobe64(tail);
		ret = take_all(s);
		/* Nothing may be taken out of turn, nor behind the tail. */
		if (s->head > skipped)
			abort();
		if (s->head != before &&
		    (s->head > tail || tail - before > s->st.size || tail % 16))
			abort();
		if (ret)
			break;
		if (s->head != tail || s->bytes > s->head)
			abort();
		/* A tail that is right by accident: go on behind it. */
		built = s->head;
		seq = s->seq + 1;
	}
}

static void read_slots(struct server *s, const uint8_t *data, size_t size)
{
	uint32_t slots = slots_of(&s->st), space = space_of(s->st.max);
	uint32_t slot, bytes, before, seq, i;
	const uint8_t *text;
	uint8_t what;

	for (slot = 0; size > 0; slot = (slot + 1) % slots) {
		fuzz_take(&data, &size, &what, 1);
		seq = s->seq + (what & 4 ? 2 : 1);
		write_message(s, (uint64_t)slot * space, seq);
		bytes = sizeof(struct header) + length_of(&s->st, seq);
		if (what & 1)
			change_ring(s, (uint64_t)slot * space, &data, &size);
		if (what & 2)
			fuzz_change(&data, &size, &bytes, 2);
		if (bytes > space) /* The card lets no longer one in. */
			bytes = space;
		before = s->seq;
		if (take_slot(s, slot, bytes))
			break;
		if (s->seq != before + 1 ||
		    bytes != sizeof(struct header) + length_of(&s->st, s->seq))
			abort();
		text = s->ring + (size_t)slot * space + sizeof(struct header);
		for (i = 0; i < bytes - sizeof(struct header); i++)
			if (text[i] != (uint8_t)(first_byte(s->seq) + i))
				abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server server = { 0 };

	if (read_stream(&server, &data, &size))
		return 0;
	/* Of exactly that size, so that one byte too far is seen. */
	server.ring = calloc(1, server.st.size);
	if (!server.ring)
		abort();
	if (server.st.by_send)
		read_slots(&server, data, size);
	else
		read_ring(&server, data, size);
	free(server.ring);
	return 0;
}
