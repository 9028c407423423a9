/* SPDX-License-Identifier: MIT */
/* Lesson 13's client: the region that a server lends, and what it sends back. */
#include "fuzz.h"

#include "../../lessons/13-throughput/client.c"

/* Each WRITE has to end within what is lent. */
static void check_aim(const struct flow *f)
{
	const struct remote_region *peer = &f->peer;
	uint64_t addr;
	uint32_t i;

	for (i = 0; i < f->plan.window; i++) {
		addr = f->wrs[i].wr.rdma.remote_addr;
		if (addr < peer->addr ||
		    addr + f->plan.size > peer->addr + peer->size)
			abort();
	}
}

/* Messages that come back by SEND. */
static void receive(struct flow *f, const uint8_t *data, size_t size)
{
	struct ibv_wc wc;
	uint64_t number;
	uint8_t *slot;

	while (size > 0) {
		memset(&wc, 0, sizeof(wc));
		wc.wr_id = wr_id_of(WR_RECV, f->received % f->in_slots);
		wc.byte_len = f->plan.size;
		slot = f->in + (size_t)wr_id_slot(wc.wr_id) * f->plan.size;
		number = htobe64(f->received + 1);
		fuzz_change(&data, &size, &number, sizeof(number));
		fuzz_change(&data, &size, &wc.byte_len, 2);
		memcpy(slot + f->plan.size - STAMP, &number, sizeof(number));
		if (flow_received(f, &wc))
			break;
		if (wc.byte_len != f->plan.size ||
		    be64toh(number) != f->received)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const size_t most = REMOTE_REGION_WIRE_SIZE + 1;
	struct flow flow = { .plan.op = WR_WRITE };
	uint8_t window, eights;
	size_t n;

	fuzz_take(&data, &size, &window, 1);
	fuzz_take(&data, &size, &eights, 1);
	flow.plan.window = window % 32 + 1;
	flow.plan.size = (eights + 1) * STAMP;
	flow.in_slots = 2 * flow.plan.window;
	flow.wrs = calloc(flow.plan.window, sizeof(*flow.wrs));
	/* Of exactly that size, so that one byte too far is seen. */
	flow.in = calloc(flow.in_slots, flow.plan.size);
	if (!flow.wrs || !flow.in)
		abort();
	n = size < most ? size : most;
	fuzz_private_data(&flow.ep, data, n);
	if (!remote_region_unpack(&flow.peer, flow.ep.private_data) &&
	    !flow_aim(&flow))
		check_aim(&flow);
	receive(&flow, data + n, size - n);
	free(flow.in);
	free(flow.wrs);
	return 0;
}
