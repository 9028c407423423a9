/* SPDX-License-Identifier: MIT */
/*
 * Lesson 12: what both sides have to agree on: which failure is wanted, and
 * which column of the catalogue is theirs.
 */
#ifndef AGREE_H
#define AGREE_H

#include <sys/utsname.h>

#include "catalogue.h"

/*
 * Which column is about this device, on this kernel? SoftRoCE has the vendor id
 * 0xffffff. Of the kernels in between nobody has seen anything: the nearest.
 */
static inline enum column column_of_kernel(void)
{
	struct utsname name;
	int major = 0, minor = 0;

	if (uname(&name) || sscanf(name.release, "%d.%d", &major, &minor) != 2)
		return BOOK;
	if (major < 6 || (major == 6 && minor < 7))
		return K6_1;
	return major == 6 ? K6_12 : K7_2;
}

static inline enum column column_here(struct ibv_context *verbs)
{
	struct ibv_device_attr attr;

	if (ibv_query_device(verbs, &attr) || attr.vendor_id != 0xffffff)
		return BOOK;
	return column_of_kernel();
}

/* Is TEXT what the catalogue WANTED? NULL: it has nothing, and all is right. */
static inline bool as_wanted(const char *text, const char *wanted)
{
	return !wanted || !strcmp(text, wanted);
}

/*
 * What a client asks for, in its private data: eight letters, a flag, a name.
 */
#define LETTERS "LESSON12"
#define NAME_SIZE 20
#define REQUEST_SIZE (8 + 4 + NAME_SIZE)
#define BYE "bye" /* in place of a name: that was all */
#define HELLO "hello" /* the same: is anybody there? */

/* Turns a key into that of no region; in the part of it that is random. */
#define WRONG_KEY 0xff

static inline void request_pack(uint8_t *wire, const char *name, bool full)
{
	uint32_t flag = htobe32(full);

	memset(wire, 0, REQUEST_SIZE);
	memcpy(wire, LETTERS, 8);
	memcpy(wire + 8, &flag, 4);
	memcpy(wire + 12, name, strnlen(name, NAME_SIZE - 1));
}

/* Returns 0, or -1 when these bytes are no request. */
static inline int request_unpack(const uint8_t *wire, size_t len, char *name,
				 bool *full)
{
	uint32_t flag;

	if (len < REQUEST_SIZE || memcmp(wire, LETTERS, 8) ||
	    wire[REQUEST_SIZE - 1])
		return -1;
	memcpy(&flag, wire + 8, 4);
	if (be32toh(flag) > 1)
		return -1;
	*full = flag;
	memcpy(name, wire + 12, NAME_SIZE);
	return 0;
}

#endif
