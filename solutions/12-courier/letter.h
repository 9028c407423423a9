/* SPDX-License-Identifier: MIT */
/*
 * What the two sides of exercise 12 say to each other. All numbers are
 * big-endian.
 *
 * The client sends letters, number 1 first, in their order. The server tells in
 * the private data of each accept which letter it wants next. In the private
 * data of a reject it says why.
 */
#ifndef LETTER_H
#define LETTER_H

#include <stdint.h>

#define LETTER_MAGIC 0x4c455454 /* "LETT" */

struct welcome {
	uint32_t magic;
	uint32_t next; /* the number of the letter that the server wants next */
};

enum why {
	WHY_BUSY = 1, /* not now: try again */
	WHY_CLOSED = 2, /* never: do not try again */
};

struct refusal {
	uint32_t magic;
	uint32_t why;
};

struct letter {
	uint32_t number;
	char text[60];
};

#endif
