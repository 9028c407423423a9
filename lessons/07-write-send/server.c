/* SPDX-License-Identifier: MIT */
/*
 * Lesson 07: the server lends the client a buffer and lets it write there. It
 * sees nothing of that; what it waits for is the SEND that comes behind it.
 */
#include <stdatomic.h>

#include <rdma_common.h>

#define MAX_SIZE (1 << 20)

/* What the SEND says: these 15 bytes and their NUL. */
#define DONE "RDMA_WRITE_DONE"

/* How often to look after DISCONNECTED, with a millisecond before each look. */
#define GOODBYE_LOOKS 50

struct server_options {
	struct options common;
	long size; /* bytes of the buffer */
};

struct server {
	struct endpoint ep;
	char *buffer; /* the client writes here */
	size_t size;
	struct ibv_mr *buffer_mr;
	_Atomic uint64_t doorbell; /* and, from lesson 08 on, here */
	struct ibv_mr *doorbell_mr;
	/*
	 * The SEND comes here. There is room for more than the 16 bytes of the
	 * notice: what is a little longer is then seen and named, and not an
	 * error of the receive.
	 */
	char message[64];
	struct ibv_mr *message_mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s BYTES]\n"
		"Let one client RDMA WRITE a text into a buffer, and print it when the client\n"
		"gives notice: by a SEND, or by a 1 in the doorbell, as the client of lesson 08.\n"
		"  -s, --size BYTES       the size of the buffer, 1 to 1048576 bytes (default:\n"
		"                         1048576)\n" SERVER_USAGE_LINES
		"Man pages: ibv_reg_mr(3), ibv_post_recv(3), rdma_accept(3).\n");
}

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "size", required_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:", longs, NULL)) !=
	       -1) {
		if (c != 's') {
			if (common_option(c, &opt->common))
				return -1;
			continue;
		}
		opt->size = parse_number(optarg, 1, MAX_SIZE);
		if (opt->size < 0) {
			fprintf(stderr, "server: -s takes 1 to %d bytes\n",
				MAX_SIZE);
			return -1;
		}
	}
	return server_operand(argc, argv, &opt->common);
}

/*
 * Three regions with different rights. The buffer and the doorbell are for the
 * client to write to, the message is not: only our own card puts it there.
 */
static int register_memory(struct server *s, size_t size)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	s->size = size;
	s->buffer = calloc(1, size);
	if (!s->buffer) {
		report("calloc", errno);
		return -1;
	}
	s->buffer_mr = ibv_reg_mr(s->ep.pd, s->buffer, s->size, remote);
	s->doorbell_mr =
		ibv_reg_mr(s->ep.pd, &s->doorbell, sizeof(s->doorbell), remote);
	s->message_mr = ibv_reg_mr(s->ep.pd, s->message, sizeof(s->message),
				   IBV_ACCESS_LOCAL_WRITE);
	if (!s->buffer_mr || !s->doorbell_mr || !s->message_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	printf("lending a buffer of %zu bytes at 0x%llx, rkey 0x%x\n", s->size,
	       (unsigned long long)(uintptr_t)s->buffer, s->buffer_mr->rkey);
	return 0;
}

static void deregister_memory(struct server *s)
{
	if (s->message_mr && ibv_dereg_mr(s->message_mr))
		report("ibv_dereg_mr", errno);
	if (s->doorbell_mr && ibv_dereg_mr(s->doorbell_mr))
		report("ibv_dereg_mr", errno);
	if (s->buffer_mr && ibv_dereg_mr(s->buffer_mr))
		report("ibv_dereg_mr", errno);
	free(s->buffer);
}

/* The WRITE needs no receive. The SEND does, and before the accept. */
static int post_receive(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->message,
		.length = sizeof(s->message),
		.lkey = s->message_mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, 0),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&s->ep, &wr);
}

