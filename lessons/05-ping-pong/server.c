/* SPDX-License-Identifier: MIT */
/*
 * Lesson 05: the server of a ping-pong. It sends back each message that comes,
 * of whatever size, until the client disconnects. A pool of buffers sees to it
 * that a receive is posted whenever a message can come; --slow and --slots
 * show what happens when it does not.
 */
#include <rdma_common.h>

/*
 * The largest message. Every byte of the pool is pinned memory: with the four
 * slots that we receive into, and as many for the answers that are on their
 * way, 1 MiB makes 8 MiB, as much as Linux lets a user pin who is not root
 * (RLIMIT_MEMLOCK, since Linux 5.16). Drivers such as mlx5 pin their CQs as well.
 */
#define MAX_SIZE (1 << 20)

/* More than this and the pool is larger than a small machine would like. */
#define MAX_SLOTS 32

struct server_options {
	struct options common;
	long slots; /* receives that we keep posted */
	long size; /* bytes in a slot */
	long slow; /* milliseconds, before a slot is posted again */
	long rnr_retry;
	long min_rnr_timer; /* -1: leave it as the CM has set it */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s BYTES] [--slots N]\n"
		"              [--slow MS] [--rnr-retry N] [--min-rnr-timer CODE]\n"
		"Wait for one client and send each of its messages back until it disconnects.\n"
		"  --slots N              receives that are kept posted, 1 to 32 (default: 4)\n"
		"  -s, --size BYTES       the largest message that there is room for, 1 to\n"
		"                         1048576 bytes (default: 1048576)\n"
		"  --slow MS              do nothing for so long with each message, 0 to 1000\n"
		"                         milliseconds (default: 0)\n"
		"  --rnr-retry N          how often the client's card tries again when no\n"
		"                         receive is posted here, 0 to 7, 7: for ever (default: 3)\n"
		"  --min-rnr-timer CODE   how long it waits before each try, 0 to 31, a code:\n"
		"                         12 is 0.64 ms, 24 is 41 ms, 0 is 655 ms (default: as\n"
		"                         the CM has it, which is 0)\n" SERVER_USAGE_LINES
		"Man pages: ibv_post_recv(3), rdma_accept(3), ibv_modify_qp(3).\n");
}

enum {
	SLOTS = 256,
	SLOW,
	RNR_RETRY,
	MIN_RNR_TIMER
};

/* The number of one of our own flags, or -1 after having named the fault. */
static long flag_number(const char *flag, long min, long max)
{
	long value = parse_number(optarg, min, max);

	if (value < 0)
		fprintf(stderr, "server: --%s takes %ld to %ld\n", flag, min,
			max);
	return value;
}

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "slots", required_argument, NULL, SLOTS },
		{ "size", required_argument, NULL, 's' },
		{ "slow", required_argument, NULL, SLOW },
		{ "rnr-retry", required_argument, NULL, RNR_RETRY },
		{ "min-rnr-timer", required_argument, NULL, MIN_RNR_TIMER },
		{ NULL, 0, NULL, 0 },
	};
	long value = 0;
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:", longs, NULL)) !=
	       -1) {
		switch (c) {
		case SLOTS:
			value = opt->slots = flag_number("slots", 1, MAX_SLOTS);
			break;
		case 's':
			value = opt->size = flag_number("size", 1, MAX_SIZE);
			break;
		case SLOW:
			value = opt->slow = flag_number("slow", 0, 1000);
			break;
		case RNR_RETRY:
			value = opt->rnr_retry = flag_number("rnr-retry", 0, 7);
			break;
		case MIN_RNR_TIMER:
			value = opt->min_rnr_timer =
				flag_number("min-rnr-timer", 0, 31);
			break;
		default:
			value = common_option(c, &opt->common);
			break;
		}
		if (value < 0)
			return -1;
	}
	return server_operand(argc, argv, &opt->common);
}

/* What a request was, as its wr_id says. */
enum wr_op {
	WR_SEND = 1,
	WR_RECV
};

/*
 * A completion comes with the wr_id that we gave the request, and with little
 * else: in a failed one not even the opcode is valid (ibv_poll_cq(3)). So the
 * two things that we want to know then are in there: what it was, and which
 * slot is ours again.
 */
