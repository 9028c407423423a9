/* SPDX-License-Identifier: MIT */
/*
 * Exercise 17: the server. It connects by hand, waits for the doorbell, and
 * answers by an RDMA WRITE into the client's memory.
 */
#include <stdatomic.h>

#include "hand.h"

#define SIZE 5000

struct server {
	struct side side;
	long mtu; /* what we say that our port has; 0: what it has */
	struct remote_region answer_to; /* the client's */
	uint8_t buffer[SIZE];
	struct ibv_mr *buffer_mr;
	_Atomic uint64_t doorbell;
	struct ibv_mr *doorbell_mr;
	uint64_t answer;
	struct ibv_mr *answer_mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [--mtu BYTES]\n"
		"Connect by hand with one client, and answer what it writes.\n"
		"  --mtu BYTES            use packets of so many bytes at the most, 256 to 4096\n"
		"                         (default: the port's active_mtu)\n" SERVER_USAGE_LINES
		"PORT is a TCP port here.\n"
		"Man page: ibv_modify_qp(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "mtu", required_argument, NULL, 'm' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) != -1) {
		if (c == 'm') {
			s->mtu = parse_number(optarg, 256, 4096);
			if (s->mtu > 0)
				continue;
			fprintf(stderr, "server: --mtu takes 256 to 4096\n");
			return -1;
		}
		if (common_option(c, opt))
			return -1;
	}
	return server_operand(argc, argv, opt);
}

static int to_rts(struct side *s)
{
	uint32_t bytes = s->mine.mtu < s->theirs.mtu ? s->mine.mtu :
						       s->theirs.mtu;
	struct ibv_qp_attr rtr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = bytes >= 4096 ? IBV_MTU_4096 :
			    bytes >= 2048 ? IBV_MTU_2048 :
			    bytes >= 1024 ? IBV_MTU_1024 :
			    bytes >= 512  ? IBV_MTU_512 :
					    IBV_MTU_256,
		.dest_qp_num = s->theirs.qpn,
		.rq_psn = s->theirs.psn,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = s->port,
			.grh = {
				.dgid = s->theirs.gid,
				.sgid_index = s->gid_index,
				.hop_limit = 64,
			},
		},
	};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = s->mine.psn,
		.timeout = ACK_TIMEOUT,
		.retry_cnt = 6,
		.rnr_retry = 3,
	};

	if (modify(s, &rtr,
		   IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			   IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			   IBV_QP_MIN_RNR_TIMER,
		   "RTR"))
		return -1;
	return modify(s, &rts,
		      IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
		      "RTS");
}

static int to_init(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = s->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	return modify(s, &attr,
		      IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS,
		      "INIT");
}

static int register_memory(struct server *s)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_pd *pd = s->side.pd;

	s->buffer_mr = ibv_reg_mr(pd, s->buffer, SIZE, remote);
	s->doorbell_mr =
		ibv_reg_mr(pd, &s->doorbell, sizeof(s->doorbell), remote);
	s->answer_mr = ibv_reg_mr(pd, &s->answer, sizeof(s->answer), 0);
	if (!s->buffer_mr || !s->doorbell_mr || !s->answer_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	remote_region_pack(s->side.mine.buffer, s->buffer_mr);
	remote_region_pack(s->side.mine.doorbell, s->doorbell_mr);
	return 0;
}

static void deregister_memory(struct server *s)
{
	if (s->answer_mr && ibv_dereg_mr(s->answer_mr))
		report("ibv_dereg_mr", errno);
	if (s->doorbell_mr && ibv_dereg_mr(s->doorbell_mr))
		report("ibv_dereg_mr", errno);
	if (s->buffer_mr && ibv_dereg_mr(s->buffer_mr))
		report("ibv_dereg_mr", errno);
}

static int wait_for_doorbell(struct server *s)
{
	long long deadline = now_ms() + s->side.tcp.timeout * 1000LL;
	ssize_t wrong;

	while (!atomic_load_explicit(&s->doorbell, memory_order_acquire)) {
		if (now_ms() < deadline &&
		    !wait_readable(s->side.tcp.fd, s->side.tcp.stop_fd, 1))
			continue;
		if (atomic_load_explicit(&s->doorbell, memory_order_acquire))
			break;
		printf("the doorbell has not rung\n");
		return -1;
	}
	wrong = pattern_check(s->buffer, SIZE, 17);
	printf("the doorbell has rung, %d bytes: %s\n", SIZE,
	       wrong < 0 ? "right" : "wrong");
	return wrong < 0 ? 0 : -1;
}

/* The answer goes into the client's memory. */
static int answer(struct server *s)
{
	long long deadline = now_ms() + s->side.tcp.timeout * 1000LL;
	struct ibv_wc wc;
	int n = 0;

	s->answer = htobe64(SIZE);
	if (side_write(&s->side, 0, s->answer_mr, &s->answer_to))
		return -1;
	while (n == 0 && now_ms() < deadline)
		n = ibv_poll_cq(s->side.cq, 1, &wc);
	if (n != 1)
		return -1;
	printf("the WRITE of the answer has status %d\n", wc.status);
	return check_wc(&wc);
}

static int run(struct server *s, const struct options *opt)
{
	struct side *side = &s->side;

	if (side_open(side, opt) || tcp_listen(&side->tcp, opt) ||
	    tcp_accept(&side->tcp) || find_gid(side) || make_qp(side, 1, 1) ||
	    to_init(side) || register_memory(s))
		return -1;
	if (s->mtu && s->mtu < side->mine.mtu)
		side->mine.mtu = s->mtu;
	if (exchange(side) ||
	    remote_region_unpack(&s->answer_to, side->theirs.doorbell) ||
	    to_rts(side) || barrier(side))
		return -1;
	printf("connected: our first PSN is %u, the client's %u\n",
	       side->mine.psn, side->theirs.psn);
	return wait_for_doorbell(s) || answer(s) || barrier(side) ? -1 : 0;
}

int main(int argc, char **argv)
{
	static struct server server = { .side.tcp = { .fd = -1,
						      .listen_fd = -1 } };
	struct options opt = OPTIONS_DEFAULT;
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &server)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (run(&server, &opt) == 0)
		status = EXIT_DONE;
	side_destroy_qp(&server.side);
	deregister_memory(&server);
	side_destroy(&server.side);
	return status;
}