/* Accept, and tell the client in our private data what it may write to. */
static int accept_client(struct server *s)
{
	uint8_t wire[2 * REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	remote_region_pack(wire, s->buffer_mr);
	remote_region_pack(wire + REMOTE_REGION_WIRE_SIZE, s->doorbell_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	return endpoint_accept(&s->ep, &param);
}

/* Has the doorbell the value 1? Lesson 08 is about this line. */
static bool doorbell_rung(struct server *s)
{
	return be64toh(atomic_load_explicit(&s->doorbell,
					    memory_order_acquire)) == 1;
}

/*
 * A message has come: is it the notice? Or a completion that says that our QP
 * has been shut. That is all that we see of a WRITE that was refused: our card
 * tells the client why, and us only that nothing more will come.
 */
static int check_message(const struct server *s, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		fprintf(stderr, "our QP was shut: a request of the client "
				"was refused, its own output says which\n");
	if (check_wc(wc))
		return -1;
	if (wc->byte_len != sizeof(DONE) ||
	    memcmp(s->message, DONE, sizeof(DONE)) != 0) {
		fprintf(stderr,
			"a SEND of %u bytes came that is not " DONE
			" with its NUL, %zu bytes\n",
			wc->byte_len, sizeof(DONE));
		return -1;
	}
	printf("notice: a SEND of %u bytes, %s\n", wc->byte_len, s->message);
	return 0;
}

/*
 * Wait for the notice. The SEND alone could be waited for in sleep, with
 * endpoint_wait_wc(): its completion wakes us. The doorbell wakes nobody, so
 * for its sake we look at both once a millisecond.
 *
 * The CQ and the doorbell are looked at for a moment more after DISCONNECTED: a
 * client may give its notice and go, and a card may answer a request that it
 * refuses first and shut the QP after (lesson 06).
 */
static int wait_for_notice(struct server *s)
{
	long long deadline = now_ms() + s->ep.timeout * 1000LL;
	int ready, n, looks = GOODBYE_LOOKS;
	struct ibv_wc wc;

	for (;;) {
		if (doorbell_rung(s)) {
			printf("notice: the doorbell has the value 1\n");
			return 0;
		}
		n = endpoint_poll(&s->ep, &wc);
		if (n)
			return n < 0 ? -1 : check_message(s, &wc);
		if (s->ep.disconnected ? looks-- == 0 : now_ms() >= deadline)
			break;
		ready = wait_readable(s->ep.channel->fd, s->ep.stop_fd, 1);
		if (ready < 0)
			return -1;
		if (ready &&
		    endpoint_take_event(&s->ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	}
	if (s->ep.disconnected)
		fprintf(stderr, "the client disconnected before its notice");
	else
		fprintf(stderr,
			"waited %d s for the client's notice and none came: is "
			"it alive?",
			s->ep.timeout);
	fprintf(stderr, " (the doorbell has the value 0x%llx)\n",
		(unsigned long long)be64toh(s->doorbell));
	return -1;
}

/* Print the text, and never more than the buffer: the NUL is the client's. */
static void print_buffer(const struct server *s)
{
	size_t length = strnlen(s->buffer, s->size);

	printf("buffer: ");
	fwrite(s->buffer, 1, length, stdout);
	printf("%s\n", length == s->size ? " (and no NUL behind it)" : "");
}

static int run(struct server *s, const struct server_options *opt)
{
	if (endpoint_open(&s->ep, &opt->common) ||
	    endpoint_listen(&s->ep, &opt->common) ||
	    endpoint_get_request(&s->ep) || endpoint_create_qp(&s->ep, 0, 1) ||
	    register_memory(s, opt->size) || post_receive(s) ||
	    accept_client(s))
		return -1;
	printf("connected\n");
	if (wait_for_notice(s))
		return -1;
	print_buffer(s);
	if (s->ep.disconnected)
		return 0;
	return endpoint_wait_event(&s->ep, RDMA_CM_EVENT_DISCONNECTED);
}

int main(int argc, char **argv)
{
	struct server_options opt = {
		.common = OPTIONS_DEFAULT,
		.size = MAX_SIZE,
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
	deregister_memory(&server);
	endpoint_destroy(&server.ep);
	return status;
}
