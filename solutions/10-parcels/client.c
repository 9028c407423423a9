/* SPDX-License-Identifier: MIT */
/*
 * The client of exercise 10, as it is: it sends parcels, as many at a time as
 * there are slots, and compares the answers. It can misbehave.
 */
#include <rdma_common.h>

#include "parcels.h"

struct client {
	struct endpoint ep;
	struct remote_region region;
	uint8_t memory[SLOTS][SLOT_SIZE + 1];
	struct ibv_mr *mr;
	bool busy[SLOTS]; /* a parcel is there and not answered yet */
	bool with_card[SLOTS]; /* its WRITE has not completed yet */
	uint32_t headers[SLOTS];
	uint32_t sent, answered, sum;
	long parcels;
	bool far, too_long, plain;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n PARCELS] [-f | -l | -e] SERVER_ADDRESS\n"
		"Send parcels to the server, and wait until each is answered.\n"
		"  -n, --parcels PARCELS  how many, 1 to 10000 (default: 12)\n"
		"  -f, --far              the second parcel's header says a slot that is not there\n"
		"  -l, --long             the second parcel's header says more than was written\n"
		"  -e, --send             the second is a SEND with immediate, of no bytes\n" CLIENT_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "parcels", required_argument, NULL, 'n' },
		{ "far", no_argument, NULL, 'f' },
		{ "long", no_argument, NULL, 'l' },
		{ "send", no_argument, NULL, 'e' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	c->parcels = 12;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:fle", longs,
				   NULL)) != -1) {
		switch (flag) {
		case 'n':
			c->parcels = parse_number(optarg, 1, 10000);
			if (c->parcels > 0)
				break;
			fprintf(stderr, "client: -n takes 1 to 10000\n");
			return -1;
		case 'f':
			c->far = true;
			break;
		case 'l':
			c->too_long = true;
			break;
		case 'e':
			c->plain = true;
			break;
		default:
			if (common_option(flag, opt))
				return -1;
		}
	}
	return client_operand(argc, argv, opt);
}

static int post_receive(struct client *c)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0) };

	return endpoint_post_recv(&c->ep, &wr);
}

static int post(struct client *c, uint32_t slot, uint32_t length, uint32_t imm)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->memory[slot],
		.length = length,
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, slot),
		.sg_list = &sge,
		.num_sge = length ? 1 : 0,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(imm),
		.wr.rdma.remote_addr = c->region.addr + slot * SLOT_SIZE,
		.wr.rdma.rkey = c->region.rkey,
	};

	if (c->plain && c->sent == 1)
		wr.opcode = IBV_WR_SEND_WITH_IMM;
	c->with_card[slot] = true;
	return endpoint_post_send(&c->ep, &wr);
}

/* The next parcel, into a free slot: the last free one, not the first. */
static int send_parcel(struct client *c)
{
	uint32_t slot = SLOTS - 1, length, header;

	while (slot && (c->busy[slot] || c->with_card[slot]))
		slot--;
	length = 1 + c->sent * 397 % SLOT_SIZE;
	if (c->plain && c->sent == 1)
		length = 0;
	pattern_fill(c->memory[slot], length, c->sent + 1);
	c->sum += sum_of(c->memory[slot], length);
	header = header_of(PARCEL, slot, length);
	if (c->sent == 1 && c->far)
		header = header_of(PARCEL, SLOTS + 200, length);
	if (c->sent == 1 && c->too_long)
		header++;
	c->busy[slot] = true;
	c->headers[slot] = header;
	if (post(c, slot, length, header))
		return -1;
	c->sent++;
	return 0;
}

static bool slot_is_free(const struct client *c)
{
	int i;

	for (i = 0; i < SLOTS; i++)
		if (!c->busy[i] && !c->with_card[i])
			return true;
	return false;
}

/* One completion. An answer is left in IMM. Returns 1 for an answer, 0, or -1. */
static int take(struct client *c, uint32_t *imm)
{
	struct ibv_wc wc;
	int ret = endpoint_wait_wc(&c->ep, &wc);

	if (ret > 0)
		printf("the server left when %u of %u parcels were answered\n",
		       c->answered, c->sent);
	if (ret || check_wc(&wc))
		return -1;
	if (wr_id_op(wc.wr_id) != WR_RECV) {
		c->with_card[wr_id_slot(wc.wr_id)] = false;
		return 0;
	}
	if (!(wc.wc_flags & IBV_WC_WITH_IMM)) {
		printf("an answer without an immediate came\n");
		return -1;
	}
	*imm = be32toh(wc.imm_data);
	return post_receive(c) ? -1 : 1;
}

static int take_answer(struct client *c, uint32_t imm)
{
	int i;

	for (i = 0; i < SLOTS; i++) {
		if (!c->busy[i] || c->headers[i] != imm)
			continue;
		c->busy[i] = false;
		c->answered++;
		return 0;
	}
	printf("an answer came for 0x%08x, and there is no such parcel\n", imm);
	return -1;
}

static int run(struct client *c)
{
	uint32_t imm = 0;
	int ret;

	while (c->answered < c->parcels) {
		while (c->sent < c->parcels && slot_is_free(c))
			if (send_parcel(c))
				return -1;
		ret = take(c, &imm);
		if (ret < 0 || (ret && take_answer(c, imm)))
			return -1;
	}
	printf("%u of %ld parcels were answered\n", c->answered, c->parcels);
	/* A WRITE of no bytes: its slot does not matter. */
	if (post(c, 0, 0, header_of(CLOSE, 0, c->sent)))
		return -1;
	while (!(ret = take(c, &imm)))
		;
	if (ret < 0)
		return -1;
	printf("the sum is %s: 0x%08x, and 0x%08x was expected\n",
	       imm == c->sum ? "right" : "wrong", imm, c->sum);
	return imm == c->sum ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
	struct endpoint *ep = &client.ep;
	int status = EXIT_FAILED, i;

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
	    endpoint_create_qp(ep, SLOTS + 1, SLOTS + 1))
		goto out;
	client.mr = ibv_reg_mr(ep->pd, client.memory, sizeof(client.memory), 0);
	if (!client.mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	for (i = 0; i <= SLOTS; i++)
		if (post_receive(&client))
			goto out;
	if (endpoint_connect(ep, &param) ||
	    remote_region_unpack(&client.region, ep->private_data))
		goto out;
	printf("connected\n");
	if (client.region.size < SLOTS * SLOT_SIZE) {
		printf("the region has %u bytes only\n", client.region.size);
		goto out;
	}
	if (run(&client) == 0)
		status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(ep);
	return status;
}
