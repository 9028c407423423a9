/* SPDX-License-Identifier: MIT */
/*
 * Lesson 04: completions. The server answers each request of 8 bytes with the
 * same 8 bytes. It waits for its completions by polling or by events, and has a
 * flag that makes the mistake which loses an event: --lose-wakeup.
 */
#include <rdma_common.h>

/* How often to poll the CQ between two looks at the CM and at Ctrl-C. */
#define POLLS 1000

/* A request, and the answer to it: two numbers, big-endian. */
struct message {
	uint32_t number; /* 1, 2, .. */
	uint32_t count; /* how many there will be */
};

/* wr_id: what a completion is the completion of */
enum {
	OF_RECEIVE = 1,
	OF_SEND
};

struct server {
	struct endpoint ep;
	struct ibv_mr *mr;
	struct {
		struct message request, answer;
	} memory; /* what mr covers */
	uint32_t number; /* of the last request */
	uint32_t count; /* of all requests, as the client says */
	int (*wait_wc)(struct server *s, struct ibv_wc *wc);
	bool lose_wakeup;
	long events; /* taken from the completion channel */
	long empty; /* of these, with no completion behind them */
};

static int wait_busy(struct server *s, struct ibv_wc *wc);
static int wait_event(struct server *s, struct ibv_wc *wc);

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-w busy|event] [-l]\n"
		"Answer the requests of one client of lesson 04 until it disconnects, and exit.\n"
		"  -w, --wait WAY         busy: poll the CQ without a pause; event: sleep on a\n"
		"                         completion channel (default: event)\n"
		"  -l, --lose-wakeup      wait by events and get it wrong: do not poll again\n"
		"                         between arming and sleeping\n" SERVER_USAGE_LINES
		"Man pages: ibv_poll_cq(3), ibv_req_notify_cq(3), ibv_get_cq_event(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "wait", required_argument, NULL, 'w' },
		{ "lose-wakeup", no_argument, NULL, 'l' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	s->wait_wc = wait_event;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "w:l", longs,
				   NULL)) != -1) {
		if (flag == 'w' && !strcmp(optarg, "busy")) {
			s->wait_wc = wait_busy;
		} else if (flag == 'w' && !strcmp(optarg, "event")) {
			s->wait_wc = wait_event;
		} else if (flag == 'w') {
			fprintf(stderr, "server: -w takes busy or event\n");
			return -1;
		} else if (flag == 'l') {
			s->lose_wakeup = true;
		} else if (common_option(flag, opt)) {
			return -1;
		}
	}
	if (s->lose_wakeup && s->wait_wc == wait_busy) {
		fprintf(stderr,
			"server: -l has no meaning with -w busy: there is no "
			"event to lose\n");
		return -1;
	}
	return server_operand(argc, argv, opt);
}

/*
 * The protection domain, the completion channel, the CQ and the QP: as at the
 * client.
 */
static int create_qp(struct endpoint *ep)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 1,
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
	ep->cq = ibv_create_cq(ep->id->verbs,
			       attr.cap.max_send_wr + attr.cap.max_recv_wr,
			       NULL, ep->comp_channel, 0);
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

static int post_receive(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->memory.request,
		.length = sizeof(s->memory.request),
		.lkey = s->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = OF_RECEIVE,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&s->ep, &wr);
}

static int post_send(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->memory.answer,
		.length = sizeof(s->memory.answer),
		.lkey = s->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = OF_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
	};

	return endpoint_post_send(&s->ep, &wr);
}

/* The time is over. Is there a completion, of which no event has told us? */
static void report_timeout(struct endpoint *ep)
{
	struct ibv_wc wc;

	if (endpoint_poll(ep, &wc) > 0)
		fprintf(stderr,
			"waited %d s for an event and none came, and a "
			"completion is in the CQ: it came before the arming, "
			"so it raised no event\n",
			ep->timeout);
	else
		fprintf(stderr,
			"waited %d s for a completion and none came: "
			"is the peer frozen, or UDP port 4791 shut?\n",
			ep->timeout);
}

