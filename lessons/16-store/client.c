/* SPDX-License-Identifier: MIT */
/*
 * Lesson 16: a client of the store. For a GET it READs the server's table, and
 * looks whether what it got is whole. For a PUT it WRITEs the value into its place
 * at the server and SENDs the request behind it.
 */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <rdma_common.h>

#include "store.h"

#define MAX_COMMANDS 32
#define MAX_CLIENTS 64

/* What is asked for on the command line, in its order. */
struct command {
	int what; /* the flag */
	const char *text;
};

struct client_options {
	struct options common;
	struct command commands[MAX_COMMANDS];
	int command_count;
	long clients, count, keys, gets, size;
	const char *history;
	bool no_check;
};

/* How it went; of all clients, in memory that they share. */
struct totals {
	_Atomic uint64_t gets, puts, deletes, reads, torn, mixed;
};

struct client {
	struct endpoint ep;
	bool no_check; /* take what a READ brings for whole */
	struct remote_region table, place;
	uint32_t entries;
	struct {
		struct entry entry; /* what was READ */
		struct request request;
		struct reply reply;
		uint8_t value[VALUE_MAX];
	} memory;
	struct ibv_mr *mr;
	struct totals *totals;
	uint32_t number; /* which of the clients we are */
	FILE *history;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [COMMAND...] SERVER_ADDRESS\n"
		"       client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] --work COUNT [--clients N]\n"
		"              [--keys N] [--gets PERCENT] [-s BYTES] [--history FILE]\n"
		"              SERVER_ADDRESS\n"
		"Use the store. Commands, 32 at most, carried out in their order (default: put, get,\n"
		"delete and get a colour, and measure 100):\n"
		"  --put KEY=VALUE, --get KEY, --delete KEY\n"
		"  --measure COUNT        time GETs and PUTs, 1 to 1000000 of each, and ask the\n"
		"                         server how much CPU time they took\n"
		"  --bad WHAT             send a bad request: op, key, value or length; write:\n"
		"                         RDMA WRITE to the table; past: and past the end of our\n"
		"                         place for values\n"
		"Or work at random, and see whether it was right:\n"
		"  --work COUNT           requests of each client, 1 to 1000000\n"
		"  --clients N            clients at the same time, 1 to 64 (default: 1)\n"
		"  --keys N               different keys, 1 to 1000 (default: 4)\n"
		"  --gets PERCENT         how many are GETs, 0 to 100 (default: 60)\n"
		"  -s, --size BYTES       of a value, 32 to 456 (default: 256)\n"
		"  --history FILE         client N writes to FILE.N what it did, and when\n"
		"With both:\n"
		"  --no-check             do not look at the checksum of an entry\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3).\n");
}

enum {
	DO_PUT = 256,
	DO_GET,
	DO_DELETE,
	DO_MEASURE,
	DO_BAD,
	WORK,
	CLIENTS,
	KEYS,
	GETS,
	HISTORY,
	NO_CHECK
};

static int take_number(long *value, const char *flag, long min, long max)
{
	*value = parse_number(optarg, min, max);
	if (*value >= 0)
		return 0;
	fprintf(stderr, "client: --%s takes %ld to %ld\n", flag, min, max);
	return -1;
}

static int take_command(int what, struct client_options *opt)
{
	static const char *const bad[] = { "op",     "key",   "value",
					   "length", "write", "past" };
	size_t i = 0;

	if (opt->command_count == MAX_COMMANDS) {
		fprintf(stderr, "client: %d commands at most\n", MAX_COMMANDS);
		return -1;
	}
	if (what == DO_PUT && !strchr(optarg, '=')) {
		fprintf(stderr, "client: --put takes KEY=VALUE\n");
		return -1;
	}
	while (what == DO_BAD && strcmp(bad[i], optarg))
		if (++i == sizeof(bad) / sizeof(bad[0])) {
			fprintf(stderr, "client: --bad takes op, key, value, "
					"length, write or past\n");
			return -1;
		}
	if (what == DO_MEASURE && parse_number(optarg, 1, 1000000) < 0) {
		fprintf(stderr, "client: --measure takes 1 to 1000000\n");
		return -1;
	}
	opt->commands[opt->command_count].what = what;
	opt->commands[opt->command_count++].text = optarg;
	return 0;
}

