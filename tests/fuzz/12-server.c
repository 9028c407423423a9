/* SPDX-License-Identifier: MIT */
/* Lesson 12's server: which failure a client asks for. */
#include "fuzz.h"

#include "../../lessons/12-errors/server.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char name[NAME_SIZE];
	struct endpoint ep = { 0 };
	bool full;

	fuzz_private_data(&ep, data, size);
	if (request_unpack(ep.private_data, ep.private_data_len, name, &full))
		return 0;
	if (strlen(name) >= NAME_SIZE)
		abort();
	find_part(name);
	find_failure(name);
	return 0;
}