static uint64_t wr_id_of(enum wr_op op, uint32_t slot)
{
	return (uint64_t)op << 32 | slot;
}

static enum wr_op wr_id_op(uint64_t wr_id)
{
	return wr_id >> 32;
}

static uint32_t wr_id_slot(uint64_t wr_id)
{
	return wr_id;
}

static const char *wr_op_str(enum wr_op op)
{
	return op == WR_SEND ? "SEND" : "receive";
}

/* 0 for a good completion; otherwise report it and return -1. */
static int check_wc(const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		return 0;
	report_wc(wc, wr_op_str(wr_id_op(wc->wr_id)));
	return -1;
}

/*
 * The pool: slots of one size, side by side in one piece of registered memory.
 * Each slot is posted as a receive, or being sent, or free, or waits with its
 * message, and never two of these. Registering is slow: it is done once for all.
 */
struct pool {
	uint8_t *memory;
	struct ibv_mr *mr;
	size_t slot_size;
	uint32_t free[2 * MAX_SLOTS]; /* the free slots' numbers, a stack */
	uint32_t free_count;
};

static int pool_create(struct pool *pool, struct ibv_pd *pd, uint32_t slots,
		       size_t slot_size)
{
	int err;

	/* What is pinned is whole pages: let the memory begin with one. */
	err = posix_memalign((void **)&pool->memory, sysconf(_SC_PAGESIZE),
			     slots * slot_size);
	if (err) {
		report("posix_memalign", err);
		return -1;
	}
	pool->mr = ibv_reg_mr(pd, pool->memory, slots * slot_size,
			      IBV_ACCESS_LOCAL_WRITE);
	if (!pool->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	pool->slot_size = slot_size;
	while (pool->free_count < slots) {
		pool->free[pool->free_count] = pool->free_count;
		pool->free_count++;
	}
	return 0;
}

static void pool_destroy(struct pool *pool)
{
	if (pool->mr && ibv_dereg_mr(pool->mr))
		report("ibv_dereg_mr", errno);
	free(pool->memory);
}

static struct ibv_sge pool_sge(const struct pool *pool, uint32_t slot,
			       size_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(pool->memory + slot * pool->slot_size),
		.length = length,
		.lkey = pool->mr->lkey,
	};

	return sge;
}

struct message {
	uint32_t slot;
	uint32_t length;
};

struct server {
	struct endpoint ep;
	struct pool pool;
	long slow;
	uint32_t posted; /* receives */
	uint32_t answered; /* messages */
	struct message waiting[MAX_SLOTS]; /* for their answer, a ring */
	uint32_t first, count;
};

/* Give the card a free slot to receive into. */
static int post_receive(struct server *s)
{
	uint32_t slot = s->pool.free[--s->pool.free_count];
	struct ibv_sge sge = pool_sge(&s->pool, slot, s->pool.slot_size);
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = 1,
	};

	if (endpoint_post_recv(&s->ep, &wr))
		return -1;
	s->posted++;
	return 0;
}

/* Give the card a slot to send from. An empty message has no SGE. */
static int post_send(struct server *s, uint32_t slot, size_t length)
{
	struct ibv_sge sge = pool_sge(&s->pool, slot, length);
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, slot),
		.sg_list = &sge,
		.num_sge = length ? 1 : 0,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	return endpoint_post_send(&s->ep, &wr);
}

/*
 * Answer the messages that wait, the oldest first. For each, first post a
 * receive in its place, and only then answer: the answer is what makes the
 * client send the next one, and that must find a receive here. The message goes
 * back from the slot that it came into, uncopied, which is why another slot has
 * to take that one's place. Where none is free, the message has to wait.
 */
static int answer(struct server *s)
{
	const struct message *message;

	while (s->count > 0 && s->pool.free_count > 0) {
		message = &s->waiting[s->first];
		if (post_receive(s) ||
		    post_send(s, message->slot, message->length))
			return -1;
		s->answered++;
		s->first = (s->first + 1) % MAX_SLOTS;
		s->count--;
	}
	return 0;
}

