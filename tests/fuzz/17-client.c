/* SPDX-License-Identifier: MIT */
/* Lesson 17's client: what a server says by TCP, and the regions that it lends. */
#include "fuzz.h"

#include "../../lessons/17-no-cm/client.c"

#include "exchange.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client client = { 0 };
	char text[256];
	uint8_t length;

	fuzz_take(&data, &size, &length, 1);
	memset(text, 't', length);
	text[length] = '\0';
	client.text = text;
	if (!fuzz_exchange(&client.side, &data, &size) &&
	    !read_regions(&client) &&
	    (client.buffer.size < strlen(text) + 1 ||
	     client.buffer.addr + client.buffer.size <= client.buffer.addr ||
	     client.doorbell.size != sizeof(uint64_t)))
		abort();
	close(client.side.tcp.fd);
	return 0;
}
