/* SPDX-License-Identifier: MIT */
/*
 * Lesson 03: the client of lesson 01 as an event loop. The steps are the same;
 * what decides which one is next is now the event that came, looked up in a
 * table that has a line for every event there is.
 */
#include <ctype.h>

#include <rdma_common.h>

#define MAX_MESSAGE 4096

/* What we are waiting for. */
enum state {
	ANY_STATE, /* only in the table */
	RESOLVING_ADDRESS,
	RESOLVING_ROUTE,
	CONNECTING,
	SENDING,
	DISCONNECTING,
	DONE,
};

static const char *const state_names[] = {
	[RESOLVING_ADDRESS] = "RESOLVING_ADDRESS",
	[RESOLVING_ROUTE] = "RESOLVING_ROUTE",
	[CONNECTING] = "CONNECTING",
	[SENDING] = "SENDING",
	[DISCONNECTING] = "DISCONNECTING",
	[DONE] = "DONE",
};

struct client {
	enum state state;
	int timeout; /* seconds, for any one state */
	int stop_fd;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	char buffer[MAX_MESSAGE];
	size_t length;
	int outstanding; /* requests whose completion we have not seen */
	bool connected; /* there is a connection to say goodbye to */
	bool disconnected; /* the peer has said goodbye */
};

/* What an event carried, as far as it is still there after the ack. */
struct event_copy {
	enum rdma_cm_event_type event;
	int status;
	uint8_t private_data[256]; /* its length is a uint8_t: 255 at most */
	size_t private_data_len;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-m TEXT] SERVER_ADDRESS\n"
		"Connect to the server of lesson 03 (or 02) and SEND it one message.\n"
		"  -m, --message TEXT     what to send, 0 to 4096 bytes; no NUL follows it\n"
		"                         (default: HelloWorld)\n" CLIENT_USAGE_LINES
		"Man pages: rdma_get_cm_event(3), poll(2).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 const char **message)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "message", required_argument, NULL, 'm' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "m:", longs, NULL)) !=
	       -1) {
		if (c == 'm')
			*message = optarg;
		else if (common_option(c, opt))
			return -1;
	}
	if (strlen(*message) > MAX_MESSAGE) {
		fprintf(stderr, "client: -m takes up to %d bytes\n",
			MAX_MESSAGE);
		return -1;
	}
	return client_operand(argc, argv, opt);
}

static void enter(struct client *c, enum state state)
{
	c->state = state;
	printf("-> %s\n", state_names[state]);
}

/*
 * The actions. Each is called when its event has come, does the next step and
 * says which state that leads to. None of them waits for anything.
 */

/* Lesson 01, steps 7 and 8. */
static int on_addr_resolved(struct client *c, const struct event_copy *event)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};

	(void)event;
	/*
	 * An id may have an address and no device: lesson 02 has seen it with
	 * a bind. ibv_alloc_pd() would crash on that.
	 */
	if (!c->id->verbs) {
		report("rdma_resolve_route", ENODEV);
		return -1;
	}
	c->pd = ibv_alloc_pd(c->id->verbs);
	if (!c->pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	c->mr = ibv_reg_mr(c->pd, c->buffer, sizeof(c->buffer), 0);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	c->cq = ibv_create_cq(c->id->verbs, 1, NULL, NULL, 0);
	if (!c->cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	attr.send_cq = c->cq;
	attr.recv_cq = c->cq;
	if (rdma_create_qp(c->id, c->pd, &attr)) {
		report("rdma_create_qp", errno);
		return -1;
	}
	if (rdma_resolve_route(c->id, c->timeout * 500)) {
		report("rdma_resolve_route", errno);
		return -1;
	}
	enter(c, RESOLVING_ROUTE);
	return 0;
}

/* Lesson 01, step 11. */
static int on_route_resolved(struct client *c, const struct event_copy *event)
{
	struct rdma_conn_param param = {
		.retry_count = 6,
		.rnr_retry_count = 3,
	};
	/*
	 * How long the card waits for an acknowledgement before it sends again:
	 * 4.096 us x 2^15 = 134 ms. The CM's own choice on SoftRoCE is 19 on
	 * kernel 6.1, which is 2.1 s, and with seven tries our deadline would
	 * be over before the card has found out that the peer is dead. (On
	 * 6.12 it is 17, 0.5 s.) It has to be set before the handshake.
	 */
	uint8_t ack_timeout = 15;

	(void)event;
	if (rdma_set_option(c->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			    &ack_timeout, sizeof(ack_timeout))) {
		report("rdma_set_option", errno);
		return -1;
	}
	if (rdma_connect(c->id, &param)) {
		report("rdma_connect", errno);
		return -1;
	}
	enter(c, CONNECTING);
	return 0;
}

/* Lesson 01, step 14. */
static int on_established(struct client *c, const struct event_copy *event)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->buffer,
		.length = c->length,
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = 14,
		.sg_list = &sge,
		.num_sge = c->length ? 1 : 0,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	int err;

	(void)event;
	c->connected = true;
	err = ibv_post_send(c->id->qp, &wr, &bad);
	if (err) {
		report("ibv_post_send", err);
		return -1;
	}
	c->outstanding++;
	enter(c, SENDING);
	return 0;
}

