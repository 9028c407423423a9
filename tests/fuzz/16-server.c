/* SPDX-License-Identifier: MIT */
/* Lesson 16's server: requests, one after the other, and the table after each. */
#include "fuzz.h"

#include "../../lessons/16-store/server.c"

#define TABLE 8 /* places: all of them are looked at for each key */
#define MOST 12 /* requests of one input */

/* Whatever was asked for: what others READ has to be within limits. */
static void check_table(const struct server *s)
{
	const struct entry *entry;
	uint32_t i;

	for (i = 0; i < s->entries; i++) {
		entry = &s->table[i];
		if (be32toh(entry->state) > DELETED ||
		    be16toh(entry->key_length) > KEY_MAX ||
		    (be32toh(entry->state) == FULL && !entry->key_length) ||
		    be16toh(entry->value_length) > VALUE_MAX)
			abort();
	}
}

/* What was written has to be whole. That takes longer: looked at in the end. */
static void check_checksums(const struct server *s)
{
	uint32_t i;

	for (i = 0; i < s->entries; i++)
		if (s->table[i].version &&
		    s->table[i].checksum != entry_checksum(&s->table[i]))
			abort();
}

/* What was PUT can be found, and what was DELETED cannot. */
static void check_request(struct server *s, const struct request *r,
			  const uint8_t *value)
{
	struct entry *room, *entry;

	if (be32toh(r->op) == STAT) /* Its other fields may be anything. */
		return;
	entry = find(s, r, &room);
	if (be32toh(r->op) == PUT &&
	    (!entry || entry->value_length != r->value_length ||
	     memcmp(entry->value, value, be16toh(r->value_length))))
		abort();
	if (be32toh(r->op) == DELETE && entry)
		abort();
}

/* A request as it should be, and then changes. Returns its length. */
static uint32_t make_request(struct request *r, struct visitor *visitor,
			     const uint8_t **data, size_t *size)
{
	uint32_t length = sizeof(*r);
	uint8_t what, how;

	fuzz_take(data, size, &what, 1);
	fuzz_take(data, size, &how, 1);
	memset(r, 0, sizeof(*r));
	r->op = htobe32(what % 4 ? what % 4 : PUT);
	r->key_length = htobe16(how & 1 ? KEY_MAX : 1);
	r->value_length = htobe16(how & 2 ? VALUE_MAX : what);
	memset(r->key, 'a' + what / 4 % 16, KEY_MAX);
	memset(visitor->value, what, VALUE_MAX);
	if (how & 4)
		fuzz_change(data, size, &r->key_length, 4);
	if (how & 8)
		fuzz_change(data, size, &r->op, 4);
	if (how & 16)
		fuzz_change(data, size, r->key, 4);
	if (how & 32)
		fuzz_change(data, size, &length, 1);
	return length < SLOT_SIZE ? length : SLOT_SIZE;
}

static void ask(struct server *s, struct hub_client *client,
		const uint8_t **data, size_t *size)
{
	struct visitor *visitor = client->own;
	struct request request;
	struct reply reply;
	uint8_t *text = calloc(1, SLOT_SIZE);
	uint32_t length = make_request(&request, visitor, data, size);

	if (!text)
		abort();
	memcpy(text, &request, sizeof(request));
	if (on_message(&s->hub, client, text, length) != sizeof(reply))
		abort();
	memcpy(&reply, text, sizeof(reply));
	free(text);
	if (be32toh(reply.status) > BAD_VALUE ||
	    (length != sizeof(request) && be32toh(reply.status) != BAD_LENGTH))
		abort();
	check_table(s);
	if (be32toh(reply.status) == DONE)
		check_request(s, &request, visitor->value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct server server = { .entries = TABLE };
	/* Of exactly that size, so that one byte too far is seen. */
	struct visitor *visitor = calloc(1, sizeof(*visitor));
	struct hub_client client = { .own = visitor };
	uint32_t i;

	server.table = calloc(TABLE, sizeof(*server.table));
	if (!server.table || !visitor)
		abort();
	for (i = 0; i < MOST && size > 0; i++)
		ask(&server, &client, &data, &size);
	check_checksums(&server);
	free(server.table);
	free(visitor);
	return 0;
}
