/* SPDX-License-Identifier: MIT */
/* Lesson 18's client: datagrams, of whomever. */
#include "fuzz.h"

#include "../../lessons/18-datagrams/client.c"

#define MOST 16 /* datagrams of one input, each in a slot of its own */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client client = { .count = 100 };
	struct datagram right, got;
	struct ibv_wc wc = { 0 };
	uint32_t slot, length;

	/* Of exactly that size, so that one byte too far is seen. */
	client.u.memory = calloc(MOST, SLOT);
	if (!client.u.memory)
		abort();
	for (slot = 0; slot < MOST && size > 0; slot++) {
		right.magic = htobe32(MAGIC);
		right.kind = htobe32(REPORT);
		right.seq = htobe32(99);
		right.count = htobe32(0);
		length = GRH + sizeof(right);
		fuzz_change(&data, &size, &length, 2);
		fuzz_change(&data, &size, &right, sizeof(right));
		memcpy(slot_of(&client.u, slot) + GRH, &right, sizeof(right));
		wc.wr_id = wr_id_of(WR_RECV, slot);
		wc.byte_len = length < SLOT ? length : SLOT;
		read_datagram(&client, &wc, &got);
		if (got.kind && (wc.byte_len < GRH + sizeof(got) ||
				 be32toh(right.magic) != MAGIC))
			abort();
		if (got.kind == REPORT && be32toh(got.seq) > client.count)
			abort();
	}
	free(client.u.memory);
	return 0;
}
