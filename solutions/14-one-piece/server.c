/* SPDX-License-Identifier: MIT */
/*
 * The server of exercise 14, as it is: it works on each message where it lies in
 * the ring, and so wants it in one piece.
 */
#include "piece.h"

struct server {
	struct endpoint ep;
	uint8_t ring[RING];
	_Atomic uint64_t tail_word; /* the client writes here */
	struct ibv_mr *ring_mr, *tail_mr;
	uint64_t own_head; /* big-endian, to be written to the client */
	struct ibv_mr *own_mr;
	struct remote_region head_word; /* the client's */
	uint64_t head;
	uint32_t number; /* of the last message */
	uint32_t skips;
	long slow; /* milliseconds without anything new before we read */
	uint64_t last_tail;
	long long last_change; /* of the tail, in ms */
	int may_read; /* so many messages before we wait again */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s MS]\n"
		"Take messages out of a ring, each in one piece.\n"
		"  -s, --slow MS          read only when nothing has come for so long, and then one\n"
		"                         message; 0 to 10000 milliseconds (default: 0)\n" SERVER_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "slow", required_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:", longs, NULL)) !=
	       -1) {
		if (c == 's')
			s->slow = parse_number(optarg, 0, 10000);
		else if (common_option(c, opt))
			return -1;
	}
	if (s->slow < 0) {
		fprintf(stderr, "server: -s takes 0 to 10000\n");
		return -1;
	}
	return server_operand(argc, argv, opt);
}

static int register_memory(struct server *s)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	s->ring_mr = ibv_reg_mr(s->ep.pd, s->ring, RING, remote);
	s->tail_mr = ibv_reg_mr(s->ep.pd, &s->tail_word, sizeof(s->tail_word),
				remote);
	s->own_mr = ibv_reg_mr(s->ep.pd, &s->own_head, sizeof(s->own_head), 0);
	if (s->ring_mr && s->tail_mr && s->own_mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static void deregister(struct ibv_mr *mr)
{
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
}

/* Tell the client how far we have read, and wait until it has arrived. */
static int tell_head(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->own_head,
		.length = sizeof(s->own_head),
		.lkey = s->own_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = s->head_word.addr,
		.wr.rdma.rkey = s->head_word.rkey,
	};
	struct ibv_wc wc;
	int ret;

	s->own_head = htobe64(s->head);
	if (endpoint_post_send(&s->ep, &wr))
		return -1;
	ret = endpoint_wait_wc(&s->ep, &wc);
	return ret < 0 ? -1 : ret > 0 ? 0 : check_wc(&wc);
}

static int wrong(const struct server *s, const char *what, uint64_t tail)
{
	printf("after message %u, at %llu with the tail at %llu: %s\n",
	       s->number, (unsigned long long)s->head, (unsigned long long)tail,
	       what);
	return -1;
}

/*
 * A client that overruns us writes into the ring first and to the tail word after:
 * is that what is coming?
 */
static bool overrun(const struct server *s)
{
	long long end = now_ms() + s->ep.timeout * 250LL;
	uint64_t tail;

	do {
		tail = be64toh(atomic_load_explicit(&s->tail_word,
						    memory_order_acquire));
		if (tail > s->head + RING)
			return true;
		poll(NULL, 0, 1);
	} while (now_ms() < end);
	return false;
}

/* One message, where it lies; or a skip. */
static int take(struct server *s, uint64_t tail)
{
	uint32_t place = s->head % RING, left = RING - place;
	struct header header;
	uint32_t length;
	ssize_t bad;

	memcpy(&header, s->ring + place, sizeof(header));
	length = be32toh(header.length);
	if (length == SKIP) {
		if (place == 0)
			return wrong(s, "a skip at the beginning", tail);
		s->skips++;
		s->head += left;
		if (s->head > tail)
			return wrong(s, "the skip was not counted", tail);
		return tell_head(s);
	}
	if (be32toh(header.number) != s->number + 1 ||
	    length != length_of(s->number + 1))
		return wrong(s,
			     overrun(s) ? "the tail is more than a ring ahead" :
					  "not the message that was due",
			     tail);
	if (space_of(length) > left)
		return wrong(s, "the message is in two pieces", tail);
	if (space_of(length) > tail - s->head)
		return wrong(s, "the message goes past the tail", tail);
	bad = pattern_check(s->ring + place + sizeof(header), length,
			    s->number + 1);
	if (bad >= 0)
		return wrong(s, "a byte of the message is wrong", tail);
	s->number++;
	s->head += space_of(length);
	return tell_head(s);
}

/* A slow server reads one message when nothing has come for a while. */
static bool reads_now(struct server *s, uint64_t tail)
{
	if (!s->slow)
		return true;
	if (tail != s->last_tail) {
		s->last_tail = tail;
		s->last_change = now_ms();
	}
	if (s->may_read == 0 && now_ms() - s->last_change >= s->slow) {
		s->may_read = 1;
		s->last_change = now_ms();
	}
	return s->may_read > 0;
}

static int serve(struct server *s)
{
	struct endpoint *ep = &s->ep;
	long long deadline = now_ms() + ep->timeout * 1000LL;
	bool leaving;
	uint64_t tail;
	int ready;

	for (;;) {
		leaving = ep->disconnected;
		tail = be64toh(atomic_load_explicit(&s->tail_word,
						    memory_order_acquire));
		if (tail < s->head || tail > s->head + RING)
			return wrong(s, "the tail is more than a ring ahead",
				     tail);
		if (tail == s->head && leaving)
			return 0;
		if (tail > s->head && reads_now(s, tail)) {
			if (take(s, tail))
				return -1;
			if (s->slow)
				s->may_read--;
			deadline = now_ms() + ep->timeout * 1000LL;
		}
		if (now_ms() > deadline)
			return wrong(s, "nothing came any more", tail);
		ready = wait_readable(
			ep->channel->fd, ep->stop_fd,
			tail == s->head || (s->slow && !s->may_read) ? 1 : 0);
		if (ready < 0)
			return -1;
		if (ready &&
		    endpoint_take_event(ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	}
}

int main(int argc, char **argv)
{
	uint8_t wire[2 * REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &server)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (endpoint_open(ep, &opt) || endpoint_listen(ep, &opt) ||
	    endpoint_get_request(ep) ||
	    remote_region_unpack(&server.head_word, ep->private_data) ||
	    endpoint_create_qp(ep, 1, 1) || register_memory(&server))
		goto out;
	remote_region_pack(wire, server.ring_mr);
	remote_region_pack(wire + REMOTE_REGION_WIRE_SIZE, server.tail_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (endpoint_accept(ep, &param))
		goto out;
	printf("connected\n");
	if (serve(&server) == 0)
		status = EXIT_DONE;
	printf("%u messages came, every one in one piece\n", server.number);
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	deregister(server.ring_mr);
	deregister(server.tail_mr);
	deregister(server.own_mr);
	endpoint_destroy(ep);
	return status;
}
