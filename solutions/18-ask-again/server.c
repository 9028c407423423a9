/* SPDX-License-Identifier: MIT */
/*
 * Exercise 18: a server that answers questions by datagrams, as they are on a bad
 * day. It loses some questions, and answers others twice or late.
 */
#include "question.h"

/* So long after the last question it ends. */
#define LINGER_MS 1500

#define MAX_COUNT 1000

struct server {
	struct ud u;
	uint32_t count; /* as the questions say */
	uint32_t times[MAX_COUNT + 2]; /* how often each was asked */
	uint32_t asked, different, wrong;
	bool goodbye;
	bool silent; /* take questions, and answer none */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [--silent]\n"
		"Answer a client's questions, and lose some of them.\n"
		"  --silent               lose all of them\n" SERVER_USAGE_LINES
		"Man pages: ibv_create_ah_from_wc(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "silent", no_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	while ((flag = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) !=
	       -1) {
		if (flag == 's')
			s->silent = true;
		else if (common_option(flag, opt))
			return -1;
	}
	return server_operand(argc, argv, opt);
}

static int wait_for_client(struct server *s, const struct options *opt)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_UDP };
	struct endpoint *ep = &s->u.ep;
	struct rdma_conn_param param = { 0 };
	struct rdma_addrinfo *info;
	int ret;

	ret = rdma_getaddrinfo(opt->address ? opt->address : "::", opt->port,
			       &hints, &info);
	if (ret) {
		report_getaddrinfo(opt->address, ret);
		return -1;
	}
	ret = rdma_create_id(ep->channel, &ep->listener, NULL, RDMA_PS_UDP) ||
	      rdma_bind_addr(ep->listener, info->ai_src_addr) ||
	      rdma_listen(ep->listener, 1);
	rdma_freeaddrinfo(info);
	if (ret) {
		report("rdma_bind_addr", errno);
		return -1;
	}
	printf("listening on ");
	print_address(rdma_get_local_addr(ep->listener));
	printf("\n");
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_CONNECT_REQUEST) ||
	    ud_create(&s->u))
		return -1;
	param.qp_num = ep->id->qp->qp_num;
	if (rdma_accept(ep->id, &param)) {
		report("rdma_accept", errno);
		return -1;
	}
	printf("connected\n");
	return 0;
}

static int answer(struct server *s, uint32_t number)
{
	struct answer answer = { htobe32(number), htobe32(answer_to(number)) };

	return ud_send(&s->u, &answer, sizeof(answer));
}

/* Question NUMBER has come: what befalls it today? */
static int reply(struct server *s, uint32_t number)
{
	uint32_t time = s->times[number];

	if (s->silent)
		return 0;
	if (number % 3 == 2 && time == 1)
		return 0; /* the question is lost */
	if (number % 5 == 4 && time <= 2)
		return 0; /* lost two times */
	/* An answer of before has been held up on the way, and comes now. */
	if (number % 4 == 0 && answer(s, number - 1))
		return -1;
	if (answer(s, number))
		return -1;
	return number % 4 == 1 ? answer(s, number) : 0; /* it comes twice */
}

static int take(struct server *s, struct ibv_wc *wc)
{
	uint8_t *slot = s->u.slots[wr_id_slot(wc->wr_id)];
	struct question question;
	uint32_t number, count;

	memcpy(&question, slot + GRH, sizeof(question));
	number = be32toh(question.number);
	count = be32toh(question.count);
	if (!s->u.ah)
		s->u.ah = ibv_create_ah_from_wc(s->u.ep.pd, wc, (void *)slot,
						s->u.ep.id->port_num);
	s->u.qpn = wc->src_qp;
	if (!s->u.ah || ud_post_receive(&s->u, wr_id_slot(wc->wr_id)))
		return -1;
	if (wc->byte_len != GRH + sizeof(question) || number < 1 ||
	    count > MAX_COUNT || number > count + 1) {
		printf("what came is no question\n");
		return 0;
	}
	s->count = count;
	if (be32toh(question.previous) !=
	    (number > 1 ? answer_to(number - 1) : 0))
		s->wrong++;
	if (number == count + 1) {
		s->goodbye = true;
		return 0;
	}
	s->asked++;
	if (++s->times[number] == 1)
		s->different++;
	return reply(s, number);
}

static int serve(struct server *s)
{
	struct ibv_wc wc;
	int ret;

	do {
		ret = ud_wait(&s->u, &wc,
			      s->asked ? LINGER_MS : s->u.ep.timeout * 1000LL);
		if (ret < 0 || (ret == 0 && take(s, &wc)))
			return -1;
	} while (ret == 0 && !s->goodbye);
	printf("%u of %u questions came, asked %u times in all\n", s->different,
	       s->count, s->asked);
	printf("wrong answers that came back: %u\n", s->wrong);
	printf("goodbye: %s\n", s->goodbye ? "yes" : "no");
	return s->goodbye && !s->wrong && s->different == s->count ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	static struct server server;
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
	if (endpoint_open(&server.u.ep, &opt) == 0 &&
	    wait_for_client(&server, &opt) == 0 && serve(&server) == 0)
		status = EXIT_DONE;
	ud_destroy(&server.u);
	return status;
}
