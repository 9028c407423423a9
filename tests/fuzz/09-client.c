/* SPDX-License-Identifier: MIT */
/* Lesson 09's client: the region that a server lends, and what was READ there. */
#include "fuzz.h"

#include "../../lessons/09-read/client.c"

static void check_region(const struct client *c)
{
	const struct remote_region *region = &c->region;

	if (c->ep.private_data_len < REMOTE_REGION_WIRE_SIZE || !region->addr ||
	    region->addr + region->size <= region->addr || !c->blocks ||
	    (uint64_t)c->blocks * c->block < region->size ||
	    (uint64_t)(c->blocks - 1) * c->block >= region->size)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t most = REMOTE_REGION_WIRE_SIZE + 1;
	struct client client = { 0 };
	struct client_options opt = { 0 };
	size_t n, i, wrong = 0;

	fuzz_take(&data, &size, &opt.block, 3);
	opt.block = opt.block % MAX_BLOCK + 1;
	n = size < most ? size : most;
	fuzz_private_data(&client.ep, data, n);
	if (!read_region(&client, &opt))
		check_region(&client);
	/* What has come is the pattern, changed by the rest of the input. */
	data += n;
	size -= n;
	client.region.size = size;
	client.memory = malloc(size + 1);
	if (!client.memory)
		abort();
	pattern_fill(client.memory, size, SEED);
	for (i = 0; i < size; i++) {
		client.memory[i] ^= data[i];
		wrong += data[i] != 0;
	}
	if (!check_memory(&client) != !wrong)
		abort();
	free(client.memory);
	return 0;
}
