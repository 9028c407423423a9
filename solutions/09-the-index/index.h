/* SPDX-License-Identifier: MIT */
/*
 * What is in the memory that the server of exercise 09 offers. Its private data
 * is one region, as remote_region_pack() writes it. Every number in the region
 * is big-endian:
 *
 *	0	u32 INDEX_MAGIC
 *	4	u32 how many records there are, 1 to MAX_RECORDS
 *	8	for each record: u32 where it begins, in bytes from the start of
 *		the region; u32 how long it is, 1 to MAX_RECORD bytes
 *
 * The index has INDEX_SIZE bytes, whatever the number of the records. Behind it
 * are the records, in no order, with gaps between them.
 *
 * When the client has read them all it SENDs one message: the sum of each
 * record (u32, big-endian), in the order of the index.
 */
#ifndef INDEX_H
#define INDEX_H

#include <stddef.h>
#include <stdint.h>

#define INDEX_MAGIC 0x494e4458 /* "INDX" */
#define MAX_RECORDS 32
#define MAX_RECORD 4096
#define ENTRY_SIZE 8
#define INDEX_SIZE (8 + MAX_RECORDS * ENTRY_SIZE)

static inline uint32_t sum_of(const uint8_t *bytes, size_t length)
{
	uint32_t sum = 0;

	while (length--)
		sum = (sum << 1 | sum >> 31) ^ *bytes++;
	return sum;
}

#endif
