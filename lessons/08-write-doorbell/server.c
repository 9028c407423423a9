/* SPDX-License-Identifier: MIT */
/*
 * Lesson 08: the server of lesson 07, watching its doorbell. The number in it
 * is put there by the card, while we look at it: everything here is about
 * reading it rightly, and about noticing the rest of the world meanwhile.
 */
#include <stdatomic.h>

#include <rdma_common.h>

#define MAX_SIZE (1 << 20)

/* What the SEND says: these 15 bytes and their NUL. */
#define DONE "RDMA_WRITE_DONE"

/* What a client's private data begins with that sends many (client.c). */
#define MANY "LESSON08"
#define MANY_WIRE_SIZE 16

/*
 * How often the watch looks at the doorbell and the CQ before it looks around
 * once. Looking around is a system call, which takes as long as ten looks do, or
 * thirty.
 */
#define LOOKS 1000

/* How often to look around after DISCONNECTED, a millisecond each time. */
#define GOODBYE_LOOKS 50

struct server_options {
	struct options common;
	long size; /* bytes of the buffer */
	bool by_event; /* sleep until one comes, in place of watching */
};

struct server {
	struct endpoint ep;
	bool by_event; /* how we wait */
	char *buffer; /* the client writes the text here */
	size_t size;
	struct ibv_mr *buffer_mr;
	_Atomic uint64_t doorbell; /* and rings here */
	struct ibv_mr *doorbell_mr;
	char message[64]; /* or its SEND comes here */
	struct ibv_mr *message_mr;
	uint32_t count; /* messages that are to come */
	uint32_t message_size; /* bytes of each; 0: one text of any length */
	bool by_send; /* the SEND of this message has come */
	bool answering; /* our last answer is not acknowledged yet */
	int looks; /* that are left after DISCONNECTED */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s BYTES] [-w busy|event]\n"
		"Let one client RDMA WRITE texts into a buffer, and print them when the client\n"
		"gives notice, by a number in the doorbell or by a SEND.\n"
		"  -s, --size BYTES       the size of the buffer, 1 to 1048576 bytes (default:\n"
		"                         1048576)\n"
		"  -w, --wait WAY         busy: watch the doorbell and the CQ all the time;\n"
		"                         event: sleep until a SEND comes, but look at the\n"
		"                         doorbell once a millisecond (default: busy)\n" SERVER_USAGE_LINES
		"Man pages: ibv_reg_mr(3), ibv_poll_cq(3), ibv_query_qp_data_in_order(3).\n");
}

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "size", required_argument, NULL, 's' },
		{ "wait", required_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:w:", longs,
				NULL)) != -1) {
		switch (c) {
		case 's':
			opt->size = parse_number(optarg, 1, MAX_SIZE);
			if (opt->size > 0)
				break;
			fprintf(stderr, "server: -s takes 1 to %d bytes\n",
				MAX_SIZE);
			return -1;
		case 'w':
			opt->by_event = !strcmp(optarg, "event");
			if (opt->by_event || !strcmp(optarg, "busy"))
				break;
			fprintf(stderr, "server: -w takes busy or event\n");
			return -1;
		default:
			if (common_option(c, &opt->common))
				return -1;
		}
	}
	return server_operand(argc, argv, &opt->common);
}

/* As in lesson 07. */
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
	printf("lending a doorbell of %zu bytes at 0x%llx, rkey 0x%x\n",
	       sizeof(s->doorbell), (unsigned long long)(uintptr_t)&s->doorbell,
	       s->doorbell_mr->rkey);
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

/*
 * What the client's private data says of its messages. It is taken for ours
 * only when it begins with the eight letters: any other client sends one.
 */
static void read_request(struct server *s)
{
	const uint8_t *wire = s->ep.private_data;
	uint32_t count, size;

	s->count = 1;
	if (s->ep.private_data_len < MANY_WIRE_SIZE || memcmp(wire, MANY, 8))
		return;
	memcpy(&count, wire + 8, 4);
	memcpy(&size, wire + 12, 4);
	s->count = be32toh(count);
	s->message_size = be32toh(size);
}

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

/*
 * Has the doorbell come to SEQ?
 *
 * It is atomic because the card writes it behind the compiler's back: a plain
 * variable may be read once and kept in a register, and the loop around it
 * never ends. It is eight bytes at an address that eight divides, so that we
 * do not see half of a number.
 *
 * It is acquire because of what we read next. RC carries out the WRITE of the
 * text before that of the number. That is no use when we read the text before
 * the number, as compiler and CPU may: both may move a read ahead of another
 * one. They may not move it ahead of an acquire.
 */
static bool doorbell_is(struct server *s, uint64_t seq)
{
	uint64_t number =
		atomic_load_explicit(&s->doorbell, memory_order_acquire);

	return be64toh(number) == seq;
}

/* A completion: the SEND of the client, or the end of an answer of ours. */
static int take_completion(struct server *s, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		fprintf(stderr, "our QP was shut: a request of the client "
				"was refused, its own output says which\n");
	if (check_wc(wc))
		return -1;
	if (wr_id_op(wc->wr_id) == WR_SEND) {
		s->answering = false;
		return 0;
	}
	if (wc->byte_len != sizeof(DONE) ||
	    memcmp(s->message, DONE, sizeof(DONE)) != 0) {
		fprintf(stderr,
			"a SEND of %u bytes came that is not " DONE
			" with its NUL, %zu bytes\n",
			wc->byte_len, sizeof(DONE));
		return -1;
	}
	s->by_send = true;
	return 0;
}

