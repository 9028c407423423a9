/* SPDX-License-Identifier: MIT */
/* Lesson 10's server: messages in its slots, and the immediates that tell of them. */
#include "fuzz.h"

#include "../../lessons/10-write-imm/server.c"

/* A message as it should be, in its slot, and its completion; then changes. */
static void write_message(struct server *s, struct ibv_wc *wc,
			  const uint8_t **data, size_t *size)
{
	uint32_t due = s->messages + s->count;
	uint8_t *slot = s->memory + due % s->slots * s->size;
	uint32_t length = s->size;
	uint8_t few;

	fuzz_take(data, size, &few, 1);
	if (few < length)
		length = few;
	pattern_fill(slot, s->size, due + 1);
	fuzz_take(data, size, &few, 1);
	if (few & 32)
		fuzz_change(data, size, &length, 2);
	memset(wc, 0, sizeof(*wc));
	wc->opcode = IBV_WC_RECV_RDMA_WITH_IMM;
	wc->wc_flags = IBV_WC_WITH_IMM;
	wc->byte_len = length;
	wc->imm_data = htobe32(header_of(number_of(due + 1), length));
	if (few & 1)
		fuzz_change(data, size, &wc->byte_len, 3);
	if (few & 2)
		fuzz_change(data, size, &wc->imm_data, 4);
	if (few & 4)
		fuzz_change(data, size, slot, s->size < 8 ? s->size : 8);
	if (few & 8)
		fuzz_change(data, size, &wc->opcode, 1);
	if (few & 16)
		fuzz_change(data, size, &wc->wc_flags, 1);
}

static int handle(struct server *s)
{
	const struct notice *notice = &s->waiting[s->first];
	uint32_t slot = s->messages % s->slots, due = s->messages + 1;

	if (check_message(s, notice))
		return -1;
	if (notice->length > s->size ||
	    notice->header != header_of(number_of(due), notice->length) ||
	    pattern_check(s->memory + slot * s->size, notice->length, due) >= 0)
		abort();
	s->first = (s->first + 1) % MAX_SLOTS;
	s->count--;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server server = { 0 };
	uint8_t slots, bytes, wait;
	struct ibv_wc wc;
	int ret = 0;

	fuzz_take(&data, &size, &slots, 1);
	fuzz_take(&data, &size, &bytes, 1);
	server.slots = slots % MAX_SLOTS + 1;
	server.size = bytes + 1;
	/* Of exactly that size, so that one byte too far is seen. */
	server.memory = calloc(server.slots, server.size);
	if (!server.memory)
		abort();
	while (!ret && size > 0) {
		/* So many wait, and there are receives for no more. */
		fuzz_take(&data, &size, &wait, 1);
		write_message(&server, &wc, &data, &size);
		ret = take_message(&server, &wc);
		if (!ret && (wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM ||
			     !(wc.wc_flags & IBV_WC_WITH_IMM)))
			abort();
		while (!ret && server.count > wait % MAX_SLOTS)
			ret = handle(&server);
	}
	print_end(&server);
	free(server.memory);
	return 0;
}
