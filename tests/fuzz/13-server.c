/* SPDX-License-Identifier: MIT */
/* Lesson 13's server: a client's plan, and the messages that it writes or sends. */
#include "fuzz.h"

#include "../../lessons/13-throughput/server.c"

/* A plan as a client sends it, and then changes. Is it within the limits? */
static int read_plan(struct flow *f, const uint8_t **data, size_t *size)
{
	struct plan plan = { .op = WR_SEND,
			     .size = 64,
			     .count = 100,
			     .window = 4,
			     .signal = 1 };
	struct remote_region *peer = &f->peer;
	struct ibv_mr lent = { .addr = (void *)4096, .length = 256 };
	uint8_t wire[PLAN_WIRE_SIZE], how;
	size_t length = sizeof(wire);

	fuzz_take(data, size, &how, 1);
	if (how & 1)
		plan.op = WR_WRITE;
	plan.latency = how & 2;
	plan_pack(wire, &plan, how & 4 ? &lent : NULL);
	fuzz_change(data, size, wire + 8, sizeof(wire) - 8);
	if (how & 8)
		fuzz_change(data, size, wire, 8);
	if (how & 16)
		fuzz_change(data, size, &length, 1);
	if (length > sizeof(wire))
		length = sizeof(wire);
	if (plan_unpack(&f->plan, peer, wire, length))
		return -1;
	plan = f->plan;
	if (length < sizeof(wire) || plan.size % STAMP || plan.size < STAMP ||
	    plan.size > MAX_SIZE || plan.window < 1 ||
	    (uint64_t)plan.size * plan.window > MAX_MEMORY || plan.signal < 1 ||
	    plan.signal > plan.window || plan.count < 1 ||
	    plan.count > MAX_COUNT ||
	    (plan.op != WR_SEND && plan.op != WR_WRITE))
		abort();
	if (!plan.latency || plan.op == WR_SEND)
		return 0;
	if (peer->addr + peer->size <= peer->addr)
		abort();
	f->wrs = calloc(plan.window, sizeof(*f->wrs));
	if (!f->wrs)
		abort();
	if (!flow_aim(f) && (uint64_t)plan.size * plan.window > f->peer.size)
		abort();
	return 0;
}

/* Message NUMBER, from 1 on, into the slot of its turn, and then changes. */
static void write_message(struct flow *f, uint64_t number, const uint8_t **data,
			  size_t *size)
{
	const struct plan *plan = &f->plan;
	uint8_t *slot =
		f->in + (size_t)((number - 1) % f->in_slots) * plan->size;
	uint64_t stamp = htobe64(number);
	uint8_t how;

	pattern_fill(slot, plan->size - STAMP, (number - 1) % plan->window);
	memcpy(slot + plan->size - STAMP, &stamp, STAMP);
	fuzz_take(data, size, &how, 1);
	if (how & 1)
		fuzz_change(data, size, slot + plan->size - STAMP, STAMP);
	if (how & 2)
		fuzz_change(data, size, slot, plan->size < 16 ? 8 : 16);
}

/* Slots that were found right are the pattern of the last message in each. */
static void check_slots(const struct flow *f)
{
	const struct plan *plan = &f->plan;
	uint32_t i, first = 1;

	if (plan->count > f->in_slots)
		first = plan->count - f->in_slots + 1;
	for (i = first; i <= plan->count; i++)
		if (pattern_check(f->in + (size_t)((i - 1) % f->in_slots) *
						  plan->size,
				  plan->size - STAMP,
				  (i - 1) % plan->window) >= 0)
			abort();
}

/* By SEND each message is looked at, by WRITE what there is at the end. */
static void receive(struct flow *f, const uint8_t *data, size_t size)
{
	struct ibv_wc wc;
	uint32_t i;

	for (i = 1; i <= f->plan.count; i++) {
		write_message(f, i, &data, &size);
		if (f->plan.op != WR_SEND)
			continue;
		memset(&wc, 0, sizeof(wc));
		wc.wr_id = wr_id_of(WR_RECV, (i - 1) % f->in_slots);
		wc.byte_len = f->plan.size;
		fuzz_change(&data, &size, &wc.byte_len, 2);
		if (flow_received(f, &wc))
			return;
		if (wc.byte_len != f->plan.size || f->received != i)
			abort();
	}
	written(f);
	if (!flow_check(f))
		check_slots(f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server server = { 0 };
	struct flow *f = &server.flow;
	struct plan *plan = &f->plan;

	if (!read_plan(f, &data, &size)) {
		/* It has been seen to fit. Less of it is enough here. */
		plan->window = plan->window % 8 + 1;
		plan->size = plan->size % 512 + STAMP;
		plan->count = plan->count % 32 + 1;
		f->in_slots = plan->op == WR_SEND ? 2 * plan->window :
						    plan->window;
		f->in = calloc(f->in_slots, plan->size);
		if (!f->in)
			abort();
		receive(f, data, size);
	}
	free(f->wrs);
	free(f->in);
	return 0;
}
