/* SPDX-License-Identifier: MIT */
/*
 * Lesson 12: the client of the errors. It provokes one failure of the catalogue
 * after the other, says what it saw of each, and compares with the catalogue.
 */
#include <arpa/inet.h>

#include "agree.h"
#include "sight.h"
#include "unseen.h"

#include "provoke.h"

struct client_options {
	struct options common;
	bool list, all, table;
	const char *show[64];
	int shows;
	const char *nobody; /* an address that nobody has; NULL: reckon one */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [--show NAME]...\n"
		"              [--nobody ADDRESS] SERVER_ADDRESS\n"
		"       client --list | --table\n"
		"Provoke failures, and say what both sides see of them. Without --show: all that\n"
		"take less than a second and need no help.\n"
		"  -s, --show NAME        this failure, in full; may be repeated. all: every one\n"
		"                         that needs no help\n"
		"  -l, --list             their names, and what each of them is\n"
		"      --table            the catalogue, for scripts: fields with tabs between\n"
		"      --nobody ADDRESS   an address on the server's network that nobody has\n"
		"                         (default: the server's with 254 as its last byte)\n" CLIENT_USAGE_LINES
		"Man pages: ibv_poll_cq(3), rdma_get_cm_event(3), ibv_get_async_event(3).\n");
}

enum { /* flags without a letter */
	TABLE = 256,
	NOBODY,
};

static int add_show(struct client_options *opt, const char *name)
{
	if (!strcmp(name, "all")) {
		opt->all = true;
		return 0;
	}
	if (!find_failure(name)) {
		fprintf(stderr,
			"client: --show %s: there is no such failure; "
			"--list names them\n",
			name);
		return -1;
	}
	if (opt->shows == sizeof(opt->show) / sizeof(opt->show[0])) {
		fprintf(stderr, "client: --show: too many\n");
		return -1;
	}
	opt->show[opt->shows++] = name;
	return 0;
}

static int parse_flag(int c, struct client_options *opt)
{
	switch (c) {
	case 'l':
		opt->list = true;
		return 0;
	case 's':
		return add_show(opt, optarg);
	case TABLE:
		opt->table = true;
		return 0;
	case NOBODY:
		opt->nobody = optarg;
		return 0;
	default:
		return common_option(c, &opt->common);
	}
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "show", required_argument, NULL, 's' },
		{ "list", no_argument, NULL, 'l' },
		{ "table", no_argument, NULL, TABLE },
		{ "nobody", required_argument, NULL, NOBODY },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:l", longs, NULL)) !=
	       -1)
		if (parse_flag(c, opt))
			return -1;
	if ((opt->list || opt->table) && optind == argc)
		return 0;
	return client_operand(argc, argv, &opt->common);
}

static void print_list(void)
{
	const struct failure *f;
	const struct unseen *u;

	for (f = catalogue; f->name; f++)
		printf("%-12s %s%s\n", f->name, f->what,
		       f->help ? " (needs your help)" :
		       f->slow ? " (slow)" :
				 "");
	printf("\nNot to be shown on SoftRoCE:\n");
	for (u = unseen; u->name; u++)
		printf("%-22s %s\n", u->name, u->why);
}

/*
 * A line for each failure, status and thing unseen: all that is known of it, with tabs
 * between. An empty field: the same as in the column to the left, where there is one.
 */
static void print_table(void)
{
	const struct failure *f;
	const struct unseen *u;
	int i;

	for (f = catalogue; f->name; f++) {
		printf("%s\t%s\t%s\t%s\t%s\t%s\t%s", f->name, f->what, f->done,
		       f->peer, f->fix, f->note ? f->note : "",
		       f->help ? f->help : "");
		for (i = 0; i < COLUMNS; i++)
			printf("\t%s", f->initiator[i] ? f->initiator[i] : "");
		for (i = 0; i < COLUMNS; i++)
			printf("\t%s", f->target[i] ? f->target[i] : "");
		printf("\n");
	}
	for (i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; i++)
		printf("status\t%d\t%s\t%s\t%s\n", i, wc_name(i),
		       ibv_wc_status_str(i), wc_advice(i));
	for (u = unseen; u->name; u++)
		printf("unseen\t%s\t%s\n", u->name, u->why);
}

