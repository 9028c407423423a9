/* SPDX-License-Identifier: MIT */
/*
 * Lesson 18: a server that takes datagrams from whoever sends them, counts what
 * has come and what has not, and tells those who ask.
 */
#include "datagram.h"

/*
 * So long after the last question the server stays, in case that its answer was
 * lost and the question comes again. Then it takes the client for gone: nobody
 * will tell.
 */
#define LINGER_MS 1000

#define MAX_COUNT 1000000

struct server_options {
	struct options common;
	long recvs;
	long slow; /* ms */
	const char *group;
};

struct server {
	struct ud u;
	long slow;
	uint32_t count; /* as the datagrams say; 0: none has come */
	uint8_t *seen; /* which of them have come */
	uint32_t received, twice, late, foreign;
	uint32_t next; /* the number that is to come next, if none is lost */
	bool asked;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-r COUNT] [-w MS] [-g GROUP]\n"
		"Take numbered datagrams of one client, and say which of them have come.\n"
		"  -r, --receives COUNT   receives that are posted, 1 to 200 (default: 64)\n"
		"  -w, --slow MS          wait so long after each datagram, 0 to 1000 (default: 0)\n"
		"  -g, --group ADDRESS    become a member of this multicast group\n" SERVER_USAGE_LINES
		"Man pages: ibv_create_ah_from_wc(3), ibv_poll_cq(3), rdma_join_multicast(3).\n");
}

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "receives", required_argument, NULL, 'r' },
		{ "slow", required_argument, NULL, 'w' },
		{ "group", required_argument, NULL, 'g' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "r:w:g:", longs,
				NULL)) != -1) {
		switch (c) {
		case 'r':
			opt->recvs = parse_number(optarg, 1, 200);
			if (opt->recvs > 0)
				break;
			fprintf(stderr, "server: -r takes 1 to 200\n");
			return -1;
		case 'w':
			opt->slow = parse_number(optarg, 0, 1000);
			if (opt->slow >= 0)
				break;
			fprintf(stderr, "server: -w takes 0 to 1000 ms\n");
			return -1;
		case 'g':
			opt->group = optarg;
			break;
		default:
			if (common_option(c, &opt->common))
				return -1;
		}
	}
	return server_operand(argc, argv, &opt->common);
}

/* As in the other lessons, but for the port space. */
static int listen_for_datagrams(struct server *s, const struct options *opt)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_UDP };
	struct rdma_addrinfo *info = NULL;
	struct endpoint *ep = &s->u.ep;
	int err, ret = -1;

	err = rdma_getaddrinfo(opt->address ? opt->address : "::", opt->port,
			       &hints, &info);
	if (err) {
		report_getaddrinfo(opt->address, err);
		goto out;
	}
	if (check_zone(info->ai_src_addr))
		goto out;
	if (rdma_create_id(ep->channel, &ep->listener, NULL, RDMA_PS_UDP)) {
		report("rdma_create_id", errno);
		goto out;
	}
	if (rdma_bind_addr(ep->listener, info->ai_src_addr)) {
		report_address("rdma_bind_addr", info->ai_src_addr, errno);
		goto out;
	}
	if (rdma_listen(ep->listener, 1)) {
		report("rdma_listen", errno);
		goto out;
	}
	printf("listening on ");
	print_address(rdma_get_local_addr(ep->listener));
	printf("\n");
	ret = 0;
out:
	if (info)
		rdma_freeaddrinfo(info);
	return ret;
}

/*
 * Answer the client's question which queue pair is behind this port. For this
 * side that is the end of it: no ESTABLISHED comes, and no DISCONNECTED.
 */
static int tell_qp(struct server *s, struct rdma_cm_id *id)
{
	struct rdma_conn_param param = { .qp_num = s->u.ep.id->qp->qp_num };

	if (!rdma_accept(id, &param))
		return 0;
	report("rdma_accept", errno);
	return -1;
}

/*
 * Has the CM something to say? Its question and its answer are datagrams too, and
 * get lost like any other: then our client asks once more, with a new id and the
 * same address, and is told the same. Somebody else is refused, which
 * rdma_destroy_id() does when the question has no answer.
 */
