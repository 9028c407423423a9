/* SPDX-License-Identifier: MIT */
/*
 * What the server of exercise 05 answers: how long a message was, and the sum
 * of its bytes. 8 bytes, big-endian.
 */
#ifndef RECEIPT_H
#define RECEIPT_H

#include <stddef.h>
#include <stdint.h>

#define MAX_MESSAGE 4096

struct receipt {
	uint32_t length;
	uint32_t sum;
};

static inline uint32_t sum_of(const uint8_t *bytes, size_t length)
{
	uint32_t sum = 0;

	while (length--)
		sum = (sum << 1 | sum >> 31) ^ *bytes++;
	return sum;
}

#endif
