/* SPDX-License-Identifier: MIT */
/* Lesson 11's server: what clients ask for, and what they leave in its memory. */
#include "fuzz.h"

#include "../../lessons/11-atomics/server.c"

/* One client after the other asks to come in. */
static void take_requests(struct server *s, const uint8_t **data, size_t *size)
{
	uint32_t words[2] = { htobe32(10), htobe32(4) }, count, clients;
	uint8_t request[REQUEST_SIZE], more = 1;

	while (more && *size > 0) {
		memcpy(request, MAGIC, 8);
		memcpy(request + 8, words, 8);
		fuzz_take(data, size, &more, 1);
		if (more & 1)
			fuzz_change(data, size, request + 8, 8);
		if (more & 2)
			fuzz_change(data, size, request, 8);
		if (read_request(s, request, &count, &clients))
			continue;
		/* What the server does with one that it has accepted. */
		if (s->clients == 0)
			s->clients = clients;
		s->come++;
		s->expected += count;
		if (memcmp(request, MAGIC, 8) || s->come > MAX_CLIENTS ||
		    s->come > s->clients)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct shared shared = { 0 };
	struct server server = { .shared = &shared };
	uint64_t words[3];
	uint8_t clients;

	fuzz_take(&data, &size, &clients, 1);
	server.clients = clients % (MAX_CLIENTS + 1); /* 0: as the first says */
	take_requests(&server, &data, &size);
	fuzz_take(&data, &size, words, sizeof(words));
	shared.counter = server.expected ^ words[0];
	shared.lock = words[1];
	shared.sum = htobe64(server.expected) ^ words[2];
	if (!check_shared(&server) != !(words[0] | words[1] | words[2]))
		abort();
	return 0;
}
