/* SPDX-License-Identifier: MIT */
/*
 * Lesson 10: the client writes messages into the slots of the server's memory.
 * One request does what took two in lessons 07 and 08: it brings the data, and
 * 32 bits that tell the server of it.
 */
#include <rdma_common.h>

#define MAX_SLOTS 64
#define MAX_SIZE ((1 << 20) - 1)
#define MAX_COUNT 1000000

/* The header of a message, in 32 bits: its number and its length. */
#define LENGTH_BITS 20
#define header_of(number, length) ((uint32_t)(number) << LENGTH_BITS | (length))
#define header_number(header) ((header) >> LENGTH_BITS)
#define header_length(header) ((header) & ((1u << LENGTH_BITS) - 1))
#define number_of(count) ((count)&0xfff) /* what 12 bits have room for */

/* What can be wrong with the immediate, to see what happens. */
enum wrong {
	NOTHING,
	ORDER,
	LENGTH,
	NUMBER,
};

static const char *const wrong_names[] = {
	[NOTHING] = "nothing",
	[ORDER] = "order",
	[LENGTH] = "length",
	[NUMBER] = "number",
};

struct client_options {
	struct options common;
	long size; /* bytes of a message */
	long count; /* messages */
	enum wrong wrong;
};

struct client {
	struct endpoint ep;
	struct remote_region region; /* the server's slots */
	uint32_t slots;
	uint32_t slot_size;
	uint8_t *memory; /* as many places of our own */
	struct ibv_mr *mr;
	size_t size;
	uint32_t sent, completed, answered; /* messages */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-s BYTES] [-n COUNT]\n"
		"              [--wrong WHAT] SERVER_ADDRESS\n"
		"Write messages by RDMA WRITE WITH IMMEDIATE, and wait for the answers.\n"
		"  -s, --size BYTES       bytes of a message, 0 to 1048575 (default: 4000)\n"
		"  -n, --count COUNT      so many messages, 1 to 1000000 (default: 8)\n"
		"  --wrong WHAT           what is wrong with the immediate (default: nothing):\n"
		"                         order   it is not big-endian\n"
		"                         length  it says one byte more than there is\n"
		"                         number  it says the number of the next message\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), ibv_poll_cq(3), endian(3).\n");
}

static int parse_wrong(const char *text, enum wrong *wrong)
{
	int i;

	for (i = NOTHING; i <= NUMBER; i++) {
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
	case 's':
		opt->size = parse_number(optarg, 0, MAX_SIZE);
		if (opt->size >= 0)
			return 0;
		fprintf(stderr, "client: -s takes 0 to %d bytes\n", MAX_SIZE);
		return -1;
	case 'n':
		opt->count = parse_number(optarg, 1, MAX_COUNT);
		if (opt->count > 0)
			return 0;
		fprintf(stderr, "client: -n takes 1 to %d messages\n",
			MAX_COUNT);
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
		{ "size", required_argument, NULL, 's' },
		{ "count", required_argument, NULL, 'n' },
		{ "wrong", required_argument, NULL, WRONG },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:n:", longs,
				NULL)) != -1)
		if (parse_flag(c, opt))
			return -1;
	return client_operand(argc, argv, &opt->common);
}

/* The server's answer is an immediate and no bytes: again no memory. */
static int post_receive(struct client *c)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0) };

	return endpoint_post_recv(&c->ep, &wr);
}

/* As many as there can be answers under way, before the connection. */
static int post_receives(struct client *c)
{
	int i;

	for (i = 0; i < MAX_SLOTS; i++)
		if (post_receive(c))
			return -1;
	return 0;
}

