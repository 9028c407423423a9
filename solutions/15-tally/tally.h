/* SPDX-License-Identifier: MIT */
/*
 * What is said in exercise 15. A customer sends a number, 32 bits and big-endian,
 * in a message of 4 bytes. The answer is the sum of all numbers that this customer
 * has sent on this connection (modulo 2^32), 4 bytes and big-endian again. Any
 * other message ends the connection.
 */
#ifndef TALLY_H
#define TALLY_H

#define NUMBER_SIZE 4
#define SLOT_SIZE 8 /* what there is room for */

#endif
