/* SPDX-License-Identifier: MIT */
/*
 * What is in the memory that the server of exercise 11 offers: a lock that is
 * given in turn, and a value that it guards. The server's private data is the
 * region, as remote_region_pack() writes it.
 *
 *	NEXT	the next ticket, a number for atomics
 *	SERVING	the ticket whose turn it is, a number for atomics
 *	VALUE	what the lock guards: u64, big-endian, read and written only
 *
 * Whoever wants the lock takes a ticket: what was in NEXT, which is one more
 * then. When SERVING is that ticket the lock is his. He gives it back by adding
 * one to SERVING.
 */
#ifndef QUEUE_H
#define QUEUE_H

#define NEXT 0
#define SERVING 8
#define VALUE 16
#define QUEUE_SIZE 24

/* What the client adds to VALUE each time that it has the lock. */
#define STEP 1000

#endif
