/* SPDX-License-Identifier: MIT */
/* Lesson 04's client: an answer. */
#include "fuzz.h"

#include "../../lessons/04-completions/client.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client client = { 0 };
	struct ibv_wc wc = { 0 };

	fuzz_take(&data, &size, &wc.byte_len, 1);
	fuzz_take(&data, &size, &client.number, sizeof(client.number));
	fuzz_take(&data, &size, &client.count, sizeof(client.count));
	fuzz_take(&data, &size, &client.memory, sizeof(client.memory));
	check_answer(&client, &wc);
	return 0;
}
