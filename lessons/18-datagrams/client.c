/* SPDX-License-Identifier: MIT */
/*
 * Lesson 18: a client that sends numbered datagrams, to one server or to a group,
 * and asks at the end how many have arrived. Nobody else would tell it.
 */
#include "datagram.h"

/*
 * An answer that has not come after so long is taken for lost: the question is
 * asked again.
 */
#define ASK_AGAIN_MS 300

struct client_options {
	struct options common;
	long count;
	long size;
	const char *group;
};

struct client {
	struct ud u;
	uint32_t count;
	uint32_t size; /* bytes of each datagram */
	uint32_t own; /* copies of our own that the group has brought */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT] [-s BYTES]\n"
		"              [-g GROUP] SERVER_ADDRESS\n"
		"Send numbered datagrams, and ask how many have arrived.\n"
		"  -n, --count COUNT      how many, 1 to 1000000 (default: 10)\n"
		"  -s, --size BYTES       of each, 16 to 4096, and the port's active_mtu at most\n"
		"                         (default: 64)\n"
		"  -g, --group ADDRESS    send them to this multicast group, and not to the server;\n"
		"                         the server has to be a member\n" CLIENT_USAGE_LINES
		"Man pages: ibv_create_ah(3), ibv_post_send(3), rdma_join_multicast(3).\n");
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ "size", required_argument, NULL, 's' },
		{ "group", required_argument, NULL, 'g' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "n:s:g:", longs,
				NULL)) != -1) {
		switch (c) {
		case 'n':
			opt->count = parse_number(optarg, 1, 1000000);
			if (opt->count > 0)
				break;
			fprintf(stderr, "client: -n takes 1 to 1000000\n");
			return -1;
		case 's':
			opt->size = parse_number(
				optarg, sizeof(struct datagram), MAX_DATAGRAM);
			if (opt->size > 0)
				break;
			fprintf(stderr, "client: -s takes 16 to 4096 bytes\n");
			return -1;
		case 'g':
			opt->group = optarg;
			break;
		default:
			if (common_option(c, &opt->common))
				return -1;
		}
	}
	return client_operand(argc, argv, &opt->common);
}

/*
 * From the name to the route, as ever; only the port space is another. It says
 * that the id is for datagrams.
 */
static int resolve(struct client *c, const struct client_options *opt)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_UDP };
	struct rdma_addrinfo *info = NULL, *source = NULL;
	const struct options *common = &opt->common;
	struct endpoint *ep = &c->u.ep;
	int err, ret = -1;

	err = rdma_getaddrinfo(common->server, common->port, &hints, &info);
	if (err) {
		report_getaddrinfo(common->server, err);
		goto out;
	}
	if (common->address) {
		hints.ai_flags = RAI_PASSIVE;
		err = rdma_getaddrinfo(common->address, NULL, &hints, &source);
		if (err) {
			report_getaddrinfo(common->address, err);
			goto out;
		}
	}
	if (check_zone(info->ai_dst_addr))
		goto out;
	if (rdma_create_id(ep->channel, &ep->id, NULL, RDMA_PS_UDP)) {
		report("rdma_create_id", errno);
		goto out;
	}
	if (rdma_resolve_addr(ep->id, source ? source->ai_src_addr : NULL,
			      info->ai_dst_addr, ep->timeout * 500)) {
		report_address("rdma_resolve_addr", info->ai_dst_addr, errno);
		goto out;
	}
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_ADDR_RESOLVED))
		goto out;
	if (rdma_resolve_route(ep->id, ep->timeout * 500)) {
		report("rdma_resolve_route", errno);
		goto out;
	}
	ret = endpoint_wait_event(ep, RDMA_CM_EVENT_ROUTE_RESOLVED);
out:
	if (source)
		rdma_freeaddrinfo(source);
	if (info)
		rdma_freeaddrinfo(info);
	return ret;
}

/*
 * A datagram is one packet. What does not fit into one is not cut into several,
 * as it is on a connection: it cannot be sent.
 */
static int check_size(struct client *c)
{
	struct ibv_port_attr attr;
	int err, mtu;

	err = ibv_query_port(c->u.ep.id->verbs, c->u.ep.id->port_num, &attr);
	if (err) {
		report("ibv_query_port", err);
		return -1;
	}
	mtu = 128 << attr.active_mtu;
	if (c->size <= (uint32_t)mtu)
		return 0;
	fprintf(stderr,
		"a datagram of %u bytes does not fit into one packet: the "
		"port's active_mtu is %d\n",
		c->size, mtu);
	return -1;
}

/* What the status of UNREACHABLE means when it is an answer (of SIDR). */
static const char *look_up_reason(int status)
{
	switch (status) {
	case 1:
		return "nobody listens on that port; start the server first, "
		       "and compare the two -p";
	case 2:
		return "a server was there and has refused, or ended";
	default:
		return "see the SIDR status codes of the specification";
	}
}

/*
 * Who is behind that port? This looks like the connecting of the other lessons,
 * and is only a question (the CM calls it SIDR, service ID resolution). The
 * answer has all that a SEND needs: the way, the number, the Q_Key. There is no
 * connection after it, and nothing that could tell us that the server has gone.
 */
