/* SPDX-License-Identifier: MIT */
/* Lesson 05's client: its messages, as they come back. */
#include "fuzz.h"

#include "../../lessons/05-ping-pong/client.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client client = { .count = 100, .sent = 50 };
	size_t length;
	uint8_t few;

	/* One slot, of exactly that size, so that one byte too far is seen. */
	fuzz_take(&data, &size, &few, 1);
	client.size = few;
	client.memory = malloc(client.size + 1);
	if (!client.memory)
		abort();
	while (size > 0 && client.answered < client.count) {
		pattern_fill(client.memory, client.size, client.answered);
		length = client.size;
		fuzz_change(&data, &size, &length, 2);
		fuzz_take(&data, &size, &few, 1);
		fuzz_change(&data, &size, client.memory,
			    few < client.size ? few : client.size);
		if (check_answer(&client, 0, length))
			break;
		if (length != client.size || client.answered++ == client.sent ||
		    pattern_check(client.memory, length, client.answered - 1) >=
			    0)
			abort();
	}
	free(client.memory);
	return 0;
}
