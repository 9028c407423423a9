/* SPDX-License-Identifier: MIT */
/*
 * Lesson 15: a server of many clients, in one thread. It sleeps in epoll_wait()
 * on three descriptors, takes all messages out of one shared receive queue, and
 * finds whose a completion is by its wr_id or its QP number. Whatever one client
 * does, the others are served.
 */
#include <sys/epoll.h>

#include <rdma_common.h>

#define MAX_CLIENTS 1024
#define MAX_SLOTS 4096
#define MAX_WINDOW 16

/* A request is these four letters and what follows; so is an answer. */
#define ASK "ASK "
#define ANSWER "ANS "
#define SLOT_SIZE 256 /* the longest of either */

/* Our private data: eight letters, then two u32: window and slot size. */
#define MAGIC "LESSON15"

/* So many completions before the other descriptors have their turn. */
#define BATCH 16

/* How often the clients are looked over, and how long a goodbye may take. */
#define LOOK_MS 250
#define GOODBYE_MS 1000

/*
 * How long a client's card waits when the shared queue is empty, before it tries
 * again: 20 is 10 ms (lesson 05). It is one queue, so all may have to wait for
 * what one has caused; short, and as often as it takes.
 */
#define MIN_RNR_TIMER 20
#define RNR_RETRY 7

/*
 * Answers that may be unacknowledged beyond the window: a client that has its
 * answer sends the next request at once, and the acknowledgement may be late, or
 * lost and come with a later one.
 */
#define LEEWAY 16

/*
 * How long a card waits for an acknowledgement: 19 is 4.096 us x 2^19 = 2.1 s.
 * ACK_TIMEOUT of the earlier lessons (134 ms) was for one connection. Now the
 * requests of all of them wait for one card and one CPU, and whoever sends again
 * too early makes it worse. Both sides set it, and a lost packet costs two seconds.
 */
#define PATIENCE 19

/* Requests that may wait in the CM until we take them. */
#define BACKLOG 128

#define BUCKETS 256

struct client {
	struct rdma_cm_id *id;
	struct client *next; /* in the same bucket */
	uint32_t qp_num;
	enum {
		ACCEPTING,
		SERVING,
		CLOSING
	} state;
	bool disconnected; /* its goodbye, or the answer to ours, has come */
	uint32_t answers; /* posted and not yet acknowledged */
	long long since; /* ms: when it was last heard of; CLOSING: since when */
};

struct server {
	struct endpoint ep; /* what all share; its id stays NULL */
	int epoll;
	struct ibv_srq *srq;
	uint8_t *memory;
	struct ibv_mr *mr;
	struct client *sending[MAX_SLOTS]; /* to whom a slot is being sent */
	struct client *by_qp[BUCKETS];
	uint32_t slots, window, max_clients;
	uint32_t count, most; /* clients that there are; at most at a time */
	uint32_t closing; /* of these, those that we wait to be rid of */
	uint64_t came, refused, dropped, answered;
	bool once; /* end when the last client has left */
	bool draining; /* SIGTERM has come */
	bool now; /* and a second one */
	long long next_look;
};

struct server_options {
	struct options common;
	long slots, window, clients;
	bool once;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [--slots N] [--window N]\n"
		"              [--clients N] [--once]\n"
		"Answer the requests of many clients, until Ctrl-C or SIGTERM: then answer what\n"
		"has come, say goodbye to everybody and end (a second one: end at once).\n"
		"  --slots N              messages of 256 bytes that there is room for, of all\n"
		"                         clients together, 1 to 4096 (default: 256)\n"
		"  --window N             requests that a client may have under way, 1 to 16\n"
		"                         (default: 4)\n"
		"  --clients N            refuse more than this at a time, 1 to 1024 (default: 256)\n"
		"  --once                 end when the last client has left\n"
		"  -a, --address ADDRESS  listen on this address only, IPv4, IPv6 or a name\n"
		"                         (default: every address, IPv4 and IPv6)\n"
		"  -p, --port PORT        listen on this port, 1 to 65535 (default: 10121)\n"
		"  -t, --timeout SECONDS  drop a client of which nothing was heard for so long, 1\n"
		"                         to 3600 (default: 10)\n"
		"  -h, --help             this text\n"
		"Exit status: 0 done, 1 failed, 2 usage.\n"
		"Man pages: ibv_create_srq(3), ibv_post_srq_recv(3), epoll(7), ibv_poll_cq(3).\n");
}

