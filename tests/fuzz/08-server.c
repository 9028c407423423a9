/* SPDX-License-Identifier: MIT */
/* Lesson 08's server: what a client says that it will write, and the text. */
#include "fuzz.h"

#include "../../lessons/08-write-doorbell/server.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server server = { 0 };
	uint8_t wire[MANY_WIRE_SIZE];
	uint32_t seq;

	fuzz_take(&data, &size, &seq, sizeof(seq));
	fuzz_take(&data, &size, wire, sizeof(wire));
	fuzz_private_data(&server.ep, wire, sizeof(wire));
	read_request(&server);
	server.size = size;
	server.buffer = malloc(size + 1);
	if (!server.buffer)
		abort();
	memcpy(server.buffer, data, size);
	check_message(&server, seq);
	print_message(&server);
	free(server.buffer);
	return 0;
}
