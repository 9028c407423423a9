/* SPDX-License-Identifier: MIT */
/*
 * The client of exercise 06, as it is: it believes what the server offers,
 * writes there, and compares what the server says it has found. It is written
 * with helpers that later lessons explain.
 */
#include <rdma_common.h>

#include "offer.h"

#define MAX_SIZE 65536

struct client {
	struct endpoint ep;
	struct ibv_mr *mr, *answer_mr;
	struct remote_region regions[REGIONS];
	uint8_t pattern[MAX_SIZE];
	uint32_t answer[REGIONS];
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] SERVER_ADDRESS\n"
		"Write to the two regions that the server offers.\n" CLIENT_USAGE_LINES);
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

static uint32_t get_u32(const uint8_t *wire)
{
	uint32_t value;

	memcpy(&value, wire, 4);
	return be32toh(value);
}

static int read_offer(struct client *c)
{
	const uint8_t *wire = c->ep.private_data;
	int i;

	if (get_u32(wire) != OFFER_MAGIC || get_u32(wire + 4) != REGIONS) {
		printf("the private data is no offer\n");
		return -1;
	}
	for (i = 0; i < REGIONS; i++) {
		struct remote_region *region = &c->regions[i];

		wire = c->ep.private_data + 8 + i * REGION_SIZE;
		region->addr = (uint64_t)get_u32(wire) << 32 |
			       get_u32(wire + 4);
		region->rkey = get_u32(wire + 8);
		region->size = get_u32(wire + 12);
		printf("region %d: address 0x%llx, rkey 0x%x, size %u\n", i,
		       (unsigned long long)region->addr, region->rkey,
		       region->size);
		if (!region->size || region->size > MAX_SIZE) {
			printf("that size cannot be\n");
			return -1;
		}
	}
	return 0;
}

/* Wait for the completion of one request of the kind OP. */
static int wait_for(struct client *c, enum wr_op op, struct ibv_wc *wc)
{
	int ret;

	do {
		ret = endpoint_wait_wc(&c->ep, wc);
		if (ret > 0)
			fprintf(stderr, "the server has left\n");
		if (ret)
			return -1;
	} while (wc->status == IBV_WC_SUCCESS && wr_id_op(wc->wr_id) != op);
	return check_wc(wc);
}

static int write_region(struct client *c, int i)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->pattern,
		.length = c->regions[i].size,
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, i),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = c->regions[i].addr,
			     .rkey = c->regions[i].rkey },
	};
	struct ibv_wc wc;
	int ret;

	pattern_fill(c->pattern, sge.length, i + 1);
	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	ret = wait_for(c, WR_WRITE, &wc);
	printf("RDMA WRITE to region %d: %s\n", i,
	       ret && wc.status == IBV_WC_SUCCESS ?
		       "no completion" :
		       ibv_wc_status_str(wc.status));
	return ret;
}

/* Tell the server, and compare what it says it has found. */
static int compare(struct client *c)
{
	struct ibv_send_wr wr = { .wr_id = wr_id_of(WR_SEND, 0),
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;
	int i, ret = 0;

	if (endpoint_post_send(&c->ep, &wr) || wait_for(c, WR_RECV, &wc))
		return -1;
	for (i = 0; i < REGIONS; i++) {
		bool same;

		pattern_fill(c->pattern, c->regions[i].size, i + 1);
		same = be32toh(c->answer[i]) ==
		       sum_of(c->pattern, c->regions[i].size);
		printf("region %d: %s\n", i,
		       same ? "the server found what we wrote" :
			      "the server found something else");
		if (!same)
			ret = -1;
	}
	return ret;
}

static int talk(struct client *c, const struct options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct ibv_sge sge = { .addr = (uintptr_t)c->answer,
			       .length = sizeof(c->answer) };
	struct ibv_recv_wr receive = { .wr_id = wr_id_of(WR_RECV, 0),
				       .sg_list = &sge,
				       .num_sge = 1 };
	int i;

	if (endpoint_open(&c->ep, opt) || endpoint_resolve(&c->ep, opt) ||
	    endpoint_create_qp(&c->ep, 2, 1))
		return -1;
	c->mr = ibv_reg_mr(c->ep.pd, c->pattern, sizeof(c->pattern), 0);
	c->answer_mr = ibv_reg_mr(c->ep.pd, c->answer, sizeof(c->answer),
				  IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr || !c->answer_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	sge.lkey = c->answer_mr->lkey;
	if (endpoint_post_recv(&c->ep, &receive) ||
	    endpoint_connect(&c->ep, &param))
		return -1;
	printf("connected\n");
	if (read_offer(c))
		return -1;
	for (i = 0; i < REGIONS; i++)
		if (write_region(c, i))
			return -1;
	return compare(c);
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
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
	if (talk(&client, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&client.ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	if (client.answer_mr && ibv_dereg_mr(client.answer_mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&client.ep);
	return status;
}
