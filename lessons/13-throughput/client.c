/* SPDX-License-Identifier: MIT */
/*
 * Lesson 13: the client of a throughput measurement. It sends many messages,
 * by RDMA WRITE or by SEND, and climbs a ladder: one request at a time, then
 * one change after the other, each measured.
 */
#include "pingpong.h"

#define DEFAULT_WINDOW 128 /* as perftest has it: its tx_depth */
#define MAX_LADDER_SIZE 4096 /* the last rung has sixteen times as much */

struct client_options {
	struct options common;
	struct plan plan;
	bool ladder; /* all rungs; otherwise the one that the flags describe */
};

/* One rung of the ladder: what it changes, and what stays of those before. */
struct rung {
	const char *name;
	uint32_t window;
	uint32_t signal;
	uint32_t batch;
	uint32_t max_inline;
	enum wait wait;
	uint32_t larger; /* so many times the size */
};

static const struct rung ladder[] = {
	{ "one at a time", 1, 1, 1, 0, WAIT_BUSY, 1 },
	{ "a window of 128", 128, 1, 1, 0, WAIT_BUSY, 1 },
	{ "one in 32 signalled", 128, 32, 1, 0, WAIT_BUSY, 1 },
	{ "32 in a post", 128, 32, 32, 0, WAIT_BUSY, 1 },
	{ "inline", 128, 32, 32, 256, WAIT_BUSY, 1 },
	{ "sleep until an event", 128, 32, 32, 256, WAIT_EVENT, 1 },
	{ "16 times the size", 128, 32, 32, 256, WAIT_EVENT, 16 },
};

#define RUNGS (sizeof(ladder) / sizeof(ladder[0]))

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT] [-s BYTES]\n"
		"              [--op write|send] [--window N] [--signal N] [--batch N]\n"
		"              [--inline BYTES] [--wait busy|event] [--latency] SERVER_ADDRESS\n"
		"Send many messages, and measure. Without a flag of the second and third line\n"
		"but --op: every rung of the ladder, one connection each.\n"
		"  -n, --count COUNT      messages, 1 to 10000000 (default: 1000)\n"
		"  -s, --size BYTES       the length of each, 8 to 1048576 bytes, in eights\n"
		"                         (default: 64)\n"
		"  --op OP                write: by RDMA WRITE; send: by SEND (default: write)\n"
		"  --window N             requests in the send queue at a time, 1 to 1024, and not\n"
		"                         more than 64 MiB (default: 128)\n"
		"  --signal N             every N-th request is signalled (default: 1)\n"
		"  --batch N              so many requests in one ibv_post_send (default: 1)\n"
		"  --inline BYTES         messages of up to so many bytes travel in the request,\n"
		"                         0 to 512 (default: 0)\n"
		"  --wait WAY             busy: look at the CQ all the time; event: sleep until a\n"
		"                         completion comes, and doze where none will (--latency by\n"
		"                         RDMA WRITE) (default: busy)\n"
		"  --latency              one message at a time, there and back; what is measured\n"
		"                         is half of that way\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), ibv_create_qp(3), ibv_poll_cq(3).\n");
}

enum {
	OP = 256,
	WINDOW,
	SIGNAL,
	BATCH,
	INLINE,
	WAIT,
	LATENCY,
};

/* The number of one of our own flags into VALUE; -1 after naming the fault. */
static int flag_number(const char *flag, long min, long max, uint32_t *value)
{
	long number = parse_number(optarg, min, max);

	if (number < 0) {
		fprintf(stderr, "client: --%s takes %ld to %ld\n", flag, min,
			max);
		return -1;
	}
	*value = number;
	return 0;
}

static int parse_flag(int c, struct client_options *opt)
{
	struct plan *plan = &opt->plan;

	switch (c) {
	case 'n':
		return flag_number("count", 1, MAX_COUNT, &plan->count);
	case 's':
		return flag_number("size", STAMP, MAX_SIZE, &plan->size);
	case OP:
		plan->op = !strcmp(optarg, "send") ? WR_SEND : WR_WRITE;
		if (plan->op == WR_SEND || !strcmp(optarg, "write"))
			return 0;
		fprintf(stderr, "client: --op takes write or send\n");
		return -1;
	case WINDOW:
		return flag_number("window", 1, MAX_WINDOW, &plan->window);
	case SIGNAL:
		return flag_number("signal", 1, MAX_WINDOW, &plan->signal);
	case BATCH:
		return flag_number("batch", 1, MAX_WINDOW, &plan->batch);
	case INLINE:
		return flag_number("inline", 0, 512, &plan->max_inline);
	case WAIT:
		if (!parse_wait(optarg, &plan->wait))
			return 0;
		fprintf(stderr, "client: --wait takes busy or event\n");
		return -1;
	case LATENCY:
		plan->latency = true;
		return 0;
	default:
		return common_option(c, &opt->common);
	}
}

