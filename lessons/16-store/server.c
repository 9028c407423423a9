/* SPDX-License-Identifier: MIT */
/*
 * Lesson 16: the server of a key-value store. It owns the table, and only it
 * writes to it; clients read the table without it. What it has to see to is that
 * a client that reads while it writes can tell.
 */
#include <rdma_common.h>

#include "store.h"

#define SLOT_SIZE 64 /* requests and replies are smaller */
#define MAX_ENTRIES 65536

struct server_options {
	struct options common;
	long entries, slow;
	bool once;
};

/* What the server has for each client: the place for its next value. */
struct visitor {
	uint8_t value[VALUE_MAX];
	struct ibv_mr *mr;
	uint8_t terms[TERMS_SIZE]; /* our private data */
};

struct server {
	struct hub hub; /* first: a pointer to it is one to the server */
	struct entry *table;
	struct ibv_mr *mr;
	uint32_t entries;
	long slow; /* us to pause in the middle of an entry */
	uint64_t puts, deletes, bad;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [--entries N] [--once]\n"
		"              [--slow-write US]\n"
		"Keep keys and values for many clients, until Ctrl-C or SIGTERM.\n"
		"  --entries N            places in the table, of 512 bytes, 8 to 65536 (default:\n"
		"                         1024)\n"
		"  --slow-write US        pause so long in the middle of writing an entry, 0 to\n"
		"                         100000 us (default: 0); readers then see half an entry\n"
		"  --once                 end when the last client has left\n"
		"  -t, --timeout SECONDS  drop a client of which nothing was heard for so long (a\n"
		"                         READ is not heard), 1 to 3600 (default: 60)\n"
		"  -a, --address ADDRESS  listen on this address only, IPv4, IPv6 or a name\n"
		"                         (default: every address, IPv4 and IPv6)\n"
		"  -p, --port PORT        listen on this port, 1 to 65535 (default: 10121)\n"
		"  -h, --help             this text\n"
		"Exit status: 0 done, 1 failed, 2 usage.\n"
		"Man pages: ibv_reg_mr(3), ibv_post_send(3).\n");
}

enum {
	ENTRIES = 256,
	SLOW,
	ONCE
};

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "entries", required_argument, NULL, ENTRIES },
		{ "slow-write", required_argument, NULL, SLOW },
		{ "once", no_argument, NULL, ONCE },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) != -1) {
		if (c == ENTRIES)
			opt->entries = parse_number(optarg, 8, MAX_ENTRIES);
		else if (c == SLOW)
			opt->slow = parse_number(optarg, 0, 100000);
		else if (c == ONCE)
			opt->once = true;
		else if (common_option(c, &opt->common))
			return -1;
	}
	if (opt->entries < 0 || opt->slow < 0) {
		fprintf(stderr,
			"server: --entries takes 8 to %d, --slow-write "
			"0 to 100000 us\n",
			MAX_ENTRIES);
		return -1;
	}
	return server_operand(argc, argv, &opt->common);
}

/* ---- the table ----------------------------------------------------------- */

/*
 * Write an entry, while clients may be reading it. First the checksum goes, then
 * everything else changes, and then the new checksum comes. Whoever reads in
 * between gets bytes that do not fit their checksum.
 *
 * The two orders, release, are for compiler and CPU: the writer's half of the
 * acquire of lesson 08, what was written before is not moved behind. They keep the
 * time short in which a reader sees something that does not fit; that it does not
 * take it for whole is the checksum's doing alone, for no order is promised
 * among the bytes of a READ.
 */