static int tell_again(struct server *s)
{
	struct endpoint *ep = &s->u.ep;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int ret, ready = wait_readable(ep->channel->fd, ep->stop_fd, 0);
	bool asked;

	if (ready <= 0)
		return ready;
	if (rdma_get_cm_event(ep->channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	id = event->id;
	asked = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
	rdma_ack_cm_event(event);
	if (!asked)
		return 0;
	ret = memcmp(rdma_get_peer_addr(id), rdma_get_peer_addr(ep->id),
		     sizeof(struct sockaddr_in6)) ?
		      0 :
		      tell_qp(s, id);
	rdma_destroy_id(id);
	return ret;
}

/*
 * Who was that? The first 40 bytes say, in one of two forms. Of an IPv6 packet
 * it is the GRH, with the source's GID from byte 8 on. Of an IPv4 packet it is
 * twenty bytes of nothing in particular, and then the IPv4 header, with the
 * source at its byte 12.
 *
 * Which form it is we guess: those twenty bytes may begin with a 6 as well. It is
 * only for the line that we print. ibv_create_ah_from_wc() goes further: it
 * looks whether the last twenty are an IPv4 header with a right checksum.
 */
static void show_sender(const uint8_t *grh, const struct ibv_wc *wc)
{
	char text[INET6_ADDRSTRLEN];

	if (grh[0] >> 4 == 6)
		inet_ntop(AF_INET6, grh + 8, text, sizeof(text));
	else
		inet_ntop(AF_INET, grh + 20 + 12, text, sizeof(text));
	printf("the first datagram: %u bytes, %d of them the GRH, from QP "
	       "number 0x%x of %s\n",
	       wc->byte_len, GRH, wc->src_qp, text);
}

/* Number SEQ has come: is it new, and in its order, and right? */
static int count_data(struct server *s, const struct datagram *d,
		      const struct ibv_wc *wc)
{
	uint32_t seq = be32toh(d->seq), count = be32toh(d->count);
	size_t size = wc->byte_len - GRH - sizeof(*d);

	if (!s->count && count >= 1 && count <= MAX_COUNT) {
		s->seen = calloc(count, 1);
		if (!s->seen) {
			report("calloc", errno);
			return -1;
		}
		s->count = count;
		show_sender((const uint8_t *)d - GRH, wc);
	}
	if (count != s->count || seq >= count) {
		s->foreign++;
		return 0;
	}
	if (pattern_check(d->data, size, seq) >= 0) {
		fprintf(stderr, "datagram %u has wrong bytes\n", seq);
		return -1;
	}
	if (s->seen[seq]) {
		s->twice++;
		return 0;
	}
	s->seen[seq] = 1;
	s->received++;
	if (seq < s->next)
		s->late++;
	else
		s->next = seq + 1;
	return 0;
}

/*
 * Answer a question. The way back is made of the completion and the GRH of the
 * question: nobody has told us the client's address or QP number before. Its
 * Q_Key is not in there. Its queue pair is one that the CM has made, and the CM
 * gives the same to all.
 */
static int answer(struct server *s, const struct ibv_wc *wc)
{
	struct ibv_grh *grh = (void *)slot_of(&s->u, wr_id_slot(wc->wr_id));
	struct destination *peer = &s->u.peer;

	s->asked = true;
	if (s->u.sent - s->u.completed >= SENDS)
		return 0; /* it will ask again */
	if (!peer->ah)
		peer->ah = ibv_create_ah_from_wc(s->u.ep.pd,
						 (struct ibv_wc *)wc, grh,
						 s->u.ep.id->port_num);
	if (!peer->ah) {
		report("ibv_create_ah_from_wc", errno);
		return -1;
	}
	peer->qpn = wc->src_qp;
	peer->qkey = RDMA_UDP_QKEY;
	return ud_send(&s->u, ud_prepare(&s->u, REPORT, s->received, s->twice),
		       sizeof(struct datagram), peer);
}

static int take(struct server *s, const struct ibv_wc *wc)
{
	const struct datagram *d = ud_parse(&s->u, wc);
	int ret = 0;

	if (d && be32toh(d->kind) == DATA)
		ret = count_data(s, d, wc);
	else if (d && be32toh(d->kind) == ASK)
		ret = answer(s, wc);
	else
		s->foreign++;
	if (s->slow)
		usleep(s->slow * 1000);
	return ret ? ret : ud_post_receive(&s->u, wr_id_slot(wc->wr_id));
}

/* Until nobody has asked for a while, or nothing comes at all. */
static int serve(struct server *s)
{
	long long deadline = now_ms() + s->u.ep.timeout * 1000LL;
	struct ibv_wc wc;
	int ret;

	for (;;) {
		ret = ud_wait(&s->u, &wc, deadline - now_ms());
		if (ret < 0 || (ret == 0 && take(s, &wc)) || tell_again(s))
			return -1;
		if (ret == 0)
			deadline = now_ms() +
				   (s->asked ? LINGER_MS :
					       s->u.ep.timeout * 1000LL);
		if (now_ms() < deadline)
			continue;
		if (s->asked)
			return 0;
		fprintf(stderr,
			"waited %d s for a datagram and none came: is the "
			"client alive?\n",
			s->u.ep.timeout);
		return -1;
	}
}

static void print_result(const struct server *s)
{
	uint32_t i, from;

	printf("%u of %u datagrams have come, %u out of order, %u twice, %u "
	       "that were not for us\n",
	       s->received, s->count, s->late, s->twice, s->foreign);
	if (s->received == s->count)
		return;
	printf("lost:");
	for (i = 0; i < s->count; i++) {
		if (s->seen[i])
			continue;
		from = i;
		while (i + 1 < s->count && !s->seen[i + 1])
			i++;
		printf(i > from ? " %u-%u" : " %u", from, i);
	}
	printf("\n");
}

static int run(struct server *s, const struct server_options *opt)
{
	s->slow = opt->slow;
	s->u.recvs = opt->recvs;
	if (endpoint_open(&s->u.ep, &opt->common) ||
	    listen_for_datagrams(s, &opt->common) ||
	    endpoint_wait_event(&s->u.ep, RDMA_CM_EVENT_CONNECT_REQUEST) ||
	    ud_create_qp(&s->u) || ud_post_receives(&s->u))
		return -1;
	if (opt->group && ud_join(&s->u, opt->group))
		return -1;
	if (tell_qp(s, s->u.ep.id))
		return -1;
	s->u.cm_fd = s->u.ep.channel->fd;
	printf("told the client our QP number 0x%x\n", s->u.ep.id->qp->qp_num);
	if (serve(s))
		return -1;
	print_result(s);
	return 0;
}

int main(int argc, char **argv)
{
	struct server_options opt = {
		.common = OPTIONS_DEFAULT,
		.recvs = 64,
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
	ud_destroy(&server.u);
	free(server.seen);
	return status;
}