static int parse_flag(int c, struct client_options *opt)
{
	switch (c) {
	case DO_PUT:
	case DO_GET:
	case DO_DELETE:
	case DO_MEASURE:
	case DO_BAD:
		return take_command(c, opt);
	case WORK:
		return take_number(&opt->count, "work", 1, 1000000);
	case CLIENTS:
		return take_number(&opt->clients, "clients", 1, MAX_CLIENTS);
	case KEYS:
		return take_number(&opt->keys, "keys", 1, 1000);
	case GETS:
		return take_number(&opt->gets, "gets", 0, 100);
	case 's':
		return take_number(&opt->size, "size", 32, VALUE_MAX);
	case HISTORY:
		opt->history = optarg;
		return 0;
	case NO_CHECK:
		opt->no_check = true;
		return 0;
	default:
		return common_option(c, &opt->common);
	}
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "put", required_argument, NULL, DO_PUT },
		{ "get", required_argument, NULL, DO_GET },
		{ "delete", required_argument, NULL, DO_DELETE },
		{ "measure", required_argument, NULL, DO_MEASURE },
		{ "bad", required_argument, NULL, DO_BAD },
		{ "work", required_argument, NULL, WORK },
		{ "clients", required_argument, NULL, CLIENTS },
		{ "keys", required_argument, NULL, KEYS },
		{ "gets", required_argument, NULL, GETS },
		{ "size", required_argument, NULL, 's' },
		{ "history", required_argument, NULL, HISTORY },
		{ "no-check", no_argument, NULL, NO_CHECK },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:", longs, NULL)) !=
	       -1)
		if (parse_flag(c, opt))
			return -1;
	if (opt->count && opt->command_count) {
		fprintf(stderr, "client: --work, or commands, not both\n");
		return -1;
	}
	return client_operand(argc, argv, &opt->common);
}

/* ---- requests and their completions -------------------------------------- */

static struct ibv_sge sge_of(struct client *c, void *at, size_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)at,
		.length = length,
		.lkey = c->mr->lkey,
	};

	return sge;
}

/* Is it a reply? Whoever asked takes its status for a number that is not negative. */
static int check_reply(const struct client *c, const struct ibv_wc *wc)
{
	uint32_t status = be32toh(c->memory.reply.status);

	if (wc->byte_len == sizeof(struct reply) && status <= BAD_VALUE)
		return 0;
	fprintf(stderr,
		"a reply has %zu bytes and a status of %d at most, and this one "
		"%u and %u\n",
		sizeof(struct reply), BAD_VALUE, wc->byte_len, status);
	return -1;
}

/* Wait until SENDS of our requests and RECVS receives have completed. */
static int wait_for(struct client *c, int sends, int recvs)
{
	struct ibv_wc wc;
	int ret;

	while (sends > 0 || recvs > 0) {
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret > 0)
			fprintf(stderr, "the server ended the connection\n");
		if (ret || check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) != WR_RECV) {
			sends--;
		} else if (check_reply(c, &wc)) {
			return -1;
		} else {
			recvs--;
		}
	}
	return 0;
}

static int post_one_sided(struct client *c, enum ibv_wr_opcode opcode,
			  void *local, size_t length,
			  const struct remote_region *region, uint64_t offset,
			  int flags)
{
	struct ibv_sge sge = sge_of(c, local, length);
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(
			opcode == IBV_WR_RDMA_READ ? WR_READ : WR_WRITE, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcode,
		.send_flags = flags,
		.wr.rdma.remote_addr = region->addr + offset,
		.wr.rdma.rkey = region->rkey,
	};

	return endpoint_post_send(&c->ep, &wr);
}

static int post_receive(struct client *c)
{
	struct ibv_sge sge =
		sge_of(c, &c->memory.reply, sizeof(c->memory.reply));
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0),
				  .sg_list = &sge,
				  .num_sge = 1 };

	return endpoint_post_recv(&c->ep, &wr);
}