static void write_entry(struct server *s, struct entry *entry, uint32_t state,
			const struct request *r, const uint8_t *value)
{
	uint16_t length = be16toh(r->value_length), half = length / 2;

	__atomic_store_n(&entry->checksum, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	entry->version = htobe64(be64toh(entry->version) + 1);
	entry->state = htobe32(state);
	if (state == FULL) {
		entry->key_length = r->key_length;
		entry->value_length = r->value_length;
		memcpy(entry->key, r->key, be16toh(r->key_length));
		memcpy(entry->value, value, half);
		if (s->slow)
			usleep(s->slow);
		memcpy(entry->value + half, value + half, length - half);
	}
	__atomic_store_n(&entry->checksum, entry_checksum(entry),
			 __ATOMIC_RELEASE);
}

/*
 * Where the key is, or NULL. In ROOM, where it could be put: the first place that
 * has no key in it. A key never moves: a client that is looking for it place by
 * place would miss it.
 */
static struct entry *find(struct server *s, const struct request *r,
			  struct entry **room)
{
	uint16_t length = be16toh(r->key_length);
	uint64_t home = fnv(r->key, length);
	struct entry *entry;
	int i;

	*room = NULL;
	for (i = 0; i < PROBES; i++) {
		entry = &s->table[(home + i) % s->entries];
		if (entry_has_key(entry, r->key, length))
			return entry;
		if (!*room && be32toh(entry->state) != FULL)
			*room = entry;
		if (be32toh(entry->state) == EMPTY)
			break;
	}
	return NULL;
}

/* ---- requests ------------------------------------------------------------ */

static uint32_t put(struct server *s, const struct request *r,
		    const uint8_t *value)
{
	struct entry *room, *entry = find(s, r, &room);

	if (!entry)
		entry = room;
	if (!entry)
		return NO_ROOM;
	write_entry(s, entry, FULL, r, value);
	s->puts++;
	return DONE;
}

/* Not EMPTY but DELETED: the search for other keys goes on behind it. */
static uint32_t delete_key(struct server *s, const struct request *r)
{
	struct entry *room, *entry = find(s, r, &room);

	if (!entry)
		return NOT_FOUND;
	write_entry(s, entry, DELETED, r, NULL);
	s->deletes++;
	return DONE;
}

static uint64_t cpu_us(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000000ULL + used.tv_nsec / 1000;
}

/* Believe nothing: what is in a request comes from somebody else. */
static uint32_t carry_out(struct server *s, const struct request *r,
			  uint32_t length, const uint8_t *value)
{
	if (length != sizeof(*r))
		return BAD_LENGTH;
	switch (be32toh(r->op)) {
	case STAT:
		return DONE;
	case PUT:
	case DELETE:
		break;
	default:
		return BAD_OP;
	}
	if (!r->key_length || be16toh(r->key_length) > KEY_MAX)
		return BAD_KEY;
	if (be16toh(r->value_length) > VALUE_MAX)
		return BAD_VALUE;
	return be32toh(r->op) == PUT ? put(s, r, value) : delete_key(s, r);
}

/*
 * A message. The value of a PUT lies in the client's place: it was WRITTEN before
 * the SEND was sent, and requests of one connection are carried out in order.
 */
static uint32_t on_message(struct hub *hub, struct hub_client *client,
			   uint8_t *text, uint32_t length)
{
	struct server *s = (struct server *)hub;
	struct visitor *visitor = client->own;
	struct reply reply = { 0 };
	struct request request;
	uint32_t status;

	memcpy(&request, text, sizeof(request));
	status = carry_out(s, &request, length, visitor->value);
	if (status >= BAD_LENGTH)
		s->bad++;
	reply.status = htobe32(status);
	reply.messages = htobe32(hub->messages);
	reply.cpu_us = htobe64(cpu_us());
	memcpy(text, &reply, sizeof(reply));
	return sizeof(reply);
}

/* ---- clients ------------------------------------------------------------- */

/* The table may be read by everybody, and written by no one but us. */
static int register_table(struct server *s)
{
	s->mr = ibv_reg_mr(s->hub.ep.pd, s->table,
			   s->entries * sizeof(*s->table),
			   IBV_ACCESS_REMOTE_READ);
	if (s->mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

/* A place for its values, which is its own, and what it has to know. */
static int on_client(struct hub *hub, struct hub_client *client,
		     struct rdma_conn_param *param)
{
	struct server *s = (struct server *)hub;
	struct visitor *visitor;

	if (!s->mr && register_table(s))
		return -1;
	visitor = client->own = calloc(1, sizeof(*visitor));
	if (!visitor) {
		report("calloc", errno);
		return -1;
	}
	visitor->mr =
		ibv_reg_mr(hub->ep.pd, visitor->value, VALUE_MAX,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!visitor->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	memcpy(visitor->terms, MAGIC, 8);
	remote_region_pack(visitor->terms + 8, s->mr);
	remote_region_pack(visitor->terms + 24, visitor->mr);
	param->private_data = visitor->terms;
	param->private_data_len = TERMS_SIZE;
	param->responder_resources = 1; /* READs of a client at a time */
	return 0;
}

static void on_gone(struct hub *hub, struct hub_client *client)
{
	struct visitor *visitor = client->own;

	(void)hub;
	if (visitor && visitor->mr && ibv_dereg_mr(visitor->mr))
		report("ibv_dereg_mr", errno);
	free(visitor);
}

static int open_server(struct server *s, const struct server_options *opt)
{
	uint32_t i;

	s->entries = opt->entries;
	s->slow = opt->slow;
	s->hub.once = opt->once;
	s->table = aligned_alloc(sizeof(*s->table),
				 s->entries * sizeof(*s->table));
	if (!s->table) {
		report("aligned_alloc", errno);
		return -1;
	}
	memset(s->table, 0, s->entries * sizeof(*s->table));
	for (i = 0; i < s->entries; i++)
		s->table[i].checksum = entry_checksum(&s->table[i]);
	return hub_open(&s->hub, &opt->common);
}

static void close_server(struct server *s)
{
	hub_close(&s->hub);
	if (s->mr && ibv_dereg_mr(s->mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&s->hub.ep);
	free(s->table);
}

int main(int argc, char **argv)
{
	struct server_options opt = {
		.common = OPTIONS_DEFAULT,
		.entries = 1024,
	};
	struct server server = {
		.hub = { .slots = 256,
			 .slot_size = SLOT_SIZE,
			 .window = 1,
			 .on_client = on_client,
			 .on_message = on_message,
			 .on_gone = on_gone },
	};
	int status = EXIT_FAILED;

	opt.common.timeout = 60;
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.common.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (open_server(&server, &opt) == 0 && hub_serve(&server.hub) == 0) {
		printf("%llu clients came; %llu PUTs, %llu DELETEs, %llu bad "
		       "requests; GETs: nobody knows\n",
		       (unsigned long long)server.hub.came,
		       (unsigned long long)server.puts,
		       (unsigned long long)server.deletes,
		       (unsigned long long)server.bad);
		status = EXIT_DONE;
	}
	close_server(&server);
	return status;
}
