/* SPDX-License-Identifier: MIT */
/*
 * Exercise 12: a courier. It brings letters to a server that makes trouble, each
 * one once and in order. Some troubles pass, and it tries again; some do not,
 * and it gives up. README.md has the task, letter.h what is on the wire.
 */
#include <rdma_common.h>

#include "letter.h"

#define WINDOW 4 /* letters under way */
#define ATTEMPTS 5 /* in a row that bring nothing, and then we give up */

enum verdict {
	DELIVERED,
	AGAIN,
	GIVE_UP,
};

struct courier {
	struct endpoint ep;
	const struct options *opt;
	uint32_t count; /* letters to bring */
	uint32_t next; /* the number of the next one to send */
	uint32_t wanted; /* what the server wanted last time */
	struct letter letters[WINDOW];
	struct ibv_mr *mr;
	/* What went wrong first on this connection. */
	bool refused; /* REJECTED came, with the status and reason */
	int status;
	enum why why;
	bool failed; /* a completion was not good: the first such */
	enum ibv_wc_status wc_status;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT] SERVER_ADDRESS\n"
		"Bring letters, each once and in order, whatever the server does.\n"
		"  -n, --count COUNT      letters, 1 to 1000000 (default: 20)\n" CLIENT_USAGE_LINES
		"Man pages: ibv_poll_cq(3), rdma_get_cm_event(3), rdma_connect(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct courier *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ NULL, 0, NULL, 0 },
	};
	int f;
	long n;

	while ((f = getopt_long(argc, argv, COMMON_FLAGS "n:", longs, NULL)) !=
	       -1) {
		if (f == 'n') {
			n = parse_number(optarg, 1, 1000000);
			if (n < 0) {
				fprintf(stderr,
					"client: -n takes 1 to 1000000\n");
				return -1;
			}
			c->count = n;
		} else if (common_option(f, opt)) {
			return -1;
		}
	}
	return client_operand(argc, argv, opt);
}

/* ---- what is to be decided ---- */

/*
 * Is it worth another attempt? Called when a connection has failed.
 */
static enum verdict judge(const struct courier *c)
{
	/*
	 * TODO 1: which of these pass, and which will be the same the next
	 * time? c->refused with c->status and c->why; c->failed with
	 * c->wc_status; neither: the server has disconnected.
	 */
	(void)c;
	return AGAIN;
}

/* A completion: the first bad one is what counts. */
static void take_completion(struct courier *c, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		return;
	/* TODO 2: this keeps the last one. Is that the one that counts? */
	c->failed = true;
	c->wc_status = wc->status;
}

/*
 * From which letter on? What we have sent, and even what has completed, says
 * little: the server knows what it has.
 */
static int read_welcome(struct courier *c)
{
	struct welcome welcome;

	if (c->ep.private_data_len < sizeof(welcome))
		return -1;
	memcpy(&welcome, c->ep.private_data, sizeof(welcome));
	/*
	 * TODO 3: check what came (letter.h), and begin with the letter that the
	 * server wants. Return -1 when it is no welcome.
	 */
	if (!c->next)
		c->next = 1;
	return 0;
}

/* ---- one connection ---- */

/* What the server's reject said. */
static void take_refusal(struct courier *c, const struct rdma_cm_event *event)
{
	const struct rdma_conn_param *param = &event->param.conn;
	struct refusal refusal;

	c->refused = true;
	c->status = event->status;
	if (param->private_data_len < sizeof(refusal))
		return;
	memcpy(&refusal, param->private_data, sizeof(refusal));
	if (be32toh(refusal.magic) == LETTER_MAGIC)
		c->why = be32toh(refusal.why);
}

/* Returns 0, 1 when we were refused, or -1. */
static int connect_server(struct courier *c)
{
	struct rdma_conn_param param = { .retry_count = 3,
					 .rnr_retry_count = 3 };
	struct rdma_cm_event *event;
	int ready, ret = -1;

	if (rdma_connect(c->ep.id, &param)) {
		report("rdma_connect", errno);
		return -1;
	}
	ready = wait_readable(c->ep.channel->fd, c->ep.stop_fd,
			      c->ep.timeout * 1000);
	if (ready <= 0) {
		if (ready == 0)
			fprintf(stderr, "the server does not answer\n");
		return -1;
	}
	if (rdma_get_cm_event(c->ep.channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
		c->ep.connected = true;
		c->ep.private_data_len = event->param.conn.private_data_len;
		memcpy(c->ep.private_data, event->param.conn.private_data,
		       c->ep.private_data_len);
		ret = 0;
	} else {
		report_event(event);
		if (event->event == RDMA_CM_EVENT_REJECTED) {
			take_refusal(c, event);
			ret = 1;
		}
	}
	rdma_ack_cm_event(event);
	return ret;
}

static int send_letter(struct courier *c, uint32_t slot)
{
	struct letter *letter = &c->letters[slot];
	struct ibv_sge sge = {
		.addr = (uintptr_t)letter,
		.length = sizeof(*letter),
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	letter->number = htobe32(c->next++);
	return endpoint_post_send(&c->ep, &wr);
}

/*
 * All letters from c->next on, WINDOW at a time. Returns 0 when the last one is
 * acknowledged, 1 when the connection has failed, -1 after a fault of ours.
 */
static int send_letters(struct courier *c)
{
	uint32_t slot;
	struct ibv_wc wc;
	int ret;

	for (slot = 0; slot < WINDOW && c->next <= c->count; slot++)
		if (send_letter(c, slot))
			return -1;
	while (c->ep.outstanding > 0) {
		ret = endpoint_wait_wc(&c->ep, &wc);
		if (ret)
			return ret;
		take_completion(c, &wc);
		if (!c->failed && c->next <= c->count &&
		    send_letter(c, wr_id_slot(wc.wr_id)))
			return -1;
	}
	return c->failed ? 1 : 0;
}

/* One attempt, from the beginning to the end. */
static enum verdict attempt(struct courier *c)
{
	enum verdict verdict = GIVE_UP;
	int ret;

	c->refused = c->failed = false;
	c->why = 0;
	if (endpoint_open(&c->ep, c->opt) || endpoint_resolve(&c->ep, c->opt) ||
	    endpoint_create_qp(&c->ep, WINDOW, 1))
		goto out;
	c->mr = ibv_reg_mr(c->ep.pd, c->letters, sizeof(c->letters), 0);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	ret = connect_server(c);
	if (ret == 0)
		ret = read_welcome(c);
	if (ret == 0)
		ret = send_letters(c);
	if (ret >= 0)
		verdict = ret ? judge(c) : DELIVERED;
out:
	endpoint_disconnect(&c->ep);
	if (c->mr)
		ibv_dereg_mr(c->mr);
	c->mr = NULL;
	endpoint_destroy(&c->ep);
	return verdict;
}

/* Try until it is done, or not worth another try. */
static int deliver(struct courier *c)
{
	/*
	 * TODO 4: again and again, as long as it is worth it, and not for ever:
	 * ATTEMPTS in a row that bring no letter any further are enough.
	 */
	if (attempt(c) != DELIVERED)
		return -1;
	printf("delivered\n");
	return 0;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct courier courier = { .opt = &opt, .count = 20 };

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &courier)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	return deliver(&courier) ? EXIT_FAILED : EXIT_DONE;
}
