/* SPDX-License-Identifier: MIT */
/*
 * Lesson 09: the client reads the server's memory, in blocks, with many RDMA
 * READs posted at a time. How many of them are under way at a time is settled
 * when the connection is made.
 */
#include <rdma_common.h>

#define MAX_BLOCK (1 << 20)
#define MAX_WINDOW 128

/* The number that the server's bytes are made of. */
#define SEED 9

/* What can be wrong with the requests, to see what happens. */
enum wrong {
	NOTHING,
	RKEY,
	END,
	LOCAL_WRITE,
	DEPTH,
};

static const char *const wrong_names[] = {
	[NOTHING] = "nothing",	       [RKEY] = "rkey",	  [END] = "end",
	[LOCAL_WRITE] = "local-write", [DEPTH] = "depth",
};

struct client_options {
	struct options common;
	long block; /* bytes of one READ */
	long depth; /* READs at a time that we ask for */
	long window; /* READs that we post at a time */
	enum wrong wrong;
};

struct client {
	struct endpoint ep;
	struct remote_region region; /* the server's */
	uint8_t *memory; /* ours, as large, which is read into */
	struct ibv_mr *mr;
	uint32_t block;
	uint32_t blocks; /* that the region has, the last one shorter */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-b BYTES] [-d N] [-w N]\n"
		"              [--wrong WHAT] SERVER_ADDRESS\n"
		"Read all of the memory that the server offers, and check it.\n"
		"  -b, --block BYTES      read so much by one READ, 1 to 1048576 (default: 4096)\n"
		"  -d, --depth N          ask the server for N READs at a time, 0 to 254, or 255: as\n"
		"                         many as our device can make (default: 16)\n"
		"  -w, --window N         have so many posted at a time, 1 to 128 (default: 16)\n"
		"  --wrong WHAT           what is wrong with the READs (default: nothing):\n"
		"                         rkey         the server's key, plus 1\n"
		"                         end          the last one goes past the server's end\n"
		"                         local-write  our own memory has no LOCAL_WRITE\n"
		"                         depth        post them even if none is granted\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), rdma_connect(3), ibv_query_qp(3).\n");
}

static int parse_wrong(const char *text, enum wrong *wrong)
{
	int i;

	for (i = NOTHING; i <= DEPTH; i++) {
		if (!strcmp(text, wrong_names[i])) {
			*wrong = i;
			return 0;
		}
	}
	fprintf(stderr, "client: --wrong %s: what is that?\n", text);
	return -1;
}

enum {
	WRONG = 256
};

static int parse_flag(int c, struct client_options *opt)
{
	switch (c) {
	case 'b':
		opt->block = parse_number(optarg, 1, MAX_BLOCK);
		if (opt->block > 0)
			return 0;
		fprintf(stderr, "client: -b takes 1 to %d bytes\n", MAX_BLOCK);
		return -1;
	case 'd':
		opt->depth = parse_number(optarg, 0, 255);
		if (opt->depth >= 0)
			return 0;
		fprintf(stderr, "client: -d takes 0 to 255 READs\n");
		return -1;
	case 'w':
		opt->window = parse_number(optarg, 1, MAX_WINDOW);
		if (opt->window > 0)
			return 0;
		fprintf(stderr, "client: -w takes 1 to %d READs\n", MAX_WINDOW);
		return -1;
	case WRONG:
		return parse_wrong(optarg, &opt->wrong);
	default:
		return common_option(c, &opt->common);
	}
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "block", required_argument, NULL, 'b' },
		{ "depth", required_argument, NULL, 'd' },
		{ "window", required_argument, NULL, 'w' },
		{ "wrong", required_argument, NULL, WRONG },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "b:d:w:", longs,
				NULL)) != -1)
		if (parse_flag(c, opt))
			return -1;
	return client_operand(argc, argv, &opt->common);
}

/*
 * Ask for DEPTH READs at a time. The two numbers are said from the speaker's
 * point of view; the CM turns them round for whoever hears them.
 */
static int connect_server(struct client *c, const struct client_options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	param.initiator_depth = opt->depth; /* READs that we make */
	param.responder_resources = 0; /* READs of the server that we answer */
	return endpoint_connect(&c->ep, &param);
}

/*
 * What we got. The event's number is what the server has said. The QP's is what
 * our card keeps to: librdmacm has set it, from that answer, when the
 * connection was made.
 */
