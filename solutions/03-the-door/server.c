/* SPDX-License-Identifier: MIT */
/*
 * Exercise 03: a server that looks at who comes, lets in who speaks its
 * version, and tells the others why not. It is the event loop of lesson 03.
 * README.md has the task, hello.h what is on the wire.
 */
#include <rdma_common.h>

#include "hello.h"

#define MAX_MESSAGE 4096

/* What we are waiting for. */
enum state {
	ANY_STATE, /* only in the table */
	LISTENING,
	ACCEPTING,
	RECEIVING,
	RECEIVED, /* the message is here, the client is not gone yet */
	DISCONNECTING,
	DONE,
};

static const char *const state_names[] = {
	[LISTENING] = "LISTENING",	   [ACCEPTING] = "ACCEPTING",
	[RECEIVING] = "RECEIVING",	   [RECEIVED] = "RECEIVED",
	[DISCONNECTING] = "DISCONNECTING", [DONE] = "DONE",
};

struct server {
	enum state state;
	int timeout; /* seconds, for any one state */
	int stop_fd;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;
	char buffer[MAX_MESSAGE];
	int outstanding; /* requests whose completion we have not seen */
	bool received; /* the message has come */
	bool connected; /* there is a connection to say goodbye to */
	bool disconnected; /* the peer has said goodbye */
};

/* What an event carried, as far as it is still there after the ack. */
struct event_copy {
	enum rdma_cm_event_type event;
	int status;
	struct rdma_cm_id *id; /* the connection that it is about */
	uint8_t private_data[256]; /* what the peer sent with it, and zeros */
	size_t private_data_len;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS]\n"
		"Refuse whoever does not speak our version, and say why. Take one message from\n"
		"the first client that does, and exit.\n" SERVER_USAGE_LINES
		"Man pages: rdma_get_cm_event(3), rdma_reject(3), endian(3), poll(2).\n");
}

static int parse_options(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) != -1)
		if (common_option(c, opt))
			return -1;
	return server_operand(argc, argv, opt);
}

static void enter(struct server *s, enum state state)
{
	s->state = state;
	printf("-> %s\n", state_names[state]);
}

