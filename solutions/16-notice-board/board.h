/* SPDX-License-Identifier: MIT */
/*
 * The board of exercise 16, as both sides know it. All numbers are big-endian.
 */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

/* The server's private data: these eight letters, then the board as a region. */
#define MAGIC "NOTICES!"

#define NOTICES 4
#define LINES 4
#define LINE_TEXT 60
#define TEXT_SIZE (LINES * LINE_TEXT)

/*
 * A notice: four lines of 64 bytes. Each begins with the version of the notice
 * that its text belongs to. The server changes the lines of a notice in any order;
 * what is in one line changes together.
 */
struct notice {
	struct {
		uint32_t version;
		uint8_t text[LINE_TEXT];
	} lines[LINES];
};

/* What the client SENDs of each notice that it has read. */
struct report {
	uint32_t number; /* of the notice, from 0 */
	uint32_t version;
	uint8_t text[TEXT_SIZE]; /* the texts of the lines, one after the other */
};

#endif
