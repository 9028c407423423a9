/* SPDX-License-Identifier: MIT */
/*
 * piece.h - what the two programs of exercise 14 agree on
 *
 * Tail and head are counted in bytes from the beginning of time, as in lesson
 * 14; the place in the ring is the number modulo RING.
 */
#ifndef PIECE_H
#define PIECE_H

#include <stdatomic.h>

#include <rdma_common.h>

#define RING 1024 /* bytes */
#define MAX_TEXT 200 /* bytes of the longest message */

/*
 * Before each message. A length of SKIP says that no message comes here any
 * more: go on at the beginning of the ring.
 */
struct header {
	uint32_t length; /* big-endian */
	uint32_t number; /* big-endian; 1, 2, 3 .. and 0 with SKIP */
};

#define SKIP 0xffffffff

/* What a message of LENGTH bytes takes: always a multiple of 8. */
static inline uint32_t space_of(uint32_t length)
{
	return (sizeof(struct header) + length + 7) & ~7u;
}

/* The length of message NUMBER. */
static inline uint32_t length_of(uint32_t number)
{
	return number * 17 % (MAX_TEXT + 1);
}

#endif
