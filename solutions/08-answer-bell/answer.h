/* SPDX-License-Identifier: MIT */
/*
 * What is on the wire in exercise 08. Every number is big-endian.
 *
 * The client's request carries, in its private data, two regions of its own as
 * remote_region_pack() writes them: where the answer is to be written, and the
 * doorbell to ring when it is there. The server's answer to the request carries
 * two regions of the server's: the buffer for a text, and its doorbell.
 *
 * Round N, from 1 on: the client WRITEs a text to the buffer, and then N, as 64
 * bits, to the server's doorbell. The server WRITEs a struct answer to where the
 * answer goes, and then N, as 64 bits, to the client's doorbell.
 */
#ifndef ANSWER_H
#define ANSWER_H

#include <stddef.h>
#include <stdint.h>

#define MAX_TEXT 256 /* the NUL included */

struct answer {
	uint32_t length; /* of the text, without its NUL */
	uint32_t sum; /* of its bytes */
};

static inline uint32_t sum_of(const char *text, size_t length)
{
	uint32_t sum = 0;

	while (length--)
		sum = (sum << 1 | sum >> 31) ^ (uint8_t)*text++;
	return sum;
}

#endif
