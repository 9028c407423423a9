/* SPDX-License-Identifier: MIT */
/*
 * store.h - what the two sides of lesson 16 agree on: the table that clients
 * read, and the messages that they send
 *
 * All numbers are big-endian, in the table too: it is read by other machines.
 */
#ifndef STORE_H
#define STORE_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/*
 * The server's private data: these eight letters, the table and the place where
 * this client puts its values (two regions as in lesson 06).
 */
#define MAGIC "LESSON16"
#define TERMS_SIZE (8 + 16 + 16)

#define KEY_MAX 32
#define VALUE_MAX 456 /* so that an entry has 512 bytes */

/* A key stands at its home or in one of the places behind it, so many in all. */
#define PROBES 8

enum {
	EMPTY,
	FULL,
	DELETED
}; /* EMPTY: has never been anything else */

/* One entry of the table: 512 bytes. */
struct entry {
	uint64_t checksum; /* of all that follows; 0: being written */
	uint64_t version; /* one more each time that it is written */
	uint32_t state;
	uint16_t key_length;
	uint16_t value_length;
	uint8_t key[KEY_MAX];
	uint8_t value[VALUE_MAX];
};

/* FNV-1a, 64 bits: for keys, and as the checksum. */
static inline uint64_t fnv(const void *data, size_t length)
{
	const uint8_t *bytes = data;
	uint64_t hash = 0xcbf29ce484222325;

	while (length--)
		hash = (hash ^ *bytes++) * 0x100000001b3;
	return hash;
}

static inline uint64_t entry_checksum(const struct entry *entry)
{
	return htobe64(fnv(&entry->version,
			   sizeof(*entry) - offsetof(struct entry, version)));
}

/* KEY of LENGTH bytes may be any; that the entry says the same proves nothing. */
static inline bool entry_has_key(const struct entry *entry, const void *key,
				 size_t length)
{
	return length <= KEY_MAX && be32toh(entry->state) == FULL &&
	       be16toh(entry->key_length) == length &&
	       !memcmp(entry->key, key, length);
}

/* What a client SENDs. The value of a PUT it has WRITTEN before. */
enum {
	PUT = 1,
	DELETE,
	STAT
};

struct request {
	uint32_t op;
	uint16_t key_length;
	uint16_t value_length;
	uint8_t key[KEY_MAX];
};

/* What comes back. The numbers are for STAT. */
enum {
	DONE,
	NOT_FOUND,
	NO_ROOM,
	BAD_LENGTH,
	BAD_OP,
	BAD_KEY,
	BAD_VALUE,
};

struct reply {
	uint32_t status;
	uint32_t messages; /* that the server has taken, of all clients */
	uint64_t cpu_us; /* how much CPU time it has used */
};

static inline const char *status_text(uint32_t status)
{
	static const char *const texts[] = {
		[DONE] = "done",
		[NOT_FOUND] = "not found",
		[NO_ROOM] = "no room for that key",
		[BAD_LENGTH] = "that is no request: wrong length",
		[BAD_OP] = "no such operation",
		[BAD_KEY] = "a key has 1 to 32 bytes",
		[BAD_VALUE] = "a value has 456 bytes at most",
	};

	return status <= BAD_VALUE ? texts[status] : "an unknown status";
}

#endif