/*
 * Can that run to its end? Posting stops when there is no room for a whole
 * batch. If none of the requests that are out then is signalled, no completion
 * will ever make room, and the program waits for ever. So many are out at the
 * least: WINDOW - BATCH + 1; and one of them is signalled if SIGNAL is not
 * more.
 */
static int check_plan(const struct plan *plan, bool ladder_runs)
{
	if (plan->size % STAMP != 0) {
		fprintf(stderr, "client: --size goes in steps of 8 bytes\n");
		return -1;
	}
	if (!plan_fits(plan)) {
		fprintf(stderr,
			"client: --signal is not more than --window, and "
			"--window times --size not more than %d bytes\n",
			MAX_MEMORY);
		return -1;
	}
	if (plan->signal + plan->batch > plan->window + 1) {
		fprintf(stderr,
			"client: --signal %u and --batch %u do not fit into "
			"--window %u: the queue would be full of requests that "
			"nobody tells us of\n",
			plan->signal, plan->batch, plan->window);
		return -1;
	}
	if (ladder_runs && plan->size > MAX_LADDER_SIZE) {
		fprintf(stderr,
			"client: the ladder takes a --size of up to %d\n",
			MAX_LADDER_SIZE);
		return -1;
	}
	if (plan->latency && plan->batch > 1) {
		fprintf(stderr, "client: --latency sends one at a time, and "
				"--batch says more\n");
		return -1;
	}
	return 0;
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ "size", required_argument, NULL, 's' },
		{ "op", required_argument, NULL, OP },
		{ "window", required_argument, NULL, WINDOW },
		{ "signal", required_argument, NULL, SIGNAL },
		{ "batch", required_argument, NULL, BATCH },
		{ "inline", required_argument, NULL, INLINE },
		{ "wait", required_argument, NULL, WAIT },
		{ "latency", no_argument, NULL, LATENCY },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "n:s:", longs,
				NULL)) != -1) {
		if (parse_flag(c, opt))
			return -1;
		if (c > OP)
			opt->ladder = false;
	}
	if (!opt->common.help && check_plan(&opt->plan, opt->ladder))
		return -1;
	return client_operand(argc, argv, &opt->common);
}

/* A credit of the server's is an empty SEND: a receive without a buffer. */
static int post_credit_receive(struct flow *f)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0) };

	return endpoint_post_recv(&f->ep, &wr);
}

/*
 * Memory and receives: for latency, what the server has too. Otherwise two
 * receives for the server's credits; more than two cannot be on their way.
 */
static int prepare(struct flow *f)
{
	const struct plan *plan = &f->plan;
	bool by_send = plan->op == WR_SEND;
	uint32_t slots = !plan->latency ? 0 :
			 by_send	? 2 * plan->window :
					  plan->window;

	if (flow_create_qp(f, slots ? slots : 2) || flow_memory(f, slots))
		return -1;
	if (!by_send)
		return 0;
	if (plan->latency)
		return flow_fill_receives(f);
	f->credits = 2 * plan->window;
	return post_credit_receive(f) || post_credit_receive(f) ? -1 : 0;
}

/* The server learns the plan from our private data, we its memory from its. */
static int connect_server(struct flow *f)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint8_t wire[PLAN_WIRE_SIZE];

	plan_pack(wire, &f->plan, f->in_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (endpoint_connect(&f->ep, &param) ||
	    remote_region_unpack(&f->peer, f->ep.private_data))
		return -1;
	return f->plan.op == WR_WRITE ? flow_aim(f) : 0;
}

/*
 * How many to post now: a whole batch or nothing, and what is left at the end.
 * SENDs need a receive each on the other side; a WRITE needs nothing.
 */
static uint32_t may_post(const struct flow *f)
{
	const struct plan *plan = &f->plan;
	uint32_t left = plan->count - f->posted;
	uint32_t n = left < plan->batch ? left : plan->batch;

	if (flow_room(f) < n)
		return 0;
	if (plan->op == WR_SEND && f->credits - f->posted < n)
		return 0;
	return n;
}

