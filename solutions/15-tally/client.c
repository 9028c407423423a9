/* SPDX-License-Identifier: MIT */
/*
 * The client of exercise 15, as it is: several customers in one process. They all
 * ask, then all look at their answers, round by round. In the middle others may
 * come who are no good.
 */
#include <rdma_common.h>

#include "tally.h"

#define MAX_CUSTOMERS 8

struct customer {
	struct endpoint ep;
	struct ibv_mr *mr;
	struct {
		uint8_t out[SLOT_SIZE], in[SLOT_SIZE];
	} memory;
	uint32_t sum;
	bool sent, answered; /* completions of this round */
};

struct client {
	struct options opt;
	struct customer customers[MAX_CUSTOMERS];
	long count, rounds, rubbish, deaf;
	long right, wrong;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-c N] [-n ROUNDS]\n"
		"              [-r N] [-d N] SERVER_ADDRESS\n"
		"Be some customers of the server.\n"
		"  -c, --customers N      good ones, 1 to 8 (default: 1)\n"
		"  -n, --rounds N         numbers that each of them sends, 1 to 10000 (default: 1)\n"
		"  -r, --rubbish N        so many more who send 5 bytes, one after the other, 0 to\n"
		"                         100 (default: 0)\n"
		"  -d, --deaf N           so many more who send two numbers, post no receive for the\n"
		"                         answers, and leave, 0 to 100 (default: 0)\n" CLIENT_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "customers", required_argument, NULL, 'c' },
		{ "rounds", required_argument, NULL, 'n' },
		{ "rubbish", required_argument, NULL, 'r' },
		{ "deaf", required_argument, NULL, 'd' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "c:n:r:d:", longs,
				   NULL)) != -1) {
		if (flag == 'c')
			c->count = parse_number(optarg, 1, MAX_CUSTOMERS);
		else if (flag == 'n')
			c->rounds = parse_number(optarg, 1, 10000);
		else if (flag == 'r')
			c->rubbish = parse_number(optarg, 0, 100);
		else if (flag == 'd')
			c->deaf = parse_number(optarg, 0, 100);
		else if (common_option(flag, &c->opt))
			return -1;
	}
	if (c->count < 0 || c->rounds < 0 || c->rubbish < 0 || c->deaf < 0) {
		fprintf(stderr, "client: a number is out of its range\n");
		return -1;
	}
	return client_operand(argc, argv, &c->opt);
}

static int post_receive(struct customer *c)
{
	struct ibv_sge sge = { .addr = (uintptr_t)c->memory.in,
			       .length = SLOT_SIZE,
			       .lkey = c->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0),
				  .sg_list = &sge,
				  .num_sge = 1 };

	return endpoint_post_recv(&c->ep, &wr);
}

static int post_message(struct customer *c, uint32_t number, size_t length)
{
	uint32_t wire = htobe32(number);
	struct ibv_sge sge = { .addr = (uintptr_t)c->memory.out,
			       .length = length,
			       .lkey = c->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = wr_id_of(WR_SEND, 0),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };

	memcpy(c->memory.out, &wire, sizeof(wire));
	return endpoint_post_send(&c->ep, &wr);
}

static int come(struct customer *c, const struct options *opt, bool hears)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	if (!hears)
		param.rnr_retry_count = 7; /* the server's card: for ever */
	if (endpoint_open(&c->ep, opt) || endpoint_resolve(&c->ep, opt) ||
	    endpoint_create_qp(&c->ep, 2, 1))
		return -1;
	c->mr = ibv_reg_mr(c->ep.pd, &c->memory, sizeof(c->memory),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	if (hears && post_receive(c))
		return -1;
	return endpoint_connect(&c->ep, &param);
}