/* SEND the first LENGTH bytes of the request. Returns the reply's status, or -1. */
static int ask(struct client *c, size_t length)
{
	struct ibv_sge sge = sge_of(c, &c->memory.request, length);
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (post_receive(c) || endpoint_post_send(&c->ep, &wr) ||
	    wait_for(c, 1, 1))
		return -1;
	return be32toh(c->memory.reply.status);
}

static void fill_request(struct client *c, uint32_t op, const char *key,
			 size_t value_length)
{
	struct request *r = &c->memory.request;
	size_t length = strlen(key);

	memset(r, 0, sizeof(*r));
	r->op = htobe32(op);
	r->key_length = htobe16(length);
	r->value_length = htobe16(value_length);
	memcpy(r->key, key, length < KEY_MAX ? length : KEY_MAX);
}

/*
 * The value first, by RDMA WRITE, and then the request. The WRITE is not
 * signalled: requests are carried out in order, so the SEND's completion is
 * its completion too. And the reply says that the server is done with our
 * place, so we may WRITE the next value there.
 */
static int put(struct client *c, const char *key, const void *value,
	       size_t length)
{
	if (length > VALUE_MAX)
		return BAD_VALUE;
	memcpy(c->memory.value, value, length);
	fill_request(c, PUT, key, length);
	c->totals->puts++;
	if (length && post_one_sided(c, IBV_WR_RDMA_WRITE, c->memory.value,
				     length, &c->place, 0, 0))
		return -1;
	return ask(c, sizeof(c->memory.request));
}

static int delete_key(struct client *c, const char *key)
{
	fill_request(c, DELETE, key, 0);
	c->totals->deletes++;
	return ask(c, sizeof(c->memory.request));
}

/* ---- GET ----------------------------------------------------------------- */

/*
 * READ the entry in PLACE, again and again until it is whole. The server does not
 * know that we read, so it may be writing at that very moment; then what we get
 * is partly old and partly new, and does not fit its checksum.
 */
static int read_entry(struct client *c, uint32_t place)
{
	long long deadline = now_ms() + c->ep.timeout * 1000LL;
	struct entry *entry = &c->memory.entry;

	for (;;) {
		c->totals->reads++;
		if (post_one_sided(c, IBV_WR_RDMA_READ, entry, sizeof(*entry),
				   &c->table, (uint64_t)place * sizeof(*entry),
				   IBV_SEND_SIGNALED) ||
		    wait_for(c, 1, 0))
			return -1;
		if (c->no_check || entry->checksum == entry_checksum(entry))
			return 0;
		c->totals->torn++;
		if (now_ms() > deadline) {
			fprintf(stderr,
				"place %u was never whole for %d s: did the "
				"server stop in the middle of writing?\n",
				place, c->ep.timeout);
			return -1;
		}
	}
}

/*
 * DONE, and the value is in c->memory.entry; NOT_FOUND; or -1. From the key's home
 * on, place by place, as the server does it. The server's program does nothing.
 */
static int get(struct client *c, const char *key)
{
	struct entry *entry = &c->memory.entry;
	size_t length = strlen(key);
	uint64_t home = fnv(key, length);
	int i;

	c->totals->gets++;
	for (i = 0; i < PROBES; i++) {
		if (read_entry(c, (home + i) % c->entries))
			return -1;
		if (entry_has_key(entry, key, length))
			return DONE;
		if (be32toh(entry->state) == EMPTY)
			break;
	}
	return NOT_FOUND;
}

/* The bytes of its value; with --no-check, whatever is there. */
static size_t value_length(const struct client *c)
{
	size_t length = be16toh(c->memory.entry.value_length);

	return length < VALUE_MAX ? length : VALUE_MAX;
}

/* ---- the commands -------------------------------------------------------- */

static int print_put(struct client *c, const char *text)
{
	const char *value = strchr(text, '=') + 1;
	char key[256];
	int status;

	snprintf(key, sizeof(key), "%.*s", (int)(value - 1 - text), text);
	status = put(c, key, value, strlen(value));
	if (status >= 0)
		printf("PUT %s: %s\n", key, status_text(status));
	return status < 0 ? -1 : 0;
}

