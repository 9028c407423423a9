/* SPDX-License-Identifier: MIT */
/*
 * The server of exercise 07, as it is: it offers memory, and adds up what the
 * client says it has written there.
 */
#include <rdma_common.h>

#include "notice.h"

#define MAX_SIZE 1000000

struct server {
	struct endpoint ep;
	long offer; /* bytes */
	uint8_t *buffer;
	struct ibv_mr *buffer_mr, *mr;
	struct {
		struct notice notice;
		struct answer answer;
	} memory;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-o BYTES]\n"
		"Offer memory to one client, and tell it whether it wrote what it meant.\n"
		"  -o, --offer BYTES      how much, 1 to 1000000 (default: 1000000)\n" SERVER_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "offer", required_argument, NULL, 'o' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	s->offer = MAX_SIZE;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "o:", longs,
				   NULL)) != -1) {
		if (flag == 'o') {
			s->offer = parse_number(optarg, 1, MAX_SIZE);
			if (s->offer > 0)
				continue;
			fprintf(stderr, "server: -o takes 1 to %d\n", MAX_SIZE);
			return -1;
		}
		if (common_option(flag, opt))
			return -1;
	}
	return server_operand(argc, argv, opt);
}

static int make_memory(struct server *s)
{
	s->buffer = calloc(1, s->offer);
	if (!s->buffer) {
		report("calloc", errno);
		return -1;
	}
	s->buffer_mr =
		ibv_reg_mr(s->ep.pd, s->buffer, s->offer,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	s->mr = ibv_reg_mr(s->ep.pd, &s->memory, sizeof(s->memory),
			   IBV_ACCESS_LOCAL_WRITE);
	if (s->buffer_mr && s->mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static int post_receive(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->memory.notice,
		.length = sizeof(s->memory.notice),
		.lkey = s->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0),
				  .sg_list = &sge,
				  .num_sge = 1 };

	return endpoint_post_recv(&s->ep, &wr);
}

static int send_answer(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->memory.answer,
		.length = sizeof(s->memory.answer),
		.lkey = s->mr->lkey,
	};
	struct ibv_send_wr wr = { .wr_id = wr_id_of(WR_SEND, 0),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	uint32_t length = be32toh(s->memory.notice.length);
	bool right;

	right = length <= s->offer &&
		sum_of(s->buffer, length, 0) == be32toh(s->memory.notice.sum);
	printf("the client says that it wrote %u bytes: %s\n", length,
	       right ? "right" : "wrong");
	s->memory.answer.right = htobe32(right);
	return endpoint_post_send(&s->ep, &wr);
}

static int serve(struct server *s)
{
	bool noticed = false;
	struct ibv_wc wc;
	int ret;

	while ((ret = endpoint_wait_wc(&s->ep, &wc)) == 0) {
		if (check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) == WR_RECV) {
			noticed = true;
			if (send_answer(s))
				return -1;
		}
	}
	if (ret > 0 && !noticed)
		printf("the client left without a notice\n");
	return ret > 0 && noticed ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
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
	if (endpoint_open(ep, &opt) || endpoint_listen(ep, &opt) ||
	    endpoint_get_request(ep) || endpoint_create_qp(ep, 1, 1) ||
	    make_memory(&server) || post_receive(&server))
		goto out;
	remote_region_pack(wire, server.buffer_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (endpoint_accept(ep, &param))
		goto out;
	printf("connected\n");
	if (serve(&server) == 0)
		status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (server.buffer_mr && ibv_dereg_mr(server.buffer_mr))
		report("ibv_dereg_mr", errno);
	if (server.mr && ibv_dereg_mr(server.mr))
		report("ibv_dereg_mr", errno);
	free(server.buffer);
	endpoint_destroy(ep);
	return status;
}
