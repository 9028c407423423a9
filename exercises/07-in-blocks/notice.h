/* SPDX-License-Identifier: MIT */
/*
 * What the two sides of exercise 07 tell each other. The server's private data
 * is one region, as remote_region_pack() writes it. When the client has written
 * all of it, it SENDs a notice, and gets an answer: is it what was meant? Every
 * number is big-endian.
 */
#ifndef NOTICE_H
#define NOTICE_H

#include <stddef.h>
#include <stdint.h>

struct notice {
	uint32_t length; /* how many bytes were written, from the beginning */
	uint32_t sum; /* of these bytes */
};

struct answer {
	uint32_t right; /* 1: the server found the same sum; 0: it did not */
};

static inline uint32_t sum_of(const uint8_t *bytes, size_t length, uint32_t sum)
{
	while (length--)
		sum = (sum << 1 | sum >> 31) ^ *bytes++;
	return sum;
}

#endif
