/* SPDX-License-Identifier: MIT */
/*
 * Lesson 15: many clients in one process: connections that come about, ask, and
 * leave side by side, each at its own pace. A connection is a small machine that
 * CM events and completions push on, as in lesson 03.
 */
#include <rdma_common.h>

#define MAX_CLIENTS 10000
#define MAX_AT_ONCE 256
#define MAX_WINDOW 16
#define SLOT_SIZE 256

#define ASK "ASK "
#define ANSWER "ANS "
#define MAGIC "LESSON15"

#define BATCH 16 /* completions at a time */

/*
 * So many handshakes at a time. Each takes several packets of the CM, which come
 * as datagrams: in a storm some are lost, and the CM waits 4 s before it sends one
 * again.
 */
#define HANDSHAKES 16

/* How long our card waits for an acknowledgement: as the server has it. */
#define PATIENCE 19

enum state {
	GONE, /* no connection; it may be used for the next one */
	RESOLVING,
	CONNECTING,
	WAITING, /* connected, and the others are not yet */
	TALKING,
	CLOSING,
};

struct connection {
	struct rdma_cm_id *id;
	enum state state;
	uint32_t place; /* in client->connections */
	uint32_t number; /* which client it is, of all */
	uint32_t sent, completed, answered; /* requests */
	uint32_t outstanding; /* posted, and its completion not yet seen */
	bool disconnected;
};

struct client {
	struct endpoint ep; /* what all share; its id stays NULL */
	struct rdma_addrinfo *to, *from;
	struct connection *connections;
	uint32_t clients, at_once, count, size, window;
	uint8_t *memory; /* of each connection, window slots out and in */
	struct ibv_mr *mr;
	uint32_t started, established, finished, failed;
	uint32_t least, most; /* answers when the first was through */
	bool first_through;
	uint64_t answered;
	long long begin, talk; /* us */
};

struct client_options {
	struct options common;
	long clients, at_once, count, size, window;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [--clients N] [--at-once N]\n"
		"              [-n COUNT] [-s BYTES] [--window N] SERVER_ADDRESS\n"
		"Be many clients: connect, ask, check the answers, leave.\n"
		"  --clients N            connections, 1 to 10000 (default: 1)\n"
		"  --at-once N            so many at a time, 1 to 256; when one has left the next\n"
		"                         comes (default: all, 256 at most). When all are there at\n"
		"                         once, they begin to ask together.\n"
		"  -n, --count COUNT      requests of each connection, 0 to 1000000 (default: 100)\n"
		"  -s, --size BYTES       bytes of a request, 4 to 256 (default: 64)\n"
		"  --window N             requests that each has under way, 1 to 16, and not more\n"
		"                         than the server allows (default: what it allows)\n" CLIENT_USAGE_LINES
		"Man pages: rdma_cm(7), rdma_connect(3), ibv_poll_cq(3).\n");
}

