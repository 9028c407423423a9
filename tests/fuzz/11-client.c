/* SPDX-License-Identifier: MIT */
/* Lesson 11's client: the region that a server lends, and the tickets drawn there. */
#include "fuzz.h"

#include "../../lessons/11-atomics/client.c"

/* A byte of the input makes a ticket, in its low or in its high bits. */
static void draw(const uint8_t *data, size_t size)
{
	uint64_t *tickets = malloc(size * sizeof(*tickets));
	bool twice = false;
	size_t i, k;

	if (!tickets)
		abort();
	for (i = 0; i < size; i++) {
		tickets[i] = data[i] & 1 ? (uint64_t)data[i] << 56 : data[i];
		for (k = 0; k < i; k++)
			twice |= data[i] == data[k];
	}
	if (!check_tickets(tickets, size) != !twice)
		abort();
	free(tickets);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t most = REMOTE_REGION_WIRE_SIZE + 1;
	struct client client = { 0 };
	size_t n;

	fuzz_take(&data, &size, &client.ep.initiator_depth, 1);
	n = size < most ? size : most;
	fuzz_private_data(&client.ep, data, n);
	if (!read_region(&client) &&
	    (client.region.size < PLACES_END || !client.ep.initiator_depth ||
	     client.region.addr + PLACES_END < client.region.addr))
		abort();
	if (size - n > 0)
		draw(data + n, size - n < 64 ? size - n : 64);
	return 0;
}