/* An event that says that a step has failed, and why. */
static int on_failure(struct client *c, const struct event_copy *copy)
{
	struct rdma_cm_event event = { .event = copy->event,
				       .status = copy->status };

	fprintf(stderr, "rdma_get_cm_event: while %s: ", state_names[c->state]);
	report_event(&event);
	return -1;
}

/*
 * The server said no. Its private data may say why: in this lesson a text that
 * ends with a NUL. It is the peer's, so it is looked at before it is printed,
 * and its length proves nothing: it is padded to the largest size there is.
 */
static int on_rejected(struct client *c, const struct event_copy *event)
{
	const uint8_t *text = event->private_data;
	size_t i = 0;

	on_failure(c, event);
	while (i < event->private_data_len && isprint(text[i]))
		i++;
	if (i > 0 && i < event->private_data_len && text[i] == 0)
		fprintf(stderr, "the server's reason: %s\n",
			(const char *)text);
	return -1;
}

/* Lesson 01, steps 16 and 17, when it was us; else the peer has gone. */
static int on_disconnected(struct client *c, const struct event_copy *event)
{
	(void)event;
	c->disconnected = true;
	if (c->state == DISCONNECTING) {
		enter(c, DONE);
		return 0;
	}
	fprintf(stderr, "the peer disconnected while we were %s\n",
		state_names[c->state]);
	return -1;
}

/* The device is gone, and with it the connection to say goodbye on. */
static int on_device_removal(struct client *c, const struct event_copy *event)
{
	c->connected = false;
	return on_failure(c, event);
}

/* An event that asks nothing of us. */
static int on_ignored(struct client *c, const struct event_copy *event)
{
	(void)c;
	(void)event;
	return 0;
}

struct transition {
	enum state in;
	int (*action)(struct client *c, const struct event_copy *event);
};

/*
 * Every event of the CM has its line: in which state it may come, and what is
 * done. An event in another state than its own is a failure. The README goes
 * through the lines.
 */
static const struct transition table[] = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = { RESOLVING_ADDRESS, on_addr_resolved },
	[RDMA_CM_EVENT_ADDR_ERROR] = { RESOLVING_ADDRESS, on_failure },
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = { RESOLVING_ROUTE, on_route_resolved },
	[RDMA_CM_EVENT_ROUTE_ERROR] = { RESOLVING_ROUTE, on_failure },
	[RDMA_CM_EVENT_CONNECT_REQUEST] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_CONNECT_RESPONSE] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_CONNECT_ERROR] = { CONNECTING, on_failure },
	[RDMA_CM_EVENT_UNREACHABLE] = { CONNECTING, on_failure },
	[RDMA_CM_EVENT_REJECTED] = { CONNECTING, on_rejected },
	[RDMA_CM_EVENT_ESTABLISHED] = { CONNECTING, on_established },
	[RDMA_CM_EVENT_DISCONNECTED] = { ANY_STATE, on_disconnected },
	[RDMA_CM_EVENT_DEVICE_REMOVAL] = { ANY_STATE, on_device_removal },
	[RDMA_CM_EVENT_MULTICAST_JOIN] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_MULTICAST_ERROR] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_ADDR_CHANGE] = { ANY_STATE, on_ignored },
	[RDMA_CM_EVENT_TIMEWAIT_EXIT] = { ANY_STATE, on_ignored },
};

/*
 * The one place where events are taken: copy what we need, acknowledge, act.
 * In this order, because the memory of the private data dies with the
 * acknowledgement, and because an action may destroy the id, which waits for
 * the acknowledgement.
 */
