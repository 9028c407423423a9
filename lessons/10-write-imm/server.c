/* SPDX-License-Identifier: MIT */
/*
 * Lesson 10: the client writes each message into a slot of our memory and
 * tells us of it with the same request: the immediate data comes with the
 * completion of one of our receives, and says which message it is.
 */
#include <rdma_common.h>

#define MAX_SLOTS 64
#define MAX_SIZE ((1 << 20) - 1)

/* Of messages that come after these, no line is printed. */
#define SHOWN 8

/* The header of a message, in 32 bits: its number and its length. */
#define LENGTH_BITS 20
#define header_of(number, length) ((uint32_t)(number) << LENGTH_BITS | (length))
#define header_number(header) ((header) >> LENGTH_BITS)
#define header_length(header) ((header) & ((1u << LENGTH_BITS) - 1))
#define number_of(count) ((count)&0xfff) /* what 12 bits have room for */

struct server_options {
	struct options common;
	long size; /* bytes of a slot */
	long slots;
	long receives; /* posted at a time; -1: one for each slot */
};

/* A message of which we were told, and that is not handled yet. */
struct notice {
	uint32_t header;
	uint32_t length;
};

struct server {
	struct endpoint ep;
	uint8_t *memory; /* the slots */
	struct ibv_mr *mr;
	size_t size;
	uint32_t slots;
	uint32_t messages; /* so many have come */
	struct notice waiting[MAX_SLOTS];
	uint32_t first, count; /* of those that wait */
	uint32_t answering; /* answers that are not acknowledged yet */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s BYTES] [-n SLOTS] [-r N]\n"
		"Take messages that one client writes by RDMA WRITE WITH IMMEDIATE, and answer\n"
		"each.\n"
		"  -s, --size BYTES       the room of a slot, 1 to 1048575 (default: 65536)\n"
		"  -n, --slots SLOTS      how many messages may be under way, 1 to 64 (default: 4)\n"
		"  -r, --receives N       have so many receives posted, 0 to 64 (default: as many\n"
		"                         as slots)\n" SERVER_USAGE_LINES
		"Man pages: ibv_post_recv(3), ibv_poll_cq(3), ibv_post_send(3).\n");
}

static int parse_flag(int c, struct server_options *opt)
{
	switch (c) {
	case 's':
		opt->size = parse_number(optarg, 1, MAX_SIZE);
		if (opt->size > 0)
			return 0;
		fprintf(stderr, "server: -s takes 1 to %d bytes\n", MAX_SIZE);
		return -1;
	case 'n':
		opt->slots = parse_number(optarg, 1, MAX_SLOTS);
		if (opt->slots > 0)
			return 0;
		fprintf(stderr, "server: -n takes 1 to %d slots\n", MAX_SLOTS);
		return -1;
	case 'r':
		opt->receives = parse_number(optarg, 0, MAX_SLOTS);
		if (opt->receives >= 0)
			return 0;
		fprintf(stderr, "server: -r takes 0 to %d receives\n",
			MAX_SLOTS);
		return -1;
	default:
		return common_option(c, &opt->common);
	}
}

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "size", required_argument, NULL, 's' },
		{ "slots", required_argument, NULL, 'n' },
		{ "receives", required_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:n:r:", longs,
				NULL)) != -1)
		if (parse_flag(c, opt))
			return -1;
	return server_operand(argc, argv, &opt->common);
}

/* Before it is written, no byte of a slot is what the client writes there. */
static int register_memory(struct server *s, const struct server_options *opt)
{
	size_t i, size;

	s->size = opt->size;
	s->slots = opt->slots;
	size = s->size * s->slots;
	s->memory = malloc(size);
	if (!s->memory) {
		report("malloc", errno);
		return -1;
	}
	for (i = 0; i < size; i++)
		s->memory[i] = pattern_byte(i / s->size + 1, i % s->size) ^
			       0xff;
	s->mr = ibv_reg_mr(s->ep.pd, s->memory, size,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!s->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

static void deregister_memory(struct server *s)
{
	if (s->mr && ibv_dereg_mr(s->mr))
		report("ibv_dereg_mr", errno);
	free(s->memory);
}

/*
 * A receive without any memory. The data goes where the client's request says;
 * what the receive is for is its completion, which brings the immediate.
 */
static int post_receive(struct server *s)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0) };

	return endpoint_post_recv(&s->ep, &wr);
}

static int post_receives(struct server *s, const struct server_options *opt)
{
	long i, n = opt->receives >= 0 ? opt->receives : opt->slots;

	for (i = 0; i < n; i++)
		if (post_receive(s))
			return -1;
	printf("%u slots of %zu bytes at %p, rkey 0x%x; %ld receives\n",
	       s->slots, s->size, (void *)s->memory, s->mr->rkey, n);
	return 0;
}

