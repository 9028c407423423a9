/* SPDX-License-Identifier: MIT */
/* Lesson 06's client: the region that a server lends. */
#include "fuzz.h"

#include "../../lessons/06-memory/client.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client client = { 0 };
	uint16_t wanted;

	fuzz_take(&data, &size, &wanted, sizeof(wanted));
	client.size = wanted;
	fuzz_private_data(&client.ep, data, size);
	if (!read_region(&client) && client.size > client.region.size)
		abort();
	return 0;
}