/* Lesson 02, steps 8 to 11. */
static int create_qp(struct server *s)
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

	s->pd = ibv_alloc_pd(s->id->verbs);
	if (!s->pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	s->mr = ibv_reg_mr(s->pd, s->buffer, sizeof(s->buffer),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!s->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	s->cq = ibv_create_cq(s->id->verbs, 1, NULL, NULL, 0);
	if (!s->cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	attr.send_cq = s->cq;
	attr.recv_cq = s->cq;
	if (rdma_create_qp(s->id, s->pd, &attr)) {
		report("rdma_create_qp", errno);
		return -1;
	}
	return 0;
}

/* Lesson 02, step 12. */
static int post_receive(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->buffer,
		.length = sizeof(s->buffer),
		.lkey = s->mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = {
		.wr_id = 12,
		.sg_list = &sge,
		.num_sge = 1,
	};
	int err = ibv_post_recv(s->id->qp, &wr, &bad);

	if (err) {
		report("ibv_post_recv", err);
		return -1;
	}
	s->outstanding++;
	return 0;
}

#ifdef SOLUTION
/*
 * Is the client to be let in? What it sent is a stranger's: every field is
 * looked at before it is believed. The length says nothing; where the client
 * sent less, or nothing, there are zeros.
 */
static enum why judge(const struct server *s, const struct event_copy *event)
{
	struct hello hello;

	if (event->private_data_len < sizeof(hello))
		return WHY_NO_HELLO;
	memcpy(&hello, event->private_data, sizeof(hello));
	if (be32toh(hello.magic) != HELLO_MAGIC || hello.zero)
		return WHY_NO_HELLO;
	if (be16toh(hello.version) != HELLO_VERSION)
		return WHY_VERSION;
	if (s->id)
		return WHY_BUSY;
	return WELCOME;
}

/*
 * Refuse the client behind ID, say why, and forget it. Its request brought the
 * id, which is ours to destroy, and was acknowledged before.
 */
static void refuse(struct rdma_cm_id *id, enum why why)
{
	struct refusal refusal = {
		.magic = htobe32(HELLO_MAGIC),
		.why = htobe16(why),
		.version = htobe16(HELLO_VERSION),
	};

	if (rdma_reject(id, &refusal, sizeof(refusal)))
		report("rdma_reject", errno);
	else
		printf("refused a client: %d\n", why);
	rdma_destroy_id(id);
}
#else
/*
 * TODO 2: is the client to be let in? Look at what it sent, whoever it is, and
 * say WELCOME or why not. It is a struct hello, big-endian (endian(3)), or it is
 * anything else; hello.h has the values. Where the client sent nothing there
 * are zeros, and the length is the same for everybody.
 */
static enum why judge(const struct server *s, const struct event_copy *event)
{
	(void)s;
	(void)event;
	return WELCOME;
}

/*
 * TODO 3: refuse the client behind ID, and say why in a struct refusal,
 * big-endian. Who owns ID from here on? Read rdma_reject(3), and in
 * rdma_get_cm_event(3) what a CONNECT_REQUEST brings.
 */
static void refuse(struct rdma_cm_id *id, enum why why)
{
	(void)id;
	(void)why;
}
#endif

/*
 * The actions. Each is called when its event has come, does the next step and
 * says which state that leads to. None of them waits for anything.
 */

/* Lesson 02, steps 8 to 13, for whom we let in. */
static int on_connect_request(struct server *s, const struct event_copy *event)
{
	struct rdma_conn_param param = { .rnr_retry_count = 3 };
	/* 4.096 us x 2^15 = 134 ms, as in the lesson. */
	uint8_t ack_timeout = 15;
	enum why why = judge(s, event);

	if (why != WELCOME) {
#ifdef SOLUTION
		/* Whoever was refused changes nothing: we wait as before. */
		refuse(event->id, why);
		return 0;
#else
		/*
		 * TODO 4: the server goes on after this, and it may be serving
		 * somebody. In which state is it then, and what does the
		 * return value say?
		 */
		refuse(event->id, why);
		enter(s, DONE);
		return -1;
#endif
	}
	s->id = event->id;
	if (rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			    &ack_timeout, sizeof(ack_timeout))) {
		report("rdma_set_option", errno);
		return -1;
	}
	if (create_qp(s) || post_receive(s))
		return -1;
	if (rdma_accept(s->id, &param)) {
		report("rdma_accept", errno);
		return -1;
	}
	enter(s, ACCEPTING);
	return 0;
}

/* Lesson 02, steps 14 and 15. The message may have been quicker. */
static int on_established(struct server *s, const struct event_copy *event)
{
	(void)event;
	s->connected = true;
	enter(s, s->received ? RECEIVED : RECEIVING);
	return 0;
}

/* Lesson 02, step 19: it asks for the end, or answers who asked first. */
static int disconnect(struct server *s)
{
	s->connected = false;
	if (rdma_disconnect(s->id)) {
		report("rdma_disconnect", errno);
		return -1;
	}
	enter(s, s->disconnected ? DONE : DISCONNECTING);
	return 0;
}

/* Lesson 02, steps 17 to 19. */
static int on_disconnected(struct server *s, const struct event_copy *event)
{
	(void)event;
	s->disconnected = true;
	if (s->state == DISCONNECTING) {
		enter(s, DONE);
		return 0;
	}
	if (s->received)
		return disconnect(s);
	fprintf(stderr, "the peer disconnected while we were %s\n",
		state_names[s->state]);
	return -1;
}

/* An event that says that a step has failed, and why. */
static int on_failure(struct server *s, const struct event_copy *copy)
{
	struct rdma_cm_event event = { .event = copy->event,
				       .status = copy->status };

	fprintf(stderr, "rdma_get_cm_event: while %s: ", state_names[s->state]);
	report_event(&event);
	return -1;
}

/* The device is gone, and with it the connection to say goodbye on. */
static int on_device_removal(struct server *s, const struct event_copy *event)
{
	s->connected = false;
	return on_failure(s, event);
}

/* An event that asks nothing of us. */
static int on_ignored(struct server *s, const struct event_copy *event)
{
	(void)s;
	(void)event;
	return 0;
}

struct transition {
	enum state in;
	int (*action)(struct server *s, const struct event_copy *event);
};

/* Every event of the CM has its line; the README goes through them. */
static const struct transition table[] = {
	[RDMA_CM_EVENT_ADDR_RESOLVED] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_ADDR_ERROR] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_ROUTE_RESOLVED] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_ROUTE_ERROR] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_CONNECT_REQUEST] = { ANY_STATE, on_connect_request },
	[RDMA_CM_EVENT_CONNECT_RESPONSE] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_CONNECT_ERROR] = { ACCEPTING, on_failure },
	[RDMA_CM_EVENT_UNREACHABLE] = { ACCEPTING, on_failure },
	[RDMA_CM_EVENT_REJECTED] = { ACCEPTING, on_failure },
	[RDMA_CM_EVENT_ESTABLISHED] = { ACCEPTING, on_established },
	[RDMA_CM_EVENT_DISCONNECTED] = { ANY_STATE, on_disconnected },
	[RDMA_CM_EVENT_DEVICE_REMOVAL] = { ANY_STATE, on_device_removal },
	[RDMA_CM_EVENT_MULTICAST_JOIN] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_MULTICAST_ERROR] = { ANY_STATE, on_failure },
	[RDMA_CM_EVENT_ADDR_CHANGE] = { ANY_STATE, on_ignored },
	[RDMA_CM_EVENT_TIMEWAIT_EXIT] = { ANY_STATE, on_ignored },
};

