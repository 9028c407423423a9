/* SPDX-License-Identifier: MIT */
/*
 * Lesson 07: a client that writes a text straight into the server's memory.
 * The RDMA WRITE is one-sided: the server's program takes no part in it and
 * learns nothing of it. So a SEND follows that says that it is done.
 */
#include <rdma_common.h>

/* The longest text, its NUL included. */
#define MAX_SIZE (1 << 20)

/* What the SEND says: these 15 bytes and their NUL. */
#define DONE "RDMA_WRITE_DONE"

struct client_options {
	struct options common;
	const char *text;
	long size; /* of a text made of letters; -1: send TEXT */
};

struct client {
	struct endpoint ep;
	struct remote_region buffer; /* the server's, for the text */
	struct remote_region doorbell; /* the server's, for lesson 08 */
	char *text;
	size_t size; /* bytes of the text, its NUL included */
	struct ibv_mr *text_mr;
	char done[sizeof(DONE)];
	struct ibv_mr *done_mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-m TEXT | -s BYTES]\n"
		"              SERVER_ADDRESS\n"
		"RDMA WRITE a text into the memory of the server, then SEND it the notice.\n"
		"  -m, --message TEXT     the text; its NUL goes with it (default: Hello, written\n"
		"                         by RDMA WRITE)\n"
		"  -s, --size BYTES       write this many bytes, 0 to 1048576: letters, and a NUL\n"
		"                         as the last byte\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), rdma_connect(3).\n");
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "message", required_argument, NULL, 'm' },
		{ "size", required_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "m:s:", longs,
				NULL)) != -1) {
		switch (c) {
		case 'm':
			opt->text = optarg;
			break;
		case 's':
			opt->size = parse_number(optarg, 0, MAX_SIZE);
			if (opt->size >= 0)
				break;
			fprintf(stderr, "client: -s takes 0 to %d bytes\n",
				MAX_SIZE);
			return -1;
		default:
			if (common_option(c, &opt->common))
				return -1;
		}
	}
	return client_operand(argc, argv, &opt->common);
}

/*
 * The text: that of the command line, or letters, the same ones every time.
 * Both end with a NUL, which is one of the bytes that are written; without it
 * the server could not tell where the text ends. (0 bytes have no NUL. There
 * is one byte more than the text needs, since a region has to have one.)
 */
static int make_text(struct client *c, const struct client_options *opt)
{
	size_t i;

	c->size = opt->size >= 0 ? (size_t)opt->size : strlen(opt->text) + 1;
	c->text = calloc(1, c->size + 1);
	if (!c->text) {
		report("calloc", errno);
		return -1;
	}
	if (opt->size < 0)
		memcpy(c->text, opt->text, c->size);
	for (i = 0; opt->size > 0 && i < c->size - 1; i++)
		c->text[i] = 'a' + pattern_byte(1, i) % 26;
	memcpy(c->done, DONE, sizeof(c->done));
	return 0;
}

/* Our card only reads these two, so they need no access flag (lesson 06). */
static int register_memory(struct client *c)
{
	c->text_mr = ibv_reg_mr(c->ep.pd, c->text, c->size + 1, 0);
	c->done_mr = ibv_reg_mr(c->ep.pd, c->done, sizeof(c->done), 0);
	if (!c->text_mr || !c->done_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

static void deregister_memory(struct client *c)
{
	if (c->done_mr && ibv_dereg_mr(c->done_mr))
		report("ibv_dereg_mr", errno);
	if (c->text_mr && ibv_dereg_mr(c->text_mr))
		report("ibv_dereg_mr", errno);
	free(c->text);
}

/*
 * The server's private data: two regions of lesson 06, the buffer and the
 * doorbell. It has come over the network, so it is checked before a request is
 * built from it. (private_data_len proves nothing: it is padded.)
 */
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

/*
 * The one-sided part. Beside our own buffer the request names the server's:
 * an address that means something there only, and the rkey that lets us in.
 * The server's card checks the two and puts the bytes into memory. Its program
 * has posted nothing for that, is not woken, and gets no completion.
 */
static int post_write(struct client *c)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->text,
		.length = c->size,
		.lkey = c->text_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, 0),
		.sg_list = &sge,
		.num_sge = c->size ? 1 : 0,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = c->buffer.addr,
		.wr.rdma.rkey = c->buffer.rkey,
	};

	return endpoint_post_send(&c->ep, &wr);
}

/*
 * The two-sided part, and the notice. It is posted right behind the WRITE, not
 * after the WRITE's completion: the requests of one RC queue pair are carried
 * out in the order of their posting, so when the server has this message, the
 * text is there.
 */
static int post_done(struct client *c)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->done,
		.length = sizeof(c->done),
		.lkey = c->done_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	return endpoint_post_send(&c->ep, &wr);
}

/*
 * Both requests are signalled, so both complete, in the order of their
 * posting. The completion of the WRITE says that the server's card has
 * acknowledged the text, that of the SEND that it has delivered the notice;
 * neither says that the server's program has looked.
 */
static int wait_for_both(struct client *c)
{
	struct ibv_wc wc;
	int i, ret;

	for (i = 0; i < 2; i++) {
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret > 0)
			fprintf(stderr, "the server disconnected before it had "
					"acknowledged everything\n");
		if (ret || check_wc(&wc))
			return -1;
		printf("completed: %s\n", wr_op_str(wr_id_op(wc.wr_id)));
	}
	return 0;
}

static int run(struct client *c, const struct client_options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	/* Two requests under way, the WRITE and the SEND; nothing is received. */
	if (make_text(c, opt) || endpoint_open(&c->ep, &opt->common) ||
	    endpoint_resolve(&c->ep, &opt->common) ||
	    endpoint_create_qp(&c->ep, 2, 0) || register_memory(c) ||
	    endpoint_connect(&c->ep, &param))
		return -1;
	printf("connected\n");
	if (read_regions(c) || post_write(c) || post_done(c))
		return -1;
	printf("posted: RDMA WRITE of %zu bytes, SEND of %zu bytes\n", c->size,
	       sizeof(c->done));
	return wait_for_both(c);
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.text = "Hello, written by RDMA WRITE",
		.size = -1,
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