/* Memory, and a receive that shows what becomes of receives. */
static int prepare(struct client *c)
{
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, 0),
		.sg_list = &sge,
		.num_sge = 1,
	};

	c->buffer = aligned_alloc(BUFFER, 2 * BUFFER);
	if (!c->buffer) {
		report("aligned_alloc", errno);
		return -1;
	}
	memset(c->buffer, 'x', 2 * BUFFER);
	c->mr = ibv_reg_mr(c->ep.pd, c->buffer, BUFFER, IBV_ACCESS_LOCAL_WRITE);
	c->read_only = ibv_reg_mr(c->ep.pd, c->buffer, BUFFER, 0);
	if (!c->mr || !c->read_only) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	sge.addr = (uintptr_t)c->buffer;
	sge.length = INBOX;
	sge.lkey = c->mr->lkey;
	return endpoint_post_recv(&c->ep, &wr);
}

/* As far as rdma_connect(): what it leads to is part of the failure. */
static int start_connecting(struct client *c)
{
	struct rdma_conn_param param = {
		.retry_count = c->failure->retry ? c->failure->retry : 6,
		.initiator_depth = c->part->depth,
		.responder_resources = c->part->depth,
		.rnr_retry_count = 3,
	};
	struct options opt = *c->opt;
	uint8_t wire[REQUEST_SIZE];
	char port[8];

	snprintf(port, sizeof(port), "%d", atoi(opt.port) + c->part->port);
	opt.port = port;
	if (endpoint_resolve(&c->ep, &opt) ||
	    endpoint_create_qp(&c->ep, SENDS,
			       c->part->receives ? c->part->receives :
						   RECEIVES) ||
	    prepare(c))
		return -1;
	request_pack(wire, c->failure->name, c->full);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	c->since = now_us();
	if (rdma_connect(c->ep.id, &param)) {
		report("rdma_connect", errno);
		return -1;
	}
	return 0;
}

