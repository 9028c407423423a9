/* SPDX-License-Identifier: MIT */
/*
 * Exercise 08: the server of lesson 08, which answers the way it is asked: by
 * RDMA WRITE, and a ring at the client's doorbell. README.md has the task,
 * answer.h what is on the wire.
 */
#include <stdatomic.h>

#include <rdma_common.h>

#include "answer.h"

struct server {
	struct endpoint ep;
	struct {
		char text[MAX_TEXT]; /* the client writes here */
		_Atomic uint64_t doorbell; /* and rings here */
	} lent;
	struct ibv_mr *text_mr, *doorbell_mr;
	struct {
		struct answer answer; /* we write this to the client */
		uint64_t number; /* and ring with this */
	} own;
	struct ibv_mr *own_mr;
	struct remote_region answer; /* the client's, for the answer */
	struct remote_region bell; /* the client's doorbell */
	int with_card; /* requests of ours that have not completed */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS]\n"
		"Answer each text of one client, by RDMA WRITE, until it leaves.\n" SERVER_USAGE_LINES
		"Man pages: ibv_post_send(3), ibv_poll_cq(3), endian(3).\n");
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
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	s->text_mr = ibv_reg_mr(s->ep.pd, s->lent.text, MAX_TEXT, remote);
	s->doorbell_mr = ibv_reg_mr(s->ep.pd, &s->lent.doorbell,
				    sizeof(s->lent.doorbell), remote);
	s->own_mr = ibv_reg_mr(s->ep.pd, &s->own, sizeof(s->own), 0);
	if (s->text_mr && s->doorbell_mr && s->own_mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static void deregister(struct ibv_mr *mr)
{
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
}

/*
 * TODO 1: the client's two regions, for the answer and for the bell, are in
 * s->ep.private_data, as answer.h says. Is what stands there good for what is
 * going to be written? Return -1 where it is not; the client is refused then.
 * Read rdma_accept(3), and Part 6 of rdma_common.h.
 */
static int read_regions(struct server *s)
{
	(void)s;
	return 0;
}

static int accept_client(struct server *s)
{
	uint8_t wire[2 * REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	if (read_regions(s)) {
		if (rdma_reject(s->ep.id, NULL, 0))
			report("rdma_reject", errno);
		return -1;
	}
	remote_region_pack(wire, s->text_mr);
	remote_region_pack(wire + REMOTE_REGION_WIRE_SIZE, s->doorbell_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	return endpoint_accept(&s->ep, &param);
}

/* Take a completion, if there is one. Returns 1, 0 for none, or -1. */
static int take_completion(struct server *s)
{
	struct ibv_wc wc;
	int n = endpoint_poll(&s->ep, &wc);

	if (n <= 0)
		return n;
	if (check_wc(&wc))
		return -1;
	s->with_card--;
	return 1;
}

/*
 * Wait for the ring NUMBER. Returns 0, or 1 when the client has left, or -1
 * after having reported. Every millisecond it looks at the doorbell and at the CM.
 */
static int wait_for_ring(struct server *s, uint64_t number)
{
	long long deadline = now_ms() + s->ep.timeout * 1000LL;
	uint64_t seen;
	int ready;

	for (;;) {
		/* acquire: the text is not read before the number. */
		seen = be64toh(atomic_load_explicit(&s->lent.doorbell,
						    memory_order_acquire));
		/*
		 * TODO 2: two numbers may be there: which? Of any other say
		 * so, and return -1.
		 */
		if (seen == number)
			return 0;
		if (s->ep.disconnected)
			return 1;
		if (now_ms() > deadline) {
			fprintf(stderr, "waited %d s for ring %llu\n",
				s->ep.timeout, (unsigned long long)number);
			return -1;
		}
		ready = wait_readable(s->ep.channel->fd, s->ep.stop_fd, 1);
		if (ready < 0)
			return -1;
		if (ready &&
		    endpoint_take_event(&s->ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	}
}

/*
 * TODO 3: answer the text, in round NUMBER: what answer.h says, to the two
 * regions of the client that TODO 1 has read. Which of the two WRITEs is first?
 * Both are made from s->own, which is registered in s->own_mr: from when on may
 * it be written to again? The CQ and the send queue have room for two WRITEs.
 * Read ibv_post_send(3).
 */
static int answer(struct server *s, uint64_t number)
{
	(void)take_completion;
	(void)s;
	(void)number;
	return 0;
}

/* Answer until the client leaves. */
static int serve(struct server *s)
{
	uint64_t number;
	int ret;

	for (number = 1;; number++) {
		ret = wait_for_ring(s, number);
		if (ret)
			return ret < 0 ? -1 : 0;
		printf("round %llu: %.*s\n", (unsigned long long)number,
		       MAX_TEXT, s->lent.text);
		if (answer(s, number))
			return -1;
	}
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
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
	    endpoint_get_request(ep) || endpoint_create_qp(ep, 2, 1) ||
	    register_memory(&server) || accept_client(&server))
		goto out;
	printf("connected\n");
	if (serve(&server) == 0)
		status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	deregister(server.text_mr);
	deregister(server.doorbell_mr);
	deregister(server.own_mr);
	endpoint_destroy(ep);
	return status;
}
