/* SPDX-License-Identifier: MIT */
/* Lesson 08's client: the two regions that a server lends. */
#include "fuzz.h"

#include "../../lessons/08-write-doorbell/client.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client client = { 0 };
	uint16_t wanted;

	fuzz_take(&data, &size, &wanted, sizeof(wanted));
	client.size = wanted;
	fuzz_private_data(&client.ep, data, size);
	if (!read_regions(&client) &&
	    (client.size > client.buffer.size || client.doorbell.size != 8))
		abort();
	return 0;
}