enum {
	CLIENTS = 256,
	AT_ONCE,
	WINDOW
};

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
		{ "clients", required_argument, NULL, CLIENTS },
		{ "at-once", required_argument, NULL, AT_ONCE },
		{ "window", required_argument, NULL, WINDOW },
		{ "count", required_argument, NULL, 'n' },
		{ "size", required_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	long value = 0;
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "n:s:", longs,
				NULL)) != -1) {
		switch (c) {
		case CLIENTS:
			value = opt->clients =
				flag_number("clients", 1, MAX_CLIENTS);
			break;
		case AT_ONCE:
			value = opt->at_once =
				flag_number("at-once", 1, MAX_AT_ONCE);
			break;
		case WINDOW:
			value = opt->window =
				flag_number("window", 1, MAX_WINDOW);
			break;
		case 'n':
			value = opt->count = flag_number("count", 0, 1000000);
			break;
		case 's':
			value = opt->size = flag_number("size", 4, SLOT_SIZE);
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

/* ---- memory and requests ------------------------------------------------- */

/* Of each connection: MAX_WINDOW slots to send from, as many to receive into. */
static struct ibv_sge slot_sge(struct client *c, struct connection *con,
			       enum wr_op op, uint32_t slot)
{
	size_t at = (con->place * 2 + (op == WR_RECV)) * MAX_WINDOW + slot;
	struct ibv_sge sge = {
		.addr = (uintptr_t)(c->memory + at * SLOT_SIZE),
		.length = op == WR_RECV ? SLOT_SIZE : c->size,
		.lkey = c->mr->lkey,
	};

	return sge;
}

/* Which connection a completion belongs to is in its wr_id, with the slot. */
static uint64_t request_id(struct connection *con, enum wr_op op, uint32_t slot)
{
	return wr_id_of(op, con->place * MAX_WINDOW + slot);
}

/* There are as many receives as requests without an answer, or more. */
static int post_receive(struct client *c, struct connection *con, uint32_t slot)
{
	struct ibv_sge sge = slot_sge(c, con, WR_RECV, slot);
	struct ibv_recv_wr *bad, wr = {
		.wr_id = request_id(con, WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = 1,
	};
	int err = ibv_post_recv(con->id->qp, &wr, &bad);

	if (err) {
		report("ibv_post_recv", err);
		return -1;
	}
	con->outstanding++;
	return 0;
}

/* What a request says depends on who asks and how often that one has asked. */
static void fill(struct client *c, struct connection *con, uint8_t *text,
		 const char *word, uint32_t seq)
{
	memcpy(text, word, 4);
	pattern_fill(text + 4, c->size - 4, con->number * 1000003 + seq);
}

static int post_request(struct client *c, struct connection *con)
{
	uint32_t slot = con->sent % c->window;
	struct ibv_sge sge = slot_sge(c, con, WR_SEND, slot);
	struct ibv_send_wr *bad, wr = {
		.wr_id = request_id(con, WR_SEND, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	int err;

	fill(c, con, (uint8_t *)(uintptr_t)sge.addr, ASK, con->sent);
	err = ibv_post_send(con->id->qp, &wr, &bad);
	if (err) {
		report("ibv_post_send", err);
		return -1;
	}
	con->outstanding++;
	con->sent++;
	return 0;
}

static bool answer_is_right(struct client *c, struct connection *con,
			    const uint8_t *text, uint32_t length)
{
	uint8_t wanted[SLOT_SIZE];

	fill(c, con, wanted, ANSWER, con->answered);
	return length == c->size && !memcmp(text, wanted, length);
}

/* ---- one connection, step by step ---------------------------------------- */

/* The PD, the CQ and the memory, when we know the device. */
static int make_shared(struct client *c, struct ibv_context *verbs)
{
	size_t slots = (size_t)c->at_once * 2 * MAX_WINDOW;
	int err;

	c->ep.pd = ibv_alloc_pd(verbs);
	if (!c->ep.pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	c->memory = calloc(slots, SLOT_SIZE);
	if (!c->memory) {
		report("calloc", errno);
		return -1;
	}
	c->mr = ibv_reg_mr(c->ep.pd, c->memory, slots * SLOT_SIZE,
			   IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	c->ep.comp_channel = ibv_create_comp_channel(verbs);
	if (!c->ep.comp_channel) {
		report("ibv_create_comp_channel", errno);
		return -1;
	}
	c->ep.cq = ibv_create_cq(verbs, slots, NULL, c->ep.comp_channel, 0);
	if (!c->ep.cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	err = ibv_req_notify_cq(c->ep.cq, 0);
	if (err)
		report("ibv_req_notify_cq", err);
	return err ? -1 : 0;
}

static int start(struct client *c, struct connection *con)
{
	uint32_t place = con->place;

	memset(con, 0, sizeof(*con));
	con->place = place;
	con->number = c->started++;
	if (rdma_create_id(c->ep.channel, &con->id, con, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		return -1;
	}
	con->state = RESOLVING;
	if (rdma_resolve_addr(con->id, c->from ? c->from->ai_src_addr : NULL,
			      c->to->ai_dst_addr, c->ep.timeout * 500)) {
		report_address("rdma_resolve_addr", c->to->ai_dst_addr, errno);
		return -1;
	}
	return 0;
}

static int connect_it(struct client *c, struct connection *con)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = MAX_WINDOW,
			 .max_recv_wr = MAX_WINDOW,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.send_cq = c->ep.cq,
		.recv_cq = c->ep.cq,
	};
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint8_t timeout = PATIENCE;
	uint32_t slot;

	if (rdma_set_option(con->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			    &timeout, sizeof(timeout))) {
		report("rdma_set_option", errno);
		return -1;
	}
	if (rdma_create_qp(con->id, c->ep.pd, &attr)) {
		report("rdma_create_qp", errno);
		return -1;
	}
	for (slot = 0; slot < MAX_WINDOW; slot++)
		if (post_receive(c, con, slot))
			return -1;
	if (rdma_connect(con->id, &param)) {
		report("rdma_connect", errno);
		return -1;
	}
	con->state = CONNECTING;
	return 0;
}

/* Say goodbye, or answer it: what is still posted comes back, flushed. */
static void close_it(struct connection *con)
{
	if (con->state == CLOSING)
		return;
	if (con->state < WAITING)
		con->disconnected = true; /* nobody to wait for */
	con->state = CLOSING;
	if (con->id)
		rdma_disconnect(con->id);
}

static void fail(struct client *c, struct connection *con)
{
	if (con->state != CLOSING)
		c->failed++;
	close_it(con);
}

/* The first who is through: how far are the others? */
static void compare_all(struct client *c)
{
	uint32_t i, n;

	c->first_through = true;
	c->least = c->count;
	for (i = 0; i < c->at_once; i++) {
		n = c->connections[i].answered;
		if (n < c->least)
			c->least = n;
		if (n > c->most)
			c->most = n;
	}
}

/* Send what the window has room for; or leave, when all has been answered. */
static int talk(struct client *c, struct connection *con)
{
	while (con->sent < c->count && con->sent - con->answered < c->window &&
	       con->sent - con->completed < c->window)
		if (post_request(c, con))
			return -1;
	if (con->answered == c->count && con->completed == c->count) {
		if (!c->first_through)
			compare_all(c);
		close_it(con);
	}
	return 0;
}

/* What the server's private data says, and nothing else: a window and a size. */
static int read_terms(struct client *c, const struct rdma_cm_event *event)
{
	const uint8_t *wire = event->param.conn.private_data;
	uint32_t window, size;

	if (event->param.conn.private_data_len < 16 || memcmp(wire, MAGIC, 8)) {
		fprintf(stderr,
			"the server's private data does not begin with " MAGIC
			": is it the server of this lesson?\n");
		return -1;
	}
	memcpy(&window, wire + 8, 4);
	memcpy(&size, wire + 12, 4);
	window = be32toh(window);
	size = be32toh(size);
	if (c->size > size) {
		fprintf(stderr,
			"a request has %u bytes, and the server's slots "
			"%u: ask for less with -s\n",
			c->size, size);
		return -1;
	}
	if (!c->window)
		c->window = window < MAX_WINDOW ? window : MAX_WINDOW;
	if (c->window == 0 || c->window > window) {
		fprintf(stderr,
			"--window %u is more than the server allows, "
			"which is %u\n",
			c->window, window);
		return -1;
	}
	return 0;
}

/* When all are there at once they begin together; otherwise each when it is. */
static int on_established(struct client *c, struct connection *con)
{
	c->established++;
	con->state = WAITING;
	if (c->at_once == c->clients && !c->talk)
		return 0;
	con->state = TALKING;
	return talk(c, con);
}

/* Are all there who will come? */
static void begin_together(struct client *c)
{
	struct connection *con;

	if (c->at_once < c->clients || c->talk ||
	    c->established + c->failed < c->clients)
		return;
	printf("%u connections in %.1f ms\n", c->established,
	       (now_us() - c->begin) / 1000.0);
	c->talk = now_us();
	for (con = c->connections; con < c->connections + c->at_once; con++) {
		if (con->state != WAITING)
			continue;
		con->state = TALKING;
		if (talk(c, con))
			fail(c, con);
	}
}

/* The text with which the server refuses, if there is one. */
static void report_refusal(const struct rdma_cm_event *event)
{
	const char *text = event->param.conn.private_data;
	size_t length = event->param.conn.private_data_len;

	report_event(event);
	if (text && length && *text)
		fprintf(stderr, "the server says: %.*s\n", (int)length, text);
}

static int on_event(struct client *c, struct connection *con,
		    const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (!c->ep.pd && make_shared(c, con->id->verbs))
			return -1;
		if (!rdma_resolve_route(con->id, c->ep.timeout * 500))
			return 0;
		report("rdma_resolve_route", errno);
		return -1;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return connect_it(c, con);
	case RDMA_CM_EVENT_ESTABLISHED:
		return read_terms(c, event) ? -1 : on_established(c, con);
	case RDMA_CM_EVENT_DISCONNECTED:
		con->disconnected = true;
		if (con->state != CLOSING) {
			fprintf(stderr,
				"client %u: the server ended the connection "
				"after %u of %u answers\n",
				con->number, con->answered, c->count);
			return -1;
		}
		return 0;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		return 0;
	default:
		fprintf(stderr, "client %u: ", con->number);
		report_refusal(event);
		return -1;
	}
}

/* ---- completions --------------------------------------------------------- */

static int on_completion(struct client *c, struct connection *con,
			 const struct ibv_wc *wc)
{
	uint32_t slot = wr_id_slot(wc->wr_id) % MAX_WINDOW;
	struct ibv_sge sge;

	con->outstanding--;
	if (con->state == CLOSING)
		return 0; /* flushed, as it should be */
	if (check_wc(wc))
		return -1;
	if (wr_id_op(wc->wr_id) == WR_SEND) {
		con->completed++;
		return talk(c, con);
	}
	sge = slot_sge(c, con, WR_RECV, slot);
	if (!answer_is_right(c, con, (uint8_t *)(uintptr_t)sge.addr,
			     wc->byte_len)) {
		fprintf(stderr, "client %u: answer %u is wrong\n", con->number,
			con->answered);
		return -1;
	}
	con->answered++;
	c->answered++;
	return post_receive(c, con, slot) || talk(c, con) ? -1 : 0;
}

/* All completions that there are. */
static int take_completions(struct client *c)
{
	struct connection *con;
	struct ibv_wc wc[BATCH];
	int i, n;

	do {
		n = ibv_poll_cq(c->ep.cq, BATCH, wc);
		if (n < 0) {
			report("ibv_poll_cq", EIO);
			return -1;
		}
		for (i = 0; i < n; i++) {
			con = &c->connections[wr_id_slot(wc[i].wr_id) /
					      MAX_WINDOW];
			if (on_completion(c, con, &wc[i]))
				fail(c, con);
		}
	} while (n > 0);
	return 0;
}

/*
 * One event of the CM. It is acted upon before it is acknowledged, and not after
 * (lesson 03): its private data dies with it, and no action destroys an id, which
 * is for next_ones() to do. And before it the completions: what has come before a
 * goodbye counts.
 */
static int take_event(struct client *c)
{
	struct rdma_cm_event *event;
	struct connection *con;

	if (c->ep.cq && take_completions(c))
		return -1;
	if (rdma_get_cm_event(c->ep.channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	con = event->id->context;
	if (on_event(c, con, event))
		fail(c, con);
	rdma_ack_cm_event(event);
	return 0;
}

/* ---- all of them --------------------------------------------------------- */

static void destroy_it(struct connection *con)
{
	if (con->id && con->id->qp)
		rdma_destroy_qp(con->id);
	if (con->id)
		rdma_destroy_id(con->id);
	con->id = NULL;
	con->state = GONE;
}

/* Let those go who are done, and start the next in their place. */
static void next_ones(struct client *c)
{
	struct connection *con, *end = c->connections + c->at_once;
	int handshakes = 0;

	for (con = c->connections; con < end; con++)
		if (con->state == RESOLVING || con->state == CONNECTING)
			handshakes++;
	for (con = c->connections; con < end; con++) {
		do {
			if (con->state == CLOSING && con->disconnected &&
			    con->outstanding == 0) {
				destroy_it(con);
				c->finished++;
			}
			if (con->state != GONE || c->started == c->clients ||
			    handshakes >= HANDSHAKES)
				break;
			handshakes++;
			if (start(c, con))
				fail(c, con);
		} while (con->state == CLOSING);
	}
	begin_together(c);
}

/* Sleep until something happens, and act upon it. */
static int step(struct client *c)
{
	int err, ready;

	ready = wait_either(c->ep.comp_channel ? c->ep.comp_channel->fd : -1,
			    c->ep.channel->fd, c->ep.stop_fd,
			    c->ep.timeout * 1000);
	if (ready < 0)
		return -1;
	if (ready == 0) {
		fprintf(stderr,
			"waited %d s and nothing came: %u connections of %u "
			"were established, %u are through\n",
			c->ep.timeout, c->established, c->clients, c->finished);
		return -1;
	}
	if ((ready & 2) && take_event(c))
		return -1;
	if (!(ready & 1))
		return 0;
	if (endpoint_take_notice(&c->ep))
		return -1;
	err = ibv_req_notify_cq(c->ep.cq, 0);
	if (err) {
		report("ibv_req_notify_cq", err);
		return -1;
	}
	return take_completions(c);
}

static void print_result(struct client *c)
{
	long long us = now_us() - (c->talk ? c->talk : c->begin);

	printf("%llu requests of %u bytes answered, every byte right: %.1f ms, "
	       "%.0f a second\n",
	       (unsigned long long)c->answered, c->size, us / 1000.0,
	       c->answered * 1e6 / us);
	if (c->at_once == c->clients && c->clients > 1 && c->first_through)
		printf("when the first was through, the others had %u to %u of "
		       "%u answers\n",
		       c->least, c->most, c->count);
}

static int run(struct client *c, const struct client_options *opt)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	const char *server = opt->common.server;
	uint32_t i;
	int err;

	c->clients = opt->clients;
	c->at_once = opt->at_once ? opt->at_once : MAX_AT_ONCE;
	if (c->at_once > c->clients)
		c->at_once = c->clients;
	c->count = opt->count;
	c->size = opt->size;
	c->window = opt->window;
	c->connections = calloc(c->at_once, sizeof(*c->connections));
	if (!c->connections) {
		report("calloc", errno);
		return -1;
	}
	for (i = 0; i < c->at_once; i++)
		c->connections[i].place = i;
	if (endpoint_open(&c->ep, &opt->common))
		return -1;
	err = rdma_getaddrinfo(server, opt->common.port, &hints, &c->to);
	if (err) {
		report_getaddrinfo(server, err);
		return -1;
	}
	hints.ai_flags = RAI_PASSIVE;
	err = opt->common.address ? rdma_getaddrinfo(opt->common.address, NULL,
						     &hints, &c->from) :
				    0;
	if (err) {
		report_getaddrinfo(opt->common.address, err);
		return -1;
	}
	if (check_zone(c->to->ai_dst_addr))
		return -1;
	c->begin = now_us();
	for (next_ones(c); c->finished < c->clients; next_ones(c))
		if (step(c))
			return -1;
	print_result(c);
	if (c->failed)
		printf("%u of %u connections failed\n", c->failed, c->clients);
	return c->failed ? -1 : 0;
}

static void destroy(struct client *c)
{
	uint32_t i;

	for (i = 0; c->connections && i < c->at_once; i++) {
		if (c->connections[i].id)
			close_it(&c->connections[i]);
		destroy_it(&c->connections[i]);
	}
	if (c->mr && ibv_dereg_mr(c->mr))
		report("ibv_dereg_mr", errno);
	free(c->memory);
	free(c->connections);
	if (c->from)
		rdma_freeaddrinfo(c->from);
	if (c->to)
		rdma_freeaddrinfo(c->to);
	endpoint_destroy(&c->ep);
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.clients = 1,
		.count = 100,
		.size = 64,
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
	destroy(&client);
	return status;
}
