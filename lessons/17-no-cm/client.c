/* SPDX-License-Identifier: MIT */
/*
 * Lesson 17: the client of lesson 08 without the CM. Once both queue pairs are
 * in RTS nothing is different: a WRITE of the text, and a WRITE of the doorbell.
 */
#include "by_hand.h"

#define MAX_SIZE (1 << 20)

struct client_options {
	struct options common;
	const char *text;
	enum wrong wrong;
};

struct client {
	struct side side;
	struct remote_region buffer; /* the server's */
	struct remote_region doorbell;
	const char *text;
	struct ibv_mr *text_mr;
	uint64_t number; /* for the doorbell, big-endian */
	struct ibv_mr *number_mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-m TEXT] [--wrong WHAT]\n"
		"              SERVER_ADDRESS\n"
		"Connect a queue pair by hand, RDMA WRITE a text, and ring the doorbell.\n"
		"  -m, --message TEXT     the text; its NUL goes with it (default: Hello, by hand)\n"
		"  --wrong WHAT           do one thing wrongly: qpn (the peer's number), grh\n"
		"                         (is_global 0), rtr (leave that state out)\n" CLIENT_USAGE_LINES
		"PORT is a TCP port here.\n"
		"Man pages: ibv_modify_qp(3), ibv_query_gid_table(3).\n");
}

static int parse_wrong(const char *text, enum wrong *wrong)
{
	if (!strcmp(text, "qpn"))
		*wrong = WRONG_QPN;
	else if (!strcmp(text, "grh"))
		*wrong = WRONG_NO_GRH;
	else if (!strcmp(text, "rtr"))
		*wrong = WRONG_NO_RTR;
	else
		return -1;
	return 0;
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "message", required_argument, NULL, 'm' },
		{ "wrong", required_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "m:", longs, NULL)) !=
	       -1) {
		switch (c) {
		case 'm':
			opt->text = optarg;
			if (strlen(optarg) < MAX_SIZE)
				break;
			fprintf(stderr, "client: -m takes less than 1 MiB\n");
			return -1;
		case 'w':
			if (!parse_wrong(optarg, &opt->wrong))
				break;
			fprintf(stderr,
				"client: --wrong takes qpn, grh or rtr\n");
			return -1;
		default:
			if (common_option(c, &opt->common))
				return -1;
		}
	}
	return client_operand(argc, argv, &opt->common);
}

static int register_memory(struct client *c, const char *text)
{
	c->text = text;
	/* The card only reads them, so no right is needed. */
	c->text_mr = ibv_reg_mr(c->side.pd, (char *)text, strlen(text) + 1, 0);
	c->number = htobe64(1);
	c->number_mr = ibv_reg_mr(c->side.pd, &c->number, sizeof(c->number), 0);
	if (c->text_mr && c->number_mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static void deregister_memory(struct client *c)
{
	if (c->number_mr && ibv_dereg_mr(c->number_mr))
		report("ibv_dereg_mr", errno);
	if (c->text_mr && ibv_dereg_mr(c->text_mr))
		report("ibv_dereg_mr", errno);
}

/* What lesson 07 reads in the private data came in the record. */
static int read_regions(struct client *c)
{
	size_t size = strlen(c->text) + 1;

	if (remote_region_unpack(&c->buffer, c->side.theirs.buffer) ||
	    remote_region_unpack(&c->doorbell, c->side.theirs.doorbell))
		return -1;
	if (c->doorbell.size == sizeof(uint64_t) && size <= c->buffer.size)
		return 0;
	fprintf(stderr,
		"the server's buffer has %u bytes and its doorbell %u: that "
		"does not fit a text of %zu bytes and a number of 8\n",
		c->buffer.size, c->doorbell.size, size);
	return -1;
}

static int post_write(struct client *c, uint32_t slot, const struct ibv_mr *mr,
		      const struct remote_region *remote)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)mr->addr,
		.length = mr->length,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = remote->addr,
		.wr.rdma.rkey = remote->rkey,
	};
	struct ibv_send_wr *bad;
	int err = ibv_post_send(c->side.qp, &wr, &bad);

	if (err)
		report("ibv_post_send", err);
	return err ? -1 : 0;
}

/* The next completion: poll, arm, poll again, sleep, as in lesson 04. */
static int wait_wc(struct side *s, struct ibv_wc *wc)
{
	long long deadline = now_ms() + s->tcp.timeout * 1000LL;
	bool armed = false;
	struct ibv_cq *cq;
	void *context;
	long long left;
	int n, ready;

	for (;;) {
		n = ibv_poll_cq(s->cq, 1, wc);
		if (n)
			return n < 0 ? -1 : 0;
		if (!armed) {
			if (ibv_req_notify_cq(s->cq, 0))
				return -1;
			armed = true;
			continue;
		}
		left = deadline - now_ms();
		ready = wait_readable(s->comp_channel->fd, s->tcp.stop_fd,
				      left > 0 ? left : 0);
		if (ready == 0)
			fprintf(stderr,
				"waited %d s for a completion and none came\n",
				s->tcp.timeout);
		if (ready <= 0)
			return -1;
		if (ibv_get_cq_event(s->comp_channel, &cq, &context)) {
			report("ibv_get_cq_event", errno);
			return -1;
		}
		ibv_ack_cq_events(cq, 1);
		armed = false;
	}
}

/* Lesson 08: the text, the doorbell behind it, and the completions of both. */
static int write_and_ring(struct client *c)
{
	struct ibv_wc wc;
	int i;

	if (post_write(c, 0, c->text_mr, &c->buffer) ||
	    post_write(c, 1, c->number_mr, &c->doorbell))
		return -1;
	for (i = 0; i < 2; i++) {
		if (wait_wc(&c->side, &wc) || check_wc(&wc))
			return -1;
		printf("completed: RDMA WRITE of the %s\n",
		       wr_id_slot(wc.wr_id) ? "doorbell" : "text");
	}
	return 0;
}

static int run(struct client *c, const struct client_options *opt)
{
	struct side *s = &c->side;

	s->wrong = opt->wrong;
	if (side_open(s, &opt->common) || tcp_connect(&s->tcp, &opt->common) ||
	    find_gid(s) || make_qp(s, 2, 1) || to_init(s) ||
	    register_memory(c, opt->text) || exchange(s) || read_regions(c))
		return -1;
	if (s->wrong != WRONG_NO_RTR && to_rtr(s))
		return -1;
	if (to_rts(s) || barrier(s))
		return -1;
	return write_and_ring(c);
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.text = "Hello, by hand",
	};
	struct client client = { .side.tcp = { .fd = -1, .listen_fd = -1 } };
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
	side_destroy_qp(&client.side);
	deregister_memory(&client);
	side_destroy(&client.side);
	return status;
}