static int take_completion(struct flow *f, const struct ibv_wc *wc,
			   long long now)
{
	if (wr_id_op(wc->wr_id) == WR_RECV) {
		f->ep.outstanding--;
		f->credits += f->plan.window;
		return check_wc(wc) || post_credit_receive(f) ? -1 : 0;
	}
	if (flow_retire(f, wc))
		return -1;
	flow_sample(f, now - f->posted_at[(f->retired - 1) % f->plan.window]);
	return 0;
}

/* All messages: post for as long as there is room, then take what is done. */
static int stream(struct flow *f)
{
	struct ibv_wc wcs[LIST];
	long long now;
	uint32_t m;
	int n, i;

	while (f->retired < f->plan.count) {
		while ((m = may_post(f)) > 0)
			if (flow_post(f, m))
				return -1;
		n = flow_poll(f, wcs, LIST);
		if (n < 0)
			return -1;
		now = n > 0 ? now_ns() : 0;
		for (i = 0; i < n; i++)
			if (take_completion(f, &wcs[i], now))
				return -1;
	}
	return 0;
}

/* The CPU time of this process, in nanoseconds. */
static long long cpu_ns(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000000000LL + used.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;

	return one < other ? -1 : one > other;
}

/*
 * What came out. The latency is from the post to the moment in which we have
 * the completion, of those that were signalled; with --latency, half of a
 * round trip.
 */
static void print_result(struct flow *f, const char *name, long long took,
			 long long cpu)
{
	double seconds = took / 1e9;
	double count = f->plan.count;
	uint32_t n = f->samples;

	qsort(f->took, n, sizeof(*f->took), compare);
	printf("%-20s %8.1f messages/s %8.2f MB/s  CPU %7.1f us", name,
	       count / seconds, count * f->plan.size / 1e6 / seconds,
	       cpu / 1e3 / count);
	if (n > 0)
		printf("  median %8.1f us  99 %%: %8.1f us",
		       f->took[n / 2] / 1e3, f->took[n - 1 - n / 100] / 1e3);
	printf("  (%u posts, %u completions)\n", f->posts, f->completions);
}

/* One run, from the name of the server to its result. */
static int run(struct flow *f, const struct client_options *opt,
	       const struct plan *plan, const char *name)
{
	long long start, cpu;

	f->plan = *plan;
	if (endpoint_open(&f->ep, &opt->common) ||
	    endpoint_resolve(&f->ep, &opt->common) || prepare(f) ||
	    connect_server(f))
		return -1;
	if (!opt->ladder)
		printf("connected\n");
	start = now_ns();
	cpu = cpu_ns();
	if (plan->latency ? flow_ping_pong(f, true) : stream(f))
		return -1;
	print_result(f, name, now_ns() - start, cpu_ns() - cpu);
	return 0;
}

static int run_and_end(const struct client_options *opt,
		       const struct plan *plan, const char *name)
{
	struct flow flow = { 0 };
	int ret = run(&flow, opt, plan, name);

	if (endpoint_disconnect(&flow.ep))
		ret = -1;
	flow_destroy(&flow);
	return ret;
}

/* Every rung, each with a connection of its own. */
static int climb(const struct client_options *opt)
{
	struct plan plan = opt->plan;
	const struct rung *rung;
	uint32_t i;

	printf("%u messages of %u bytes by %s\n", plan.count, plan.size,
	       wr_op_str(plan.op));
	for (i = 0; i < RUNGS; i++) {
		rung = &ladder[i];
		plan.more = RUNGS - 1 - i;
		plan.window = rung->window;
		plan.signal = rung->signal;
		plan.batch = rung->batch;
		plan.max_inline = rung->max_inline;
		plan.wait = rung->wait;
		plan.size = opt->plan.size * rung->larger;
		if (run_and_end(opt, &plan, rung->name))
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.plan = {
			.op = WR_WRITE,
			.size = 64,
			.count = 1000,
			.window = DEFAULT_WINDOW,
			.batch = 1,
			.signal = 1,
		},
		.ladder = true,
	};
	int ret;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.common.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	ret = opt.ladder ? climb(&opt) : run_and_end(&opt, &opt.plan, "");
	return ret ? EXIT_FAILED : EXIT_DONE;
}
