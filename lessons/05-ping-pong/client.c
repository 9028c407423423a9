/* SPDX-License-Identifier: MIT */
/*
 * Lesson 05: the client of a ping-pong. It keeps a window of messages on their
 * way, checks every byte that comes back, and has a receive posted for every
 * answer before it asks for it.
 */
#include <rdma_common.h>

#define MAX_SIZE (1 << 20)
#define MAX_WINDOW 32 /* the server can have as many slots */

struct client_options {
	struct options common;
	long count; /* messages */
	long size; /* bytes in each */
	long window; /* sent and not yet answered, at most */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT] [-s BYTES]\n"
		"              [--window N] SERVER_ADDRESS\n"
		"Send messages, and check that each comes back as it was.\n"
		"  -n, --count COUNT      how many, 1 to 10000000 (default: 100)\n"
		"  -s, --size BYTES       the length of each, 0 to 1048576 bytes (default: 1024)\n"
		"  --window N             how many may be on their way at a time, 1 to 32\n"
		"                         (default: 4)\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), ibv_post_recv(3), ibv_poll_cq(3).\n");
}

enum {
	WINDOW = 256
};

/* The number of one of our own flags, or -1 after having named the fault. */
static long flag_number(const char *flag, long min, long max)
{
	long value = parse_number(optarg, min, max);

	if (value < 0)
		fprintf(stderr, "client: --%s takes %ld to %ld\n", flag, min,
			max);
	return value;
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ "size", required_argument, NULL, 's' },
		{ "window", required_argument, NULL, WINDOW },
		{ NULL, 0, NULL, 0 },
	};
	long value;
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "n:s:", longs,
				NULL)) != -1) {
		switch (c) {
		case 'n':
			value = opt->count = flag_number("count", 1, 10000000);
			break;
		case 's':
			value = opt->size = flag_number("size", 0, MAX_SIZE);
			break;
		case WINDOW:
			value = opt->window =
				flag_number("window", 1, MAX_WINDOW);
			break;
		default:
			value = common_option(c, &opt->common);
			break;
		}
		if (value < 0)
			return -1;
	}
	return client_operand(argc, argv, &opt->common);
}

/* What a request was and on which slot, as its wr_id says: see the server. */
enum wr_op {
	WR_SEND = 1,
	WR_RECV
};

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
 * Bytes that depend on a message's number and on their place in it. All zeros,
 * or the same text each time, would look right as well when an old message, or
 * a piece of one, stood in the place of the new. (The two factors make
 * the bytes of neighbours unlike; nothing hangs on which numbers they are.)
 */
static uint8_t pattern_byte(uint32_t seed, size_t i)
{
	uint32_t x = seed * 2654435761u + (uint32_t)i * 40503u;

	return x >> 13 ^ x >> 3;
}

static void pattern_fill(void *buf, size_t size, uint32_t seed)
{
	uint8_t *bytes = buf;
	size_t i;

	for (i = 0; i < size; i++)
		bytes[i] = pattern_byte(seed, i);
}

/* -1 when all is right, or the place of the first byte that is not. */
static ssize_t pattern_check(const void *buf, size_t size, uint32_t seed)
{
	const uint8_t *bytes = buf;
	size_t i;

	for (i = 0; i < size; i++)
		if (bytes[i] != pattern_byte(seed, i))
			return i;
	return -1;
}

struct client {
	struct endpoint ep;
	uint32_t count;
	uint32_t window;
	size_t size;
	/* The slots: the first WINDOW to receive into, the others to send from. */
	uint8_t *memory;
	struct ibv_mr *mr;
	uint32_t free[MAX_WINDOW]; /* the free slots' numbers, a stack */
	uint32_t free_count;
	uint32_t sent; /* messages that have been posted */
	uint32_t answered; /* messages that have come back */
};

static int slots_create(struct client *c)
{
	uint32_t slots = 2 * c->window;
	/* A region has to have one byte at least, an empty message has none. */
	size_t bytes = c->size ? slots * c->size : 1;
	int err;

	/* What is pinned is whole pages, so let the memory begin with one. */
	err = posix_memalign((void **)&c->memory, sysconf(_SC_PAGESIZE), bytes);
	if (err) {
		report("posix_memalign", err);
		return -1;
	}
	c->mr = ibv_reg_mr(c->ep.pd, c->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	while (c->free_count < c->window) {
		c->free[c->free_count] = c->window + c->free_count;
		c->free_count++;
	}
	return 0;
}

static void slots_destroy(struct client *c)
{
	if (c->mr && ibv_dereg_mr(c->mr))
		report("ibv_dereg_mr", errno);
	free(c->memory);
}

static uint8_t *slot_memory(const struct client *c, uint32_t slot)
{
	return c->memory + slot * c->size;
}

static struct ibv_sge slot_sge(const struct client *c, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)slot_memory(c, slot),
		.length = c->size,
		.lkey = c->mr->lkey,
	};

	return sge;
}

