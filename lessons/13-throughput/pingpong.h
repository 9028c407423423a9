/* SPDX-License-Identifier: MIT */
/*
 * pingpong.h - one message at a time, there and back, for its latency; both
 * sides of lesson 13 do the same
 */
#ifndef PINGPONG_H
#define PINGPONG_H

#include "flow.h"

#define DOZE 20000 /* ns, and what the kernel adds to it: 50 us and more */

/* Take completions until something can be posted. */
static inline int flow_make_room(struct flow *f)
{
	struct ibv_wc wc;
	int n;

	while (!flow_room(f)) {
		n = flow_poll(f, &wc, 1);
		if (n < 0 || (n > 0 && flow_retire(f, &wc)))
			return -1;
	}
	return 0;
}

/* Wait for the peer's next message: a receive completes. */
static inline int await_send(struct flow *f)
{
	uint32_t wanted = f->received + 1;
	struct ibv_wc wc;
	int n;

	while (f->received != wanted) {
		n = flow_poll(f, &wc, 1);
		if (n < 0)
			return -1;
		if (n > 0 &&
		    (wr_id_op(wc.wr_id) == WR_RECV ? flow_received(f, &wc) :
						     flow_retire(f, &wc)))
			return -1;
	}
	return 0;
}

/*
 * The same of a WRITE: watch its last eight bytes. Lesson 08 says why this is
 * no way to build a program: nobody promises that they are the last to come.
 * We do it here because ib_write_lat does, to measure the same thing.
 *
 * A WRITE raises no event. Who would rather sleep dozes between two looks.
 */
static inline int await_write(struct flow *f)
{
	const struct timespec doze = { .tv_nsec = DOZE };
	const struct plan *plan = &f->plan;
	uint8_t *slot =
		f->in + (size_t)(f->received % f->in_slots) * plan->size;
	int ret;

	while (stamp_read(slot, plan->size) != f->received + 1) {
		if (plan->wait == WAIT_EVENT)
			nanosleep(&doze, NULL);
		ret = flow_idle(f, false);
		if (ret > 0)
			fprintf(stderr,
				"the peer disconnected: %u of %u messages "
				"came\n",
				f->received, plan->count);
		if (ret)
			return -1;
	}
	flow_progress(f);
	f->received++;
	return 0;
}

static inline int flow_await(struct flow *f)
{
	return f->plan.op == WR_SEND ? await_send(f) : await_write(f);
}

/* Post a message; its answer's receive is there, the next one's comes after. */
static inline int flow_pass(struct flow *f)
{
	uint32_t used = f->received - 1;

	if (flow_post(f, 1))
		return -1;
	if (f->plan.op == WR_SEND && f->received > 0 &&
	    flow_post_receives(f, used % f->in_slots, 1))
		return -1;
	return 0;
}

/*
 * flow_ping_pong - COUNT messages there and back; who is FIRST takes the time
 *
 * From one post to the next: the round trip, and all that the program does
 * in between.
 */
static inline int flow_ping_pong(struct flow *f, bool first)
{
	long long start = 0, now;
	uint32_t i;
	struct ibv_wc wc;
	int n;

	for (i = 0; i < f->plan.count; i++) {
		if (!first && flow_await(f))
			return -1;
		if (flow_make_room(f))
			return -1;
		if (first) {
			now = now_ns();
			if (i > 0)
				flow_sample(f, (now - start) / 2);
			start = now;
		}
		if (flow_pass(f))
			return -1;
		if (first && flow_await(f))
			return -1;
	}
	/* Who is first leaves first, and so waits until all is acknowledged. */
	while (first && f->retired < f->plan.count) {
		n = flow_poll(f, &wc, 1);
		if (n < 0 || (n > 0 && flow_retire(f, &wc)))
			return -1;
	}
	return 0;
}

#endif