/* Say what was waited for and did not come; always -1. */
static int no_notice(struct server *s, uint32_t seq)
{
	if (s->ep.disconnected)
		fprintf(stderr, "the client disconnected before its notice");
	else
		fprintf(stderr,
			"waited %d s for the client's notice and none came: is "
			"it alive?",
			s->ep.timeout);
	fprintf(stderr,
		" (the doorbell has the value 0x%llx, waited for 0x%x)\n",
		(unsigned long long)be64toh(s->doorbell), seq);
	return -1;
}

/*
 * Look around: has the client gone, is it too late, does somebody want us to
 * stop? With --wait event this is also where we sleep: until a completion
 * comes, but for a millisecond only, since the doorbell wakes nobody. So there
 * is no poll after the arming (lesson 04): a wake-up that is lost costs no more.
 * After DISCONNECTED we look on for a moment, as in lesson 07.
 */
static int look_around(struct server *s, uint32_t seq, long long deadline)
{
	int ready, err;

	if (s->ep.disconnected ? s->looks-- == 0 : now_ms() >= deadline)
		return no_notice(s, seq);
	err = s->by_event ? ibv_req_notify_cq(s->ep.cq, 0) : 0;
	if (err) {
		report("ibv_req_notify_cq", err);
		return -1;
	}
	ready = wait_either(s->ep.channel->fd,
			    s->by_event ? s->ep.comp_channel->fd : -1,
			    s->ep.stop_fd,
			    s->by_event || s->ep.disconnected ? 1 : 0);
	if (ready < 0)
		return -1;
	if ((ready & 2) && endpoint_take_notice(&s->ep))
		return -1;
	if ((ready & 1) &&
	    endpoint_take_event(&s->ep, RDMA_CM_EVENT_DISCONNECTED))
		return -1;
	return 0;
}

/*
 * The watch: wait for the notice of message SEQ, whichever it is. Each time
 * round costs one read of memory and one of the CQ, which is memory too; only
 * once in LOOKS times do we leave for the kernel to look around.
 */
static int wait_for_notice(struct server *s, uint32_t seq)
{
	long long deadline = now_ms() + s->ep.timeout * 1000LL;
	unsigned int looks;
	struct ibv_wc wc;
	int n;

	for (looks = 1;; looks++) {
		n = endpoint_poll(&s->ep, &wc);
		if (n < 0 || (n > 0 && take_completion(s, &wc)))
			return -1;
		if (!s->answering && (s->by_send || doorbell_is(s, seq)))
			return 0;
		if (!s->by_event && looks % LOOKS != 0)
			continue;
		if (look_around(s, seq, deadline))
			return -1;
	}
}

/* The only message of a client. Never print more than the buffer. */
static void print_message(const struct server *s)
{
	size_t length = strnlen(s->buffer, s->size);

	if (s->by_send)
		printf("notice: a SEND of %zu bytes, %s\n", sizeof(DONE),
		       s->message);
	else
		printf("notice: the doorbell has the value 1\n");
	printf("buffer: ");
	fwrite(s->buffer, 1, length, stdout);
	printf("%s\n", length == s->size ? " (and no NUL behind it)" : "");
}

/* Message SEQ of many: is each of its bytes what the client has written? */
static int check_message(const struct server *s, uint32_t seq)
{
	size_t size = s->message_size, i;
	char wanted;

	if (size > s->size) {
		fprintf(stderr,
			"message %u of %zu bytes is larger than the "
			"buffer\n",
			seq, size);
		return -1;
	}
	for (i = 0; i < size; i++) {
		wanted = i < size - 1 ? 'a' + pattern_byte(seq, i) % 26 : '\0';
		if (s->buffer[i] == wanted)
			continue;
		fprintf(stderr,
			"message %u: byte %zu is 0x%02x, should be 0x%02x\n",
			seq, i, (unsigned char)s->buffer[i], wanted);
		return -1;
	}
	if (seq <= 3 || seq == s->count)
		printf("message %u of %u: by %s, %zu bytes, all right\n", seq,
		       s->count, s->by_send ? "SEND" : "doorbell", size);
	return 0;
}

/*
 * We are done with the buffer: the client may write the next message. Until it
 * has this empty SEND it writes nothing, or we would read what is half one
 * message and half the next. The receive of the next notice has to be posted
 * before, for the answer may be answered at once.
 */
static int answer(struct server *s)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (s->by_send && post_receive(s))
		return -1;
	s->by_send = false;
	s->answering = true;
	return endpoint_post_send(&s->ep, &wr);
}

/* The CPU time of this process, in microseconds. */
static long long cpu_us(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000000LL + used.tv_nsec / 1000;
}

static int serve(struct server *s)
{
	long long start = now_us(), cpu = cpu_us();
	uint32_t seq;

	for (seq = 1; seq <= s->count; seq++) {
		if (wait_for_notice(s, seq))
			return -1;
		if (s->count == 1) {
			print_message(s);
			return 0;
		}
		if (check_message(s, seq) || answer(s))
			return -1;
	}
	printf("%u messages in %lld ms, with %lld ms of CPU time\n", s->count,
	       (now_us() - start) / 1000, (cpu_us() - cpu) / 1000);
	return 0;
}

static int run(struct server *s, const struct server_options *opt)
{
	s->by_event = opt->by_event;
	s->looks = GOODBYE_LOOKS;
	if (endpoint_open(&s->ep, &opt->common) ||
	    endpoint_listen(&s->ep, &opt->common) ||
	    endpoint_get_request(&s->ep))
		return -1;
	read_request(s);
	if (endpoint_create_qp(&s->ep, 1, 1) || register_memory(s, opt->size) ||
	    post_receive(s) || accept_client(s))
		return -1;
	printf("connected\n");
	if (serve(s))
		return -1;
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
