/* SPDX-License-Identifier: MIT */
/*
 * Lesson 08: the client of lesson 07 with a second way to give notice: another
 * RDMA WRITE, of a number, into a doorbell in the server's memory. And with
 * many messages, so that the two ways can be compared.
 */
#include <rdma_common.h>

#define MAX_SIZE (1 << 20)
#define MAX_COUNT 1000000

/* What the SEND says: these 15 bytes and their NUL. */
#define DONE "RDMA_WRITE_DONE"

/*
 * Our private data, when there is more than one message: the eight letters,
 * then how many messages, then the size of each (u32, big-endian). The letters
 * are there because private data always arrives, as zeros from a client that
 * sent none.
 */
#define MANY "LESSON08"
#define MANY_WIRE_SIZE 16

/* The two ways to give notice, and both by turns. */
enum notify {
	BY_DOORBELL,
	BY_SEND,
	BY_TURNS,
};

static const char *const notify_names[] = {
	[BY_DOORBELL] = "doorbell",
	[BY_SEND] = "SEND",
};

struct client_options {
	struct options common;
	const char *text; /* NULL: the usual one */
	long size; /* of texts made of letters; -1: send TEXT */
	long count;
	enum notify notify;
};

struct client {
	struct endpoint ep;
	struct remote_region buffer; /* the server's, for the text */
	struct remote_region doorbell; /* the server's, for the notice */
	uint32_t count; /* messages */
	long long *times[2]; /* us that each took, by doorbell and by SEND */
	uint32_t taken[2]; /* how many of these */
	char *text;
	size_t size; /* bytes of a text, its NUL included */
	struct ibv_mr *text_mr;
	struct {
		uint64_t number; /* for the doorbell, big-endian */
		char done[sizeof(DONE)]; /* for the SEND */
	} notice;
	struct ibv_mr *notice_mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-m TEXT | -s BYTES]\n"
		"              [-n COUNT] [--notify send|doorbell|turns] SERVER_ADDRESS\n"
		"RDMA WRITE a text into the memory of the server, then give notice of it.\n"
		"  -m, --message TEXT     the text; its NUL goes with it (default: Hello, written\n"
		"                         by RDMA WRITE)\n"
		"  -s, --size BYTES       write this many bytes, 0 to 1048576: letters, and a NUL\n"
		"                         as the last byte\n"
		"  -n, --count COUNT      so many messages, 1 to 1000000 (default: 1); more than one\n"
		"                         are letters (default: 64 bytes), and the server of\n"
		"                         lesson 08 checks and answers each\n"
		"  --notify WAY           send: by a SEND, as in lesson 07; doorbell: by a second\n"
		"                         RDMA WRITE; turns: one message so, the next so\n"
		"                         (default: doorbell)\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), rdma_connect(3).\n");
}

enum {
	NOTIFY = 256
};

static int parse_notify(const char *text, enum notify *notify)
{
	if (!strcmp(text, "doorbell"))
		*notify = BY_DOORBELL;
	else if (!strcmp(text, "send"))
		*notify = BY_SEND;
	else if (!strcmp(text, "turns"))
		*notify = BY_TURNS;
	else
		return -1;
	return 0;
}

static int parse_flag(int c, struct client_options *opt)
{
	switch (c) {
	case 'm':
		opt->text = optarg;
		return 0;
	case 's':
		opt->size = parse_number(optarg, 0, MAX_SIZE);
		if (opt->size >= 0)
			return 0;
		fprintf(stderr, "client: -s takes 0 to %d bytes\n", MAX_SIZE);
		return -1;
	case NOTIFY:
		if (!parse_notify(optarg, &opt->notify))
			return 0;
		fprintf(stderr,
			"client: --notify takes send, doorbell or turns\n");
		return -1;
	case 'n':
		opt->count = parse_number(optarg, 1, MAX_COUNT);
		if (opt->count > 0)
			return 0;
		fprintf(stderr, "client: -n takes 1 to %d messages\n",
			MAX_COUNT);
		return -1;
	default:
		return common_option(c, &opt->common);
	}
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "message", required_argument, NULL, 'm' },
		{ "size", required_argument, NULL, 's' },
		{ "notify", required_argument, NULL, NOTIFY },
		{ "count", required_argument, NULL, 'n' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "m:s:n:", longs,
				NULL)) != -1)
		if (parse_flag(c, opt))
			return -1;
	if (opt->text && opt->count > 1) {
		fprintf(stderr, "client: -m is for one message, and -n says "
				"more\n");
		return -1;
	}
	return client_operand(argc, argv, &opt->common);
}

