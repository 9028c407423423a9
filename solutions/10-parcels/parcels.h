/* SPDX-License-Identifier: MIT */
/*
 * What is on the wire in exercise 10.
 *
 * The server's private data is one region, as remote_region_pack() writes it:
 * SLOTS slots of SLOT_SIZE bytes. The client WRITEs WITH IMMEDIATE. The
 * immediate, big-endian, is a header:
 *
 *	PARCEL	a parcel of so many bytes is in this slot. It may be any slot.
 *	CLOSE	that was the last one; the length says how many there were. No
 *		bytes are written.
 *
 * The server answers each with a SEND WITH IMMEDIATE of no bytes: a PARCEL with
 * the same header, which makes its slot free again, and CLOSE with the sum of
 * all bytes of all parcels. A client has no more than SLOTS parcels under way.
 */
#ifndef PARCELS_H
#define PARCELS_H

#include <stddef.h>
#include <stdint.h>

#define SLOTS 4
#define SLOT_SIZE 2000

#define PARCEL 1
#define CLOSE 2

/* 4 bits, 8 bits, 20 bits */
#define header_of(kind, slot, length) \
	((uint32_t)(kind) << 28 | (uint32_t)(slot) << 20 | (uint32_t)(length))
#define header_kind(header) ((header) >> 28)
#define header_slot(header) ((header) >> 20 & 0xff)
#define header_length(header) ((header)&0xfffff)

static inline uint32_t sum_of(const uint8_t *bytes, size_t length)
{
	uint32_t sum = 0;

	while (length--)
		sum += *bytes++;
	return sum;
}

#endif
