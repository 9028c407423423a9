/* SPDX-License-Identifier: MIT */
/*
 * Lesson 04: completions. The client asks and the server answers, one small
 * message at a time. The client waits for its completions in two ways and times
 * both: it polls without a pause, or it sleeps until an event wakes it.
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

struct client {
	struct endpoint ep;
	struct ibv_mr *mr;
	struct {
		struct message request, answer;
	} memory; /* what mr covers */
	uint32_t number; /* of the last request */
	uint32_t count; /* of all requests */
	bool busy, event; /* the ways of waiting that are measured */
	int rounds; /* requests for each way */
	bool solicited; /* sleep for solicited events only */
	bool answered; /* the answer to the last request has come */
	long events; /* taken from the completion channel */
	long empty; /* of these, with no completion behind them */
};

typedef int wait_fn(struct client *c, struct ibv_wc *wc);

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT]\n"
		"              [-w busy|event|both] [-s] SERVER_ADDRESS\n"
		"Send requests of 8 bytes to the server of lesson 04, one after the other, and\n"
		"wait for the answer to each; print how long it took, and how much CPU time.\n"
		"  -n, --count COUNT      requests for each way of waiting, 1 to 1000000\n"
		"                         (default: 200)\n"
		"  -w, --wait WAY         busy: poll the CQ without a pause; event: sleep on a\n"
		"                         completion channel; both: one after the other\n"
		"                         (default: both)\n"
		"  -s, --solicited        be woken by the answer only, not by the completion\n"
		"                         of the request's SEND\n" CLIENT_USAGE_LINES
		"Man pages: ibv_poll_cq(3), ibv_req_notify_cq(3), ibv_get_cq_event(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ "wait", required_argument, NULL, 'w' },
		{ "solicited", no_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	c->busy = true;
	c->event = true;
	c->rounds = 200;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:w:s", longs,
				   NULL)) != -1) {
		switch (flag) {
		case 'n':
			c->rounds = parse_number(optarg, 1, 1000000);
			break;
		case 'w':
			c->busy = strcmp(optarg, "event") != 0;
			c->event = strcmp(optarg, "busy") != 0;
			if (c->busy && c->event && strcmp(optarg, "both")) {
				fprintf(stderr,
					"client: -w takes busy, event or both\n");
				return -1;
			}
			break;
		case 's':
			c->solicited = true;
			break;
		default:
			if (common_option(flag, opt))
				return -1;
		}
	}
	if (c->rounds < 0) {
		fprintf(stderr, "client: -n takes 1 to 1000000 requests\n");
		return -1;
	}
	return client_operand(argc, argv, opt);
}

/*
 * The protection domain, the completion channel, the CQ and the QP.
 *
 * The channel is a file descriptor, as the CM's is. A CQ that is created with
 * it can be told to raise an event there. One CQ serves both queues of the QP,
 * and has an entry for everything that can be outstanding: a CQ that is full
 * does not wait, it loses completions.
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

static int post_receive(struct client *c)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&c->memory.answer,
		.length = sizeof(c->memory.answer),
		.lkey = c->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = OF_RECEIVE,
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&c->ep, &wr);
}

/* The flag SOLICITED has a meaning for the receiver only, see the README. */
static int post_send(struct client *c)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&c->memory.request,
		.length = sizeof(c->memory.request),
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = OF_SEND,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED,
	};

	return endpoint_post_send(&c->ep, &wr);
}

static void report_timeout(const struct endpoint *ep)
{
	fprintf(stderr,
		"waited %d s for a completion and none came: is the peer "
		"frozen, or UDP port 4791 shut?\n",
		ep->timeout);
}

/*
 * The first way: poll without a pause. ibv_poll_cq(3) reads memory that the
 * card writes, and asks the kernel nothing: nothing can be quicker, and the CPU
 * does nothing else. A look at the CM and at Ctrl-C is a system call, so it is
 * taken once in POLLS times.
 *
 * Returns 0 with the completion in WC, be it good or bad; 1 when the peer has
 * disconnected and no completion is left; -1 after a deadline, Ctrl-C or a
 * fault.
 */
static int wait_busy(struct client *c, struct ibv_wc *wc)
{
	struct endpoint *ep = &c->ep;
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

/*
 * Arm the CQ: the next completion that comes raises an event, that one and no
 * further one. A completion that is in the CQ already raises none.
 */
static int arm(struct client *c, bool solicited_only)
{
	int err = ibv_req_notify_cq(c->ep.cq, solicited_only);

	if (err) {
		report("ibv_req_notify_cq", err);
		return -1;
	}
	return 0;
}

/*
 * Take one event from the completion channel, and acknowledge it:
 * ibv_destroy_cq() waits, for ever, until all of them are.
 */
static int take_notice(struct client *c)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(c->ep.comp_channel, &cq, &context)) {
		report("ibv_get_cq_event", errno);
		return -1;
	}
	ibv_ack_cq_events(cq, 1);
	c->events++;
	return 0;
}

