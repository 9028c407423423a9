/* SPDX-License-Identifier: MIT */
/* Lesson 07's server: the message that gives notice, and the text. */
#include "fuzz.h"

#include "../../lessons/07-write-send/server.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server server = { 0 };
	struct ibv_wc wc = { .wr_id = wr_id_of(WR_RECV, 0) };
	char *text;

	fuzz_take(&data, &size, &wc.status, 1);
	fuzz_take(&data, &size, &wc.byte_len, 1);
	fuzz_take(&data, &size, server.message, sizeof(server.message));
	check_message(&server, &wc);
	/* Of exactly that size, so that one byte too far is seen. */
	text = malloc(size + 1);
	if (!text)
		abort();
	memcpy(text, data, size);
	server.buffer = text;
	server.size = size;
	print_buffer(&server);
	free(text);
	return 0;
}
