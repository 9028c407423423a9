/* SPDX-License-Identifier: MIT */
/*
 * What the two sides of exercise 03 say in the private data of the handshake.
 * Both are 8 bytes, and every number is big-endian.
 *
 *	the client's request	u32 HELLO_MAGIC, u16 version, u16 zero
 *	the server's reject	u32 HELLO_MAGIC, u16 why, u16 HELLO_VERSION
 *
 * The length that an event gives is not the length that was sent: the CM pads with
 * zeros what it delivers. So these have a fixed size, and something in them that is
 * never zero.
 */
#ifndef HELLO_H
#define HELLO_H

#include <stdint.h>

#define HELLO_MAGIC 0x52444d41 /* "RDMA" */
#define HELLO_VERSION 3 /* the only one that this server speaks */

/* Why a client is not let in. */
enum why {
	WELCOME = 0,
	WHY_NO_HELLO = 1, /* the request is none of ours */
	WHY_VERSION = 2, /* it speaks another version */
	WHY_BUSY = 3, /* another client is being served */
};

/* As it is on the wire; big-endian, see endian(3). */
struct hello {
	uint32_t magic;
	uint16_t version;
	uint16_t zero;
};

struct refusal {
	uint32_t magic;
	uint16_t why;
	uint16_t version;
};

#endif
