/* SPDX-License-Identifier: MIT */
/*
 * Exercise 11: a client that waits for its turn. README.md has the task, queue.h
 * what is in the server's memory.
 */
#include <rdma_common.h>

#include "queue.h"

struct client {
	struct endpoint ep;
	struct remote_region region; /* the server's */
	uint64_t result; /* what is read arrives here, and is written from here */
	struct ibv_mr *mr;
	long rounds;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n ROUNDS] SERVER_ADDRESS\n"
		"Take the server's lock in turn, and add to the value that it guards.\n"
		"  -n, --rounds ROUNDS    how often, 1 to 10000 (default: 3)\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "rounds", required_argument, NULL, 'n' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	c->rounds = 3;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:", longs,
				   NULL)) != -1) {
		if (flag != 'n') {
			if (common_option(flag, opt))
				return -1;
			continue;
		}
		c->rounds = parse_number(optarg, 1, 10000);
		if (c->rounds < 0) {
			fprintf(stderr, "client: -n takes 1 to 10000\n");
			return -1;
		}
	}
	return client_operand(argc, argv, opt);
}

static int register_memory(struct client *c)
{
	c->mr = ibv_reg_mr(c->ep.pd, &c->result, sizeof(c->result),
			   IBV_ACCESS_LOCAL_WRITE);
	if (c->mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static int connect_to_server(struct client *c)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	param.initiator_depth = 1;
	if (endpoint_connect(&c->ep, &param))
		return -1;
	printf("connected\n");
	if (remote_region_unpack(&c->region, c->ep.private_data))
		return -1;
	if (c->region.size >= QUEUE_SIZE)
		return 0;
	fprintf(stderr, "the region is too small\n");
	return -1;
}

/* Post WR, which is about our 8 bytes, and wait until it is done. */
static int carry_out(struct client *c, struct ibv_send_wr wr)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&c->result,
		.length = sizeof(c->result),
		.lkey = c->mr->lkey,
	};
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
	return ret ? -1 : check_wc(&wc);
}

/* READ or WRITE the 8 bytes at PLACE, to or from c->result. */
static int transfer(struct client *c, enum ibv_wr_opcode opcode, uint64_t place)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(
			opcode == IBV_WR_RDMA_READ ? WR_READ : WR_WRITE, place),
		.opcode = opcode,
		.wr.rdma.remote_addr = c->region.addr + place,
		.wr.rdma.rkey = c->region.rkey,
	};

	return carry_out(c, wr);
}

#ifdef SOLUTION
static int fetch_and_add(struct client *c, uint64_t place, uint64_t add)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_ATOMIC, place),
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic.remote_addr = c->region.addr + place,
		.wr.atomic.rkey = c->region.rkey,
		.wr.atomic.compare_add = add,
	};

	return carry_out(c, wr);
}

/* A ticket, and then wait until it is served, with a rest between the looks. */
static int lock(struct client *c, uint64_t *ticket)
{
	long long deadline = now_ms() + c->ep.timeout * 1000LL;

	if (fetch_and_add(c, NEXT, 1))
		return -1;
	*ticket = c->result;
	for (;;) {
		if (transfer(c, IBV_WR_RDMA_READ, SERVING))
			return -1;
		/*
		 * A number for atomics is in the order of the server. Read as
		 * bytes, nobody has turned it, so this is right between
		 * machines of one byte order; an atomic that adds 0 is right
		 * between all.
		 */
		if (c->result == *ticket)
			return 0;
		if (now_ms() > deadline) {
			fprintf(stderr, "ticket %llu was never served\n",
				(unsigned long long)*ticket);
			return -1;
		}
		if (wait_readable(-1, c->ep.stop_fd, 2) < 0)
			return -1;
	}
}

/* The value is bytes, big-endian. Its WRITE is done before anybody is next. */
static int add_and_unlock(struct client *c)
{
	if (transfer(c, IBV_WR_RDMA_READ, VALUE))
		return -1;
	c->result = htobe64(be64toh(c->result) + STEP);
	if (transfer(c, IBV_WR_RDMA_WRITE, VALUE))
		return -1;
	return fetch_and_add(c, SERVING, 1);
}
#else
/*
 * TODO 1: take a ticket, and wait until it is served. The server serves
 * others first; it may also be that the lock is never given back, so wait no
 * longer than c->ep.timeout seconds, say so and return -1. A card that is
 * asked without a pause answers nobody else. Read ibv_post_send(3).
 */
static int lock(struct client *c, uint64_t *ticket)
{
	(void)c;
	*ticket = 0;
	return 0;
}

/*
 * TODO 2: add STEP to the value, and then give the lock back. Which of the
 * numbers in queue.h are in which byte order?
 */
static int add_and_unlock(struct client *c)
{
	(void)c;
	(void)transfer;
	return 0;
}
#endif

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
	struct endpoint *ep = &client.ep;
	int status = EXIT_FAILED;
	uint64_t ticket;
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
	for (i = 0; i < client.rounds; i++) {
		if (lock(&client, &ticket) || add_and_unlock(&client))
			goto out;
		printf("ticket %llu had its turn\n",
		       (unsigned long long)ticket);
	}
	status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(ep);
	return status;
}
