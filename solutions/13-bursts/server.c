/* SPDX-License-Identifier: MIT */
/*
 * The server of exercise 13, as it is: it takes items, looks at each, and
 * answers the last one of a burst with its number.
 */
#include "item.h"

struct server {
	struct endpoint ep;
	struct item items[MAX_BURST];
	struct ibv_mr *items_mr;
	uint32_t answer; /* the number, big-endian */
	struct ibv_mr *answer_mr;
	uint32_t came, bursts;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS]\n"
		"Take items, and say when a burst of them is whole.\n" SERVER_USAGE_LINES);
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
	return server_operand(argc, argv, opt);
}

static int register_memory(struct server *s)
{
	s->items_mr = ibv_reg_mr(s->ep.pd, s->items, sizeof(s->items),
				 IBV_ACCESS_LOCAL_WRITE);
	s->answer_mr = ibv_reg_mr(s->ep.pd, &s->answer, sizeof(s->answer), 0);
	if (s->items_mr && s->answer_mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static void deregister(struct ibv_mr *mr)
{
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
}

static int post_receive(struct server *s, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->items[slot],
		.length = sizeof(struct item),
		.lkey = s->items_mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&s->ep, &wr);
}

/* One answer is on its way at a time: the client waits for it. */
static int answer(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->answer,
		.length = sizeof(s->answer),
		.lkey = s->answer_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	s->answer = htobe32(s->came);
	s->bursts++;
	return endpoint_post_send(&s->ep, &wr);
}

static int on_item(struct server *s, uint32_t slot, uint32_t length)
{
	struct item item = s->items[slot];
	uint32_t number = be32toh(item.number);

	if (length != sizeof(item) || number != s->came + 1) {
		printf("waited for item %u, and item %u of %u bytes came\n",
		       s->came + 1, number, length);
		return -1;
	}
	if (pattern_check(item.text, sizeof(item.text), number) >= 0) {
		printf("item %u has wrong bytes in it\n", number);
		return -1;
	}
	s->came++;
	if (post_receive(s, slot))
		return -1;
	return be32toh(item.last) ? answer(s) : 0;
}

static int serve(struct server *s)
{
	struct ibv_wc wc;
	int ret;

	for (;;) {
		ret = endpoint_wait_wc(&s->ep, &wc);
		if (ret)
			return ret < 0 ? -1 : 0;
		/* After a disconnect what is left was flushed. */
		if (wc.status == IBV_WC_WR_FLUSH_ERR)
			return 0;
		if (check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) == WR_RECV &&
		    on_item(s, wr_id_slot(wc.wr_id), wc.byte_len))
			return -1;
	}
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	int status = EXIT_FAILED;
	uint32_t slot;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (endpoint_open(ep, &opt) || endpoint_listen(ep, &opt) ||
	    endpoint_get_request(ep) || endpoint_create_qp(ep, 2, MAX_BURST) ||
	    register_memory(&server))
		goto out;
	for (slot = 0; slot < MAX_BURST; slot++)
		if (post_receive(&server, slot))
			goto out;
	if (endpoint_accept(ep, &param))
		goto out;
	printf("connected\n");
	if (serve(&server) == 0)
		status = EXIT_DONE;
	printf("%u items came, %u bursts were whole\n", server.came,
	       server.bursts);
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	deregister(server.items_mr);
	deregister(server.answer_mr);
	endpoint_destroy(ep);
	return status;
}
