/* SPDX-License-Identifier: MIT */
/*
 * Exercise 18: a client that asks a server questions by datagrams. Questions are
 * lost, and so are answers; some answers come twice, and some late.
 */
#include "question.h"

/* An answer that has not come after so long is taken for lost. */
#define AGAIN_MS 100

struct client {
	struct ud u;
	uint32_t count; /* questions */
	uint64_t sum; /* of the answers */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT] SERVER_ADDRESS\n"
		"Ask the server COUNT questions, and add up the answers.\n"
		"  -n, --count COUNT      1 to 1000 (default: 20)\n" CLIENT_USAGE_LINES
		"Man pages: ibv_poll_cq(3), ibv_post_recv(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	c->count = 20;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:", longs,
				   NULL)) != -1) {
		if (flag == 'n') {
			long count = parse_number(optarg, 1, 1000);

			c->count = count;
			if (count > 0)
				continue;
			fprintf(stderr, "client: -n takes 1 to 1000\n");
			return -1;
		}
		if (common_option(flag, opt))
			return -1;
	}
	return client_operand(argc, argv, opt);
}

/* From the server's name to its queue pair, as in lesson 18. */
static int find_server(struct client *c, const struct options *opt)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_UDP };
	struct rdma_conn_param param = { 0 };
	struct endpoint *ep = &c->u.ep;
	struct rdma_addrinfo *info;
	struct rdma_cm_event *event;
	int ret;

	ret = rdma_getaddrinfo(opt->server, opt->port, &hints, &info);
	if (ret) {
		report_getaddrinfo(opt->server, ret);
		return -1;
	}
	ret = rdma_create_id(ep->channel, &ep->id, NULL, RDMA_PS_UDP) ||
	      rdma_resolve_addr(ep->id, NULL, info->ai_dst_addr,
				ep->timeout * 500);
	rdma_freeaddrinfo(info);
	if (ret) {
		report("rdma_resolve_addr", errno);
		return -1;
	}
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_ADDR_RESOLVED))
		return -1;
	if (rdma_resolve_route(ep->id, ep->timeout * 500)) {
		report("rdma_resolve_route", errno);
		return -1;
	}
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_ROUTE_RESOLVED) ||
	    ud_create(&c->u))
		return -1;
	if (rdma_connect(ep->id, &param)) {
		report("rdma_connect", errno);
		return -1;
	}
	if (wait_readable(ep->channel->fd, ep->stop_fd, ep->timeout * 1000) <=
		    0 ||
	    rdma_get_cm_event(ep->channel, &event)) {
		fprintf(stderr, "no answer from the server\n");
		return -1;
	}
	ret = expect_event(event, RDMA_CM_EVENT_ESTABLISHED);
	if (!ret) {
		c->u.qpn = event->param.ud.qp_num;
		c->u.ah = ibv_create_ah(ep->pd, &event->param.ud.ah_attr);
		ret = c->u.ah ? 0 : -1;
	}
	rdma_ack_cm_event(event);
	return ret;
}

/*
 * take_answer - what has come with WC
 *
 * Returns 1 when it is the answer to question NUMBER, with the answer in VALUE;
 * 0 when it is anything else; -1 after a fault.
 */
static int take_answer(struct client *c, const struct ibv_wc *wc,
		       uint32_t number, uint32_t *value)
{
#ifdef SOLUTION
	uint32_t slot = wr_id_slot(wc->wr_id);
	struct answer answer;
	int mine;

	memcpy(&answer, c->u.slots[slot] + GRH, sizeof(answer));
	mine = wc->byte_len == GRH + sizeof(answer) &&
	       be32toh(answer.number) == number;
	if (mine)
		*value = be32toh(answer.value);
	/* The receive is free: post it again, whatever it was. */
	return ud_post_receive(&c->u, slot) ? -1 : mine;
#else
	/*
	 * TODO: the answer is in the receive with the number
	 * wr_id_slot(wc->wr_id), and not at its beginning. Is it the answer to
	 * this question? And who posts the receive again?
	 */
	(void)c;
	(void)wc;
	(void)number;
	*value = 0;
	return 1;
#endif
}

/*
 * ask - question NUMBER, until its answer is in VALUE
 *
 * VALUE is the answer to the question before, which goes with this one.
 */
static int ask(struct client *c, uint32_t number, uint32_t *value)
{
	struct question question = { htobe32(number), htobe32(c->count),
				     htobe32(*value) };
#ifdef SOLUTION
	long long deadline = now_ms() + c->u.ep.timeout * 1000LL, again = 0;
	struct ibv_wc wc;
	int ret;

	for (;;) {
		if (now_ms() >= deadline) {
			fprintf(stderr, "no answer to question %u\n", number);
			return -1;
		}
		if (now_ms() >= again) {
			if (ud_send(&c->u, &question, sizeof(question)))
				return -1;
			again = now_ms() + AGAIN_MS;
		}
		ret = ud_wait(&c->u, &wc, again - now_ms());
		if (ret < 0)
			return -1;
		if (ret > 0)
			continue; /* nothing has come */
		ret = take_answer(c, &wc, number, value);
		if (ret)
			return ret < 0 ? -1 : 0;
	}
#else
	struct ibv_wc wc;

	/*
	 * TODO: this asks once, and waits for the first datagram that comes. A
	 * question that is lost is never answered.
	 */
	if (ud_send(&c->u, &question, sizeof(question)) ||
	    ud_wait(&c->u, &wc, c->u.ep.timeout * 1000LL))
		return -1;
	return take_answer(c, &wc, number, value) < 0 ? -1 : 0;
#endif
}

/* The question that has no answer: it brings the last one's. */
static int say_goodbye(struct client *c, uint32_t value)
{
	struct question question = { htobe32(c->count + 1), htobe32(c->count),
				     htobe32(value) };
	struct ibv_wc wc;

	if (ud_send(&c->u, &question, sizeof(question)))
		return -1;
	while (c->u.sent != c->u.completed)
		if (ud_wait(&c->u, &wc, 10) < 0)
			return -1;
	return 0;
}

static int talk(struct client *c, const struct options *opt)
{
	uint32_t number, value = 0;

	if (endpoint_open(&c->u.ep, opt) || find_server(c, opt))
		return -1;
	for (number = 1; number <= c->count; number++) {
		if (ask(c, number, &value))
			return -1;
		c->sum += value;
	}
	if (say_goodbye(c, value))
		return -1;
	printf("%u questions, the sum of the answers is %llu\n", c->count,
	       (unsigned long long)c->sum);
	return 0;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	static struct client client;
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
	if (talk(&client, &opt) == 0)
		status = EXIT_DONE;
	ud_destroy(&client.u);
	return status;
}
