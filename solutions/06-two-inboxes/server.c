/* SPDX-License-Identifier: MIT */
/*
 * Exercise 06: a server that offers two pieces of its memory, and says what it
 * has found there when the client has written to them.
 */
#ifndef SOLUTION
/*
 * TODO: there are three mistakes in this file, in register_inboxes() and in
 * pack_region(). README.md says how to see them, offer.h what has to be on the
 * wire; what the calls promise is in ibv_reg_mr(3) and endian(3).
 */
#endif
#include <rdma_common.h>

#include "offer.h"

/* The sizes differ, and so what is in the one is not in the other. */
#define FIRST_SIZE 1000
#define SECOND_SIZE 5000

struct server {
	struct endpoint ep;
	struct ibv_mr *inboxes[REGIONS];
	uint8_t first[FIRST_SIZE], second[SECOND_SIZE];
	struct ibv_mr *mr; /* of the answer */
	uint32_t answer[REGIONS];
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS]\n"
		"Offer two regions to one client, and say what it has written there.\n" SERVER_USAGE_LINES
		"Man pages: ibv_reg_mr(3), rdma_accept(3), endian(3).\n");
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

/* What the client's card may do with our memory, and what our own may. */
static int register_inboxes(struct server *s)
{
#ifdef SOLUTION
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	s->inboxes[0] = ibv_reg_mr(s->ep.pd, s->first, FIRST_SIZE, access);
	s->inboxes[1] = ibv_reg_mr(s->ep.pd, s->second, SECOND_SIZE, access);
#else
	s->inboxes[0] =
		ibv_reg_mr(s->ep.pd, s->first, FIRST_SIZE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	s->inboxes[1] =
		ibv_reg_mr(s->ep.pd, s->second, SECOND_SIZE,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
#endif
	s->mr = ibv_reg_mr(s->ep.pd, s->answer, sizeof(s->answer), 0);
	if (s->inboxes[0] && s->inboxes[1] && s->mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static void deregister(struct ibv_mr *mr)
{
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
}

static void put_u32(uint8_t *wire, uint32_t value)
{
	value = htobe32(value);
	memcpy(wire, &value, 4);
}

/* One region, as offer.h has it. */
static void pack_region(uint8_t *wire, const struct ibv_mr *mr)
{
#ifdef SOLUTION
	uint64_t addr = htobe64((uintptr_t)mr->addr);

	memcpy(wire, &addr, 8);
	put_u32(wire + 8, mr->rkey);
#else
	uint64_t addr = (uintptr_t)mr->addr;

	put_u32(wire, addr);
	put_u32(wire + 4, addr >> 32);
	put_u32(wire + 8, mr->lkey);
#endif
	put_u32(wire + 12, mr->length);
}

static void pack_offer(struct server *s, uint8_t *wire)
{
	int i;

	put_u32(wire, OFFER_MAGIC);
	put_u32(wire + 4, REGIONS);
	for (i = 0; i < REGIONS; i++)
		pack_region(wire + 8 + i * REGION_SIZE, s->inboxes[i]);
}

/* The answer: what is in the two inboxes now. */
static int send_answer(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->answer,
		.length = sizeof(s->answer),
		.lkey = s->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	s->answer[0] = htobe32(sum_of(s->first, FIRST_SIZE));
	s->answer[1] = htobe32(sum_of(s->second, SECOND_SIZE));
	return endpoint_post_send(&s->ep, &wr);
}

/* Wait for the client's notice, answer, and wait until it leaves. */
static int serve(struct server *s)
{
	bool noticed = false;
	struct ibv_wc wc;
	int ret;

	while ((ret = endpoint_wait_wc(&s->ep, &wc)) == 0) {
		if (check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) != WR_RECV)
			continue;
		printf("the client has written\n");
		noticed = true;
		if (send_answer(s))
			return -1;
	}
	if (ret > 0 && !noticed)
		fprintf(stderr, "the client left without a notice\n");
	return ret > 0 && noticed ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct ibv_recv_wr receive = { .wr_id = wr_id_of(WR_RECV, 0) };
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	uint8_t offer[OFFER_SIZE];
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
	if (endpoint_open(ep, &opt) || endpoint_listen(ep, &opt) ||
	    endpoint_get_request(ep) || endpoint_create_qp(ep, 1, 1) ||
	    register_inboxes(&server))
		goto out;
	/* The notice is an empty message: the receive needs no memory. */
	if (endpoint_post_recv(ep, &receive))
		goto out;
	pack_offer(&server, offer);
	param.private_data = offer;
	param.private_data_len = sizeof(offer);
	if (endpoint_accept(ep, &param))
		goto out;
	printf("offered: %p and %p\n", server.inboxes[0]->addr,
	       server.inboxes[1]->addr);
	if (serve(&server) == 0)
		status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	deregister(server.inboxes[0]);
	deregister(server.inboxes[1]);
	deregister(server.mr);
	endpoint_destroy(ep);
	return status;
}