enum {
	SLOTS = 256,
	WINDOW,
	CLIENTS,
	ONCE
};

static long flag_number(const char *flag, long max)
{
	long value = parse_number(optarg, 1, max);

	if (value < 0)
		fprintf(stderr, "server: --%s takes 1 to %ld\n", flag, max);
	return value;
}

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "slots", required_argument, NULL, SLOTS },
		{ "window", required_argument, NULL, WINDOW },
		{ "clients", required_argument, NULL, CLIENTS },
		{ "once", no_argument, NULL, ONCE },
		{ NULL, 0, NULL, 0 },
	};
	long value = 0;
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) != -1) {
		switch (c) {
		case SLOTS:
			value = opt->slots = flag_number("slots", MAX_SLOTS);
			break;
		case WINDOW:
			value = opt->window = flag_number("window", MAX_WINDOW);
			break;
		case CLIENTS:
			value = opt->clients =
				flag_number("clients", MAX_CLIENTS);
			break;
		case ONCE:
			opt->once = true;
			break;
		default:
			value = common_option(c, &opt->common);
			break;
		}
		if (value < 0)
			return -1;
	}
	return server_operand(argc, argv, &opt->common);
}

/* ---- the slots ----------------------------------------------------------- */

/*
 * Give the card SLOT to receive into: the next message, whoever sends it. A slot
 * is always in one of two places, in the shared receive queue or on its way to a
 * client, so there are never more completions to come than there are slots.
 */
static int post_slot(struct server *s, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(s->memory + slot * SLOT_SIZE),
		.length = SLOT_SIZE,
		.lkey = s->mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = {
		.wr_id = wr_id_of(WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = 1,
	};
	int err = ibv_post_srq_recv(s->srq, &wr, &bad);

	if (!err)
		return 0;
	report("ibv_post_srq_recv", err);
	return -1;
}

/* The answer goes back out of the slot that the request came into. */
static int post_answer(struct server *s, struct client *c, uint32_t slot,
		       uint32_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(s->memory + slot * SLOT_SIZE),
		.length = length,
		.lkey = s->mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id_of(WR_SEND, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	int err = ibv_post_send(c->id->qp, &wr, &bad);

	if (err) {
		report("ibv_post_send", err);
		return -1;
	}
	s->sending[slot] = c;
	c->answers++;
	s->answered++;
	return 0;
}

/* ---- what all clients share ---------------------------------------------- */

static int watch(struct server *s, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (!epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event))
		return 0;
	report("epoll_ctl", errno);
	return -1;
}

/*
 * The PD, the memory, the CQ and the shared receive queue. They belong to a
 * device, and which one it is we learn from the first client.
 */
static int make_shared(struct server *s, struct ibv_context *verbs)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = s->slots, .max_sge = 1 },
	};
	uint32_t slot;
	int err;

	s->ep.pd = ibv_alloc_pd(verbs);
	if (!s->ep.pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	s->memory = calloc(s->slots, SLOT_SIZE);
	if (!s->memory) {
		report("calloc", errno);
		return -1;
	}
	s->mr = ibv_reg_mr(s->ep.pd, s->memory, s->slots * SLOT_SIZE,
			   IBV_ACCESS_LOCAL_WRITE);
	if (!s->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	s->srq = ibv_create_srq(s->ep.pd, &attr);
	if (!s->srq) {
		report("ibv_create_srq", errno);
		return -1;
	}
	for (slot = 0; slot < s->slots; slot++)
		if (post_slot(s, slot))
			return -1;
	s->ep.comp_channel = ibv_create_comp_channel(verbs);
	if (!s->ep.comp_channel) {
		report("ibv_create_comp_channel", errno);
		return -1;
	}
	s->ep.cq = ibv_create_cq(verbs, s->slots, NULL, s->ep.comp_channel, 0);
	if (!s->ep.cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	err = ibv_req_notify_cq(s->ep.cq, 0);
	if (err) {
		report("ibv_req_notify_cq", err);
		return -1;
	}
	return watch(s, s->ep.comp_channel->fd);
}

/* ---- one client ---------------------------------------------------------- */

static struct client *find_client(struct server *s, uint32_t qp_num)
{
	struct client *c = s->by_qp[qp_num % BUCKETS];

	while (c && c->qp_num != qp_num)
		c = c->next;
	return c;
}

static void destroy_client(struct server *s, struct client *c)
{
	struct client **at = &s->by_qp[c->qp_num % BUCKETS];

	while (*at && *at != c)
		at = &(*at)->next;
	if (*at) {
		*at = c->next;
		s->count--;
	}
	if (c->state == CLOSING)
		s->closing--;
	if (c->id->qp)
		rdma_destroy_qp(c->id);
	rdma_destroy_id(c->id);
	free(c);
}

/* A client and its QP. It has a send queue of its own, and no receive queue. */
static struct client *create_client(struct server *s, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = s->window + LEEWAY, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.send_cq = s->ep.cq,
		.recv_cq = s->ep.cq,
		.srq = s->srq,
	};
	uint8_t timeout = PATIENCE;
	struct client *c = calloc(1, sizeof(*c));

	if (!c) {
		report("calloc", errno);
		return NULL;
	}
	if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			    &timeout, sizeof(timeout))) {
		report("rdma_set_option", errno);
		goto fail;
	}
	if (rdma_create_qp(id, s->ep.pd, &attr)) {
		report("rdma_create_qp", errno);
		goto fail;
	}
	c->id = id;
	id->context = c;
	c->since = now_ms();
	c->qp_num = id->qp->qp_num;
	c->next = s->by_qp[c->qp_num % BUCKETS];
	s->by_qp[c->qp_num % BUCKETS] = c;
	if (++s->count > s->most)
		s->most = s->count;
	return c;