/* The region, and the number of its slots: checked before it is used. */
static int read_slots(struct client *c)
{
	const uint8_t *wire = c->ep.private_data;

	if (c->ep.private_data_len < REMOTE_REGION_WIRE_SIZE + 4) {
		fprintf(stderr,
			"the server sent %zu bytes of private data, and a "
			"region with slots is %d: is it the server of this "
			"lesson?\n",
			c->ep.private_data_len, REMOTE_REGION_WIRE_SIZE + 4);
		return -1;
	}
	if (remote_region_unpack(&c->region, wire))
		return -1;
	memcpy(&c->slots, wire + REMOTE_REGION_WIRE_SIZE, 4);
	c->slots = be32toh(c->slots);
	if (c->slots < 1 || c->slots > MAX_SLOTS || c->region.size % c->slots) {
		fprintf(stderr,
			"%u slots in %u bytes: is it the server of this "
			"lesson?\n",
			c->slots, c->region.size);
		return -1;
	}
	c->slot_size = c->region.size / c->slots;
	printf("the server has %u slots of %u bytes at 0x%llx, rkey 0x%x\n",
	       c->slots, c->slot_size, (unsigned long long)c->region.addr,
	       c->region.rkey);
	if (c->size <= c->slot_size)
		return 0;
	fprintf(stderr,
		"a message has %zu bytes, and a slot has room for %u: write "
		"less, or start the server with a larger --size\n",
		c->size, c->slot_size);
	return -1;
}

static int register_memory(struct client *c)
{
	c->memory = malloc(c->region.size);
	if (!c->memory) {
		report("malloc", errno);
		return -1;
	}
	c->mr = ibv_reg_mr(c->ep.pd, c->memory, c->region.size, 0);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

/*
 * The RDMA WRITE of lesson 06 with another opcode, and with imm_data. It is 32
 * bits, declared as big-endian (__be32): the card passes them on as they are.
 */
static int post_message(struct client *c, enum wrong wrong)
{
	uint32_t slot = c->sent % c->slots, number = c->sent + 1;
	uint64_t offset = (uint64_t)slot * c->slot_size;
	uint32_t header = header_of(number_of(number), c->size);
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->memory + offset,
		.length = c->size,
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, slot),
		.sg_list = &sge,
		.num_sge = c->size ? 1 : 0,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = c->region.addr + offset,
		.wr.rdma.rkey = c->region.rkey,
	};

	if (wrong == LENGTH)
		header++;
	if (wrong == NUMBER)
		header += 1 << LENGTH_BITS;
	wr.imm_data = wrong == ORDER ? header : htobe32(header);
	pattern_fill(c->memory + offset, c->size, number);
	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	c->sent++;
	return 0;
}

/* An answer names the message that it is for: the oldest one. */
static int check_answer(struct client *c, const struct ibv_wc *wc)
{
	uint32_t due = header_of(number_of(c->answered + 1), c->size);

	if (!(wc->wc_flags & IBV_WC_WITH_IMM) || be32toh(wc->imm_data) != due) {
		fprintf(stderr,
			"the answer is for 0x%08x, due was 0x%08x: is it the "
			"server of this lesson?\n",
			wc->wc_flags & IBV_WC_WITH_IMM ? be32toh(wc->imm_data) :
							 0,
			due);
		return -1;
	}
	c->answered++;
	return 0;
}

/*
 * Two things have to be known before a slot is used again: the completion says
 * that our card is done with our own memory, the answer that the server is done
 * with its slot, and has a receive for the next message. They may come in
 * either order.
 */
static int send_messages(struct client *c, const struct client_options *opt)
{
	struct ibv_wc wc;
	int ret;

	while (c->answered < opt->count) {
		while (c->sent < opt->count &&
		       c->sent - c->answered < c->slots &&
		       c->sent - c->completed < c->slots)
			if (post_message(c, opt->wrong))
				return -1;
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret > 0)
			fprintf(stderr,
				"the server disconnected when %u of %u "
				"messages were answered\n",
				c->answered, c->sent);
		if (ret || check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) == WR_WRITE)
			c->completed++;
		else if (check_answer(c, &wc) || post_receive(c))
			return -1;
	}
	printf("%u messages of %zu bytes, each one answered\n", c->answered,
	       c->size);
	return 0;
}

static int run(struct client *c, const struct client_options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct endpoint *ep = &c->ep;

	c->size = opt->size;
	if (endpoint_open(ep, &opt->common) ||
	    endpoint_resolve(ep, &opt->common) ||
	    endpoint_create_qp(ep, MAX_SLOTS, MAX_SLOTS) || post_receives(c) ||
	    endpoint_connect(ep, &param) || read_slots(c) || register_memory(c))
		return -1;
	return send_messages(c, opt);
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.size = 4000,
		.count = 8,
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