static int read_grant(struct client *c, const struct client_options *opt)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err = ibv_query_qp(c->ep.id->qp, &attr, IBV_QP_MAX_QP_RD_ATOMIC,
			       &init);

	if (err) {
		report("ibv_query_qp", err);
		return -1;
	}
	printf("we asked for %ld READs at a time, the server grants %u; our QP makes %u (max_rd_atomic)\n",
	       opt->depth, c->ep.initiator_depth, attr.max_rd_atomic);
	if (attr.max_rd_atomic || opt->wrong == DEPTH)
		return 0;
	fprintf(stderr, "the server grants no READ at all: a READ would be "
			"posted and wait for ever; ask for some with -d, and "
			"start the server with -g\n");
	return -1;
}

/* Where the server's memory is, checked as in lesson 06. */
static int read_region(struct client *c, const struct client_options *opt)
{
	if (c->ep.private_data_len < REMOTE_REGION_WIRE_SIZE) {
		fprintf(stderr,
			"the server sent %zu bytes of private data, and a "
			"region is %d: is it the server of this lesson?\n",
			c->ep.private_data_len, REMOTE_REGION_WIRE_SIZE);
		return -1;
	}
	if (remote_region_unpack(&c->region, c->ep.private_data))
		return -1;
	printf("the server's memory: %u bytes at 0x%llx, rkey 0x%x\n",
	       c->region.size, (unsigned long long)c->region.addr,
	       c->region.rkey);
	c->block = opt->block;
	c->blocks = (c->region.size - 1) / c->block + 1;
	return 0;
}

/*
 * The place where the data arrives. It is our own card that puts it there, so
 * it needs LOCAL_WRITE, and no remote right.
 */
static int register_memory(struct client *c, enum wrong wrong)
{
	c->memory = calloc(1, c->region.size);
	if (!c->memory) {
		report("calloc", errno);
		return -1;
	}
	c->mr = ibv_reg_mr(c->ep.pd, c->memory, c->region.size,
			   wrong == LOCAL_WRITE ? 0 : IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

/* The READ of one block: as a WRITE, but the data goes the other way. */
static int post_read(struct client *c, uint32_t block, enum wrong wrong)
{
	uint64_t offset = (uint64_t)block * c->block;
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->memory + offset, /* to here */
		.length = c->region.size - offset < c->block ?
				  c->region.size - offset :
				  c->block,
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_READ, block),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = c->region.addr + offset, /* from here */
		.wr.rdma.rkey = c->region.rkey,
	};

	if (wrong == RKEY)
		wr.wr.rdma.rkey++;
	if (wrong == END && block == c->blocks - 1)
		wr.wr.rdma.remote_addr++;
	return endpoint_post_send(&c->ep, &wr);
}

/*
 * WINDOW of them are posted, whatever depth was granted: our card takes from
 * the queue as many as it may, and the others wait there. With each completion
 * there is room for one more.
 */
static int read_blocks(struct client *c, const struct client_options *opt)
{
	uint32_t posted = 0, done = 0;
	long long start = now_us();
	struct ibv_wc wc;
	int ret;

	while (done < c->blocks) {
		while (posted < c->blocks && posted - done < opt->window)
			if (post_read(c, posted++, opt->wrong))
				return -1;
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret > 0)
			fprintf(stderr,
				"the server disconnected after %u of %u READs\n",
				done, c->blocks);
		if (ret || check_wc(&wc))
			return -1;
		done++;
	}
	printf("%u READs of %u bytes, %ld posted at a time: %lld us\n", done,
	       c->block, opt->window, now_us() - start);
	return 0;
}

/* With its completion the data of a READ is here, and may be looked at. */
static int check_memory(const struct client *c)
{
	ssize_t bad = pattern_check(c->memory, c->region.size, SEED);

	if (bad >= 0) {
		fprintf(stderr,
			"byte %zd is 0x%02x, should be 0x%02x: is it the "
			"server of this lesson?\n",
			bad, c->memory[bad], pattern_byte(SEED, bad));
		return -1;
	}
	printf("%u bytes were read, every one right\n", c->region.size);
	return 0;
}

static int run(struct client *c, const struct client_options *opt)
{
	struct endpoint *ep = &c->ep;

	if (endpoint_open(ep, &opt->common) ||
	    endpoint_resolve(ep, &opt->common) ||
	    endpoint_create_qp(ep, opt->window, 1) || connect_server(c, opt) ||
	    read_grant(c, opt) || read_region(c, opt) ||
	    register_memory(c, opt->wrong) || read_blocks(c, opt))
		return -1;
	return check_memory(c);
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.block = 4096,
		.depth = 16,
		.window = 16,
	};
	struct client client = { 0 };
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.common.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (run(&client, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&client.ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	free(client.memory);
	endpoint_destroy(&client.ep);
	return status;
}
