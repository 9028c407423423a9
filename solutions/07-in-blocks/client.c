/* SPDX-License-Identifier: MIT */
/*
 * Exercise 07: a client that writes much, through two small buffers. Each block
 * is read into one of them and goes from there into the server's memory by RDMA
 * WRITE.
 */
#ifndef SOLUTION
/*
 * TODO: there are three mistakes in this file, in write_all() and in
 * post_block(). README.md says what they are about; what the calls promise is
 * in ibv_post_send(3) and ibv_poll_cq(3).
 */
#endif
#include <rdma_common.h>

#include "notice.h"

#define BLOCK 1024
#define SLOTS 2 /* buffers for a block */
#define QUEUE 3 /* requests that the send queue has room for */

struct client {
	struct endpoint ep;
	struct remote_region region; /* the server's */
	long size; /* bytes to write */
	struct {
		uint8_t slots[SLOTS][BLOCK];
		struct notice notice;
		struct answer answer;
	} memory;
	struct ibv_mr *mr;
	bool busy[SLOTS]; /* is a block on its way from this buffer? */
	bool sent; /* the notice has completed */
	bool answered;
	uint32_t sum; /* of what was read */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-s BYTES] SERVER_ADDRESS\n"
		"RDMA WRITE BYTES bytes into the server's memory, in blocks of 1024.\n"
		"  -s, --size BYTES       1 to 1000000 (default: 20000)\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), ibv_poll_cq(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "size", required_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	c->size = 20000;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "s:", longs,
				   NULL)) != -1) {
		if (flag == 's') {
			c->size = parse_number(optarg, 1, 1000000);
			if (c->size > 0)
				continue;
			fprintf(stderr, "client: -s takes 1 to 1000000\n");
			return -1;
		}
		if (common_option(flag, opt))
			return -1;
	}
	return client_operand(argc, argv, opt);
}

/* It stands for reading a block from a file. */
static void read_block(struct client *c, uint8_t *block, long offset,
		       uint32_t length)
{
	uint32_t i;

	for (i = 0; i < length; i++)
		block[i] = pattern_byte(7, offset + i);
	c->sum = sum_of(block, length, c->sum);
}

/* Write the block in SLOT to its place in the server's memory. */
static int post_block(struct client *c, int slot, long offset, uint32_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->memory.slots[slot],
		.length = length,
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
#ifdef SOLUTION
		.send_flags = IBV_SEND_SIGNALED,
#else
		/* The completion of the last one says that all are done. */
		.send_flags = offset + length == c->size ? IBV_SEND_SIGNALED :
							   0,
#endif
		.wr.rdma.remote_addr = c->region.addr + offset,
		.wr.rdma.rkey = c->region.rkey,
	};

	return endpoint_post_send(&c->ep, &wr);
}

static int post_notice(struct client *c)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&c->memory.notice,
		.length = sizeof(c->memory.notice),
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	c->memory.notice.length = htobe32(c->size);
	c->memory.notice.sum = htobe32(c->sum);
	return endpoint_post_send(&c->ep, &wr);
}

static int post_receive(struct client *c)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&c->memory.answer,
		.length = sizeof(c->memory.answer),
		.lkey = c->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, 0),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&c->ep, &wr);
}

/* Wait for one completion, whichever comes, and note what it says. */
static int take_completion(struct client *c)
{
	struct ibv_wc wc;
	int ret = endpoint_wait_wc(&c->ep, &wc);

	if (ret > 0)
		fprintf(stderr, "the server has left\n");
	if (ret || check_wc(&wc))
		return -1;
	switch (wr_id_op(wc.wr_id)) {
	case WR_WRITE:
		c->busy[wr_id_slot(wc.wr_id)] = false;
		return 0;
	case WR_SEND:
		c->sent = true;
		return 0;
	default:
		c->answered = true;
		return 0;
	}
}

static int write_all(struct client *c)
{
	int slot = 0;
	long offset;

#ifdef SOLUTION
	if (c->size > c->region.size) {
		fprintf(stderr, "the server offers %u bytes only\n",
			c->region.size);
		return -1;
	}
#endif
	for (offset = 0; offset < c->size; offset += BLOCK) {
		uint32_t length = c->size - offset;

		if (length > BLOCK)
			length = BLOCK;
#ifdef SOLUTION
		/* The buffer is the card's until its WRITE has completed. */
		while (c->busy[slot])
			if (take_completion(c))
				return -1;
#endif
		read_block(c, c->memory.slots[slot], offset, length);
		c->busy[slot] = true;
		if (post_block(c, slot, offset, length))
			return -1;
		slot = (slot + 1) % SLOTS;
	}
	return 0;
}

static int talk(struct client *c, const struct options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	if (endpoint_open(&c->ep, opt) || endpoint_resolve(&c->ep, opt) ||
	    endpoint_create_qp(&c->ep, QUEUE, 1))
		return -1;
	c->mr = ibv_reg_mr(c->ep.pd, &c->memory, sizeof(c->memory),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	if (post_receive(c) || endpoint_connect(&c->ep, &param))
		return -1;
	printf("connected\n");
	if (remote_region_unpack(&c->region, c->ep.private_data))
		return -1;
	if (write_all(c) || post_notice(c))
		return -1;
	while (!c->sent || !c->answered)
		if (take_completion(c))
			return -1;
	printf("%ld bytes written; the server says: %s\n", c->size,
	       be32toh(c->memory.answer.right) ? "right" : "wrong");
	return be32toh(c->memory.answer.right) ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &client)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (talk(&client, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&client.ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&client.ep);
	return status;
}
