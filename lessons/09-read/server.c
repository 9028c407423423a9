/* SPDX-License-Identifier: MIT */
/*
 * Lesson 09: the server offers memory to be read, and says how many RDMA READs
 * its card takes at a time. Then it does nothing until the client has left.
 */
#include <rdma_common.h>

#define MAX_SIZE (16 << 20)

/* The number that the bytes are made of: the client expects this pattern. */
#define SEED 9

/* What can be left out, to see what happens. */
enum missing {
	NOTHING,
	REMOTE_READ,
	QP_RIGHT,
};

static const char *const missing_names[] = {
	[NOTHING] = "nothing",
	[REMOTE_READ] = "remote-read",
	[QP_RIGHT] = "qp-right",
};

struct server_options {
	struct options common;
	long size; /* bytes of the region */
	long grant; /* READs at a time, at the most */
	bool more; /* grant it, whatever the client asks for */
	enum missing missing;
};

struct server {
	struct endpoint ep;
	size_t size;
	uint8_t *memory;
	struct ibv_mr *mr;
	uint8_t granted; /* READs at a time */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s BYTES] [-g N] [--more]\n"
		"              [--missing WHAT]\n"
		"Offer memory to one client, which reads it by RDMA READ, and wait until it has\n"
		"disconnected.\n"
		"  -s, --size BYTES       how much to offer, 1 to 16777216 (default: 65536)\n"
		"  -g, --grant N          how many READs the client may have outstanding, 0 to 255;\n"
		"                         no more than it asks for and than the device takes\n"
		"                         (default: 4)\n"
		"  --more                 grant so many, whatever the client asks for\n"
		"  --missing WHAT         leave something out (default: nothing):\n"
		"                         remote-read   the region may not be read\n"
		"                         qp-right      the QP allows nobody to read\n" SERVER_USAGE_LINES
		"Man pages: rdma_accept(3), ibv_reg_mr(3), ibv_query_device(3), ibv_query_qp(3).\n");
}

static int parse_missing(const char *text, enum missing *missing)
{
	int i;

	for (i = NOTHING; i <= QP_RIGHT; i++) {
		if (!strcmp(text, missing_names[i])) {
			*missing = i;
			return 0;
		}
	}
	fprintf(stderr, "server: --missing %s: what is that?\n", text);
	return -1;
}

enum {
	MISSING = 256,
	MORE,
};

static int parse_flag(int c, struct server_options *opt)
{
	switch (c) {
	case 's':
		opt->size = parse_number(optarg, 1, MAX_SIZE);
		if (opt->size > 0)
			return 0;
		fprintf(stderr, "server: -s takes 1 to %d bytes\n", MAX_SIZE);
		return -1;
	case 'g':
		opt->grant = parse_number(optarg, 0, 255);
		if (opt->grant >= 0)
			return 0;
		fprintf(stderr, "server: -g takes 0 to 255 READs\n");
		return -1;
	case MORE:
		opt->more = true;
		return 0;
	case MISSING:
		return parse_missing(optarg, &opt->missing);
	default:
		return common_option(c, &opt->common);
	}
}

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "size", required_argument, NULL, 's' },
		{ "grant", required_argument, NULL, 'g' },
		{ "more", no_argument, NULL, MORE },
		{ "missing", required_argument, NULL, MISSING },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:g:", longs,
				NULL)) != -1)
		if (parse_flag(c, opt))
			return -1;
	return server_operand(argc, argv, &opt->common);
}

/*
 * Memory that a peer may read. REMOTE_READ is all that this takes: nobody
 * writes, our own card neither, so LOCAL_WRITE is not among the rights.
 */