/* A message has come into SLOT. */
static int on_received(struct server *s, uint32_t slot, size_t length)
{
	uint32_t last = (s->first + s->count++) % MAX_SLOTS;

	s->waiting[last] = (struct message){ .slot = slot, .length = length };
	s->posted--;
	if (s->slow &&
	    wait_readable(-1, s->ep.stop_fd, s->slow)) /* Ctrl-C only */
		return -1;
	return answer(s);
}

/*
 * The answer in SLOT has been acknowledged: the slot is free again. The client
 * may have seen the answer before, and its next message may be here already.
 */
static int on_sent(struct server *s, uint32_t slot)
{
	s->pool.free[s->pool.free_count++] = slot;
	return answer(s);
}

/* Send back what comes, until the client disconnects. */
static int serve(struct server *s)
{
	struct ibv_wc wc;
	uint32_t slot;
	int ret;

	while ((ret = endpoint_wait_wc(&s->ep, &wc)) == 0) {
		if (check_wc(&wc))
			return -1;
		slot = wr_id_slot(wc.wr_id);
		ret = wr_id_op(wc.wr_id) == WR_RECV ?
			      on_received(s, slot, wc.byte_len) :
			      on_sent(s, slot);
		if (ret)
			return -1;
	}
	if (ret < 0)
		return -1;
	printf("the client disconnected: %u messages came and were sent back, "
	       "%u answers not yet acknowledged\n",
	       s->answered, s->ep.outstanding - s->posted);
	return 0;
}

/*
 * endpoint_accept(), with the two settings of RNR in it. Both are ours to
 * choose and rule the client's card: RNR is the receiver's trouble.
 */
static int accept_client(struct endpoint *ep, const struct server_options *opt)
{
	/* How often the peer tries again (rdma_accept(3)). */
	struct rdma_conn_param param = { .rnr_retry_count = opt->rnr_retry };
	/* How long it waits before that: our card tells it, with each RNR. */
	struct ibv_qp_attr attr = { .min_rnr_timer = opt->min_rnr_timer };
	int err;

	if (rdma_accept(ep->id, &param)) {
		report("rdma_accept", errno);
		return -1;
	}
	/*
	 * rdma_accept() has taken the QP to RTS, and has set the timer to 0 on
	 * the way, the code of the longest time. This is one of the few things
	 * that may be changed in RTS (ibv_modify_qp(3)). EINVAL: the client was
	 * quick, and its first message was such that the QP is in the error
	 * state. A completion says so.
	 */
	if (opt->min_rnr_timer >= 0) {
		err = ibv_modify_qp(ep->id->qp, &attr, IBV_QP_MIN_RNR_TIMER);
		if (err && err != EINVAL) {
			report("ibv_modify_qp", err);
			return -1;
		}
	}
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	ep->connected = true;
	return 0;
}

static int run(struct server *s, const struct server_options *opt)
{
	/*
	 * Twice as many slots as receives: for each message that is on its way
	 * back there is another one to take its place.
	 */
	uint32_t slots = 2 * opt->slots;

	s->slow = opt->slow;
	if (endpoint_open(&s->ep, &opt->common) ||
	    endpoint_listen(&s->ep, &opt->common) ||
	    endpoint_get_request(&s->ep) ||
	    endpoint_create_qp(&s->ep, opt->slots, opt->slots) ||
	    pool_create(&s->pool, s->ep.pd, slots, opt->size))
		return -1;
	while (s->posted < opt->slots)
		if (post_receive(s))
			return -1;
	printf("%u slots of %ld bytes, %u of them posted\n", slots, opt->size,
	       s->posted);
	if (accept_client(&s->ep, opt))
		return -1;
	return serve(s);
}

int main(int argc, char **argv)
{
	struct server_options opt = {
		.common = OPTIONS_DEFAULT,
		.slots = 4,
		.size = MAX_SIZE,
		.rnr_retry = 3,
		.min_rnr_timer = -1,
	};
	struct server server = { 0 };
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.common.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (run(&server, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&server.ep))
		status = EXIT_FAILED;
	pool_destroy(&server.pool);
	endpoint_destroy(&server.ep);
	return status;
}