static int take_event(struct client *c)
{
	struct rdma_cm_event *event;
	struct event_copy copy = { 0 };
	const struct transition *line;

	if (rdma_get_cm_event(c->channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	copy.event = event->event;
	copy.status = event->status;
	if (event->param.conn.private_data) {
		copy.private_data_len = event->param.conn.private_data_len;
		memcpy(copy.private_data, event->param.conn.private_data,
		       copy.private_data_len);
	}
	rdma_ack_cm_event(event);

	printf("%s\n", rdma_event_str(copy.event));
	if ((size_t)copy.event >= sizeof(table) / sizeof(table[0]))
		return on_failure(c, &copy);
	line = &table[copy.event];
	if (line->in != ANY_STATE && line->in != c->state)
		return on_failure(c, &copy);
	return line->action(c, &copy);
}

/*
 * Lesson 01, step 15: it asks, and DISCONNECTED is the answer. Or it answers
 * the peer that asked first; there is no second DISCONNECTED to come then.
 */
static int disconnect(struct client *c)
{
	c->connected = false;
	if (rdma_disconnect(c->id)) {
		report("rdma_disconnect", errno);
		return -1;
	}
	enter(c, c->disconnected ? DONE : DISCONNECTING);
	return 0;
}

/* Lesson 01, step 14a: look for the completion, without waiting. */
static int poll_completion(struct client *c)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(c->cq, 1, &wc);

	if (n < 0) {
		report("ibv_poll_cq", EIO);
		return -1;
	}
	if (n == 0)
		return 0;
	c->outstanding--;
	if (c->state == DISCONNECTING || c->state == DONE)
		return 0; /* flushed, as it should be */
	if (wc.status != IBV_WC_SUCCESS) {
		report_wc(&wc, "SEND");
		return -1;
	}
	printf("SEND of %zu bytes completed\n", c->length);
	return disconnect(c);
}

/*
 * The loop: until we are done, wait for an event, for the completion (which
 * has no descriptor yet; lesson 04 gives it one, and until then we look once a
 * millisecond), for Ctrl-C, or for the end of our patience with this state.
 */
static int run(struct client *c)
{
	long long deadline = now_ms() + c->timeout * 1000LL;
	enum state before = c->state;
	long long left;
	int ready;

	while (c->state != DONE || c->outstanding) {
		left = deadline - now_ms();
		if (left <= 0) {
			fprintf(stderr,
				"waited %d s while %s and nothing came: is "
				"the peer alive and answering? (-t waits "
				"longer)\n",
				c->timeout, state_names[c->state]);
			return -1;
		}
		ready = wait_readable(c->channel->fd, c->stop_fd,
				      c->outstanding ? 1 : left);
		if (ready < 0)
			return -1;
		if (c->outstanding && poll_completion(c))
			return -1;
		if (ready && take_event(c))
			return -1;
		if (c->state != before) {
			before = c->state;
			deadline = now_ms() + c->timeout * 1000LL;
		}
	}
	return 0;
}

/* Lesson 01, steps 1 to 4. */
static int start(struct client *c, const struct options *opt)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL, *source = NULL;
	int err, ret = -1;

	c->timeout = opt->timeout;
	c->stop_fd = open_stop_fd();
	if (c->stop_fd < 0)
		return -1;
	err = rdma_getaddrinfo(opt->server, opt->port, &hints, &info);
	if (err) {
		report_getaddrinfo(opt->server, err);
		goto out;
	}
	if (opt->address) {
		hints.ai_flags = RAI_PASSIVE;
		err = rdma_getaddrinfo(opt->address, NULL, &hints, &source);
		if (err) {
			report_getaddrinfo(opt->address, err);
			goto out;
		}
	}
	if (check_zone(info->ai_dst_addr) ||
	    (source && check_zone(source->ai_src_addr)))
		goto out;
	c->channel = rdma_create_event_channel();
	if (!c->channel) {
		report("rdma_create_event_channel", errno);
		goto out;
	}
	if (fcntl(c->channel->fd, F_SETFL, O_NONBLOCK)) {
		report("fcntl", errno);
		goto out;
	}
	if (rdma_create_id(c->channel, &c->id, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		goto out;
	}
	if (rdma_resolve_addr(c->id, source ? source->ai_src_addr : NULL,
			      info->ai_dst_addr, c->timeout * 500)) {
		report_address("rdma_resolve_addr", info->ai_dst_addr, errno);
		goto out;
	}
	enter(c, RESOLVING_ADDRESS);
	ret = 0;
out:
	if (source)
		rdma_freeaddrinfo(source);
	if (info)
		rdma_freeaddrinfo(info);
	return ret;
}

/*
 * Take down whatever there is. After a failure in the middle of a connection
 * the loop runs once more, to say goodbye and to see the flushed request.
 */
static void destroy(struct client *c)
{
	if (c->connected && !disconnect(c))
		run(c);
	if (c->id && c->id->qp)
		rdma_destroy_qp(c->id);
	if (c->cq && ibv_destroy_cq(c->cq))
		report("ibv_destroy_cq", errno);
	if (c->mr && ibv_dereg_mr(c->mr))
		report("ibv_dereg_mr", errno);
	if (c->pd && ibv_dealloc_pd(c->pd))
		report("ibv_dealloc_pd", errno);
	if (c->id)
		rdma_destroy_id(c->id);
	if (c->channel)
		rdma_destroy_event_channel(c->channel);
	if (c->stop_fd > 0)
		close(c->stop_fd);
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	const char *message = "HelloWorld";
	struct client client = { 0 };
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &message)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	client.length = strlen(message);
	memcpy(client.buffer, message, client.length);
	if (start(&client, &opt) == 0 && run(&client) == 0)
		status = EXIT_DONE;
	destroy(&client);
	return status;
}