/* The rest of the way, for failures that need a connection. */
static int finish_connecting(struct client *c)
{
	struct ibv_wc wc;

	if (endpoint_wait_event(&c->ep, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	c->ep.connected = true;
	if (c->ep.private_data_len < REMOTE_REGION_WIRE_SIZE ||
	    remote_region_unpack(&c->lent, c->ep.private_data))
		return -1;
	if (c->part->ready && (endpoint_wait_wc(&c->ep, &wc) || check_wc(&wc)))
		return -1;
	c->since = now_us();
	return 0;
}

/*
 * The first sign of trouble is what counts. The QP's state is asked for when
 * the card has had the time to change it.
 */
static int watch(struct client *c)
{
	int ms = c->part->patience ? c->part->patience : c->ep.timeout * 1000;
	long long deadline, took;
	struct sight sight;
	const char *wanted;

	if (see(c, &sight, ms) < 0)
		return -1;
	took = c->took;
	wanted = expected(c->failure->initiator, column_here(c->ep.id->verbs));
	deadline = now_ms() + 300;
	while (!as_wanted(c->saw, wanted) && now_ms() < deadline)
		saw(c, &sight);
	c->took = took;
	return 0;
}

static int provoke(struct client *c)
{
	int ret;

	if (endpoint_open(&c->ep, c->opt))
		return -1;
	if (c->part->from != ALONE && start_connecting(c))
		return -1;
	if (c->part->from == CONNECTED && finish_connecting(c))
		return -1;
	ret = c->part->act(c);
	if (ret == 0)
		ret = watch(c);
	return ret < 0 ? -1 : 0;
}

static void destroy(struct client *c)
{
	endpoint_disconnect(&c->ep);
	if (c->mw && ibv_dealloc_mw(c->mw))
		report("ibv_dealloc_mw", errno);
	if (c->read_only && ibv_dereg_mr(c->read_only))
		report("ibv_dereg_mr", errno);
	if (c->mr && ibv_dereg_mr(c->mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&c->ep);
	free(c->buffer);
}

/* Say what was seen. Returns 0, or -1 when the catalogue has it otherwise. */
static int tell(const struct client *c, enum column column)
{
	const struct failure *f = c->failure;
	long long us = c->took;
	const char *wanted = expected(f->initiator, column);
	bool right = as_wanted(c->saw, wanted);

	if (c->full) {
		printf("%s: %s\n", f->name, f->what);
		printf("  done:  %s\n", f->done);
		printf("  peer:  %s\n", f->peer);
		printf("  seen:  %s, after %lld.%lld ms\n", c->saw, us / 1000,
		       us / 100 % 10);
		printf("  fix:   %s\n", f->fix);
		if (f->note)
			printf("  note:  %s\n", f->note);
	} else {
		printf("%-12s %s, after %lld.%lld ms\n", f->name, c->saw,
		       us / 1000, us / 100 % 10);
	}
	if (right)
		return 0;
	fprintf(stderr,
		"%s: seen: %s; the catalogue has for the initiator on %s: %s\n",
		f->name, c->saw, column_names[column], wanted);
	return -1;
}

/* One failure. Returns 0, 1 when it went otherwise than it should, or -1. */
static int show(const struct client_options *opt, const struct failure *f,
		const char *nobody, bool full)
{
	struct client client = {
		.opt = &opt->common,
		.failure = f,
		.part = find_part(f->name),
		.nobody = nobody,
		.full = full,
	};
	enum column column = BOOK;
	int ret = provoke(&client);

	if (client.ep.id && client.ep.id->verbs)
		column = column_here(client.ep.id->verbs);
	else
		column = column_of_kernel();
	if (ret == 0 && tell(&client, column))
		ret = 1;
	destroy(&client);
	return ret;
}

/* One attempt: 1 when the server has heard us, 0 when not, -1 to give up. */
static int knock_once(const struct options *opt, const char *name)
{
	const struct failure knocking = { .name = name };
	static const struct part part = { .from = CONNECTING };
	struct client client = { .opt = opt,
				 .failure = &knocking,
				 .part = &part };
	bool bye = !strcmp(name, BYE);
	struct sight sight = { 0 };
	int ret = -1;

	if (endpoint_open(&client.ep, opt) || start_connecting(&client) ||
	    see(&client, &sight, 2000) < 0)
		goto out;
	ret = 0;
	if (sight.what != SAW_EVENT || sight.event != RDMA_CM_EVENT_REJECTED)
		goto out;
	/* Nobody: it may be on its way up again, or have gone before us. */
	if (sight.status == 8)
		ret = bye ? -1 : 0;
	/* A server that is still busy with our last connection has not heard. */
	else if (!bye || !memcmp(client.ep.private_data, BYE, sizeof(BYE)))
		ret = 1;
	if (ret == 0)
		ret = wait_readable(-1, client.ep.stop_fd, 20);
out:
	destroy(&client);
	return ret;
}

/*
 * Knock at the server, to see that it is there (again), or to say that this was
 * all. It refuses either way.
 */
static int knock(const struct options *opt, const char *name)
{
	long long deadline = now_ms() + opt->timeout * 1000LL;
	int ret = 0;

	while (ret == 0 && now_ms() < deadline)
		ret = knock_once(opt, name);
	if (ret <= 0)
		fprintf(stderr, "the server has gone\n");
	return ret > 0 ? 0 : -1;
}

/* The server's address with 254 as its last byte; none for IPv6. */
static const char *nobody_near(const char *server, char *text, size_t size)
{
	struct in_addr address;

	if (inet_pton(AF_INET, server, &address) != 1)
		return NULL;
	address.s_addr = (address.s_addr & htonl(0xffffff00)) | htonl(254);
	return inet_ntop(AF_INET, &address, text, size);
}

static bool wanted(const struct client_options *opt, const struct failure *f)
{
	int i;

	for (i = 0; i < opt->shows; i++)
		if (!strcmp(opt->show[i], f->name))
			return true;
	if (opt->all)
		return !f->help;
	return opt->shows == 0 && !f->help && !f->slow;
}

static int run(const struct client_options *opt)
{
	char text[INET_ADDRSTRLEN];
	const char *nobody = opt->nobody;
	const struct failure *f;
	int ret, worst = 0;

	if (!nobody)
		nobody = nobody_near(opt->common.server, text, sizeof(text));
	for (f = catalogue; f->name; f++) {
		if (!wanted(opt, f))
			continue;
		if (!nobody && (!strcmp(f->name, "nowhere") ||
				!strcmp(f->name, "unreachable"))) {
			fprintf(stderr,
				"%s: which address has nobody? "
				"--nobody ADDRESS\n",
				f->name);
			return -1;
		}
		ret = show(opt, f, nobody, opt->shows > 0);
		if (ret < 0)
			return -1;
		worst |= ret;
		if (!strcmp(f->name, "killed") && knock(&opt->common, HELLO))
			return -1;
	}
	return knock(&opt->common, BYE) || worst ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct client_options opt = { .common = OPTIONS_DEFAULT };

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.common.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (opt.list || opt.table) {
		opt.list ? print_list() : print_table();
		/* Under make run there is a server, and it waits for us. */
		if (!opt.common.server || !knock(&opt.common, BYE))
			return EXIT_DONE;
		return EXIT_FAILED;
	}
	return run(&opt) ? EXIT_FAILED : EXIT_DONE;
}