fail:
	free(c);
	return NULL;
}

static int accept_client(struct server *s, struct client *c)
{
	uint8_t wire[16] = MAGIC;
	uint32_t window = htobe32(s->window), size = htobe32(SLOT_SIZE);
	struct rdma_conn_param param = {
		.private_data = wire,
		.private_data_len = sizeof(wire),
		.rnr_retry_count = RNR_RETRY,
	};
	struct ibv_qp_attr attr = { .min_rnr_timer = MIN_RNR_TIMER };
	int err;

	memcpy(wire + 8, &window, 4);
	memcpy(wire + 12, &size, 4);
	if (rdma_accept(c->id, &param)) {
		report("rdma_accept", errno);
		return -1;
	}
	/*
	 * EINVAL: the client was quick, and its first message was such that the
	 * QP is in the error state. A completion says so.
	 */
	err = ibv_modify_qp(c->id->qp, &attr, IBV_QP_MIN_RNR_TIMER);
	if (err && err != EINVAL) {
		report("ibv_modify_qp", err);
		return -1;
	}
	return 0;
}

/*
 * Begin to be rid of a client. Its QP goes to the error state, which gives us
 * back the slots that were on their way to it; when all of them are here, it is
 * destroyed (look_after). Nothing waits for it.
 */
static void close_client(struct server *s, struct client *c)
{
	if (c->state == CLOSING)
		return;
	/* Fails where the handshake was not over; the QP is shut either way. */
	if (rdma_disconnect(c->id) && c->state == SERVING && errno != EINVAL)
		report("rdma_disconnect", errno);
	if (c->state == ACCEPTING)
		c->disconnected = true; /* nobody to wait for */
	c->state = CLOSING;
	c->since = now_ms();
	s->closing++;
}

/* The same, and say why. */
static void drop(struct server *s, struct client *c, const char *why)
{
	char name[ADDRESS_TEXT];

	if (c->state == CLOSING)
		return;
	address_text(rdma_get_peer_addr(c->id), name, sizeof(name));
	fprintf(stderr, "dropped %s: %s\n", name, why);
	s->dropped++;
	close_client(s, c);
}

/* ---- what comes from the CM ---------------------------------------------- */

static void refuse(struct server *s, struct rdma_cm_id *id, const char *why)
{
	s->refused++;
	rdma_reject(id, why, strlen(why) + 1);
	rdma_destroy_id(id);
}

/* A client wants in. That one cannot be served is no fault of the server. */
static int on_connect_request(struct server *s, struct rdma_cm_id *id)
{
	struct client *c;

	if (!s->ep.pd && make_shared(s, id->verbs)) {
		refuse(s, id, "out of resources");
		return -1;
	}
	if (s->draining || s->count == s->max_clients ||
	    id->verbs != s->ep.pd->context) {
		refuse(s, id,
		       s->draining ? "going down" :
		       s->count == s->max_clients ?
				     "full" :
				     "on another device than the others");
		return 0;
	}
	c = create_client(s, id);
	if (!c)
		refuse(s, id, "out of resources");
	else if (accept_client(s, c))
		destroy_client(s, c);
	return 0;
}