/* The one place where events are taken: copy, acknowledge, act. */
static int take_event(struct server *s)
{
	struct rdma_cm_event *event;
	struct event_copy copy = { 0 };
	const struct transition *line;

	if (rdma_get_cm_event(s->channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	copy.event = event->event;
	copy.status = event->status;
	copy.id = event->id;
#ifdef SOLUTION
	if (event->param.conn.private_data) {
		copy.private_data_len = event->param.conn.private_data_len;
		memcpy(copy.private_data, event->param.conn.private_data,
		       copy.private_data_len);
	}
#else
	/*
	 * TODO 1: what the peer sent belongs into the copy too, and what was
	 * acknowledged is gone. Read rdma_get_cm_event(3), "private_data".
	 */
#endif
	rdma_ack_cm_event(event);

	printf("%s\n", rdma_event_str(copy.event));
	if ((size_t)copy.event >= sizeof(table) / sizeof(table[0]))
		return on_failure(s, &copy);
	line = &table[copy.event];
	if (line->in != ANY_STATE && line->in != s->state)
		return on_failure(s, &copy);
	return line->action(s, &copy);
}

/* Lesson 02, step 16: look for the message, without waiting. */
static int poll_completion(struct server *s)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(s->cq, 1, &wc);

	if (n < 0) {
		report("ibv_poll_cq", EIO);
		return -1;
	}
	if (n == 0)
		return 0;
	s->outstanding--;
	if (s->state == DISCONNECTING || s->state == DONE)
		return 0; /* flushed, as it should be */
	if (wc.status != IBV_WC_SUCCESS) {
		report_wc(&wc, "receive");
		return -1;
	}
	s->received = true;
	printf("received %u bytes: ", wc.byte_len);
	fwrite(s->buffer, 1, wc.byte_len, stdout);
	printf("\n");
	if (s->state == RECEIVING)
		enter(s, RECEIVED);
	return 0;
}

/* The loop, as at the client. */
static int run(struct server *s)
{
	long long deadline = now_ms() + s->timeout * 1000LL;
	enum state before = s->state;
	long long left;
	int ready;

	while (s->state != DONE || s->outstanding) {
		left = deadline - now_ms();
		if (left <= 0) {
			fprintf(stderr,
				"waited %d s while %s and nothing came: is "
				"the peer alive and answering? (-t waits "
				"longer)\n",
				s->timeout, state_names[s->state]);
			return -1;
		}
		ready = wait_readable(s->channel->fd, s->stop_fd,
				      s->outstanding ? 1 : left);
		if (ready < 0)
			return -1;
		if (s->outstanding && poll_completion(s))
			return -1;
		if (ready && take_event(s))
			return -1;
		if (s->state != before) {
			before = s->state;
			deadline = now_ms() + s->timeout * 1000LL;
		}
	}
	return 0;
}

/* Lesson 02, steps 1 to 5. */
static int start(struct server *s, const struct options *opt)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;
	int err, ret = -1;

	s->timeout = opt->timeout;
	s->stop_fd = open_stop_fd();
	if (s->stop_fd < 0)
		return -1;
	err = rdma_getaddrinfo(opt->address ? opt->address : "::", opt->port,
			       &hints, &info);
	if (err) {
		report_getaddrinfo(opt->address, err);
		goto out;
	}
	if (check_zone(info->ai_src_addr))
		goto out;
	s->channel = rdma_create_event_channel();
	if (!s->channel) {
		report("rdma_create_event_channel", errno);
		goto out;
	}
	if (fcntl(s->channel->fd, F_SETFL, O_NONBLOCK)) {
		report("fcntl", errno);
		goto out;
	}
	if (rdma_create_id(s->channel, &s->listener, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		goto out;
	}
	if (rdma_bind_addr(s->listener, info->ai_src_addr)) {
		report_address("rdma_bind_addr", info->ai_src_addr, errno);
		goto out;
	}
	if (!s->listener->verbs && !is_wildcard(info->ai_src_addr)) {
		report_address("rdma_bind_addr", info->ai_src_addr, ENODEV);
		goto out;
	}
	if (rdma_listen(s->listener, 8)) {
		report("rdma_listen", errno);
		goto out;
	}
	printf("listening on ");
	print_address(rdma_get_local_addr(s->listener));
	printf("\n");
	enter(s, LISTENING);
	ret = 0;
out:
	if (info)
		rdma_freeaddrinfo(info);
	return ret;
}

/* Take down whatever there is, as at the client. */
static void destroy(struct server *s)
{
	if (s->connected && !disconnect(s))
		run(s);
	if (s->id && s->id->qp)
		rdma_destroy_qp(s->id);
	if (s->cq && ibv_destroy_cq(s->cq))
		report("ibv_destroy_cq", errno);
	if (s->mr && ibv_dereg_mr(s->mr))
		report("ibv_dereg_mr", errno);
	if (s->pd && ibv_dealloc_pd(s->pd))
		report("ibv_dealloc_pd", errno);
	if (s->id)
		rdma_destroy_id(s->id);
	if (s->listener)
		rdma_destroy_id(s->listener);
	if (s->channel)
		rdma_destroy_event_channel(s->channel);
	if (s->stop_fd > 0)
		close(s->stop_fd);
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (start(&server, &opt) == 0 && run(&server) == 0)
		status = EXIT_DONE;
	destroy(&server);
	return status;
}
