/* SPDX-License-Identifier: MIT */
/*
 * Lesson 13: the server of a throughput measurement. It lends memory for the
 * client's RDMA WRITEs, or receives its SENDs, or sends each message back, as
 * the client's plan says, and looks at the end whether every byte is right.
 */
#include "pingpong.h"

struct server {
	struct endpoint door; /* the listener: for all clients */
	struct flow flow; /* the client of now */
	uint32_t granted; /* SENDs that the client may have sent */
	uint32_t owed; /* of those, not told to the client yet */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-w busy|event]\n"
		"Take the messages of a client as fast as it can send them. What comes, and how,\n"
		"is the client's choice. It serves runs until one says that it is the last.\n"
		"  -w, --wait WAY         how to wait for SENDs; busy: look at the CQ all the\n"
		"                         time; event: sleep until one comes (default: event)\n" SERVER_USAGE_LINES
		"Man pages: ibv_post_recv(3), ibv_poll_cq(3), ibv_req_notify_cq(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 enum wait *wait)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "wait", required_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "w:", longs, NULL)) !=
	       -1) {
		if (c != 'w') {
			if (common_option(c, opt))
				return -1;
		} else if (parse_wait(optarg, wait)) {
			fprintf(stderr, "server: -w takes busy or event\n");
			return -1;
		}
	}
	return server_operand(argc, argv, opt);
}

/* Take the next client's id, with our own way to wait in its plan. */
static int get_client(struct server *s, enum wait wait)
{
	struct flow *f = &s->flow;

	f->ep = s->door;
	if (endpoint_get_request(&f->ep) ||
	    plan_unpack(&f->plan, &f->peer, f->ep.private_data,
			f->ep.private_data_len))
		return -1;
	f->plan.wait = wait;
	return 0;
}

/*
 * Slots for what comes: one for each message of the window where they are
 * written, and twice as many as receives. A client has its SENDs acknowledged
 * when they are received, and that is before this program has looked at them:
 * with the half of the receives it can go on while we see to the other half.
 */
static int accept_client(struct server *s)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
	struct flow *f = &s->flow;
	bool by_send = f->plan.op == WR_SEND;
	uint32_t slots = by_send ? 2 * f->plan.window : f->plan.window;

	if (flow_create_qp(f, by_send ? slots : 1) || flow_memory(f, slots))
		return -1;
	if (by_send && flow_fill_receives(f))
		return -1;
	if (f->plan.latency && !by_send && flow_aim(f))
		return -1;
	s->granted = slots;
	remote_region_pack(wire, f->in_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	return endpoint_accept(&f->ep, &param);
}

/*
 * Give the client credit for another WINDOW of SENDs, by an empty SEND, as soon
 * as so many receives have been posted again.
 */
static int give_credit(struct server *s)
{
	struct flow *f = &s->flow;
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, f->posted),
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (s->owed < f->plan.window || s->granted >= f->plan.count ||
	    !flow_room(f))
		return 0;
	if (endpoint_post_send(&f->ep, &wr))
		return -1;
	f->posted++;
	s->owed -= f->plan.window;
	s->granted += f->plan.window;
	return 0;
}

/*
 * The SENDs, in whole handfuls: take what has completed, post as many receives
 * again in one call. They complete in the order in which they were posted, so
 * a handful is slots that follow one another.
 */
static int receive_all(struct server *s)
{
	struct flow *f = &s->flow;
	struct ibv_wc wcs[LIST];
	uint32_t first, came;
	int n, i;

	while (f->received < f->plan.count) {
		n = flow_poll(f, wcs, LIST);
		if (n < 0)
			return -1;
		first = f->received;
		for (i = 0; i < n; i++)
			if (wr_id_op(wcs[i].wr_id) == WR_RECV ?
				    flow_received(f, &wcs[i]) :
				    flow_retire(f, &wcs[i]))
				return -1;
		came = f->received - first;
		if (came > 0 &&
		    flow_post_receives(f, first % f->in_slots, came))
			return -1;
		s->owed += came;
		if (give_credit(s))
			return -1;
	}
	return 0;
}

/* How far the client's WRITEs have come, as our memory shows it. */
static uint64_t written(struct flow *f)
{
	uint64_t most = 0, number;
	uint32_t i;

	for (i = 0; i < f->in_slots; i++) {
		number = stamp_read(f->in + (size_t)i * f->plan.size,
				    f->plan.size);
		if (number > most)
			most = number;
	}
	return most;
}

/*
 * The WRITEs come without us. We wait until the client says goodbye, for as
 * long as the memory still changes.
 */
static int watch_writes(struct server *s)
{
	struct endpoint *ep = &s->flow.ep;
	uint64_t before = 0, now;
	int ready;

	while (!ep->disconnected) {
		ready = wait_readable(ep->channel->fd, ep->stop_fd,
				      ep->timeout * 1000);
		if (ready < 0)
			return -1;
		if (ready > 0) {
			if (endpoint_take_event(ep, RDMA_CM_EVENT_DISCONNECTED))
				return -1;
			continue;
		}
		now = written(&s->flow);
		if (now == before) {
			fprintf(stderr,
				"waited %d s and nothing was written after "
				"message %llu: is the client alive?\n",
				ep->timeout, (unsigned long long)now);
			return -1;
		}
		before = now;
	}
	return 0;
}

static int wait_for_goodbye(struct endpoint *ep)
{
	while (!ep->disconnected)
		if (endpoint_wait_event(ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	return 0;
}

static int serve(struct server *s)
{
	struct flow *f = &s->flow;
	const struct plan *plan = &f->plan;
	int ret;

	if (plan->latency)
		ret = flow_ping_pong(f, false);
	else if (plan->op == WR_SEND)
		ret = receive_all(s);
	else
		ret = watch_writes(s);
	if (ret || wait_for_goodbye(&f->ep) || flow_check(f))
		return -1;
	printf("%u messages of %u bytes by %s%s: every one is right\n",
	       plan->count, plan->size, wr_op_str(plan->op),
	       plan->latency ? ", there and back" : "");
	return 0;
}

/* Take down what belongs to one client; the door stays. */
static int end_client(struct server *s)
{
	struct endpoint *ep = &s->flow.ep;
	int ret = endpoint_disconnect(ep);

	s->door.id = NULL;
	ep->channel = NULL;
	ep->listener = NULL;
	ep->stop_fd = 0;
	flow_destroy(&s->flow);
	return ret;
}

/* One client after the other, until one says that no more will follow. */
static int run(struct server *s, const struct options *opt, enum wait wait)
{
	uint32_t more = 0;
	int ret = 0;

	if (endpoint_open(&s->door, opt) || endpoint_listen(&s->door, opt))
		return -1;
	do {
		s->owed = 0;
		ret = get_client(s, wait) || accept_client(s) || serve(s);
		more = s->flow.plan.more;
		if (end_client(s))
			ret = -1;
	} while (!ret && more > 0);
	return ret ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	enum wait wait = WAIT_EVENT;
	struct server server = { 0 };
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &wait)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (run(&server, &opt, wait) == 0)
		status = EXIT_DONE;
	endpoint_destroy(&server.door);
	return status;
}
