/* SPDX-License-Identifier: MIT */
/*
 * What the two sides of exercise 02 say in the private data of the handshake:
 * the client who it is, the server whom it has understood. Text only, so there
 * is no byte order to think of; and of a fixed size, because the length that
 * the event gives is not the length that was sent.
 */
#ifndef HELLO_H
#define HELLO_H

#define HELLO_MAGIC "HI02"

struct hello {
	char magic[4]; /* HELLO_MAGIC, without a NUL */
	char name[28]; /* NUL-terminated */
};

#endif
