/* SPDX-License-Identifier: MIT */
/* Lesson 10's client: the slots that a server lends, and its answers. */
#include "fuzz.h"

#include "../../lessons/10-write-imm/client.c"

static void check_answers(struct client *c, const uint8_t *data, size_t size)
{
	struct ibv_wc wc;
	uint8_t flags;
	uint32_t due, change;
	bool right;

	while (size > 0) {
		memset(&wc, 0, sizeof(wc));
		fuzz_take(&data, &size, &flags, 1);
		fuzz_take(&data, &size, &change, sizeof(change));
		due = header_of(number_of(c->answered + 1), c->size);
		wc.wc_flags = flags ^ IBV_WC_WITH_IMM;
		wc.imm_data = htobe32(due) ^ change;
		right = wc.wc_flags & IBV_WC_WITH_IMM && !change;
		if (!check_answer(c, &wc) != right)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t most = REMOTE_REGION_WIRE_SIZE + 5;
	struct client client = { 0 };
	size_t n;

	fuzz_take(&data, &size, &client.size, 3);
	client.size %= MAX_SIZE + 1;
	n = size < most ? size : most;
	fuzz_private_data(&client.ep, data, n);
	if (!read_slots(&client) &&
	    (client.ep.private_data_len < REMOTE_REGION_WIRE_SIZE + 4 ||
	     client.slots < 1 || client.slots > MAX_SLOTS ||
	     client.size > client.slot_size ||
	     (uint64_t)client.slots * client.slot_size > client.region.size))
		abort();
	check_answers(&client, data + n, size - n);
	return 0;
}
