/* SPDX-License-Identifier: MIT */
/*
 * Exercise 04: a server that answers messages, and sleeps when there are none.
 * Before it goes to sleep it tidies up, which takes a while.
 */
/*
 * TODO: this server forgets to answer, and does not end. The mistakes are in
 * serve() and take_notice(). README.md says how to see them; what the calls
 * promise is in ibv_req_notify_cq(3), ibv_get_cq_event(3) and ibv_poll_cq(3).
 */
#include <rdma_common.h>

#define SLOTS 16 /* messages that may be here at a time */
#define MAX_LENGTH 64
#define BATCH 4 /* completions to take in one call */

/* wr_id: the slot, and for an answer this as well */
#define OF_ANSWER 0x100

struct server {
	struct endpoint ep;
	struct ibv_mr *mr;
	/*
	 * A slot waits for a message, or its answer is on its way. When the
	 * answer has completed the slot waits for a message again.
	 */
	struct {
		char messages[SLOTS][MAX_LENGTH];
		uint32_t answers[SLOTS]; /* big-endian */
	} memory;
	uint32_t count; /* messages so far */
	long tidy_ms; /* how long it takes to tidy up */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-w MILLISECONDS]\n"
		"Answer each message with its number, until the client leaves.\n"
		"  -w, --work MILLISECONDS  how long it takes to tidy up before each sleep,\n"
		"                         0 to 10000 (default: 0)\n" SERVER_USAGE_LINES
		"Man pages: ibv_req_notify_cq(3), ibv_get_cq_event(3), ibv_poll_cq(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "work", required_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "w:", longs,
				   NULL)) != -1) {
		if (flag == 'w') {
			s->tidy_ms = parse_number(optarg, 0, 10000);
			if (s->tidy_ms >= 0)
				continue;
			fprintf(stderr, "server: -w takes 0 to 10000 ms\n");
			return -1;
		}
		if (common_option(flag, opt))
			return -1;
	}
	return server_operand(argc, argv, opt);
}

/* As in lesson 04, for more requests. */
static int create_qp(struct endpoint *ep)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = SLOTS,
			.max_recv_wr = SLOTS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};

	ep->pd = ibv_alloc_pd(ep->id->verbs);
	if (!ep->pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	ep->comp_channel = ibv_create_comp_channel(ep->id->verbs);
	if (!ep->comp_channel) {
		report("ibv_create_comp_channel", errno);
		return -1;
	}
	ep->cq = ibv_create_cq(ep->id->verbs, 2 * SLOTS, NULL, ep->comp_channel,
			       0);
	if (!ep->cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	attr.send_cq = ep->cq;
	attr.recv_cq = ep->cq;
	if (rdma_create_qp(ep->id, ep->pd, &attr)) {
		report("rdma_create_qp", errno);
		return -1;
	}
	return 0;
}

static int post_receive(struct server *s, int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->memory.messages[slot],
		.length = MAX_LENGTH,
		.lkey = s->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = slot,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&s->ep, &wr);
}

static int post_answer(struct server *s, int slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->memory.answers[slot],
		.length = sizeof(s->memory.answers[slot]),
		.lkey = s->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = OF_ANSWER | slot,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	return endpoint_post_send(&s->ep, &wr);
}

/* A completion: a message is answered, a slot whose answer is out is reused. */
static int handle(struct server *s, const struct ibv_wc *wc)
{
	bool of_answer = wc->wr_id & OF_ANSWER;
	int slot = wc->wr_id & ~(uint64_t)OF_ANSWER;

	if (wc->status == IBV_WC_WR_FLUSH_ERR && s->ep.disconnected)
		return 0;
	if (wc->status != IBV_WC_SUCCESS) {
		report_wc(wc, of_answer ? "SEND" : "receive");
		return -1;
	}
	if (of_answer)
		return post_receive(s, slot);
	s->memory.answers[slot] = htobe32(++s->count);
	printf("message %u: %.*s\n", s->count, (int)wc->byte_len,
	       s->memory.messages[slot]);
	return post_answer(s, slot);
}

/* It takes its time, and has nothing to do with RDMA. */
static void tidy_up(const struct server *s)
{
	if (s->tidy_ms)
		poll(NULL, 0, s->tidy_ms);
}

static int arm(struct server *s)
{
	int err = ibv_req_notify_cq(s->ep.cq, 0);

	if (err) {
		report("ibv_req_notify_cq", err);
		return -1;
	}
	return 0;
}

/* Take an event from the completion channel. */
static int take_notice(struct server *s)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(s->ep.comp_channel, &cq, &context)) {
		report("ibv_get_cq_event", errno);
		return -1;
	}
	return 0;
}

/* Take what is in the CQ, BATCH at most. Returns how many, or -1. */
static int take_batch(struct server *s)
{
	struct ibv_wc wcs[BATCH];
	int n = ibv_poll_cq(s->ep.cq, BATCH, wcs), i;

	if (n < 0) {
		report("ibv_poll_cq", EIO);
		return -1;
	}
	s->ep.outstanding -= n;
	for (i = 0; i < n; i++)
		if (handle(s, &wcs[i]))
			return -1;
	return n;
}

/* Sleep until there is an event, of the CQ or of the CM, and take it. */
static int sleep_and_wake(struct server *s)
{
	struct endpoint *ep = &s->ep;
	int ready = wait_either(ep->comp_channel->fd, ep->channel->fd,
				ep->stop_fd, ep->timeout * 1000);

	if (ready < 0)
		return -1;
	if (ready == 0) {
		fprintf(stderr, "slept %d s, and nothing came\n", ep->timeout);
		return -1;
	}
	if ((ready & 1) && take_notice(s))
		return -1;
	if ((ready & 2) && endpoint_take_event(ep, RDMA_CM_EVENT_DISCONNECTED))
		return -1;
	return 0;
}

/* Answer until the client leaves. */
static int serve(struct server *s)
{
	int n;

	while (!s->ep.disconnected) {
		tidy_up(s);
		if (arm(s) || sleep_and_wake(s))
			return -1;
		n = take_batch(s);
		if (n < 0)
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	int status = EXIT_FAILED;
	int slot;

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
	    endpoint_get_request(ep) || create_qp(ep))
		goto out;
	server.mr = ibv_reg_mr(ep->pd, &server.memory, sizeof(server.memory),
			       IBV_ACCESS_LOCAL_WRITE);
	if (!server.mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	for (slot = 0; slot < SLOTS; slot++)
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