/*
 * The second way: sleep until there is an event. Returns what wait_busy()
 * returns. The order of the steps is the lesson: see the README.
 */
static int wait_event(struct client *c, struct ibv_wc *wc)
{
	struct endpoint *ep = &c->ep;
	long long deadline = now_ms() + ep->timeout * 1000LL;
	bool woken = false;
	long long left;
	int ready, n;

	for (;;) {
		/* Step 1: is there one already? */
		n = endpoint_poll(ep, wc);
		if (n)
			return n < 0 ? -1 : 0;
		if (woken)
			c->empty++;

		/*
		 * Step 2: arm. Of what can come only the answer is
		 * solicited; once we have it, the SEND is what we wait for.
		 */
		if (arm(c, c->solicited && !c->answered))
			return -1;

		/* Step 3: did one come between the steps 1 and 2? */
		n = endpoint_poll(ep, wc);
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
		if (woken && take_notice(c))
			return -1;
		if ((ready & 2) &&
		    endpoint_take_event(ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	}
}

/* Is this the answer to our request? It says the same two numbers. */
static int check_answer(const struct client *c, const struct ibv_wc *wc)
{
	const struct message *answer = &c->memory.answer;

	if (wc->byte_len == sizeof(*answer) &&
	    be32toh(answer->number) == c->number &&
	    be32toh(answer->count) == c->count)
		return 0;
	fprintf(stderr,
		"what came (%u bytes) is not the answer to request %u of %u: "
		"is that the server of lesson 04?\n",
		wc->byte_len, c->number, c->count);
	return -1;
}

/*
 * One request and its answer. They make two completions, which may come in
 * either order. The receive is posted again when the answer has been looked at,
 * and so before the next request goes out.
 */
static int exchange(struct client *c, wait_fn *wait_wc)
{
	bool sent = false;
	struct ibv_wc wc;
	int ret;

	c->number++;
	c->answered = false;
	c->memory.request.number = htobe32(c->number);
	c->memory.request.count = htobe32(c->count);
	if (post_send(c))
		return -1;
	while (!sent || !c->answered) {
		ret = wait_wc(c, &wc);
		if (ret == 1)
			fprintf(stderr,
				"the peer disconnected before it answered "
				"request %u of %u\n",
				c->number, c->count);
		if (ret)
			return -1;
		if (wc.status != IBV_WC_SUCCESS) {
			report_wc(&wc,
				  wc.wr_id == OF_SEND ? "SEND" : "receive");
			return -1;
		}
		if (wc.wr_id == OF_SEND) {
			sent = true;
			continue;
		}
		c->answered = true;
		if (check_answer(c, &wc) || post_receive(c))
			return -1;
	}
	return 0;
}

/*
 * An event with nothing behind it, made on purpose. Two completions come after
 * one arming: that is one event. Both are polled before it is looked at.
 */
static int show_empty_event(struct client *c)
{
	struct endpoint *ep = &c->ep;
	struct ibv_wc wc;
	int ready, n;

	if (arm(c, false) || exchange(c, wait_busy))
		return -1;
	ready = wait_readable(ep->comp_channel->fd, ep->stop_fd,
			      ep->timeout * 1000);
	if (ready == 0)
		fprintf(stderr, "waited %d s for the CQ's event\n",
			ep->timeout);
	if (ready != 1 || take_notice(c))
		return -1;
	n = endpoint_poll(ep, &wc);
	if (n < 0)
		return -1;
	printf("armed once, polled two completions, got one event; behind "
	       "it: %d completions\n",
	       n);
	return 0;
}

static long long cpu_us(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000000LL + used.tv_nsec / 1000;
}

/* All the requests of one way of waiting, and what they cost. */
static int measure(struct client *c, const char *name, wait_fn *wait_wc)
{
	long long start = now_us(), cpu = cpu_us();
	int i;

	c->events = 0;
	c->empty = 0;
	for (i = 0; i < c->rounds; i++)
		if (exchange(c, wait_wc))
			return -1;
	printf("%s: %d requests; each took %lld us and %lld us of CPU time; "
	       "%ld events, %ld empty\n",
	       name, c->rounds, (now_us() - start) / c->rounds,
	       (cpu_us() - cpu) / c->rounds, c->events, c->empty);
	return 0;
}

static int run(struct client *c)
{
	/* The last one is for show_empty_event(). */
	c->count = (c->busy + c->event) * c->rounds + c->event;
	if (c->busy && measure(c, "busy", wait_busy))
		return -1;
	if (!c->event)
		return 0;
	if (show_empty_event(c))
		return -1;
	return measure(c, "event", wait_event);
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
	    create_qp(ep))
		goto out;
	client.mr = ibv_reg_mr(ep->pd, &client.memory, sizeof(client.memory),
			       IBV_ACCESS_LOCAL_WRITE);
	if (!client.mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	if (post_receive(&client) || endpoint_connect(ep, &param))
		goto out;
	printf("connected to %s\n", opt.server);
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
