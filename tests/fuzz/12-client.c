/* SPDX-License-Identifier: MIT */
/* Lesson 12's client: what a server lends. */
#include "fuzz.h"

#include "../../lessons/12-errors/client.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client client = { 0 };

	fuzz_private_data(&client.ep, data, size);
	if (client.ep.private_data_len >= REMOTE_REGION_WIRE_SIZE)
		remote_region_unpack(&client.lent, client.ep.private_data);
	return 0;
}
