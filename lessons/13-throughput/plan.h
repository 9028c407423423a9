/* SPDX-License-Identifier: MIT */
/*
 * plan.h - what a run of lesson 13 is: its plan, how the server is told of it,
 * and what is in a message
 */
#ifndef PLAN_H
#define PLAN_H

#include <stdatomic.h>

#include <rdma_common.h>

#define MAX_SIZE (1 << 20) /* bytes of a message */
#define MAX_COUNT 10000000 /* messages of a run */
#define MAX_WINDOW 1024
#define MAX_MEMORY (64 << 20) /* bytes of all slots */
#define STAMP sizeof(uint64_t) /* the last eight bytes of a message */

enum wait {
	WAIT_BUSY, /* look all the time */
	WAIT_EVENT, /* sleep until a completion raises an event */
};

/* parse_wait - busy or event; 0, or -1 for another word */
static inline int parse_wait(const char *text, enum wait *wait)
{
	*wait = !strcmp(text, "event") ? WAIT_EVENT : WAIT_BUSY;
	return *wait == WAIT_EVENT || !strcmp(text, "busy") ? 0 : -1;
}

/* A run: what the client wants, as its flags say. */
struct plan {
	enum wr_op op; /* WR_WRITE or WR_SEND */
	bool latency; /* there and back, one at a time */
	uint32_t more; /* runs that follow this one, each with its connection */
	uint32_t size; /* bytes of a message */
	uint32_t count; /* messages */
	uint32_t window; /* requests in the send queue, at most */
	uint32_t batch; /* so many in one ibv_post_send() */
	uint32_t signal; /* one in so many asks for a completion */
	uint32_t max_inline; /* messages of so many bytes go in the request */
	enum wait wait;
};

/* ---- the plan on the wire ------------------------------------------------ */

/*
 * The client's private data: eight letters, eight u32 and a region (of zeros,
 * where it lends none), all big-endian. 56 bytes, and it may have no more.
 */
#define PLAN_MARK "LESSON13"
#define PLAN_WIRE_SIZE (8 + 8 * 4 + REMOTE_REGION_WIRE_SIZE)

static inline void plan_pack(uint8_t *wire, const struct plan *plan,
			     const struct ibv_mr *lent)
{
	uint32_t words[] = { htobe32(plan->op),	    htobe32(plan->latency),
			     htobe32(plan->more),   htobe32(plan->size),
			     htobe32(plan->count),  htobe32(plan->window),
			     htobe32(plan->signal), htobe32(plan->max_inline) };

	memset(wire, 0, PLAN_WIRE_SIZE);
	memcpy(wire, PLAN_MARK, 8);
	memcpy(wire + 8, words, sizeof(words));
	if (lent)
		remote_region_pack(wire + 8 + sizeof(words), lent);
}

/* plan_fits - is that within the limits? */
static inline bool plan_fits(const struct plan *plan)
{
	return (plan->op == WR_WRITE || plan->op == WR_SEND) &&
	       plan->size >= STAMP && plan->size <= MAX_SIZE &&
	       plan->size % STAMP == 0 && plan->count >= 1 &&
	       plan->count <= MAX_COUNT && plan->window >= 1 &&
	       plan->window <= MAX_WINDOW && plan->signal >= 1 &&
	       plan->signal <= plan->window &&
	       (uint64_t)plan->size * plan->window <= MAX_MEMORY;
}

/* plan_unpack - those bytes again, checked; 0, or -1 after having reported */
static inline int plan_unpack(struct plan *plan, struct remote_region *lent,
			      const uint8_t *wire, size_t length)
{
	uint32_t words[8];

	if (length < PLAN_WIRE_SIZE || memcmp(wire, PLAN_MARK, 8)) {
		fprintf(stderr,
			"the client's private data does not begin with " PLAN_MARK
			": is it the client of this lesson?\n");
		return -1;
	}
	memcpy(words, wire + 8, sizeof(words));
	plan->op = be32toh(words[0]);
	plan->latency = be32toh(words[1]);
	plan->more = be32toh(words[2]);
	plan->size = be32toh(words[3]);
	plan->count = be32toh(words[4]);
	plan->window = be32toh(words[5]);
	plan->signal = be32toh(words[6]);
	plan->max_inline = be32toh(words[7]);
	plan->batch = 1;
	if (!plan_fits(plan)) {
		fprintf(stderr,
			"the client asks for %u messages of %u bytes, %u at a "
			"time: that is not within our limits\n",
			plan->count, plan->size, plan->window);
		return -1;
	}
	if (plan->latency && plan->op == WR_WRITE)
		return remote_region_unpack(lent, wire + 8 + sizeof(words));
	return 0;
}

/* ---- what is in a message ------------------------------------------------ */

/*
 * A message is a pattern that depends on the slot that it was sent from, and
 * then its stamp: its number, from 1 on, in the last eight bytes. Only the
 * stamp is written anew for each message.
 */
static inline _Atomic uint64_t *stamp_of(uint8_t *slot, uint32_t size)
{
	return (_Atomic uint64_t *)(slot + size - STAMP);
}

static inline uint64_t stamp_read(uint8_t *slot, uint32_t size)
{
	return be64toh(atomic_load_explicit(stamp_of(slot, size),
					    memory_order_acquire));
}

/* message_check - is every byte in SLOT right? 0, or -1 after having said so */
static inline int message_check(uint8_t *slot, const struct plan *plan)
{
	uint64_t number = stamp_read(slot, plan->size);
	ssize_t wrong;

	wrong = pattern_check(slot, plan->size - STAMP,
			      (number - 1) % plan->window);
	if (wrong < 0)
		return 0;
	fprintf(stderr, "message %llu: byte %zd is wrong\n",
		(unsigned long long)number, wrong);
	return -1;
}

#endif
