/* SPDX-License-Identifier: MIT */
/*
 * ring.h - what the two programs of lesson 14 agree on: how messages lie in the
 * ring, what the two sides tell each other, and the numbers that only rise
 *
 * Positions in the ring are counted from the beginning of time, in bytes, and
 * never wrap: 64 bits are enough for centuries. The place in memory is the
 * position modulo the size of the ring.
 */
#ifndef RING_H
#define RING_H

#include <stdatomic.h>

#include <rdma_common.h>

#define MIN_RING 256 /* bytes */
#define MAX_RING (16 << 20)
#define MAX_LENGTH 65536 /* bytes of a message */
#define MAX_COUNT 100000000 /* messages */
#define FLUSHES 8 /* that may be on their way, of three requests at most */
#define HEADS 4 /* WRITEs of the head that may be on their way */
#define LOOKS 1000 /* before we look around once (lesson 08) */

/*
 * A message in the ring: this, LENGTH bytes, and what is missing to a multiple
 * of 16. So every message begins at a multiple of 16, the size of the ring is
 * one too, and a header is never cut in two.
 */
struct header {
	uint32_t length; /* big-endian */
	uint32_t seq; /* big-endian; 1, 2, 3 .. */
	uint64_t unused; /* 0 */
};

static inline uint32_t space_of(uint32_t length)
{
	return (sizeof(struct header) + length + 15) & ~15u;
}

/* What a run is: the client says it in its private data. */
struct stream {
	bool by_send; /* each message a SEND, to be compared with */
	uint32_t count; /* messages */
	uint32_t max; /* bytes of the longest */
	uint32_t size; /* bytes of the ring, or of all receives */
};

/* The letters, four u32, and where the head is to be written: 40 bytes. */
#define STREAM_MARK "LESSON14"
#define STREAM_WIRE_SIZE (8 + 4 * 4 + REMOTE_REGION_WIRE_SIZE)

static inline void stream_pack(uint8_t *wire, const struct stream *st,
			       const struct ibv_mr *head)
{
	uint32_t words[] = { htobe32(st->by_send), htobe32(st->count),
			     htobe32(st->max), htobe32(st->size) };

	memcpy(wire, STREAM_MARK, 8);
	memcpy(wire + 8, words, sizeof(words));
	remote_region_pack(wire + 8 + sizeof(words), head);
}

/* So many messages of the longest kind can wait to be received. */
static inline uint32_t slots_of(const struct stream *st)
{
	return st->size / space_of(st->max);
}

static inline bool stream_fits(const struct stream *st)
{
	return st->count >= 1 && st->count <= MAX_COUNT &&
	       st->max <= MAX_LENGTH && st->size >= MIN_RING &&
	       st->size <= MAX_RING && st->size % 16 == 0 &&
	       st->size >= 2 * space_of(st->max);
}

static inline int stream_unpack(struct stream *st, struct remote_region *head,
				const uint8_t *wire, size_t length)
{
	uint32_t words[4];

	if (length < STREAM_WIRE_SIZE || memcmp(wire, STREAM_MARK, 8)) {
		fprintf(stderr,
			"the client's private data does not begin with " STREAM_MARK
			": is it the client of this lesson?\n");
		return -1;
	}
	memcpy(words, wire + 8, sizeof(words));
	st->by_send = be32toh(words[0]);
	st->count = be32toh(words[1]);
	st->max = be32toh(words[2]);
	st->size = be32toh(words[3]);
	if (!stream_fits(st)) {
		fprintf(stderr,
			"the client asks for %u messages of up to %u bytes in "
			"a ring of %u: that is not within our limits\n",
			st->count, st->max, st->size);
		return -1;
	}
	return remote_region_unpack(head, wire + 8 + sizeof(words));
}

/* The length of message SEQ, as random as we need it: 0 to MAX bytes. */
static inline uint32_t length_of(const struct stream *st, uint32_t seq)
{
	uint64_t x = seq * 0x9e3779b97f4a7c15ull;

	x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
	return (x >> 32) % (st->max + 1);
}

/* The bytes of message SEQ are this one, the next one, and so on. */
static inline uint8_t first_byte(uint32_t seq)
{
	return seq * 2654435761u >> 24;
}

/* A number that the peer's card writes, while we look at it (lesson 08). */
static inline uint64_t word_read(_Atomic uint64_t *word)
{
	return be64toh(atomic_load_explicit(word, memory_order_acquire));
}

/*
 * create_qp - endpoint_create_qp() with room for eight bytes in a request: the
 * numbers that we write to the peer travel inline, so no memory has to be kept
 * for those that are on their way (lesson 13)
 */
static inline int create_qp(struct endpoint *ep, uint32_t sends, uint32_t recvs)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = sends,
			.max_recv_wr = recvs,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = sizeof(uint64_t),
		},
		.qp_type = IBV_QPT_RC,
	};

	ep->pd = ibv_alloc_pd(ep->id->verbs);
	if (!ep->pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	ep->cq = ibv_create_cq(ep->id->verbs, sends + recvs, NULL, NULL, 0);
	if (!ep->cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	attr.send_cq = ep->cq;
	attr.recv_cq = ep->cq;
	if (rdma_create_qp(ep->id, ep->pd, &attr)) {
		report("rdma_create_qp", errno);
		return -1;
	}
	return 0;
}

/* A WRITE of eight bytes to the start of TO: the number goes in the request. */
struct word_write {
	uint64_t number; /* big-endian */
	struct ibv_sge sge;
	struct ibv_send_wr wr;
};

static inline void word_write(struct word_write *w, uint64_t number,
			      const struct remote_region *to, uint32_t slot)
{
	memset(w, 0, sizeof(*w));
	w->number = htobe64(number);
	w->sge.addr = (uintptr_t)&w->number;
	w->sge.length = sizeof(w->number);
	w->wr.wr_id = wr_id_of(WR_WRITE, slot);
	w->wr.sg_list = &w->sge;
	w->wr.num_sge = 1;
	w->wr.opcode = IBV_WR_RDMA_WRITE;
	w->wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
	w->wr.wr.rdma.remote_addr = to->addr;
	w->wr.wr.rdma.rkey = to->rkey;
}

/* A look around, in the way of lesson 08, while a number is watched. */
struct watch {
	unsigned int looks;
	long long deadline; /* 0: not set */
};

/* Returns 0: look again; 1: the peer has disconnected, and we looked once more
 * since; 2: the deadline is over; -1 after having reported. */
static inline int watch_look(struct watch *w, struct endpoint *ep)
{
	int ready;

	if (++w->looks % LOOKS != 0)
		return 0;
	if (ep->disconnected)
		return 1;
	if (!w->deadline)
		w->deadline = now_ms() + ep->timeout * 1000LL;
	if (now_ms() > w->deadline)
		return 2;
	ready = wait_either(ep->channel->fd, -1, ep->stop_fd, 0);
	if (ready < 0)
		return -1;
	if (ready && endpoint_take_event(ep, RDMA_CM_EVENT_DISCONNECTED))
		return -1;
	return 0;
}

static inline void watch_progress(struct watch *w)
{
	w->deadline = 0;
}

#endif
