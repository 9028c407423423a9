/* SPDX-License-Identifier: MIT */
/* Lesson 04's server: requests, one after the other. */
#include "fuzz.h"

#include "../../lessons/04-completions/server.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server server = { 0 };
	struct ibv_wc wc = { 0 };

	while (size > 0) {
		fuzz_take(&data, &size, &wc.byte_len, 1);
		fuzz_take(&data, &size, &server.memory, sizeof(server.memory));
		if (check_request(&server, &wc))
			break;
	}
	return 0;
}