static int print_get(struct client *c, const char *key)
{
	int status = get(c, key);

	if (status == DONE)
		printf("GET %s: %.*s\n", key, (int)value_length(c),
		       (char *)c->memory.entry.value);
	else if (status >= 0)
		printf("GET %s: %s\n", key, status_text(status));
	return status < 0 ? -1 : 0;
}

static int print_delete(struct client *c, const char *key)
{
	int status = delete_key(c, key);

	if (status >= 0)
		printf("DELETE %s: %s\n", key, status_text(status));
	return status < 0 ? -1 : 0;
}

/* What the server's program has used until now. */
static int stat_server(struct client *c, uint64_t *cpu, uint32_t *messages)
{
	fill_request(c, STAT, "", 0);
	if (ask(c, sizeof(c->memory.request)))
		return -1;
	*cpu = be64toh(c->memory.reply.cpu_us);
	*messages = be32toh(c->memory.reply.messages);
	return 0;
}

static int measure(struct client *c, const char *text)
{
	static const char *const names[] = { "GET", "PUT" };
	long count = atol(text), i;
	uint64_t cpu[2];
	uint32_t messages[2];
	long long us;
	int what;

	if (put(c, "measured", "value", 5) != DONE)
		return -1;
	for (what = 0; what < 2; what++) {
		if (stat_server(c, &cpu[0], &messages[0]))
			return -1;
		us = now_us();
		for (i = 0; i < count; i++)
			if (what ? put(c, "measured", "value", 5) :
				   get(c, "measured"))
				return -1;
		us = now_us() - us;
		if (stat_server(c, &cpu[1], &messages[1]))
			return -1;
		/* One of the messages is our second question. */
		printf("%ld %ss: %lld us each; the server's program used "
		       "%llu us of CPU time and took %u messages\n",
		       count, names[what], us / count,
		       (unsigned long long)(cpu[1] - cpu[0]),
		       messages[1] - messages[0] - 1);
	}
	return 0;
}

static int send_bad(struct client *c, const char *what)
{
	struct request *r = &c->memory.request;
	size_t length = sizeof(*r);
	int status;

	fill_request(c, PUT, "key", 1);
	if (!strcmp(what, "write") || !strcmp(what, "past")) {
		if (post_one_sided(c, IBV_WR_RDMA_WRITE, c->memory.value, 1,
				   *what == 'w' ? &c->table : &c->place,
				   *what == 'w' ? 0 : c->place.size,
				   IBV_SEND_SIGNALED))
			return -1;
		return wait_for(c, 1, 0);
	}
	if (!strcmp(what, "op"))
		r->op = htobe32(99);
	else if (!strcmp(what, "key"))
		r->key_length = htobe16(KEY_MAX + 1);
	else if (!strcmp(what, "value"))
		r->value_length = htobe16(VALUE_MAX + 1);
	else
		length = 7;
	status = ask(c, length);
	if (status >= 0)
		printf("bad %s: the server says: %s\n", what,
		       status_text(status));
	return status < 0 ? -1 : 0;
}

static int run_commands(struct client *c, const struct command *cmd, int count)
{
	int ret;

	for (; count > 0; count--, cmd++) {
		ret = cmd->what == DO_PUT     ? print_put(c, cmd->text) :
		      cmd->what == DO_GET     ? print_get(c, cmd->text) :
		      cmd->what == DO_DELETE  ? print_delete(c, cmd->text) :
		      cmd->what == DO_MEASURE ? measure(c, cmd->text) :
						send_bad(c, cmd->text);
		if (ret)
			return -1;
	}
	return 0;
}

/* ---- work at random ------------------------------------------------------ */

/*
 * A value says who wrote it and when, and then letters that follow from that.
 * So whoever reads it can tell, without any checksum, that it is of one piece.
 */
static void make_value(char *value, size_t size, uint32_t client, uint32_t seq)
{
	size_t i, n = snprintf(value, size, "%u-%u ", client, seq);

	for (i = n; i < size; i++)
		value[i] = 'a' + pattern_byte(client * 1000003 + seq, i) % 26;
}