static int make_memory(struct client *c, const struct client_options *opt)
{
	const char *text = opt->text ? opt->text :
				       "Hello, written by RDMA WRITE";

	c->count = opt->count;
	c->size = opt->size >= 0 ? (size_t)opt->size :
		  c->count > 1	 ? 64 :
				   strlen(text) + 1;
	c->text = calloc(1, c->size + 1);
	c->times[0] = calloc(c->count, sizeof(*c->times[0]));
	c->times[1] = calloc(c->count, sizeof(*c->times[1]));
	if (!c->text || !c->times[0] || !c->times[1]) {
		report("calloc", errno);
		return -1;
	}
	if (opt->size < 0 && c->count == 1)
		memcpy(c->text, text, c->size);
	memcpy(c->notice.done, DONE, sizeof(c->notice.done));
	return 0;
}

static int register_memory(struct client *c)
{
	c->text_mr = ibv_reg_mr(c->ep.pd, c->text, c->size + 1, 0);
	c->notice_mr = ibv_reg_mr(c->ep.pd, &c->notice, sizeof(c->notice), 0);
	if (!c->text_mr || !c->notice_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

static void deregister_memory(struct client *c)
{
	if (c->notice_mr && ibv_dereg_mr(c->notice_mr))
		report("ibv_dereg_mr", errno);
	if (c->text_mr && ibv_dereg_mr(c->text_mr))
		report("ibv_dereg_mr", errno);
	free(c->times[0]);
	free(c->times[1]);
	free(c->text);
}

/* Connect; with many messages the server is told how many, and of what size. */
static int connect_server(struct client *c)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint8_t wire[MANY_WIRE_SIZE];
	uint32_t count = htobe32(c->count), size = htobe32(c->size);

	memcpy(wire, MANY, 8);
	memcpy(wire + 8, &count, 4);
	memcpy(wire + 12, &size, 4);
	if (c->count > 1) {
		param.private_data = wire;
		param.private_data_len = sizeof(wire);
	}
	return endpoint_connect(&c->ep, &param);
}

/* As in lesson 07. */
static int read_regions(struct client *c)
{
	const uint8_t *wire = c->ep.private_data;

	if (c->ep.private_data_len < 2 * REMOTE_REGION_WIRE_SIZE) {
		fprintf(stderr,
			"the server sent %zu bytes of private data, and two "
			"regions are %d: is it the server of this lesson?\n",
			c->ep.private_data_len, 2 * REMOTE_REGION_WIRE_SIZE);
		return -1;
	}
	if (remote_region_unpack(&c->buffer, wire) ||
	    remote_region_unpack(&c->doorbell, wire + REMOTE_REGION_WIRE_SIZE))
		return -1;
	printf("the server's buffer: %u bytes at 0x%llx, rkey 0x%x\n",
	       c->buffer.size, (unsigned long long)c->buffer.addr,
	       c->buffer.rkey);
	printf("the server's doorbell: %u bytes at 0x%llx, rkey 0x%x\n",
	       c->doorbell.size, (unsigned long long)c->doorbell.addr,
	       c->doorbell.rkey);
	if (c->doorbell.size != sizeof(uint64_t)) {
		fprintf(stderr,
			"the server's doorbell has %u bytes, and a doorbell "
			"has 8: is it the server of this lesson?\n",
			c->doorbell.size);
		return -1;
	}
	if (c->size > c->buffer.size) {
		fprintf(stderr,
			"the text has %zu bytes with its NUL, and the server's "
			"buffer %u: write less, or start the server with a "
			"larger --size\n",
			c->size, c->buffer.size);
		return -1;
	}
	return 0;
}

/* RDMA WRITE of LENGTH bytes of MR, from LOCAL on, to the start of REMOTE. */
static int post_write(struct client *c, uint32_t slot, const struct ibv_mr *mr,
		      const void *local, size_t length,
		      const struct remote_region *remote)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)local,
		.length = length,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, slot),
		.sg_list = &sge,
		.num_sge = length ? 1 : 0,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = remote->addr,
		.wr.rdma.rkey = remote->rkey,
	};

	return endpoint_post_send(&c->ep, &wr);
}

/* The notice of lesson 07. */
static int post_done(struct client *c)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->notice.done,
		.length = sizeof(c->notice.done),
		.lkey = c->notice_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 1),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	return endpoint_post_send(&c->ep, &wr);
}