static int take_event(struct server *s)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	struct client *c;

	if (rdma_get_cm_event(s->ep.channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	type = event->event;
	id = event->id;
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		return on_connect_request(s, id);
	c = id->context; /* NULL: the listener */
	switch (type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		if (c->state == ACCEPTING) {
			c->state = SERVING;
			c->since = now_ms();
			s->came++;
		}
		return 0;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (c->state == ACCEPTING)
			s->came++; /* and its ReadyToUse was lost */
		c->disconnected = true;
		close_client(s, c);
		return 0;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		drop(s, c, "the handshake broke off half way");
		return 0;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		fprintf(stderr, "the device was taken away\n");
		return -1;
	default:
		return 0; /* TIMEWAIT_EXIT, ADDR_CHANGE: nothing to do */
	}
}

/* ---- what comes from the CQ ---------------------------------------------- */

static bool is_request(const uint8_t *text, uint32_t length)
{
	return length >= strlen(ASK) && !memcmp(text, ASK, strlen(ASK));
}

/* LENGTH bytes from C have come into SLOT. Returns whether an answer goes out. */
static bool on_message(struct server *s, struct client *c, uint32_t slot,
		       uint32_t length)
{
	uint8_t *text = s->memory + slot * SLOT_SIZE;

	if (c->state == CLOSING)
		return false;
	c->since = now_ms();
	if (!is_request(text, length)) {
		drop(s, c, "what it sent is no request");
		return false;
	}
	if (c->answers == s->window + LEEWAY) {
		drop(s, c, "it has more requests under way than it may");
		return false;
	}
	memcpy(text, ANSWER, strlen(ANSWER));
	if (post_answer(s, c, slot, length)) {
		drop(s, c, "it could not be answered");
		return false;
	}
	return true;
}

/*
 * One completion. A receive out of the shared queue belongs to nobody before it
 * completes: qp_num says whose it became. A SEND's slot we have noted ourselves.
 * Either way the slot goes back into the queue, unless it goes out with an answer.
 */
static int on_completion(struct server *s, const struct ibv_wc *wc)
{
	bool send = wr_id_op(wc->wr_id) == WR_SEND;
	uint32_t slot = wr_id_slot(wc->wr_id);
	struct client *c = send ? s->sending[slot] : find_client(s, wc->qp_num);
	char why[256];

	if (send)
		c->answers--;
	if (wc->status != IBV_WC_SUCCESS) {
		snprintf(why, sizeof(why), "%s: %s, status %d",
			 send ? "its answer did not arrive" :
				"its message could not be received",
			 ibv_wc_status_str(wc->status), wc->status);
		if (c)
			drop(s, c, why);
	} else if (send) {
		if (c->state != CLOSING)
			c->since = now_ms();
	} else if (c && on_message(s, c, slot, wc->byte_len)) {
		return 0;
	}
	return post_slot(s, slot);
}

/* Take BATCH completions at most. Returns how many there were, or -1. */
static int take_completions(struct server *s)
{
	struct ibv_wc wc[BATCH];
	int i, n = ibv_poll_cq(s->ep.cq, BATCH, wc);

	if (n < 0)
		report("ibv_poll_cq", EIO);
	for (i = 0; i < n; i++)
		if (on_completion(s, &wc[i]))
			return -1;
	return n;
}

/* The completion channel: take the notice, and order the next one. */
static int take_notice(struct server *s)
{
	int err;

	if (endpoint_take_notice(&s->ep))
		return -1;
	err = ibv_req_notify_cq(s->ep.cq, 0);
	if (err) {
		report("ibv_req_notify_cq", err);
		return -1;
	}
	return 0;
}

/* ---- signals, the clock, and the loop ------------------------------------ */

/* From now on nobody gets in. Those who are here leave one by one (look_after). */
static int take_signal(struct server *s)
{
	struct signalfd_siginfo info;

	if (read(s->ep.stop_fd, &info, sizeof(info)) != sizeof(info)) {
		report("read", errno);
		return -1;
	}
	s->now = s->draining;
	s->draining = true;
	printf("%s: %u clients to say goodbye to\n", strsignal(info.ssi_signo),
	       s->count);
	return 0;
}

/* Is it time for C to go? */
static void look_at(struct server *s, struct client *c, long long now)
{
	long long silent = now - c->since;
	char why[64];

	if (c->state == CLOSING) {
		if (c->answers == 0 && (c->disconnected || silent > GOODBYE_MS))
			destroy_client(s, c);
	} else if (silent > s->ep.timeout * 1000LL) {
		snprintf(why, sizeof(why), "nothing heard of it for %d s",
			 s->ep.timeout);
		drop(s, c, why);
	} else if (s->draining && c->answers == 0) {
		close_client(s, c);
	}
}

/*
 * The clients who have to go, and those who have gone. Only called when the CQ
 * was found empty: what has come before has been answered, and no completion
 * of a QP that is about to be destroyed is left in there.
 */
static void look_after(struct server *s)
{
	long long now = now_ms();
	struct client *c, *next;
	int i;

	if (now < s->next_look && !s->closing && !s->draining)
		return;
	s->next_look = now + LOOK_MS;
	for (i = 0; i < BUCKETS; i++)
		for (c = s->by_qp[i]; c; c = next) {
			next = c->next;
			look_at(s, c, now);
		}
}

static int serve(struct server *s)
{
	struct epoll_event events[3];
	bool more = false; /* completions left, as far as we know */
	int i, n;

	while (!s->now &&
	       (s->count || !(s->draining || (s->once && s->came)))) {
		n = epoll_wait(s->epoll, events, 3, more ? 0 : LOOK_MS);
		/* EINTR: we were stopped and go on, see signal(7) */
		if (n < 0 && errno != EINTR) {
			report("epoll_wait", errno);
			return -1;
		}
		for (i = 0; i < n; i++) {
			int fd = events[i].data.fd;

			if (fd == s->ep.stop_fd	    ? take_signal(s) :
			    fd == s->ep.channel->fd ? take_event(s) :
						      take_notice(s))
				return -1;
		}
		/*
		 * In every round, whoever woke us: look_after may be about to
		 * destroy a QP.
		 */
		if (s->ep.cq) {
			n = take_completions(s);
			if (n < 0)
				return -1;
			more = n == BATCH;
		}
		if (!more)
			look_after(s);
	}
	return 0;
}

static int open_server(struct server *s, const struct server_options *opt)
{
	s->slots = opt->slots;
	s->window = opt->window;
	s->max_clients = opt->clients;
	s->once = opt->once;
	if (endpoint_open(&s->ep, &opt->common))
		return -1;
	s->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (s->epoll < 0) {
		report("epoll_create1", errno);
		return -1;
	}
	if (watch(s, s->ep.stop_fd) || watch(s, s->ep.channel->fd) ||
	    endpoint_listen(&s->ep, &opt->common))
		return -1;
	printf("%u slots of %d bytes in one queue, %u requests of a client at a time\n",
	       s->slots, SLOT_SIZE, s->window);
	return 0;
}

static void close_server(struct server *s)
{
	int i;

	for (i = 0; i < BUCKETS; i++)
		while (s->by_qp[i])
			destroy_client(s, s->by_qp[i]);
	if (s->srq && ibv_destroy_srq(s->srq))
		report("ibv_destroy_srq", errno);
	if (s->mr && ibv_dereg_mr(s->mr))
		report("ibv_dereg_mr", errno);
	free(s->memory);
	if (s->epoll > 0)
		close(s->epoll);
	endpoint_destroy(&s->ep);
}

int main(int argc, char **argv)
{
	struct server_options opt = {
		.common = OPTIONS_DEFAULT,
		.slots = 256,
		.window = 4,
		.clients = 256,
	};
	struct server server = { .ep.backlog = BACKLOG };
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
	if (open_server(&server, &opt) == 0 && serve(&server) == 0) {
		printf("%llu clients came, %u at a time at most, and %llu were "
		       "refused; %llu answers; %llu clients dropped\n",
		       (unsigned long long)server.came, server.most,
		       (unsigned long long)server.refused,
		       (unsigned long long)server.answered,
		       (unsigned long long)server.dropped);
		status = EXIT_DONE;
	}
	close_server(&server);
	return status;
}