/* Give the card a slot to receive into. An empty message has no SGE. */
static int post_receive(struct client *c, uint32_t slot)
{
	struct ibv_sge sge = slot_sge(c, slot);
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = c->size ? 1 : 0,
	};

	return endpoint_post_recv(&c->ep, &wr);
}

static int post_receives(struct client *c)
{
	uint32_t slot;

	for (slot = 0; slot < c->window; slot++)
		if (post_receive(c, slot))
			return -1;
	return 0;
}

/* Send the next message from a free slot. */
static int send_next(struct client *c)
{
	uint32_t slot = c->free[--c->free_count];
	struct ibv_sge sge = slot_sge(c, slot);
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, slot),
		.sg_list = &sge,
		.num_sge = c->size ? 1 : 0,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	pattern_fill(slot_memory(c, slot), c->size, c->sent);
	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	c->sent++;
	return 0;
}

/* Is what came into SLOT the answer that is due? */
static int check_answer(const struct client *c, uint32_t slot, size_t length)
{
	ssize_t wrong;

	if (c->answered == c->sent) {
		fprintf(stderr, "a message came that answers none of ours: is "
				"the peer the server of this lesson?\n");
		return -1;
	}
	if (length != c->size) {
		fprintf(stderr,
			"message %u has %zu bytes, and its answer %zu: is the "
			"peer the server of this lesson?\n",
			c->answered, c->size, length);
		return -1;
	}
	wrong = pattern_check(slot_memory(c, slot), length, c->answered);
	if (wrong >= 0) {
		fprintf(stderr, "message %u came back wrong from byte %zd on\n",
			c->answered, wrong);
		return -1;
	}
	return 0;
}

/*
 * An answer has come into SLOT: the messages come back in the order in which
 * they were sent. Check it and post the slot again before the next message is
 * sent, since that one's answer will need it.
 */
static int on_received(struct client *c, uint32_t slot, size_t length)
{
	if (check_answer(c, slot, length))
		return -1;
	c->answered++;
	return post_receive(c, slot);
}

/*
 * All messages, there and back. The loop has two halves: send for as long as
 * the window and the free slots allow, then wait for one completion, which
 * makes room in the one or in the other.
 */
static int ping_pong(struct client *c)
{
	struct ibv_wc wc;
	int ret;

	while (c->answered < c->count || c->free_count < c->window) {
		while (c->sent < c->count && c->free_count > 0 &&
		       c->sent - c->answered < c->window)
			if (send_next(c))
				return -1;
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret > 0)
			fprintf(stderr,
				"the peer disconnected after %u of %u answers\n",
				c->answered, c->count);
		if (ret || check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) == WR_SEND)
			c->free[c->free_count++] = wr_id_slot(wc.wr_id);
		else if (on_received(c, wr_id_slot(wc.wr_id), wc.byte_len))
			return -1;
	}
	return 0;
}

/*
 * How often our card has been told RNR since it was there, by any peer. It
 * counts that by itself; the file is SoftRoCE's, other drivers have other
 * names (`rdma statistic`). -1: not known.
 */
static long rnr_counter(const struct rdma_cm_id *id)
{
	char path[256];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/%s/ports/%d/hw_counters/rcvd_rnr_err",
		 ibv_get_device_name(id->verbs->device), id->port_num);
	file = fopen(path, "r");
	if (!file)
		return -1;
	if (fscanf(file, "%ld", &value) != 1)
		value = -1;
	fclose(file);
	return value;
}

static int run(struct client *c, const struct client_options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	long long started;
	long rnr;
	int ret;

	c->count = opt->count;
	c->size = opt->size;
	c->window = opt->window;
	if (endpoint_open(&c->ep, &opt->common) ||
	    endpoint_resolve(&c->ep, &opt->common) ||
	    endpoint_create_qp(&c->ep, c->window, c->window) ||
	    slots_create(c) || post_receives(c))
		return -1;
	rnr = rnr_counter(c->ep.id);
	if (endpoint_connect(&c->ep, &param))
		return -1;
	printf("%u messages of %zu bytes, %u at a time\n", c->count, c->size,
	       c->window);
	started = now_us();
	ret = ping_pong(c);
	if (rnr >= 0)
		printf("our card was told RNR %ld times\n",
		       rnr_counter(c->ep.id) - rnr);
	if (ret)
		return -1;
	printf("all came back, every byte right: %.1f ms, %.0f us each\n",
	       (now_us() - started) / 1000.0,
	       (double)(now_us() - started) / c->count);
	return 0;
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.count = 100,
		.size = 1024,
		.window = 4,
	};
	struct client client = { 0 };
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
	if (run(&client, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&client.ep))
		status = EXIT_FAILED;
	slots_destroy(&client);
	endpoint_destroy(&client.ep);
	return status;
}
