/* SPDX-License-Identifier: MIT */
/*
 * The server of exercise 01, as it is: it takes messages until the client says
 * goodbye. It is written with helpers that later lessons explain.
 */
#include <rdma_common.h>

#define ROOM 16 /* receives that are posted */
#define MAX_LENGTH 256

struct server {
	struct endpoint ep;
	struct ibv_mr *mr;
	char buffer[ROOM][MAX_LENGTH];
	long small; /* this message finds a receive of one byte; 0: none does */
	bool refuse;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s N | -r]\n"
		"Take up to 16 messages from one client and print them.\n"
		"  -s, --small N          have room for one byte only where message N comes,\n"
		"                         1 to 16\n"
		"  -r, --refuse           refuse the client\n" SERVER_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "small", required_argument, NULL, 's' },
		{ "refuse", no_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:r", longs, NULL)) !=
	       -1) {
		switch (c) {
		case 's':
			s->small = parse_number(optarg, 1, ROOM);
			if (s->small > 0)
				break;
			fprintf(stderr, "server: -s takes 1 to %d\n", ROOM);
			return -1;
		case 'r':
			s->refuse = true;
			break;
		default:
			if (common_option(c, opt))
				return -1;
		}
	}
	return server_operand(argc, argv, opt);
}

static int post_receives(struct server *s)
{
	struct ibv_sge sge = { .lkey = s->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 };
	int i;

	for (i = 0; i < ROOM; i++) {
		sge.addr = (uintptr_t)s->buffer[i];
		sge.length = i + 1 == s->small ? 1 : MAX_LENGTH;
		wr.wr_id = wr_id_of(WR_RECV, i);
		if (endpoint_post_recv(&s->ep, &wr))
			return -1;
	}
	return 0;
}

/* Print the messages until the client has gone. */
static int take_messages(struct server *s)
{
	struct ibv_wc wc;
	int count = 0, ret;

	while ((ret = endpoint_wait_wc(&s->ep, &wc)) == 0) {
		/* What is flushed follows an error that was told of. */
		if (wc.status == IBV_WC_WR_FLUSH_ERR || check_wc(&wc))
			continue;
		printf("message %d: %u bytes: %.*s\n", ++count, wc.byte_len,
		       (int)wc.byte_len, s->buffer[wr_id_slot(wc.wr_id)]);
	}
	printf("%d messages\n", count);
	return ret < 0 ? -1 : 0;
}

static int serve(struct server *s, const struct options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	if (endpoint_open(&s->ep, opt) || endpoint_listen(&s->ep, opt) ||
	    endpoint_get_request(&s->ep))
		return -1;
	if (s->refuse) {
		printf("refused\n");
		return rdma_reject(s->ep.id, NULL, 0);
	}
	if (endpoint_create_qp(&s->ep, 1, ROOM))
		return -1;
	s->mr = ibv_reg_mr(s->ep.pd, s->buffer, sizeof(s->buffer),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!s->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	if (post_receives(s) || endpoint_accept(&s->ep, &param))
		return -1;
	printf("connected\n");
	return take_messages(s);
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
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
	if (serve(&server, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&server.ep))
		status = EXIT_FAILED;
	if (server.mr && ibv_dereg_mr(server.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&server.ep);
	return status;
}
