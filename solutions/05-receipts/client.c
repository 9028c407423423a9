/* SPDX-License-Identifier: MIT */
/*
 * The client of exercise 05, as it is: it sends messages, a window of them at a
 * time, and holds the receipts against what it sent. Its card does not try
 * again when no receive is posted. It is written with helpers that later
 * lessons explain.
 */
#include <rdma_common.h>

#include "receipt.h"

#define MAX_WINDOW 16

struct client {
	struct endpoint ep;
	struct ibv_mr *mr;
	long count; /* messages to send */
	long window; /* of which so many may have no receipt yet */
	struct {
		uint8_t messages[MAX_WINDOW][MAX_MESSAGE];
		struct receipt receipts[MAX_WINDOW];
	} memory;
	uint32_t lengths[MAX_WINDOW], sums[MAX_WINDOW];
	long sent, completed, receipts;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT] [-w N] SERVER_ADDRESS\n"
		"Send messages and check the receipts. A message that finds no receive posted is\n"
		"an error at once.\n"
		"  -n, --count COUNT      messages to send, 1 to 10000 (default: 1)\n"
		"  -w, --window N         messages without a receipt at a time, 1 to 16, and not\n"
		"                         more than the server has slots (default: 1)\n" CLIENT_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ "window", required_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	c->count = 1;
	c->window = 1;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:w:", longs,
				   NULL)) != -1) {
		if (flag == 'n')
			c->count = parse_number(optarg, 1, 10000);
		else if (flag == 'w')
			c->window = parse_number(optarg, 1, MAX_WINDOW);
		else if (common_option(flag, opt))
			return -1;
	}
	if (c->count < 0 || c->window < 0) {
		fprintf(stderr, "client: -n takes 1 to 10000, -w 1 to %d\n",
			MAX_WINDOW);
		return -1;
	}
	return client_operand(argc, argv, opt);
}

static int post_receive(struct client *c, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&c->memory.receipts[slot],
		.length = sizeof(struct receipt),
		.lkey = c->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, slot),
				  .sg_list = &sge,
				  .num_sge = 1 };

	return endpoint_post_recv(&c->ep, &wr);
}

/* The next message: of another length and with other bytes each time. */
static int post_message(struct client *c)
{
	uint32_t slot = c->sent % MAX_WINDOW;
	uint32_t length = 1 + c->sent * 997 % MAX_MESSAGE;
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->memory.messages[slot],
		.length = length,
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = { .wr_id = wr_id_of(WR_SEND, slot),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };

	pattern_fill(c->memory.messages[slot], length, c->sent);
	c->lengths[slot] = length;
	c->sums[slot] = sum_of(c->memory.messages[slot], length);
	c->sent++;
	return endpoint_post_send(&c->ep, &wr);
}

static int check_receipt(struct client *c, const struct ibv_wc *wc)
{
	const struct receipt *receipt =
		&c->memory.receipts[wr_id_slot(wc->wr_id)];
	uint32_t slot = c->receipts % MAX_WINDOW;
	uint32_t length = be32toh(receipt->length);
	uint32_t sum = be32toh(receipt->sum);

	if (c->receipts == c->sent || wc->byte_len != sizeof(*receipt) ||
	    length != c->lengths[slot] || sum != c->sums[slot]) {
		printf("receipt %ld is wrong: %u bytes; length %u, sum 0x%08x; "
		       "expected: length %u, sum 0x%08x\n",
		       c->receipts + 1, wc->byte_len, length, sum,
		       c->lengths[slot], c->sums[slot]);
		return -1;
	}
	c->receipts++;
	return post_receive(c, wr_id_slot(wc->wr_id));
}

static int send_all(struct client *c)
{
	struct ibv_wc wc;
	int ret;

	while (c->receipts < c->count || c->completed < c->count) {
		while (c->sent < c->count &&
		       c->sent - c->receipts < c->window &&
		       c->sent - c->completed < c->window)
			if (post_message(c))
				return -1;
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret > 0)
			fprintf(stderr, "the server has left\n");
		if (ret)
			return -1;
		if (wc.status != IBV_WC_SUCCESS)
			printf("failed: %s\n", ibv_wc_status_str(wc.status));
		if (check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) == WR_SEND)
			c->completed++;
		else if (check_receipt(c, &wc))
			return -1;
	}
	return 0;
}

static int talk(struct client *c, const struct options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	int i, ret;

	if (endpoint_open(&c->ep, opt) || endpoint_resolve(&c->ep, opt) ||
	    endpoint_create_qp(&c->ep, MAX_WINDOW, MAX_WINDOW))
		return -1;
	c->mr = ibv_reg_mr(c->ep.pd, &c->memory, sizeof(c->memory),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	for (i = 0; i < MAX_WINDOW; i++)
		if (post_receive(c, i))
			return -1;
	if (endpoint_connect(&c->ep, &param))
		return -1;
	printf("connected\n");
	ret = send_all(c);
	printf("%ld receipts for %ld of %ld messages\n", c->receipts, c->sent,
	       c->count);
	return ret;
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
