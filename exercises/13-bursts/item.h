/* SPDX-License-Identifier: MIT */
/*
 * item.h - what the two programs of exercise 13 agree on
 */
#ifndef ITEM_H
#define ITEM_H

#include <rdma_common.h>

#define DEPTH 16 /* requests in the send queue, and slots for items */
#define BATCH 8 /* items in one ibv_post_send(), at most */
#define SIGNAL 8 /* every 8th request asks for a completion */
#define MAX_BURST \
	100 /* items that come at once; the server has as many receives */

/* An item, as it is sent; the numbers are big-endian. */
struct item {
	uint32_t number; /* 1, 2, 3 .. through all bursts */
	uint32_t last; /* 1: the last of its burst */
	uint8_t text[24]; /* a pattern that depends on the number */
};

/* How many items burst BURST (0, 1, 2 ..) has. */
static inline uint32_t burst_size(uint32_t burst)
{
	static const uint32_t sizes[] = { 3, 5,	 2,  6, 7,  100,
					  1, 16, 40, 9, 64, 23 };

	return sizes[burst % (sizeof(sizes) / sizeof(sizes[0]))];
}

#endif
