/* SPDX-License-Identifier: MIT */
/*
 * Exercise 13: deliver items that come in bursts, with few calls and few
 * completions, and without holding one back.
 */
#include "item.h"

struct client {
	struct endpoint ep;
	struct item items[DEPTH]; /* item K is sent from slot K % DEPTH */
	struct ibv_mr *items_mr;
	uint32_t answer; /* the server's, big-endian */
	struct ibv_mr *answer_mr;
	/* Where the items come from. */
	uint32_t bursts; /* so many bursts */
	uint32_t burst; /* this one is at hand */
	uint32_t left; /* items of it that are still to come */
	uint32_t number; /* the number of the last item that came */
	bool waiting; /* the burst is over, and the server has not said so */
	/* The send queue. */
	uint32_t posted; /* requests that were handed to the card */
	uint32_t retired; /* of these, so many are known to be done */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n BURSTS] SERVER_ADDRESS\n"
		"Deliver items that come in bursts.\n"
		"  -n, --bursts BURSTS    how many bursts, 1 to 10000 (default: 12)\n" CLIENT_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "bursts", required_argument, NULL, 'n' },
		{ NULL, 0, NULL, 0 },
	};
	long bursts = 12;
	int flag;

	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:", longs,
				   NULL)) != -1) {
		if (flag == 'n')
			bursts = parse_number(optarg, 1, 10000);
		else if (common_option(flag, opt))
			return -1;
	}
	if (bursts < 0) {
		fprintf(stderr, "client: -n takes 1 to 10000\n");
		return -1;
	}
	c->bursts = bursts;
	return client_operand(argc, argv, opt);
}

static int register_memory(struct client *c)
{
	c->items_mr = ibv_reg_mr(c->ep.pd, c->items, sizeof(c->items), 0);
	c->answer_mr = ibv_reg_mr(c->ep.pd, &c->answer, sizeof(c->answer),
				  IBV_ACCESS_LOCAL_WRITE);
	if (c->items_mr && c->answer_mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static void deregister(struct ibv_mr *mr)
{
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
}

/* The receive for the server's answer to a burst. */
static int post_receive(struct client *c)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&c->answer,
		.length = sizeof(c->answer),
		.lkey = c->answer_mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, 0),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&c->ep, &wr);
}

/* ---- where the items come from: leave this as it is ----------------------- */

/*
 * next_item - is there one now? 1: it was put into ITEM; 0: none, and the next
 * ones come after the server has answered this burst.
 */
static int next_item(struct client *c, struct item *item)
{
	if (c->waiting || c->burst == c->bursts)
		return 0;
	if (c->left == 0)
		c->left = burst_size(c->burst);
	c->number++;
	c->left--;
	c->waiting = c->left == 0;
	item->number = htobe32(c->number);
	item->last = htobe32(c->waiting);
	pattern_fill(item->text, sizeof(item->text), c->number);
	return 1;
}

/* The server has answered a burst. */
static int on_answer(struct client *c)
{
	if (be32toh(c->answer) != c->number) {
		fprintf(stderr, "the server says %u, and %u was the last\n",
			be32toh(c->answer), c->number);
		return -1;
	}
	c->waiting = false;
	c->burst++;
	return post_receive(c);
}

/* ---- the send queue -------------------------------------------------------- */

/*
 * TODO 3: so many slots are free. Is that right, when not every request asks for
 * a completion? See on_sent() as well.
 */
static uint32_t room(const struct client *c)
{
	return DEPTH - (c->posted - c->retired);
}

/* Request K, counted from 0, has completed. */
static int on_sent(struct client *c, uint32_t k)
{
	(void)k;
	c->retired++;
	return 0;
}

/* Is request K the last one of all? */
static bool is_last(const struct client *c, uint32_t k)
{
	return c->burst + 1 == c->bursts && c->waiting && k + 1 == c->number;
}

/*
 * Post N items: those in the slots from POSTED on.
 *
 * TODO 1: in one call.
 * TODO 2: not every one signalled, but the last of all (is_last()). What is
 * signalled counts in ep.outstanding, as endpoint_post_send() does it: for so many
 * completions endpoint_disconnect() waits.
 */
static int post_items(struct client *c, uint32_t n)
{
	(void)is_last;
	while (n-- > 0) {
		struct ibv_sge sge = {
			.addr = (uintptr_t)&c->items[c->posted % DEPTH],
			.length = sizeof(struct item),
			.lkey = c->items_mr->lkey,
		};
		struct ibv_send_wr wr = {
			.wr_id = wr_id_of(WR_SEND, c->posted),
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
		};

		if (endpoint_post_send(&c->ep, &wr))
			return -1;
		c->posted++;
	}
	return 0;
}

/* Wait for a completion, and do what it calls for. */
static int take_completion(struct client *c)
{
	struct ibv_wc wc;
	int ret = endpoint_wait_wc(&c->ep, &wc);

	if (ret > 0)
		fprintf(stderr, "the server has left\n");
	if (ret || check_wc(&wc))
		return -1;
	if (wr_id_op(wc.wr_id) == WR_RECV)
		return on_answer(c);
	return on_sent(c, wr_id_slot(wc.wr_id));
}

/*
 * All bursts.
 *
 * TODO 1: take up to BATCH items before they are posted, for as long as there
 * is one now and a slot for it. An item that was taken is not held back: when
 * there is no more now, post what you have.
 */
static int deliver(struct client *c)
{
	uint32_t n;

	while (c->burst < c->bursts || c->retired < c->posted) {
		/* One at a time: the next one when this one has completed. */
		n = 0;
		if (room(c) == DEPTH)
			n = next_item(c, &c->items[c->posted % DEPTH]);
		if (n > 0 ? post_items(c, n) : take_completion(c))
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
	struct endpoint *ep = &client.ep;
	int status = EXIT_FAILED;

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
	    endpoint_create_qp(ep, DEPTH, 1) || register_memory(&client) ||
	    post_receive(&client) || endpoint_connect(ep, &param))
		goto out;
	printf("connected\n");
	if (deliver(&client))
		goto out;
	printf("%u items in %u bursts were delivered\n", client.number,
	       client.burst);
	status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	deregister(client.items_mr);
	deregister(client.answer_mr);
	endpoint_destroy(ep);
	return status;
}
