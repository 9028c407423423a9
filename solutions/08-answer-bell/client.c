/* SPDX-License-Identifier: MIT */
/*
 * The client of exercise 08, as it is: round by round it writes a text, rings,
 * waits until its own bell rings, and looks at the answer.
 */
#include <stdatomic.h>

#include <rdma_common.h>

#include "answer.h"

struct client {
	struct endpoint ep;
	struct {
		struct answer answer; /* the server writes here */
		_Atomic uint64_t bell; /* and rings here */
	} lent;
	struct ibv_mr *answer_mr, *bell_mr;
	struct {
		char text[MAX_TEXT];
		uint64_t number;
	} own;
	struct ibv_mr *own_mr;
	struct remote_region text, doorbell; /* the server's */
	long rounds;
	long jump; /* the round in which we ring with a wrong number */
	long tiny; /* offer so many bytes for the answer, and not all */
	bool mute; /* the request says nothing */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n ROUNDS] [-j ROUND] [-s | -m] SERVER_ADDRESS\n"
		"Write texts to the server, ring, and wait until it rings back.\n"
		"  -n, --rounds ROUNDS    how many texts, 1 to 10000 (default: 3)\n"
		"  -j, --jump ROUND       ring with a number that is not next in this round\n"
		"  -s, --small            offer half of what an answer needs\n"
		"  -m, --mute             offer nothing: the request says nothing\n" CLIENT_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "rounds", required_argument, NULL, 'n' },
		{ "jump", required_argument, NULL, 'j' },
		{ "small", no_argument, NULL, 's' },
		{ "mute", no_argument, NULL, 'm' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	c->rounds = 3;
	c->tiny = sizeof(struct answer);
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:j:sm", longs,
				   NULL)) != -1) {
		switch (flag) {
		case 'n':
			c->rounds = parse_number(optarg, 1, 10000);
			break;
		case 'j':
			c->jump = parse_number(optarg, 1, 10000);
			break;
		case 's':
			c->tiny = sizeof(struct answer) / 2;
			break;
		case 'm':
			c->mute = true;
			break;
		default:
			if (common_option(flag, opt))
				return -1;
		}
	}
	if (c->rounds < 0 || c->jump < 0) {
		fprintf(stderr, "client: -n and -j take 1 to 10000\n");
		return -1;
	}
	return client_operand(argc, argv, opt);
}

static int register_memory(struct client *c)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	c->answer_mr = ibv_reg_mr(c->ep.pd, &c->lent.answer, c->tiny, remote);
	c->bell_mr = ibv_reg_mr(c->ep.pd, &c->lent.bell, sizeof(c->lent.bell),
				remote);
	c->own_mr = ibv_reg_mr(c->ep.pd, &c->own, sizeof(c->own), 0);
	if (c->answer_mr && c->bell_mr && c->own_mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static void deregister(struct ibv_mr *mr)
{
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
}

static int connect_to_server(struct client *c)
{
	uint8_t wire[2 * REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	const uint8_t *theirs = c->ep.private_data;

	remote_region_pack(wire, c->answer_mr);
	remote_region_pack(wire + REMOTE_REGION_WIRE_SIZE, c->bell_mr);
	if (!c->mute) {
		param.private_data = wire;
		param.private_data_len = sizeof(wire);
	}
	if (endpoint_connect(&c->ep, &param))
		return -1;
	printf("connected\n");
	if (remote_region_unpack(&c->text, theirs) ||
	    remote_region_unpack(&c->doorbell,
				 theirs + REMOTE_REGION_WIRE_SIZE))
		return -1;
	return 0;
}

static int write_and_wait(struct client *c, const void *from, uint32_t length,
			  const struct remote_region *region)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)from,
		.length = length,
		.lkey = c->own_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = region->addr,
		.wr.rdma.rkey = region->rkey,
	};
	struct ibv_wc wc;
	int ret;

	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	ret = endpoint_wait_wc(&c->ep, &wc);
	if (ret > 0)
		fprintf(stderr, "the server has left\n");
	return ret ? -1 : check_wc(&wc);
}

/* Wait until the bell has rung NUMBER. */
static int wait_for_bell(struct client *c, uint64_t number)
{
	long long deadline = now_ms() + c->ep.timeout * 1000LL;
	uint64_t seen;
	int ready;

	for (;;) {
		seen = be64toh(atomic_load_explicit(&c->lent.bell,
						    memory_order_acquire));
		if (seen == number)
			return 0;
		if (seen != number - 1) {
			printf("round %llu: the bell has rung 0x%llx\n",
			       (unsigned long long)number,
			       (unsigned long long)seen);
			return -1;
		}
		if (c->ep.disconnected || now_ms() > deadline) {
			printf("round %llu: %s, and the bell has not rung\n",
			       (unsigned long long)number,
			       c->ep.disconnected ? "the server has left" :
						    "the time is over");
			return -1;
		}
		ready = wait_readable(c->ep.channel->fd, c->ep.stop_fd, 1);
		if (ready < 0)
			return -1;
		if (ready &&
		    endpoint_take_event(&c->ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	}
}

static int play_round(struct client *c, uint64_t number)
{
	struct answer got;
	uint32_t length, sum;

	length = snprintf(c->own.text, MAX_TEXT, "text number %llu%.*s",
			  (unsigned long long)number, (int)(number % 40),
			  "........................................");
	sum = sum_of(c->own.text, length);
	memset(&c->lent.answer, 0xff, sizeof(c->lent.answer));
	if (write_and_wait(c, c->own.text, length + 1, &c->text))
		return -1;
	c->own.number = htobe64(c->jump == (long)number ? number + 5 : number);
	if (write_and_wait(c, &c->own.number, 8, &c->doorbell) ||
	    wait_for_bell(c, number))
		return -1;
	got = c->lent.answer; /* once: it may still change */
	if (be32toh(got.length) == length && be32toh(got.sum) == sum)
		return 0;
	printf("round %llu: the answer is length %u, sum 0x%08x; expected: "
	       "length %u, sum 0x%08x\n",
	       (unsigned long long)number, be32toh(got.length),
	       be32toh(got.sum), length, sum);
	return -1;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
	struct endpoint *ep = &client.ep;
	int status = EXIT_FAILED;
	long i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &client)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (endpoint_open(ep, &opt) || endpoint_resolve(ep, &opt) ||
	    endpoint_create_qp(ep, 1, 1) || register_memory(&client) ||
	    connect_to_server(&client))
		goto out;
	for (i = 0; i < client.rounds; i++)
		if (play_round(&client, i + 1))
			break;
	printf("%ld of %ld rounds were answered\n", i, client.rounds);
	if (i == client.rounds)
		status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	deregister(client.answer_mr);
	deregister(client.bell_mr);
	deregister(client.own_mr);
	endpoint_destroy(ep);
	return status;
}
