/* SPDX-License-Identifier: MIT */
/*
 * Exercise 15: a server that adds up, for each of its customers. They share one
 * receive queue, and each has a sum of its own. README.md has the task.
 */
#include <rdma_common.h>

#include "tally.h"

#define MAX_SLOTS 64
#define MAX_CUSTOMERS 64

struct customer {
	struct rdma_cm_id *id; /* NULL: this place is free */
	uint32_t sum;
	int answers; /* posted, and their completion not yet seen */
	bool leaving; /* say_goodbye() was called */
};

struct server {
	struct endpoint ep; /* what all share; its id stays NULL */
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	uint8_t memory[MAX_SLOTS][SLOT_SIZE];
	long slots, expected;
	struct customer customers[MAX_CUSTOMERS];
	struct customer *sending[MAX_SLOTS]; /* whose answer is in this slot */
	long gone; /* customers that have come and left */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s N] [-c N]\n"
		"Add up what each customer sends, until all have come and left.\n"
		"  -s, --slots N          slots in the shared receive queue, 1 to 64 (default: 8)\n"
		"  -c, --customers N      end after so many, 1 to 1000 (default: 1)\n" SERVER_USAGE_LINES
		"Man pages: ibv_post_srq_recv(3), ibv_poll_cq(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "slots", required_argument, NULL, 's' },
		{ "customers", required_argument, NULL, 'c' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	s->slots = 8;
	s->expected = 1;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "s:c:", longs,
				   NULL)) != -1) {
		if (flag == 's')
			s->slots = parse_number(optarg, 1, MAX_SLOTS);
		else if (flag == 'c')
			s->expected = parse_number(optarg, 1, 1000);
		else if (common_option(flag, opt))
			return -1;
	}
	if (s->slots < 0 || s->expected < 0) {
		fprintf(stderr, "server: -s takes 1 to %d, -c 1 to 1000\n",
			MAX_SLOTS);
		return -1;
	}
	return server_operand(argc, argv, opt);
}