static int register_memory(struct server *s, const struct server_options *opt)
{
	int access = opt->missing == REMOTE_READ ?
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE :
			     IBV_ACCESS_REMOTE_READ;

	s->size = opt->size;
	s->memory = malloc(s->size);
	if (!s->memory) {
		report("malloc", errno);
		return -1;
	}
	pattern_fill(s->memory, s->size, SEED);
	s->mr = ibv_reg_mr(s->ep.pd, s->memory, s->size, access);
	if (!s->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	printf("our memory: %zu bytes at %p, rkey 0x%x\n", s->size,
	       (void *)s->memory, s->mr->rkey);
	return 0;
}

static void deregister_memory(struct server *s)
{
	if (s->mr && ibv_dereg_mr(s->mr))
		report("ibv_dereg_mr", errno);
	free(s->memory);
}

/*
 * How many READs at a time? Our card needs a place for each that it is
 * answering (a responder resource), and has so many for one QP. The client has
 * said how many it would like. We may grant fewer, and never more.
 */
static int choose_grant(struct server *s, const struct server_options *opt)
{
	uint8_t asked = s->ep.responder_resources;
	struct ibv_device_attr device;
	int err = ibv_query_device(s->ep.id->verbs, &device);

	if (err) {
		report("ibv_query_device", err);
		return -1;
	}
	s->granted = opt->grant < device.max_qp_rd_atom ? opt->grant :
							  device.max_qp_rd_atom;
	if (s->granted > asked && !opt->more)
		s->granted = asked;
	printf("the client asks for %u READs at a time; our device takes %d, we grant %u\n",
	       asked, device.max_qp_rd_atom, s->granted);
	return 0;
}

/* The answer to the client's request, with the region and the depth in it. */
static int accept_client(struct server *s, enum missing missing)
{
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	int err;

	remote_region_pack(wire, s->mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	param.responder_resources = s->granted; /* READs that we answer */
	param.initiator_depth = 0; /* READs that we make ourselves */
	err = missing == QP_RIGHT ?
		      endpoint_accept_without_right(&s->ep, &param) :
		      rdma_accept(s->ep.id, &param);
	if (err) {
		report("rdma_accept", errno);
		return -1;
	}
	if (endpoint_wait_event(&s->ep, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	s->ep.connected = true;
	return 0;
}

/*
 * What has become of it in our QP. Of a refused READ its state is all that we see,
 * and that may change a moment after the client was answered: see lesson 06. As
 * long as it is RTS we look LOOKS times more, 5 ms apart.
 */
static int print_qp(const char *when, struct ibv_qp *qp, int looks)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err;

	do {
		err = ibv_query_qp(qp, &attr,
				   IBV_QP_STATE | IBV_QP_MAX_DEST_RD_ATOMIC,
				   &init);
	} while (!err && attr.qp_state == IBV_QPS_RTS && looks-- > 0 &&
		 poll(NULL, 0, 5) == 0);
	if (err) {
		report("ibv_query_qp", err);
		return -1;
	}
	printf("%s: our QP answers %u READs at a time (max_dest_rd_atomic), and is %s\n",
	       when, attr.max_dest_rd_atomic,
	       attr.qp_state == IBV_QPS_RTS ? "in RTS" :
	       attr.qp_state == IBV_QPS_ERR ? "in ERR: something was refused" :
					      "in a state that we do not know");
	return 0;
}

static int run(struct server *s, const struct server_options *opt)
{
	struct endpoint *ep = &s->ep;

	if (endpoint_open(ep, &opt->common) ||
	    endpoint_listen(ep, &opt->common) || endpoint_get_request(ep) ||
	    endpoint_create_qp(ep, 1, 1) || register_memory(s, opt) ||
	    choose_grant(s, opt) || accept_client(s, opt->missing) ||
	    print_qp("connected", ep->id->qp, 0))
		return -1;
	/* And that is all. The READs are between the client and our card. */
	if (!ep->disconnected &&
	    endpoint_wait_event(ep, RDMA_CM_EVENT_DISCONNECTED))
		return -1;
	return print_qp("disconnected", ep->id->qp, 10);
}

int main(int argc, char **argv)
{
	struct server_options opt = {
		.common = OPTIONS_DEFAULT,
		.size = 65536,
		.grant = 4,
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
