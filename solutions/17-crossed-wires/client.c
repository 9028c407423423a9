/* SPDX-License-Identifier: MIT */
/*
 * Exercise 17: a client that connects its queue pair by hand, writes a long text
 * into the server's memory, rings, and waits for the server's answer, which comes
 * by RDMA WRITE as well.
 */
#ifndef SOLUTION
/*
 * TODO: there are four mistakes in this file, in to_init(), to_rtr() and
 * to_rts(). README.md says what they do.
 */
#endif
#include <stdatomic.h>

#include "hand.h"

#define SIZE 5000 /* several packets, whatever the MTU is */

struct client {
	struct side side;
	struct remote_region buffer, doorbell; /* the server's */
	uint8_t text[SIZE];
	struct ibv_mr *text_mr;
	uint64_t number; /* for the server's doorbell */
	struct ibv_mr *number_mr;
	_Atomic uint64_t answer; /* the server writes it */
	struct ibv_mr *answer_mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] SERVER_ADDRESS\n"
		"Connect by hand, RDMA WRITE 5000 bytes, and wait for the answer.\n" CLIENT_USAGE_LINES
		"PORT is a TCP port here.\n"
		"Man page: ibv_modify_qp(3).\n");
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

static int to_init(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = s->port,
		.pkey_index = 0,
#ifdef SOLUTION
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
#else
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE,
#endif
	};

	return modify(s, &attr,
		      IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS,
		      "INIT");
}

static enum ibv_mtu mtu_code(uint32_t bytes)
{
	return bytes >= 4096 ? IBV_MTU_4096 :
	       bytes >= 2048 ? IBV_MTU_2048 :
	       bytes >= 1024 ? IBV_MTU_1024 :
	       bytes >= 512  ? IBV_MTU_512 :
			       IBV_MTU_256;
}

static int to_rtr(struct side *s)
{
#ifdef SOLUTION
	uint32_t bytes = s->mine.mtu < s->theirs.mtu ? s->mine.mtu :
						       s->theirs.mtu;
#else
	uint32_t bytes = s->mine.mtu;
#endif
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu_code(bytes),
		.dest_qp_num = s->theirs.qpn,
#ifdef SOLUTION
		.rq_psn = s->theirs.psn,
#else
		.rq_psn = s->mine.psn,
#endif
		.max_dest_rd_atomic = 0,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = s->port,
			.grh = {
				.dgid = s->theirs.gid,
#ifdef SOLUTION
				.sgid_index = s->gid_index,
#else
				.sgid_index = 0,
#endif
				.hop_limit = 64,
			},
		},
	};

	return modify(s, &attr,
		      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			      IBV_QP_MIN_RNR_TIMER,
		      "RTR");
}

static int to_rts(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
#ifdef SOLUTION
		.sq_psn = s->mine.psn,
#else
		.sq_psn = s->theirs.psn,
#endif
		.timeout = ACK_TIMEOUT,
		.retry_cnt = 6,
		.rnr_retry = 3,
		.max_rd_atomic = 0,
	};

	return modify(s, &attr,
		      IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
		      "RTS");
}

static int register_memory(struct client *c)
{
	struct ibv_pd *pd = c->side.pd;

	pattern_fill(c->text, SIZE, 17);
	c->number = htobe64(1);
	c->text_mr = ibv_reg_mr(pd, c->text, SIZE, 0);
	c->number_mr = ibv_reg_mr(pd, &c->number, sizeof(c->number), 0);
	c->answer_mr =
		ibv_reg_mr(pd, &c->answer, sizeof(c->answer),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!c->text_mr || !c->number_mr || !c->answer_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	remote_region_pack(c->side.mine.buffer, c->answer_mr);
	remote_region_pack(c->side.mine.doorbell, c->answer_mr);
	return 0;
}

static void deregister_memory(struct client *c)
{
	if (c->answer_mr && ibv_dereg_mr(c->answer_mr))
		report("ibv_dereg_mr", errno);
	if (c->number_mr && ibv_dereg_mr(c->number_mr))
		report("ibv_dereg_mr", errno);
	if (c->text_mr && ibv_dereg_mr(c->text_mr))
		report("ibv_dereg_mr", errno);
}

/* Both WRITEs, and their completions. */
static int write_and_ring(struct client *c)
{
	long long deadline = now_ms() + c->side.tcp.timeout * 1000LL;
	struct ibv_wc wc;
	int left = 2, n;

	if (side_write(&c->side, 0, c->text_mr, &c->buffer) ||
	    side_write(&c->side, 1, c->number_mr, &c->doorbell))
		return -1;
	while (left > 0) {
		n = ibv_poll_cq(c->side.cq, 1, &wc);
		if (n < 0 || (n > 0 && check_wc(&wc)))
			return -1;
		left -= n;
		if (n == 0 && now_ms() > deadline) {
			fprintf(stderr, "no completion has come\n");
			return -1;
		}
	}
	printf("written\n");
	return 0;
}

static int wait_for_answer(struct client *c)
{
	long long deadline = now_ms() + c->side.tcp.timeout * 1000LL;
	uint64_t answer;

	for (;;) {
		answer = atomic_load_explicit(&c->answer, memory_order_acquire);
		if (answer)
			break;
		if (now_ms() <= deadline &&
		    !wait_readable(c->side.tcp.fd, c->side.tcp.stop_fd, 1))
			continue;
		/* Its next byte, or its end, may be here as soon as its answer. */
		answer = atomic_load_explicit(&c->answer, memory_order_acquire);
		if (answer)
			break;
		fprintf(stderr, "no answer from the server\n");
		return -1;
	}
	printf("the server answers %llu\n",
	       (unsigned long long)be64toh(answer));
	return be64toh(answer) == SIZE ? 0 : -1;
}

static int run(struct client *c, const struct options *opt)
{
	struct side *s = &c->side;

	if (side_open(s, opt) || tcp_connect(&s->tcp, opt) || find_gid(s) ||
	    make_qp(s, 2, 1) || to_init(s) || register_memory(c) || exchange(s))
		return -1;
	if (remote_region_unpack(&c->buffer, s->theirs.buffer) ||
	    remote_region_unpack(&c->doorbell, s->theirs.doorbell))
		return -1;
	if (to_rtr(s) || to_rts(s) || barrier(s))
		return -1;
	return write_and_ring(c) || wait_for_answer(c) || barrier(s) ? -1 : 0;
}

int main(int argc, char **argv)
{
	static struct client client = { .side.tcp = { .fd = -1,
						      .listen_fd = -1 } };
	struct options opt = OPTIONS_DEFAULT;
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
	if (run(&client, &opt) == 0)
		status = EXIT_DONE;
	side_destroy_qp(&client.side);
	deregister_memory(&client);
	side_destroy(&client.side);
	return status;
}
