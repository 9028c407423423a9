/* SPDX-License-Identifier: MIT */
/*
 * The client of exercise 04, as it is: it sends messages in bursts, and waits
 * for the answers to a burst before it sends the next. It is written with
 * helpers that later lessons explain.
 */
#include <rdma_common.h>

#define MAX_BURST 16
#define MAX_BURSTS 16
#define MAX_LENGTH 64

struct client {
	struct endpoint ep;
	struct ibv_mr *mr;
	struct {
		char messages[MAX_BURST][MAX_LENGTH];
		uint32_t answers[MAX_BURST];
	} memory;
	long idle; /* milliseconds before each burst */
	int bursts[MAX_BURSTS];
	int n_bursts;
	uint32_t answered;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-i MS] [-b N]... SERVER_ADDRESS\n"
		"Send messages in bursts, and wait for the answers to each burst.\n"
		"  -i, --idle MS          do nothing for so long before each burst, 0 to 10000\n"
		"                         milliseconds (default: 100)\n"
		"  -b, --burst N          a burst of N messages, 1 to 16; up to 16 times\n"
		"                         (default: one of 1)\n" CLIENT_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "idle", required_argument, NULL, 'i' },
		{ "burst", required_argument, NULL, 'b' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;
	long n;

	c->idle = 100;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "b:i:", longs,
				   NULL)) != -1) {
		if (flag == 'i') {
			c->idle = parse_number(optarg, 0, 10000);
			if (c->idle >= 0)
				continue;
			fprintf(stderr, "client: -i takes 0 to 10000 ms\n");
			return -1;
		}
		if (flag != 'b') {
			if (common_option(flag, opt))
				return -1;
			continue;
		}
		n = parse_number(optarg, 1, MAX_BURST);
		if (n < 0 || c->n_bursts == MAX_BURSTS) {
			fprintf(stderr, "client: -b takes 1 to %d, %d times\n",
				MAX_BURST, MAX_BURSTS);
			return -1;
		}
		c->bursts[c->n_bursts++] = n;
	}
	if (!c->n_bursts)
		c->bursts[c->n_bursts++] = 1;
	return client_operand(argc, argv, opt);
}

static int post_receive(struct client *c, int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&c->memory.answers[slot],
		.length = sizeof(c->memory.answers[slot]),
		.lkey = c->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, slot),
				  .sg_list = &sge,
				  .num_sge = 1 };

	return endpoint_post_recv(&c->ep, &wr);
}

static int post_message(struct client *c, int slot, uint32_t number)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->memory.messages[slot],
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = { .wr_id = wr_id_of(WR_SEND, slot),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };

	sge.length = snprintf(c->memory.messages[slot], MAX_LENGTH,
			      "message number %u", number);
	return endpoint_post_send(&c->ep, &wr);
}

/* Send a burst of N, and wait until all are sent and answered. */
static int burst(struct client *c, int n)
{
	int sent = 0, answered = 0, i, ret;
	uint32_t first = c->answered;
	struct ibv_wc wc;

	for (i = 0; i < n; i++)
		if (post_message(c, i, first + i + 1))
			return -1;
	while (sent < n || answered < n) {
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret > 0)
			fprintf(stderr, "the server has left\n");
		if (ret || check_wc(&wc))
			break;
		if (wr_id_op(wc.wr_id) == WR_SEND) {
			sent++;
			continue;
		}
		i = wr_id_slot(wc.wr_id);
		if (wc.byte_len != 4 ||
		    be32toh(c->memory.answers[i]) != c->answered + 1) {
			fprintf(stderr, "that is not the answer to %u\n",
				c->answered + 1);
			break;
		}
		c->answered++;
		answered++;
		if (post_receive(c, i))
			break;
	}
	printf("burst of %d: %d answered\n", n, answered);
	return sent == n && answered == n ? 0 : -1;
}

static int talk(struct client *c, const struct options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	int i;

	if (endpoint_open(&c->ep, opt) || endpoint_resolve(&c->ep, opt) ||
	    endpoint_create_qp(&c->ep, MAX_BURST, MAX_BURST))
		return -1;
	c->mr = ibv_reg_mr(c->ep.pd, &c->memory, sizeof(c->memory),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	for (i = 0; i < MAX_BURST; i++)
		if (post_receive(c, i))
			return -1;
	if (endpoint_connect(&c->ep, &param))
		return -1;
	printf("connected\n");
	for (i = 0; i < c->n_bursts; i++) {
		if (wait_readable(-1, c->ep.stop_fd, c->idle) < 0)
			return -1;
		if (burst(c, c->bursts[i]))
			return -1;
	}
	return 0;
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
