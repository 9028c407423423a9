/* SPDX-License-Identifier: MIT */
/* Lesson 17's server: what a client says by TCP, its doorbell and its text. */
#include "fuzz.h"

#include "../../lessons/17-no-cm/server.c"

#include "exchange.h"

/* The client has written so many bytes without a NUL, and RUNG to the doorbell. */
static void read_text(struct server *s, uint32_t length, uint64_t rung)
{
	static char *buffer; /* of exactly that size: one byte too far is seen */

	if (!buffer) {
		buffer = malloc(SIZE);
		if (!buffer)
			abort();
		memset(buffer, 't', SIZE);
	}
	s->buffer = buffer;
	s->doorbell = rung;
	if (length < SIZE)
		buffer[length] = '\0';
	if (!wait_for_doorbell(s) != (rung != 0))
		abort();
	if (length < SIZE)
		buffer[length] = 't';
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server server = { 0 };
	uint32_t length = 0;
	uint64_t rung;

	fuzz_take(&data, &size, &rung, sizeof(rung));
	fuzz_take(&data, &size, &length, 1);
	/* Short texts but for one: a long one takes its time. */
	if (length == 99)
		length = SIZE;
	if (!fuzz_exchange(&server.side, &data, &size))
		read_text(&server, length, rung);
	close(server.side.tcp.fd);
	return 0;
}