/* Whose value it is, as "3-17", into NAME; "mixed" when it is not of one piece. */
static void name_value(const char *value, size_t size, char *name, size_t room)
{
	char wanted[VALUE_MAX + 1], copy[32] = "";
	unsigned int client, seq;

	memcpy(copy, value, size < 31 ? size : 31);
	if (sscanf(copy, "%u-%u ", &client, &seq) == 2 && size >= 32) {
		make_value(wanted, size, client, seq);
		if (!memcmp(wanted, value, size)) {
			snprintf(name, room, "%u-%u", client, seq);
			return;
		}
	}
	snprintf(name, room, "mixed");
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/*
 * One request, and a line of history: who, what, on which key, with which value,
 * begun and ended when.
 */
static int work_once(struct client *c, const struct client_options *opt,
		     uint32_t seq, unsigned int *random)
{
	char value[VALUE_MAX + 1], name[32] = "-", key[16];
	long k = rand_r(random) % opt->keys;
	const char *what = "get";
	long long begin;
	int status;

	snprintf(key, sizeof(key), "key%ld", k);
	begin = now_ns();
	if (rand_r(random) % 100 < opt->gets) {
		status = get(c, key);
		if (status == DONE)
			name_value((char *)c->memory.entry.value,
				   value_length(c), name, sizeof(name));
		if (!strcmp(name, "mixed"))
			c->totals->mixed++;
	} else if (rand_r(random) % 4) {
		what = "put";
		snprintf(name, sizeof(name), "%u-%u", c->number, seq);
		make_value(value, opt->size, c->number, seq);
		status = put(c, key, value, opt->size);
	} else {
		what = "delete";
		status = delete_key(c, key);
		snprintf(name, sizeof(name), "%s",
			 status == DONE ? "found" : "-");
	}
	if (status > NOT_FOUND)
		fprintf(stderr, "%s %s: %s\n", what, key, status_text(status));
	if (status < 0 || status > NOT_FOUND)
		return -1;
	if (c->history)
		fprintf(c->history, "%u %s %s %s %lld %lld\n", c->number, what,
			key, name, begin, now_ns());
	return 0;
}

/* ---- one client, and many ------------------------------------------------ */

static int read_terms(struct client *c)
{
	const uint8_t *terms = c->ep.private_data;

	if (c->ep.private_data_len < TERMS_SIZE || memcmp(terms, MAGIC, 8)) {
		fprintf(stderr,
			"the server's private data does not begin with " MAGIC
			": is it the server of this lesson?\n");
		return -1;
	}
	if (remote_region_unpack(&c->table, terms + 8) ||
	    remote_region_unpack(&c->place, terms + 24))
		return -1;
	c->entries = c->table.size / sizeof(struct entry);
	if (c->entries && c->place.size >= VALUE_MAX)
		return 0;
	fprintf(stderr,
		"the server's table has %u bytes, our place %u: too "
		"small\n",
		c->table.size, c->place.size);
	return -1;
}

static int open_client(struct client *c, const struct client_options *opt)
{
	/* One READ of ours at a time (lesson 09). */
	struct rdma_conn_param param = { .retry_count = 6,
					 .rnr_retry_count = 3,
					 .initiator_depth = 1 };
	uint8_t patience = HUB_PATIENCE; /* as the server has it (lesson 15) */

	c->no_check = opt->no_check;
	if (endpoint_open(&c->ep, &opt->common) ||
	    endpoint_resolve(&c->ep, &opt->common))
		return -1;
	if (rdma_set_option(c->ep.id, RDMA_OPTION_ID,
			    RDMA_OPTION_ID_ACK_TIMEOUT, &patience,
			    sizeof(patience))) {
		report("rdma_set_option", errno);
		return -1;
	}
	if (endpoint_create_qp(&c->ep, 2, 1))
		return -1;
	c->mr = ibv_reg_mr(c->ep.pd, &c->memory, sizeof(c->memory),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return endpoint_connect(&c->ep, &param) || read_terms(c) ? -1 : 0;
}

static int close_client(struct client *c)
{
	int ret = endpoint_disconnect(&c->ep);

	if (c->mr && ibv_dereg_mr(c->mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&c->ep);
	return ret;
}

/* Client NUMBER of many, a process of its own. It begins when all are there. */
static int work(const struct client_options *opt, uint32_t number,
		struct totals *totals, int ready, int go)
{
	struct client c = { .totals = totals, .number = number };
	unsigned int random = number + 1;
	char name[4096], byte = 0;
	int ret = -1;
	uint32_t seq;

	prctl(PR_SET_PDEATHSIG, SIGTERM);
	snprintf(name, sizeof(name), "%s.%u", opt->history ? opt->history : "",
		 number);
	if (opt->history) {
		c.history = fopen(name, "w");
		if (!c.history) {
			report("fopen", errno);
			goto out;
		}
	}
	if (open_client(&c, opt) || write(ready, &byte, 1) != 1)
		goto out;
	close(ready);
	if (read(go, &byte, 1) != 0) /* until our parent closes it */
		goto out;
	for (seq = 0; seq < opt->count; seq++)
		if (work_once(&c, opt, seq, &random))
			goto out;
	ret = 0;
out:
	if (close_client(&c))
		ret = -1;
	if (c.history)
		fclose(c.history);
	return ret;
}

static int work_all(const struct client_options *opt, struct totals *totals)
{
	int ready[2], go[2], status, failed = 0, there = 0;
	long long us;
	char byte;
	long i;

	if (pipe(ready) || pipe(go)) {
		report("pipe", errno);
		return -1;
	}
	for (i = 0; i < opt->clients; i++) {
		switch (fork()) {
		case -1:
			report("fork", errno);
			return -1;
		case 0:
			close(go[1]);
			close(ready[0]);
			exit(work(opt, i, totals, ready[1], go[0]) ?
				     EXIT_FAILED :
				     EXIT_DONE);
		}
	}
	close(ready[1]);
	close(go[0]);
	while (read(ready[0], &byte, 1) == 1)
		there++;
	printf("%d clients are connected\n", there);
	us = now_us();
	close(go[1]);
	while (wait(&status) > 0)
		if (status)
			failed++;
	us = now_us() - us;
	printf("%llu GETs, %llu PUTs, %llu DELETEs in %lld ms\n",
	       (unsigned long long)totals->gets,
	       (unsigned long long)totals->puts,
	       (unsigned long long)totals->deletes, us / 1000);
	printf("%llu READs, %llu of them torn and made again; %llu values "
	       "were of two pieces\n",
	       (unsigned long long)totals->reads,
	       (unsigned long long)totals->torn,
	       (unsigned long long)totals->mixed);
	if (failed)
		printf("%d of %ld clients failed\n", failed, opt->clients);
	return failed || totals->mixed ? -1 : 0;
}

static int run(const struct client_options *opt, struct totals *totals)
{
	static const struct command tour[] = {
		{ DO_PUT, "colour=blue" }, { DO_GET, "colour" },
		{ DO_DELETE, "colour" },   { DO_GET, "colour" },
		{ DO_MEASURE, "100" },
	};
	struct client client = { .totals = totals };
	int ret;

	if (opt->count)
		return work_all(opt, totals);
	ret = open_client(&client, opt);
	if (!ret && opt->command_count)
		ret = run_commands(&client, opt->commands, opt->command_count);
	else if (!ret)
		ret = run_commands(&client, tour,
				   sizeof(tour) / sizeof(tour[0]));
	if (close_client(&client))
		ret = -1;
	return ret;
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.clients = 1,
		.keys = 4,
		.gets = 60,
		.size = 256,
	};
	struct totals *totals;
	int status;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.common.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	totals = mmap(NULL, sizeof(*totals), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (totals == MAP_FAILED) {
		report("mmap", errno);
		return EXIT_FAILED;
	}
	status = run(&opt, totals) ? EXIT_FAILED : EXIT_DONE;
	munmap(totals, sizeof(*totals));
	return status;
}