static int look_up(struct client *c)
{
	struct destination *peer = &c->u.peer;
	struct rdma_conn_param param = { 0 };
	struct endpoint *ep = &c->u.ep;
	struct rdma_cm_event *event;
	int ready, ret = -1;

	if (rdma_connect(ep->id, &param)) {
		report("rdma_connect", errno);
		return -1;
	}
	ready = wait_readable(ep->channel->fd, ep->stop_fd, ep->timeout * 1000);
	if (ready == 0)
		fprintf(stderr,
			"waited %d s for the server's queue pair and nothing "
			"came: is it alive and answering? (-t waits longer)\n",
			ep->timeout);
	if (ready <= 0)
		return -1;
	if (rdma_get_cm_event(ep->channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	if (event->event == RDMA_CM_EVENT_UNREACHABLE && event->status > 0) {
		fprintf(stderr, "%s, status %d: %s\n",
			rdma_event_str(event->event), event->status,
			look_up_reason(event->status));
	} else if (!expect_event(event, RDMA_CM_EVENT_ESTABLISHED)) {
		peer->qpn = event->param.ud.qp_num;
		peer->qkey = event->param.ud.qkey;
		peer->ah = ibv_create_ah(ep->pd, &event->param.ud.ah_attr);
		if (peer->ah)
			ret = 0;
		else
			report("ibv_create_ah", errno);
	}
	rdma_ack_cm_event(event);
	if (!ret)
		printf("found: the server's QP number 0x%x, Q_Key 0x%x\n",
		       peer->qpn, peer->qkey);
	return ret;
}

/* What has come, in D; its kind is 0 where it is no datagram of ours. */
static void read_datagram(struct client *c, const struct ibv_wc *wc,
			  struct datagram *d)
{
	const struct datagram *got = ud_parse(&c->u, wc);

	d->kind = 0;
	if (got)
		*d = *got;
	d->kind = be32toh(d->kind);
	if (d->kind == REPORT && be32toh(d->seq) > c->count)
		d->kind = 0; /* of more than there are: not of our server */
	if (d->kind == DATA)
		c->own++; /* a member of a group hears itself */
}

/* Take what has come; the receive is posted again. 0 with the report in D */
static int take(struct client *c, const struct ibv_wc *wc, struct datagram *d)
{
	read_datagram(c, wc, d);
	return ud_post_receive(&c->u, wr_id_slot(wc->wr_id));
}

/* Wait until there is a slot for another SEND. */
static int wait_slot(struct client *c, uint32_t under_way)
{
	struct datagram d;
	struct ibv_wc wc;
	int ret;

	while (c->u.sent - c->u.completed > under_way) {
		ret = ud_wait(&c->u, &wc, c->u.ep.timeout * 1000LL);
		if (ret < 0 || (ret == 0 && take(c, &wc, &d)))
			return -1;
	}
	return 0;
}

static int send_all(struct client *c)
{
	const struct destination *to = c->u.multicast.ah ? &c->u.multicast :
							   &c->u.peer;
	struct datagram *d;
	uint32_t seq;

	for (seq = 0; seq < c->count; seq++) {
		if (wait_slot(c, SENDS - 1))
			return -1;
		d = ud_prepare(&c->u, DATA, seq, c->count);
		pattern_fill(d->data, c->size - sizeof(*d), seq);
		if (ud_send(&c->u, d, c->size, to))
			return -1;
	}
	if (wait_slot(c, 0))
		return -1;
	/* Sent, and that is all that it means. */
	printf("sent: %u datagrams of %u bytes, all completed with status 0\n",
	       c->count, c->size);
	return 0;
}

/*
 * Ask, and ask again until an answer comes: question and answer are datagrams
 * too. So the question has to be one that may be asked twice.
 */
static int ask(struct client *c)
{
	long long deadline = now_ms() + c->u.ep.timeout * 1000LL, again = 0;
	struct datagram answer = { 0 };
	uint32_t asked = 0;
	struct ibv_wc wc;
	int ret;

	while (answer.kind != REPORT) {
		if (now_ms() >= deadline) {
			fprintf(stderr,
				"asked %u times in %d s, and the server gives "
				"no answer: is it alive?\n",
				asked, c->u.ep.timeout);
			return -1;
		}
		if (now_ms() >= again) {
			if (wait_slot(c, SENDS - 1) ||
			    ud_send(&c->u, ud_prepare(&c->u, ASK, 0, c->count),
				    sizeof(struct datagram), &c->u.peer))
				return -1;
			asked++;
			again = now_ms() + ASK_AGAIN_MS;
		}
		ret = ud_wait(&c->u, &wc, again - now_ms());
		if (ret < 0 || (ret == 0 && take(c, &wc, &answer)))
			return -1;
	}
	if (asked > 1)
		printf("asked %u times\n", asked);
	printf("the server has %u of %u: %u lost, %u came twice\n",
	       be32toh(answer.seq), c->count, c->count - be32toh(answer.seq),
	       be32toh(answer.count));
	if (c->u.multicast.ah)
		printf("and we have had %u of them ourselves\n", c->own);
	return 0;
}

static int run(struct client *c, const struct client_options *opt)
{
	c->count = opt->count;
	c->size = opt->size;
	c->u.recvs = SENDS;
	if (endpoint_open(&c->u.ep, &opt->common) || resolve(c, opt) ||
	    check_size(c) || ud_create_qp(&c->u) || ud_post_receives(&c->u) ||
	    look_up(c))
		return -1;
	if (opt->group && ud_join(&c->u, opt->group))
		return -1;
	if (send_all(c) || ask(c))
		return -1;
	return wait_slot(c, 0);
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.count = 10,
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
	ud_destroy(&client.u);
	return status;
}
