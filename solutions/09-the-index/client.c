/* SPDX-License-Identifier: MIT */
/*
 * Exercise 09: a client that reads an index in the server's memory, and then
 * what the index points to. README.md has the task, index.h what is in the
 * memory.
 */
#include <rdma_common.h>

#include "index.h"

/* So many READs we would like to have under way, and so many we post. */
#define DEPTH 8

struct record {
	uint32_t offset; /* in the server's region */
	uint32_t length;
};

struct client {
	struct endpoint ep;
	struct remote_region region; /* the server's */
	uint8_t *memory; /* ours: the index, and a place for each record */
	struct ibv_mr *mr;
	struct record records[MAX_RECORDS];
	uint32_t count;
	uint32_t sums[MAX_RECORDS]; /* big-endian, to be sent */
	struct ibv_mr *sums_mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] SERVER_ADDRESS\n"
		"Read all the records of the server's index, and send it their sums.\n" CLIENT_USAGE_LINES
		"Man pages: rdma_connect(3), ibv_post_send(3), endian(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) != -1)
		if (common_option(c, opt))
			return -1;
	return client_operand(argc, argv, opt);
}

/* Where record I is read to. */
static uint8_t *place_of(struct client *c, uint32_t i)
{
	return c->memory + INDEX_SIZE + (size_t)i * MAX_RECORD;
}

static int register_memory(struct client *c)
{
	size_t size = INDEX_SIZE + MAX_RECORDS * MAX_RECORD;
#ifdef SOLUTION
	int access = IBV_ACCESS_LOCAL_WRITE; /* our own card writes there */
#else
	int access = 0; /* TODO 1: what may the card do there? */
#endif

	c->memory = calloc(1, size);
	if (!c->memory) {
		report("calloc", errno);
		return -1;
	}
	c->mr = ibv_reg_mr(c->ep.pd, c->memory, size, access);
	c->sums_mr = ibv_reg_mr(c->ep.pd, c->sums, sizeof(c->sums), 0);
	if (c->mr && c->sums_mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static int connect_to_server(struct client *c)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

#ifdef SOLUTION
	param.initiator_depth = DEPTH;
#else
	/* TODO 1: we want DEPTH READs under way. Read rdma_connect(3). */
#endif
	if (endpoint_connect(&c->ep, &param))
		return -1;
	printf("connected\n");
	return remote_region_unpack(&c->region, c->ep.private_data);
}

static uint32_t get_u32(const uint8_t *wire)
{
	uint32_t value;

	memcpy(&value, wire, 4);
	return be32toh(value);
}

/* Wait for one completion, of whatever it is. */
static int wait_for_one(struct client *c)
{
	struct ibv_wc wc;
	int ret = endpoint_wait_wc(&c->ep, &wc);

	if (ret > 0)
		fprintf(stderr, "the server has left\n");
	return ret ? -1 : check_wc(&wc);
}

#ifdef SOLUTION
/* Read LENGTH bytes, OFFSET behind the start of the region, to TO. */
static int post_read(struct client *c, uint32_t slot, uint64_t offset,
		     uint32_t length, uint8_t *to)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)to,
		.length = length,
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_READ, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = c->region.addr + offset,
		.wr.rdma.rkey = c->region.rkey,
	};

	return endpoint_post_send(&c->ep, &wr);
}

/*
 * Read the index, and believe nothing of it: each record has to be inside the
 * region, and to have room in its place.
 */
static int read_index(struct client *c)
{
	struct record *r;
	uint32_t i;

	if (c->region.size < INDEX_SIZE) {
		fprintf(stderr, "the region has no room for an index\n");
		return -1;
	}
	if (post_read(c, 0, 0, INDEX_SIZE, c->memory) || wait_for_one(c))
		return -1;
	c->count = get_u32(c->memory + 4);
	if (get_u32(c->memory) != INDEX_MAGIC || c->count < 1 ||
	    c->count > MAX_RECORDS) {
		fprintf(stderr, "that is no index\n");
		return -1;
	}
	for (i = 0; i < c->count; i++) {
		r = &c->records[i];
		r->offset = get_u32(c->memory + 8 + i * ENTRY_SIZE);
		r->length = get_u32(c->memory + 12 + i * ENTRY_SIZE);
		if (r->length >= 1 && r->length <= MAX_RECORD &&
		    r->offset <= c->region.size &&
		    r->length <= c->region.size - r->offset)
			continue;
		fprintf(stderr, "record %u is not inside the region\n", i);
		return -1;
	}
	return 0;
}

/* DEPTH are posted at a time, whatever the server has granted. */
static int read_records(struct client *c)
{
	uint32_t posted = 0, done;

	for (done = 0; done < c->count; done++) {
		for (; posted < c->count && posted - done < DEPTH; posted++)
			if (post_read(c, posted, c->records[posted].offset,
				      c->records[posted].length,
				      place_of(c, posted)))
				return -1;
		if (wait_for_one(c))
			return -1;
	}
	return 0;
}
#else
/*
 * TODO 2: read the index (index.h) into c->memory, by RDMA READ, and take
 * c->count and c->records from it. What stands there is a stranger's: is it an
 * index at all; is there room for so many records; is each inside the region,
 * and does it fit into its place? Say what is wrong and return -1.
 */
static int read_index(struct client *c)
{
	(void)c;
	(void)get_u32;
	(void)wait_for_one;
	return 0;
}

/*
 * TODO 3: read record I to place_of(c, i), all of them. Several are to be under
 * way at a time, and the send queue was made for DEPTH. When may the bytes of a
 * record be looked at?
 */
static int read_records(struct client *c)
{
	(void)c;
	return 0;
}
#endif

static int send_sums(struct client *c)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->sums,
		.length = c->count * 4,
		.lkey = c->sums_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	uint32_t i;

	for (i = 0; i < c->count; i++)
		c->sums[i] =
			htobe32(sum_of(place_of(c, i), c->records[i].length));
	if (endpoint_post_send(&c->ep, &wr) || wait_for_one(c))
		return -1;
	printf("%u records were read\n", c->count);
	return 0;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
	struct endpoint *ep = &client.ep;
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (endpoint_open(ep, &opt) || endpoint_resolve(ep, &opt) ||
	    endpoint_create_qp(ep, DEPTH, 0) || register_memory(&client) ||
	    connect_to_server(&client))
		goto out;
	if (read_index(&client) || read_records(&client) || send_sums(&client))
		goto out;
	status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	if (client.sums_mr && ibv_dereg_mr(client.sums_mr))
		report("ibv_dereg_mr", errno);
	free(client.memory);
	endpoint_destroy(ep);
	return status;
}