/* Put SLOT into the shared receive queue. */
static int post_slot(struct server *s, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->memory[slot],
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

/*
 * Send the customer the first 4 bytes of SLOT. From here on it is in
 * s->sending[slot] whose answer that is, and counted in its answers.
 */
static int post_answer(struct server *s, struct customer *c, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->memory[slot],
		.length = NUMBER_SIZE,
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
	return 0;
}

/*
 * Be done with a customer. Its QP is shut, and what was under way on it completes
 * with an error. When its last answer has completed (answers is 0), look_after()
 * destroys it. It may be called twice.
 */
static void say_goodbye(struct customer *c)
{
	if (!c->leaving)
		rdma_disconnect(c->id);
	c->leaving = true;
}

#ifdef SOLUTION
/* Whose is this completion? NULL: of one who is not here any more. */
static struct customer *whose(struct server *s, const struct ibv_wc *wc)
{
	struct customer *c;

	if (wr_id_op(wc->wr_id) == WR_SEND)
		return s->sending[wr_id_slot(wc->wr_id)];
	for (c = s->customers; c < s->customers + MAX_CUSTOMERS; c++)
		if (c->id && c->id->qp->qp_num == wc->qp_num)
			return c;
	return NULL;
}

/* A message is in SLOT. Returns whether its answer is on its way. */
static bool on_message(struct server *s, struct customer *c, uint32_t slot,
		       uint32_t length)
{
	uint32_t number;

	if (c->leaving)
		return false;
	if (length != NUMBER_SIZE) {
		say_goodbye(c);
		return false;
	}
	memcpy(&number, s->memory[slot], sizeof(number));
	c->sum += be32toh(number);
	number = htobe32(c->sum);
	memcpy(s->memory[slot], &number, sizeof(number));
	if (post_answer(s, c, slot)) {
		say_goodbye(c);
		return false;
	}
	return true;
}

/*
 * A slot is in the queue or on its way to a customer. Every completion brings one
 * back to us, and unless it goes out with an answer it goes into the queue.
 */
static int on_completion(struct server *s, const struct ibv_wc *wc)
{
	bool send = wr_id_op(wc->wr_id) == WR_SEND;
	uint32_t slot = wr_id_slot(wc->wr_id);
	struct customer *c = whose(s, wc);

	if (send)
		c->answers--;
	if (wc->status != IBV_WC_SUCCESS) {
		if (c)
			say_goodbye(c);
	} else if (!send && c && on_message(s, c, slot, wc->byte_len)) {
		return 0;
	}
	return post_slot(s, slot);
}
#else
/*
 * TODO: a completion has come, of a receive out of the shared queue or of an
 * answer. The wr_id of either has its slot in it (wr_id_op, wr_id_slot).
 *
 * 1. Whose is it? A receive was posted for nobody: read ibv_poll_cq(3), what does
 *    the completion say of the QP? Perhaps that customer is gone, or leaving.
 * 2. A number has come: add it to this customer's sum, and answer (tally.h).
 *    Another message, or a completion that has failed: say goodbye to this
 *    customer; the others go on.
 * 3. Where is the slot now, and where does it belong? Not one may get lost.
 *
 * Returns 0, or -1 when the server cannot go on at all.
 */
static int on_completion(struct server *s, const struct ibv_wc *wc)
{
	(void)s;
	(void)wc;
	(void)post_answer;
	(void)say_goodbye;
	return 0;
}
#endif

/* Destroy those who are leaving and have nothing under way. */
static void look_after(struct server *s)
{
	struct customer *c;

	for (c = s->customers; c < s->customers + MAX_CUSTOMERS; c++) {
		if (!c->id || !c->leaving || c->answers)
			continue;
		rdma_destroy_qp(c->id);
		rdma_destroy_id(c->id);
		memset(c, 0, sizeof(*c));
		s->gone++;
	}
}

/* What all customers share, on the device that the first of them came to. */
static int make_shared(struct server *s, struct ibv_context *verbs)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = s->slots,
						    .max_sge = 1 } };
	long slot;

	s->ep.pd = ibv_alloc_pd(verbs);
	if (!s->ep.pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	s->mr = ibv_reg_mr(s->ep.pd, s->memory, sizeof(s->memory),
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
	for (slot = 0; slot < s->slots; slot++)
		if (post_slot(s, slot))
			return -1;
	return 0;
}

/* A customer comes in. The receives are there already, for everybody. */
static int welcome(struct server *s, struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = MAX_SLOTS, .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr timer = { .min_rnr_timer = 20 }; /* 10 ms */
	struct rdma_conn_param param = { .rnr_retry_count = 6 };
	struct customer *c = s->customers;

	if (!s->srq && make_shared(s, id->verbs))
		return -1;
	while (c < s->customers + MAX_CUSTOMERS && c->id)
		c++;
	if (c == s->customers + MAX_CUSTOMERS) {
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return 0;
	}
	attr.send_cq = s->ep.cq;
	attr.recv_cq = s->ep.cq;
	attr.srq = s->srq;
	if (rdma_create_qp(id, s->ep.pd, &attr)) {
		report("rdma_create_qp", errno);
		rdma_destroy_id(id);
		return -1;
	}
	id->context = c;
	c->id = id;
	if (rdma_accept(id, &param)) {
		report("rdma_accept", errno);
		return -1;
	}
	ibv_modify_qp(id->qp, &timer, IBV_QP_MIN_RNR_TIMER);
	return 0;
}

static int take_event(struct server *s)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;

	if (rdma_get_cm_event(s->ep.channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	type = event->event;
	id = event->id;
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		return welcome(s, id);
	if (type == RDMA_CM_EVENT_DISCONNECTED)
		say_goodbye(id->context);
	return 0;
}

static int take_completions(struct server *s)
{
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(s->ep.cq, 1, &wc)) > 0)
		if (on_completion(s, &wc))
			return -1;
	if (n < 0)
		report("ibv_poll_cq", EIO);
	return n;
}

/* Serve until everybody has come and left. */
static int serve(struct server *s)
{
	int ready;

	while (s->gone < s->expected) {
		ready = wait_either(s->ep.channel->fd,
				    s->srq ? s->ep.comp_channel->fd : -1,
				    s->ep.stop_fd, s->ep.timeout * 1000);
		if (ready < 0)
			return -1;
		if (ready == 0) {
			fprintf(stderr, "waited %d s and nothing came\n",
				s->ep.timeout);
			return -1;
		}
		if ((ready & 1) && take_event(s))
			return -1;
		if ((ready & 2) && endpoint_take_notice(&s->ep))
			return -1;
		if (s->srq &&
		    (ibv_req_notify_cq(s->ep.cq, 0) || take_completions(s)))
			return -1;
		look_after(s);
	}
	return 0;
}

static void destroy(struct server *s)
{
	struct customer *c;

	for (c = s->customers; c < s->customers + MAX_CUSTOMERS; c++) {
		if (!c->id)
			continue;
		rdma_destroy_qp(c->id);
		rdma_destroy_id(c->id);
	}
	if (s->srq && ibv_destroy_srq(s->srq))
		report("ibv_destroy_srq", errno);
	if (s->ep.cq && ibv_destroy_cq(s->ep.cq))
		report("ibv_destroy_cq", errno);
	s->ep.cq = NULL;
	if (s->mr && ibv_dereg_mr(s->mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&s->ep);
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { .ep.backlog = 64 };
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
	if (endpoint_open(&server.ep, &opt) == 0 &&
	    endpoint_listen(&server.ep, &opt) == 0 && serve(&server) == 0)
		status = EXIT_DONE;
	destroy(&server);
	return status;
}
