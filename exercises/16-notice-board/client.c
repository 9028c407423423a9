/* SPDX-License-Identifier: MIT */
/*
 * Exercise 16: a client that reads a board of notices while the server is changing
 * them, and reports what it has read. README.md has the task.
 */
#include <rdma_common.h>

#include "board.h"

struct client {
	struct endpoint ep;
	struct ibv_mr *mr;
	struct remote_region board;
	struct {
		struct notice notice;
		struct report report;
	} memory;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT] SERVER_ADDRESS\n"
		"Read the notices of a board, by turns, and report each.\n"
		"  -n, --count COUNT      notices to read, 1 to 10000 (default: 1)\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), rdma_connect(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 long *count)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:", longs,
				   NULL)) != -1) {
		if (flag == 'n')
			*count = parse_number(optarg, 1, 10000);
		else if (common_option(flag, opt))
			return -1;
	}
	if (*count < 0) {
		fprintf(stderr, "client: -n takes 1 to 10000\n");
		return -1;
	}
	return client_operand(argc, argv, opt);
}

/* Post a request with LENGTH bytes of ours, and wait until it has completed. */
static int carry_out(struct client *c, struct ibv_send_wr wr, void *at,
		     size_t length)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at,
			       .length = length,
			       .lkey = c->mr->lkey };
	struct ibv_wc wc;
	int ret;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	ret = endpoint_wait_wc(&c->ep, &wc);
	if (ret > 0)
		fprintf(stderr, "the server has left\n");
	return ret || check_wc(&wc) ? -1 : 0;
}

/*
 * Bring notice NUMBER, or whatever part of it you want, into c->memory.notice: the
 * server's program does not know of it.
 */
static int fetch(struct client *c, uint32_t number)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_READ, number),
		/* TODO 1: what kind of request, from where, with which key? */
		.opcode = IBV_WR_SEND,
	};

	return carry_out(c, wr, &c->memory.notice, sizeof(c->memory.notice));
}

/*
 * TODO 2: fetch the notice, and fill in c->memory.report: its number, its version,
 * and its text without what stands in front of each line. board.h has the layout.
 *
 * TODO 3: the server may be changing it at that very moment, line by line, in
 * whatever order it likes. What you report must be of one piece. Do not try for
 * ever.
 */
static int read_notice(struct client *c, uint32_t number)
{
	if (fetch(c, number))
		return -1;
	memset(&c->memory.report, 0, sizeof(c->memory.report));
	return 0;
}

static int send_report(struct client *c)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.opcode = IBV_WR_SEND,
	};

	return carry_out(c, wr, &c->memory.report, sizeof(c->memory.report));
}

static int work(struct client *c, long count)
{
	const uint8_t *wire = c->ep.private_data;
	long i;

	if (memcmp(wire, MAGIC, 8)) {
		fprintf(stderr, "the server is another one\n");
		return -1;
	}
	if (remote_region_unpack(&c->board, wire + 8))
		return -1;
	for (i = 0; i < count; i++)
		if (read_notice(c, i % NOTICES) || send_report(c))
			return -1;
	printf("%ld notices read and reported\n", count);
	return 0;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = { .retry_count = 6,
					 .rnr_retry_count = 3,
					 .initiator_depth = 1 };
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
	struct endpoint *ep = &client.ep;
	int status = EXIT_FAILED;
	long count = 1;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &count)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (endpoint_open(ep, &opt) || endpoint_resolve(ep, &opt) ||
	    endpoint_create_qp(ep, 1, 1))
		goto out;
	client.mr = ibv_reg_mr(ep->pd, &client.memory, sizeof(client.memory),
			       IBV_ACCESS_LOCAL_WRITE);
	if (!client.mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	if (endpoint_connect(ep, &param) == 0 && work(&client, count) == 0)
		status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(ep);
	return status;
}
