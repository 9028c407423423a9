/* SPDX-License-Identifier: MIT */
/* Lesson 16's client: the server's terms, an entry that was READ, and a reply. */
#include "fuzz.h"

#include "../../lessons/16-store/client.c"

/* Right terms, and then changes. */
static void take_terms(struct client *c, const uint8_t **data, size_t *size)
{
	struct ibv_mr table = { .addr = (void *)4096, .length = 4096 };
	struct ibv_mr place = { .addr = (void *)64, .length = VALUE_MAX };
	uint8_t *terms = c->ep.private_data, how;

	memcpy(terms, MAGIC, 8);
	remote_region_pack(terms + 8, &table);
	remote_region_pack(terms + 24, &place);
	c->ep.private_data_len = TERMS_SIZE;
	fuzz_take(data, size, &how, 1);
	if (how & 1)
		fuzz_change(data, size, terms + 8, 32);
	if (how & 2)
		fuzz_change(data, size, terms, 8);
	if (how & 4)
		fuzz_change(data, size, &c->ep.private_data_len, 1);
	if (!read_terms(c) &&
	    (c->ep.private_data_len < TERMS_SIZE || !c->entries ||
	     (uint64_t)c->entries * sizeof(struct entry) > c->table.size ||
	     c->place.size < VALUE_MAX))
		abort();
}

/* An entry with a value of client and seq, of the length that was asked for. */
static void fill_entry(struct entry *entry, size_t key_length, size_t length)
{
	char value[VALUE_MAX + 1];

	memset(entry, 'k', sizeof(*entry));
	entry->version = 0;
	entry->state = htobe32(FULL);
	entry->key_length = htobe16(key_length);
	entry->value_length = htobe16(length);
	make_value(value, length, 3, 17);
	memcpy(entry->value, value, length);
	entry->checksum = entry_checksum(entry);
}

/* What get() and print_get() do with what was READ. */
static void read_value(struct client *c, const char *key, size_t key_length)
{
	struct entry *entry = &c->memory.entry, *alone;
	char name[32];

	/* Of exactly that size, so that one byte too far is seen. */
	alone = malloc(sizeof(*alone));
	if (!alone)
		abort();
	memcpy(alone, entry, sizeof(*alone));
	if (alone->checksum == entry_checksum(alone) &&
	    entry_has_key(alone, key, key_length) && key_length > KEY_MAX)
		abort();
	free(alone);
	if (value_length(c) > VALUE_MAX)
		abort();
	printf("%.*s\n", (int)value_length(c), (char *)entry->value);
	name_value((char *)entry->value, value_length(c), name, sizeof(name));
	if (strlen(name) >= sizeof(name))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint16_t lengths[] = { 0, 1, 4, 31, 32, 33, 488, 1000 };
	struct client client = { 0 };
	struct entry *entry = &client.memory.entry;
	struct ibv_wc wc = { .byte_len = sizeof(struct reply) };
	char key[1001];
	uint8_t how, at;
	size_t n;

	take_terms(&client, &data, &size);
	fuzz_take(&data, &size, &how, 1);
	fuzz_take(&data, &size, &at, 1);
	n = lengths[how % 8];
	memset(key, 'k', sizeof(key));
	key[n] = '\0';
	fill_entry(entry, n, how & 8 ? 32 + at : VALUE_MAX);
	if (how & 16)
		fuzz_change(&data, &size, &entry->state, 8);
	if (how & 32)
		fuzz_change(&data, &size, entry->value + at % VALUE_MAX, 8);
	if (how & 64) /* A server that lies, and not one that is writing. */
		entry->checksum = entry_checksum(entry);
	read_value(&client, key, n);
	fuzz_change(&data, &size, &wc.byte_len, 1);
	fuzz_take(&data, &size, &client.memory.reply, sizeof(struct reply));
	if (!check_reply(&client, &wc)) {
		if (wc.byte_len != sizeof(struct reply) ||
		    (int)be32toh(client.memory.reply.status) < 0)
			abort();
		printf("%s\n",
		       status_text(be32toh(client.memory.reply.status)));
	}
	return 0;
}