/* The private data: the region, and how many slots it is divided into. */
static int accept_client(struct server *s)
{
	uint8_t wire[REMOTE_REGION_WIRE_SIZE + 4];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint32_t slots = htobe32(s->slots);

	remote_region_pack(wire, s->mr);
	memcpy(wire + REMOTE_REGION_WIRE_SIZE, &slots, 4);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	return endpoint_accept(&s->ep, &param);
}

/*
 * A receive has completed: a message. The immediate is big-endian, like
 * everything on the wire; it is valid only where the flag says so. byte_len is
 * what was written, by the card's own count.
 */
static int take_message(struct server *s, const struct ibv_wc *wc)
{
	struct notice *notice;

	if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM ||
	    !(wc->wc_flags & IBV_WC_WITH_IMM)) {
		fprintf(stderr, "a message came that is no RDMA WRITE with "
				"immediate: is the peer the client of this "
				"lesson?\n");
		return -1;
	}
	notice = &s->waiting[(s->first + s->count++) % MAX_SLOTS];
	notice->header = be32toh(wc->imm_data);
	notice->length = wc->byte_len;
	return 0;
}

/* Take one completion: of an answer, or of a receive, which is a message. */
static int take_completion(struct server *s)
{
	struct ibv_wc wc;
	int ret = endpoint_wait_wc(&s->ep, &wc);

	if (ret)
		return ret;
	if (check_wc(&wc))
		return -1;
	if (wr_id_op(wc.wr_id) != WR_SEND)
		return take_message(s, &wc);
	s->answering--;
	return 0;
}

/* Is it the message that is due, of the length that was written, and right? */
static int check_message(struct server *s, const struct notice *notice)
{
	uint32_t slot = s->messages % s->slots, length = notice->length;
	uint32_t due = s->messages + 1;
	ssize_t bad;

	if (header_number(notice->header) != number_of(due) ||
	    header_length(notice->header) != length || length > s->size) {
		fprintf(stderr,
			"the header is 0x%08x: message %u, %u bytes; due was "
			"message %u, and %u bytes were written\n",
			notice->header, header_number(notice->header),
			header_length(notice->header), number_of(due), length);
		return -1;
	}
	bad = pattern_check(s->memory + slot * s->size, length, due);
	if (bad >= 0) {
		fprintf(stderr, "message %u: byte %zd is wrong\n", due, bad);
		return -1;
	}
	if (due <= SHOWN)
		printf("message %u: header 0x%08x, %u bytes in slot %u, every one right\n",
		       due, notice->header, length, slot);
	s->messages++;
	return 0;
}

/*
 * The answer is an immediate alone, with a SEND of no bytes: the header of the
 * message that we are done with. It tells the client that the slot is free, and
 * that we have a receive for what it writes there next. So that has to be
 * posted before.
 */
static int answer(struct server *s, uint32_t header)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(header),
	};

	if (post_receive(s) || endpoint_post_send(&s->ep, &wr))
		return -1;
	s->answering++;
	return 0;
}

/*
 * Until the client leaves. An answer needs a place in the send queue, which
 * has one for each slot; where there is none, the messages wait.
 */
static int serve(struct server *s)
{
	struct notice *notice;
	int ret;

	while (!(ret = take_completion(s))) {
		while (s->count && s->answering < s->slots) {
			notice = &s->waiting[s->first];
			if (check_message(s, notice) ||
			    answer(s, notice->header))
				return -1;
			s->first = (s->first + 1) % MAX_SLOTS;
			s->count--;
		}
	}
	return ret > 0 ? 0 : -1;
}

/*
 * What came without a word? A WRITE WITH IMMEDIATE that finds no receive is
 * refused, but of a long one a part is in our memory by then.
 */
static int print_end(const struct server *s)
{
	ssize_t written;

	if (s->messages) {
		printf("%u messages, the client has left\n", s->messages);
		return 0;
	}
	written = pattern_check(s->memory, s->size, 1);
	if (written < 0)
		written = s->size;
	fprintf(stderr,
		"the client left, and we were told of no message; slot 0 has "
		"the first %zd bytes of one\n",
		written);
	return -1;
}

static int run(struct server *s, const struct server_options *opt)
{
	struct endpoint *ep = &s->ep;

	if (endpoint_open(ep, &opt->common) ||
	    endpoint_listen(ep, &opt->common) || endpoint_get_request(ep) ||
	    endpoint_create_qp(ep, opt->slots, MAX_SLOTS) ||
	    register_memory(s, opt) || post_receives(s, opt) ||
	    accept_client(s) || serve(s))
		return -1;
	return print_end(s);
}

int main(int argc, char **argv)
{
	struct server_options opt = {
		.common = OPTIONS_DEFAULT,
		.size = 65536,
		.slots = 4,
		.receives = -1,
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
