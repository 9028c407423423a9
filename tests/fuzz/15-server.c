/* SPDX-License-Identifier: MIT */
/* Lesson 15's server: is that a request? */
#include "fuzz.h"

#include "../../lessons/15-many-clients/server.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t ask[4], *text, how;

	fuzz_take(&data, &size, &how, 1);
	memcpy(ask, ASK, 4);
	fuzz_change(&data, &size, ask, 4);
	if (size > SLOT_SIZE - 4)
		size = SLOT_SIZE - 4;
	size = how < 4 ? how : size + 4;
	/* Of exactly that size, so that one byte too far is seen. */
	text = malloc(size + 1);
	if (!text)
		abort();
	memcpy(text, ask, size < 4 ? size : 4);
	if (size > 4)
		memcpy(text + 4, data, size - 4);
	if (is_request(text, size) != (size >= 4 && !memcmp(ask, ASK, 4)))
		abort();
	free(text);
	return 0;
}