static void leave(struct customer *c)
{
	endpoint_disconnect(&c->ep);
	if (c->mr && ibv_dereg_mr(c->mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&c->ep);
	memset(c, 0, sizeof(*c));
}

/* Wait until this customer has its answer, and look at it. */
static int hear(struct client *all, struct customer *c)
{
	struct ibv_wc wc;
	uint32_t sum;
	int ret;

	while (!c->sent || !c->answered) {
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret > 0)
			fprintf(stderr,
				"customer %td: the server has ended "
				"the connection\n",
				c - all->customers);
		if (ret)
			return -1;
		if (wc.status != IBV_WC_SUCCESS)
			printf("failed: %s\n", ibv_wc_status_str(wc.status));
		if (check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) == WR_SEND) {
			c->sent = true;
			continue;
		}
		c->answered = true;
		memcpy(&sum, c->memory.in, sizeof(sum));
		if (wc.byte_len == NUMBER_SIZE && be32toh(sum) == c->sum) {
			all->right++;
		} else {
			printf("customer %td: %u bytes, sum %u; expected: 4 "
			       "bytes, sum %u\n",
			       c - all->customers, wc.byte_len, be32toh(sum),
			       c->sum);
			all->wrong++;
		}
		if (post_receive(c))
			return -1;
	}
	return 0;
}

/* One number of each, another first in each round; then one answer of each. */
static int one_round(struct client *all, long round)
{
	struct customer *c, *end = all->customers + all->count;
	uint32_t number;
	long i;

	for (i = 0; i < all->count; i++) {
		c = &all->customers[(i + round) % all->count];
		number = (c - all->customers + 1) * 1000001 + round * 77;
		c->sum += number;
		c->sent = c->answered = false;
		if (post_message(c, number, NUMBER_SIZE))
			return -1;
	}
	for (c = all->customers; c < end; c++)
		if (hear(all, c))
			return -1;
	return all->wrong ? -1 : 0;
}

/* Send 5 bytes, and wait until the server has had enough. */
static int send_rubbish(const struct options *opt)
{
	struct customer c = { 0 };
	struct ibv_wc wc;
	int ret = -1;

	if (come(&c, opt, true) || post_message(&c, 1, 5))
		goto out;
	do {
		ret = endpoint_wait_wc(&c.ep, &wc);
		if (ret == 0 && wr_id_op(wc.wr_id) == WR_RECV &&
		    wc.status == IBV_WC_SUCCESS)
			printf("rubbish was answered\n");
	} while (ret == 0);
out:
	/*
	 * A server that is very quick has had enough before its side of the
	 * handshake is over, and then the CM calls it so.
	 */
	if (c.ep.connected && c.ep.event == RDMA_CM_EVENT_REJECTED) {
		c.ep.connected = false;
		ret = 1;
	}
	leave(&c);
	return ret < 0 ? -1 : 0;
}

/* Send two numbers, and leave without having heard an answer. */
static int be_deaf(const struct options *opt)
{
	struct customer c = { 0 };
	struct ibv_wc wc;
	int i, ret = -1;

	if (come(&c, opt, false))
		goto out;
	for (i = 0; i < 2; i++)
		if (post_message(&c, 1, NUMBER_SIZE))
			goto out;
	for (i = 0; i < 2; i++) {
		ret = endpoint_wait_wc(&c.ep, &wc);
		if (ret || check_wc(&wc)) {
			ret = -1;
			goto out;
		}
	}
	/* Not before the server has answered, and its card tries in vain. */
	if (wait_readable(c.ep.channel->fd, c.ep.stop_fd, 50) < 0)
		ret = -1;
out:
	leave(&c);
	return ret;
}

static int run(struct client *all)
{
	long i, round = 0;

	for (i = 0; i < all->count; i++)
		if (come(&all->customers[i], &all->opt, true))
			return -1;
	printf("connected\n");
	if (one_round(all, round++))
		return -1;
	for (i = 0; i < all->rubbish; i++)
		if (send_rubbish(&all->opt))
			return -1;
	if (all->rubbish) {
		if (one_round(all, round++))
			return -1;
		printf("after %ld who sent rubbish: right\n", all->rubbish);
	}
	for (i = 0; i < all->deaf; i++)
		if (be_deaf(&all->opt))
			return -1;
	if (all->deaf) {
		if (one_round(all, round++))
			return -1;
		printf("after %ld who heard nothing: right\n", all->deaf);
	}
	while (round < all->rounds)
		if (one_round(all, round++))
			return -1;
	return 0;
}

int main(int argc, char **argv)
{
	struct client client = { .opt = OPTIONS_DEFAULT,
				 .count = 1,
				 .rounds = 1 };
	int ret;
	long i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &client)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (client.opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	ret = run(&client);
	printf("%ld sums right, %ld wrong\n", client.right, client.wrong);
	for (i = 0; i < client.count; i++)
		leave(&client.customers[i]);
	return ret ? EXIT_FAILED : EXIT_DONE;
}
