/* SPDX-License-Identifier: MIT */
/* Lesson 18's server: datagrams, of whomever, and who that was. */
#include "fuzz.h"

#include "../../lessons/18-datagrams/server.c"

#define MOST 32 /* datagrams of one input */

/* A datagram as it should be, in SLOT, and then changes. */
static void write_datagram(struct server *s, struct ibv_wc *wc, uint32_t slot,
			   const uint8_t **data, size_t *size)
{
	uint8_t *grh = slot_of(&s->u, slot), what, how;
	struct datagram *d = (void *)(grh + GRH);
	uint32_t length;

	fuzz_take(data, size, &what, 1);
	fuzz_take(data, size, &how, 1);
	d->magic = htobe32(MAGIC);
	d->kind = htobe32(how & 1 ? ASK : DATA);
	d->seq = htobe32(what % 16);
	d->count = htobe32(12);
	/* Rarely the longest: it takes its time. */
	length = how & 2 && what < 16 ? MAX_DATAGRAM : what;
	if (length < sizeof(*d))
		length = sizeof(*d);
	pattern_fill(d->data, length - sizeof(*d), what % 16);
	length += GRH;
	if (how & 4)
		fuzz_change(data, size, &length, 2);
	if (how & 8)
		fuzz_change(data, size, &d->seq, 8);
	if (how & 16)
		fuzz_change(data, size, d, 8);
	if (how & 32)
		fuzz_change(data, size, d->data, 8);
	if (how & 64)
		fuzz_change(data, size, grh, GRH);
	memset(wc, 0, sizeof(*wc));
	wc->wr_id = wr_id_of(WR_RECV, slot);
	wc->byte_len = length < SLOT ? length : SLOT;
}

/* As take() does, which then posts the receive again. */
static int handle(struct server *s, const struct ibv_wc *wc)
{
	const struct datagram *d = ud_parse(&s->u, wc);

	if (d && (be32toh(d->magic) != MAGIC ||
		  wc->byte_len < GRH + sizeof(*d) || wc->byte_len > SLOT))
		abort();
	if (d && be32toh(d->kind) == DATA)
		return count_data(s, d, wc);
	if (d && be32toh(d->kind) == ASK)
		return answer(s, wc);
	s->foreign++;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* No slot is free to answer from, so no answer is posted. */
	struct server server = { .u = { .recvs = 2, .sent = SENDS } };
	uint32_t slot, n, i, seen = 0;
	struct ibv_wc wc;

	/* Of exactly that size, so that one byte too far is seen. */
	server.u.memory = calloc(server.u.recvs, SLOT);
	if (!server.u.memory)
		abort();
	for (n = 0; n < MOST && size > 0; n++) {
		slot = n % server.u.recvs;
		write_datagram(&server, &wc, slot, &data, &size);
		if (handle(&server, &wc))
			break;
	}
	if (server.count > MAX_COUNT)
		abort();
	if (server.count < 4096) {
		for (i = 0; i < server.count; i++)
			seen += server.seen[i];
		if (server.received != seen)
			abort();
		print_result(&server);
	}
	free(server.seen);
	free(server.u.memory);
	return 0;
}
