/* SPDX-License-Identifier: MIT */
/*
 * Exercise 05: a server that gives a receipt for each message. Messages are
 * large and receipts small, so they lie in two pools. README.md has the task.
 */
#include <rdma_common.h>

#include "receipt.h"

#define MAX_SLOTS 16

struct server {
	struct endpoint ep;
	struct ibv_mr *mr;
	long slots; /* receives */
	long receipts; /* that may be on their way at a time */
	struct {
		uint8_t messages[MAX_SLOTS][MAX_MESSAGE];
		struct receipt receipts[MAX_SLOTS];
	} memory;
	bool sending[MAX_SLOTS]; /* is the receipt of this number on its way? */
#ifdef SOLUTION
	/* Messages that wait for a free receipt, in the order they came in. */
	struct {
		uint32_t slot;
		uint32_t length;
	} waiting[MAX_SLOTS];
	uint32_t first, last; /* of these, counted up for ever */
#endif
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s N] [-r N]\n"
		"Give a receipt for each message, until the client leaves.\n"
		"  -s, --slots N          messages that there is room for, 1 to 16 (default: 4)\n"
		"  -r, --receipts N       receipts that may be on their way, 1 to 16 (default: 4)\n" SERVER_USAGE_LINES
		"Man pages: ibv_post_recv(3), ibv_post_send(3), ibv_poll_cq(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "slots", required_argument, NULL, 's' },
		{ "receipts", required_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	s->slots = 4;
	s->receipts = 4;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "s:r:", longs,
				   NULL)) != -1) {
		if (flag == 's')
			s->slots = parse_number(optarg, 1, MAX_SLOTS);
		else if (flag == 'r')
			s->receipts = parse_number(optarg, 1, MAX_SLOTS);
		else if (common_option(flag, opt))
			return -1;
	}
	if (s->slots < 0 || s->receipts < 0) {
		fprintf(stderr, "server: -s and -r take 1 to %d\n", MAX_SLOTS);
		return -1;
	}
	return server_operand(argc, argv, opt);
}

/* Give the card the message slot SLOT to receive into. */
static int post_receive(struct server *s, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->memory.messages[slot],
		.length = MAX_MESSAGE,
		.lkey = s->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&s->ep, &wr);
}

/* Give the card the receipt NUMBER to send. */
static int post_receipt(struct server *s, uint32_t number)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->memory.receipts[number],
		.length = sizeof(struct receipt),
		.lkey = s->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, number),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	return endpoint_post_send(&s->ep, &wr);
}

/* The number of a receipt that is not on its way, or -1. */
static int free_receipt(const struct server *s)
{
	int i;

	for (i = 0; i < s->receipts; i++)
		if (!s->sending[i])
			return i;
	return -1;
}

#ifdef SOLUTION
/*
 * Give the receipt NUMBER for the message of LENGTH bytes in SLOT. When it is
 * written the message is not needed any more, so its slot is posted again:
 * before the receipt goes out, because the receipt is what makes the client
 * send the next message.
 */
static int give_receipt(struct server *s, int number, uint32_t slot,
			uint32_t length)
{
	struct receipt *receipt = &s->memory.receipts[number];

	receipt->length = htobe32(length);
	receipt->sum = htobe32(sum_of(s->memory.messages[slot], length));
	if (post_receive(s, slot))
		return -1;
	s->sending[number] = true;
	return post_receipt(s, number);
}

/* The messages that wait, as far as there are free receipts. */
static int give_receipts(struct server *s)
{
	int number;

	while (s->first != s->last && (number = free_receipt(s)) >= 0) {
		uint32_t i = s->first++ % MAX_SLOTS;

		if (give_receipt(s, number, s->waiting[i].slot,
				 s->waiting[i].length))
			return -1;
	}
	return 0;
}

/* A message of LENGTH bytes has come into SLOT. */
static int on_message(struct server *s, uint32_t slot, uint32_t length)
{
	uint32_t i = s->last++ % MAX_SLOTS;

	s->waiting[i].slot = slot;
	s->waiting[i].length = length;
	return give_receipts(s);
}

/* The receipt NUMBER is with the client, and its memory is ours again. */
static int on_sent(struct server *s, uint32_t number)
{
	s->sending[number] = false;
	return give_receipts(s);
}
#else
/*
 * TODO 1: a message of LENGTH bytes has come into SLOT. Write its receipt, in
 * the order of bytes that receipt.h asks for, and send it; and make room for
 * another message. In which order? Read ibv_post_recv(3) and ibv_post_send(3),
 * and what lesson 05 says of RNR.
 *
 * TODO 2: what if no receipt is free? Then this message has to wait for one, and
 * keeps its slot; those that come after it have to wait behind it.
 */
static int on_message(struct server *s, uint32_t slot, uint32_t length)
{
	(void)s;
	(void)slot;
	(void)length;
	(void)free_receipt;
	(void)post_receipt;
	return 0;
}

/*
 * TODO 3: the receipt NUMBER is with the client. What may be done with its memory
 * now, that could not be done before, and who may be waiting for that?
 */
static int on_sent(struct server *s, uint32_t number)
{
	(void)s;
	(void)number;
	return 0;
}
#endif

/* Give receipts until the client leaves. */
static int serve(struct server *s)
{
	struct ibv_wc wc;
	int ret;

	while ((ret = endpoint_wait_wc(&s->ep, &wc)) == 0) {
		if (check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) == WR_SEND)
			ret = on_sent(s, wr_id_slot(wc.wr_id));
		else
			ret = on_message(s, wr_id_slot(wc.wr_id), wc.byte_len);
		if (ret)
			return -1;
	}
	return ret < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	int status = EXIT_FAILED;
	int slot;

	/* The client's SEND is tried once. */
	param.rnr_retry_count = 0;
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
	    endpoint_get_request(ep) ||
	    endpoint_create_qp(ep, server.receipts, server.slots))
		goto out;
	server.mr = ibv_reg_mr(ep->pd, &server.memory, sizeof(server.memory),
			       IBV_ACCESS_LOCAL_WRITE);
	if (!server.mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	for (slot = 0; slot < server.slots; slot++)
		if (post_receive(&server, slot))
			goto out;
	if (endpoint_accept(ep, &param))
		goto out;
	printf("connected\n");
	if (serve(&server) == 0)
		status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (server.mr && ibv_dereg_mr(server.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(ep);
	return status;
}