/* Poll without a pause, as at the client. */
static int wait_busy(struct server *s, struct ibv_wc *wc)
{
	struct endpoint *ep = &s->ep;
	long long deadline = now_ms() + ep->timeout * 1000LL;
	int i, n, ready;

	for (;;) {
		for (i = 0; i < POLLS; i++) {
			n = endpoint_poll(ep, wc);
			if (n)
				return n < 0 ? -1 : 0;
		}
		if (ep->disconnected)
			return 1;
		if (now_ms() > deadline) {
			report_timeout(ep);
			return -1;
		}
		ready = wait_readable(ep->channel->fd, ep->stop_fd, 0);
		if (ready < 0)
			return -1;
		if (ready &&
		    endpoint_take_event(ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	}
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

static int take_notice(struct server *s)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(s->ep.comp_channel, &cq, &context)) {
		report("ibv_get_cq_event", errno);
		return -1;
	}
	ibv_ack_cq_events(cq, 1);
	s->events++;
	return 0;
}

/*
 * For --lose-wakeup: come back when there is a completion in the CQ, and the
 * CQ is not armed. A program that was simply slow would find itself here.
 *
 * How does one know, without polling, that a completion is there? It raises an
 * event: main() has armed for that one before it let the client in.
 */
static int be_slow(struct server *s)
{
	int ready;

	ready = wait_readable(s->ep.comp_channel->fd, s->ep.stop_fd,
			      s->ep.timeout * 1000);
	if (ready == 0)
		fprintf(stderr, "waited %d s for the first request\n",
			s->ep.timeout);
	return ready == 1 ? take_notice(s) : -1;
}

/* Sleep until there is an event: the steps of the client. */
static int wait_event(struct server *s, struct ibv_wc *wc)
{
	struct endpoint *ep = &s->ep;
	long long deadline = now_ms() + ep->timeout * 1000LL;
	bool woken = false;
	long long left;
	int ready, n;

	for (;;) {
		/*
		 * Step 1: is there one already? With --lose-wakeup we have
		 * polled earlier, before the client was let in, and there was
		 * none; since then its request has come.
		 */
		n = s->lose_wakeup ? be_slow(s) : endpoint_poll(ep, wc);
		if (n)
			return n < 0 ? -1 : 0;
		if (woken)
			s->empty++;

		/* Step 2: arm. */
		if (arm(s))
			return -1;

		/* Step 3: did one come between the steps 1 and 2? */
		n = s->lose_wakeup ? 0 : endpoint_poll(ep, wc);
		if (n)
			return n < 0 ? -1 : 0;
		if (ep->disconnected)
			return 1;

		/* Step 4: sleep. */
		left = deadline - now_ms();
		ready = left > 0 ? wait_either(ep->comp_channel->fd,
					       ep->channel->fd, ep->stop_fd,
					       left) :
				   0;
		if (ready < 0)
			return -1;
		if (ready == 0) {
			report_timeout(ep);
			return -1;
		}

		/* Step 5: take the event and acknowledge it; then step 1. */
		woken = ready & 1;
		if (woken && take_notice(s))
			return -1;
		if ((ready & 2) &&
		    endpoint_take_event(ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	}
}

/* Is this the request whose turn it is? */
static int check_request(struct server *s, const struct ibv_wc *wc)
{
	uint32_t number = be32toh(s->memory.request.number);
	uint32_t count = be32toh(s->memory.request.count);

	if (wc->byte_len != sizeof(s->memory.request) ||
	    number != s->number + 1 || number > count ||
	    (s->count && s->count != count)) {
		fprintf(stderr,
			"what came (%u bytes) is not request %u: is that the "
			"client of lesson 04?\n",
			wc->byte_len, s->number + 1);
		return -1;
	}
	s->number = number;
	s->count = count;
	return 0;
}

/*
 * Answer the request that is in memory. The receive is posted again before the
 * answer goes out: with the answer the client may send its next request.
 */
static int answer(struct server *s)
{
	s->memory.answer = s->memory.request;
	if (post_receive(s))
		return -1;
	return post_send(s);
}

/*
 * Take completions until the client disconnects. The next request may well
 * come before the completion of our last answer; until that has come, the
 * buffer of the answer is the card's.
 */
static int serve(struct server *s)
{
	bool requested = false, sending = false;
	struct ibv_wc wc;
	int ret;

	while ((ret = s->wait_wc(s, &wc)) == 0) {
		if (wc.status != IBV_WC_SUCCESS) {
			report_wc(&wc,
				  wc.wr_id == OF_SEND ? "SEND" : "receive");
			return -1;
		}
		if (wc.wr_id == OF_SEND) {
			sending = false;
		} else {
			if (check_request(s, &wc))
				return -1;
			requested = true;
		}
		if (requested && !sending) {
			if (answer(s))
				return -1;
			requested = false;
			sending = true;
		}
	}
	if (ret < 0)
		return -1;
	if (s->number && s->number == s->count)
		return 0;
	if (s->number)
		fprintf(stderr,
			"the peer disconnected after %u of %u requests\n",
			s->number, s->count);
	else
		fprintf(stderr,
			"the peer disconnected before its first request\n");
	return -1;
}

static long long cpu_us(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000000LL + used.tv_nsec / 1000;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	int status = EXIT_FAILED;
	long long cpu;

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
	if (post_receive(&server) || (server.lose_wakeup && arm(&server)) ||
	    endpoint_accept(ep, &param))
		goto out;
	printf("a client has connected\n");
	cpu = cpu_us();
	if (serve(&server))
		goto out;
	printf("%s: answered %u requests; each took %lld us of CPU time; "
	       "%ld events, %ld empty\n",
	       server.wait_wc == wait_busy ? "busy" : "event", server.number,
	       (cpu_us() - cpu) / server.number, server.events, server.empty);
	status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (server.mr && ibv_dereg_mr(server.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(ep);
	return status;
}
