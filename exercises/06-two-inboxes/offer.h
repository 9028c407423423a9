/* SPDX-License-Identifier: MIT */
/*
 * What the server of exercise 06 says in its private data: two regions that the
 * client may write to. 40 bytes, and every number is big-endian:
 *
 *	0	u32 OFFER_MAGIC
 *	4	u32 how many regions: 2
 *	8	u64 address of the first, u32 its rkey, u32 its size
 *	24	the same of the second
 *
 * When the client has written to both it SENDs an empty message, and gets back
 * the sums of what the server has found there: two u32.
 */
#ifndef OFFER_H
#define OFFER_H

#include <stddef.h>
#include <stdint.h>

#define OFFER_MAGIC 0x4f464652 /* "OFFR" */
#define REGIONS 2
#define REGION_SIZE 16
#define OFFER_SIZE (8 + REGIONS * REGION_SIZE)

static inline uint32_t sum_of(const uint8_t *bytes, size_t length)
{
	uint32_t sum = 0;

	while (length--)
		sum = (sum << 1 | sum >> 31) ^ *bytes++;
	return sum;
}

#endif