/*
 * The notice of this lesson: message SEQ is in the buffer. A number of its own
 * for each message, so that the server does not have to clear the doorbell,
 * which would race with our next WRITE to it.
 *
 * It is a WRITE of its own, behind that of the text, and not the last bytes of
 * the text: requests are carried out in order, the bytes of one request need
 * not be.
 */
static int ring_doorbell(struct client *c, uint32_t seq)
{
	c->notice.number = htobe64(seq);
	return post_write(c, 1, c->notice_mr, &c->notice.number,
			  sizeof(c->notice.number), &c->doorbell);
}

/* The server's answer is an empty SEND. It needs a receive, not a buffer. */
static int post_receive(struct client *c)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0) };

	return endpoint_post_recv(&c->ep, &wr);
}

/*
 * Wait until the text and its notice are acknowledged, and the server has
 * answered, where it does. Only then may the text and the number be changed:
 * the completions say that our card is done with them here, the answer that
 * the server's program is done with its buffer.
 */
static int wait_until_done(struct client *c, uint32_t seq)
{
	int left = c->count > 1 ? 3 : 2, ret;
	struct ibv_wc wc;

	for (; left > 0; left--) {
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret > 0)
			fprintf(stderr,
				"the server disconnected before message %u was "
				"acknowledged%s\n",
				seq, c->count > 1 ? " and answered" : "");
		else if (ret < 0 && left == 1 && c->count > 1)
			fprintf(stderr,
				"message %u was not answered: does the server "
				"know --count, as that of lesson 08 does?\n",
				seq);
		if (ret || check_wc(&wc))
			return -1;
		if (c->count == 1)
			printf("completed: %s of the %s\n",
			       wr_op_str(wr_id_op(wc.wr_id)),
			       wr_id_slot(wc.wr_id) ? "notice" : "text");
	}
	return 0;
}

static int send_message(struct client *c, uint32_t seq, enum notify notify)
{
	long long start = now_us();

	if (c->count > 1 && post_receive(c))
		return -1;
	if (post_write(c, 0, c->text_mr, c->text, c->size, &c->buffer))
		return -1;
	if (notify == BY_SEND ? post_done(c) : ring_doorbell(c, seq))
		return -1;
	if (wait_until_done(c, seq))
		return -1;
	c->times[notify][c->taken[notify]++] = now_us() - start;
	return 0;
}

/* Message SEQ as letters, others for each SEQ, and a NUL as its last byte. */
static void fill_text(struct client *c, uint32_t seq)
{
	size_t i;

	for (i = 0; c->size > 0 && i < c->size - 1; i++)
		c->text[i] = 'a' + pattern_byte(seq, i) % 26;
}

static int compare(const void *a, const void *b)
{
	long long difference = *(const long long *)a - *(const long long *)b;

	return difference < 0 ? -1 : difference > 0;
}

/*
 * The median: half of the messages took so long or less. An average would be
 * that of the few that took a hundred times as long because somebody else had
 * the CPU.
 */
static void print_times(struct client *c, enum notify notify)
{
	uint32_t n = c->taken[notify];

	if (n == 0)
		return;
	printf("%u message%s of %zu bytes, notice by %s", n, n > 1 ? "s" : "",
	       c->size, notify_names[notify]);
	if (c->count > 1) {
		qsort(c->times[notify], n, sizeof(*c->times[notify]), compare);
		printf(": median %lld us from the text to the answer",
		       c->times[notify][n / 2]);
	}
	printf("\n");
}

static int run(struct client *c, const struct client_options *opt)
{
	bool letters = opt->size >= 0 || opt->count > 1;
	enum notify notify;
	uint32_t seq;

	if (make_memory(c, opt) || endpoint_open(&c->ep, &opt->common) ||
	    endpoint_resolve(&c->ep, &opt->common) ||
	    endpoint_create_qp(&c->ep, 2, 1) || register_memory(c) ||
	    connect_server(c))
		return -1;
	printf("connected\n");
	if (read_regions(c))
		return -1;
	for (seq = 1; seq <= c->count; seq++) {
		if (letters)
			fill_text(c, seq);
		notify = opt->notify != BY_TURNS ? opt->notify :
			 seq % 2		 ? BY_DOORBELL :
						   BY_SEND;
		if (send_message(c, seq, notify))
			return -1;
	}
	print_times(c, BY_DOORBELL);
	print_times(c, BY_SEND);
	return 0;
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.size = -1,
		.count = 1,
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
	deregister_memory(&client);
	endpoint_destroy(&client.ep);
	return status;
}
