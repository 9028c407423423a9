/* SPDX-License-Identifier: MIT */
/*
 * A server for the tests: it does what the lessons' servers do, up to a stage,
 * and then misbehaves. peer.h has the flags.
 *
 * Stages, in order:
 *	listening	the port is open
 *	request		a CONNECT_REQUEST has come (--do reject is for here)
 *	accepted	the answer is out; ESTABLISHED is not waited for
 *	established	connected
 *	received	--messages have come (and gone back, with --echo)
 *	disconnected	the client has said goodbye; we have not
 */
#include "peer.h"

static void usage(FILE *out)
{
	fprintf(out,
		"usage: badserver [-a ADDRESS] [-p PORT] [-t SECONDS] [FLAG...]\n"
		"stages: listening, request, accepted, established, received, disconnected\n" PEER_USAGE);
}

/* Take the messages; with --echo send each back. */
static int talk(struct peer *p)
{
	long i;
	int ret;

	for (i = 0; i < p->messages; i++) {
		ret = wait_for(p, WR_RECV);
		if (ret)
			return ret;
		if (p->receives && post_one_receive(p))
			return -1;
		if (p->echo && (ret = send_one(p)))
			return ret;
	}
	return 0;
}

static int refuse(struct peer *p)
{
	uint8_t data[256];
	int len = private_data(p, data, sizeof(data));

	if (len < 0)
		return -1;
	if (rdma_reject(p->ep.id, len ? data : NULL, len)) {
		report("rdma_reject", errno);
		return -1;
	}
	printf("rejected\n");
	return 1;
}

/* One client. */
static int serve(struct peer *p)
{
	struct rdma_conn_param param;
	uint8_t data[256];
	int ret;

	if (endpoint_get_request(&p->ep))
		return -1;
	if ((ret = at_stage(p, "request")))
		return ret;
	if (p->deed == DO_REJECT)
		return refuse(p);
	if (peer_prepare(p) || peer_param(p, &param, data, sizeof(data)))
		return -1;
	if (rdma_accept(p->ep.id, &param)) {
		report("rdma_accept", errno);
		return -1;
	}
	if ((ret = at_stage(p, "accepted")))
		return ret;
	if (endpoint_wait_event(&p->ep, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	p->ep.connected = true;
	if ((ret = at_stage(p, "established")))
		return ret;
	for (long i = 0; i < p->unasked; i++)
		if ((ret = send_one(p)))
			return ret;
	ret = talk(p);
	if (ret < 0)
		return ret;
	if ((ret = at_stage(p, "received")))
		return ret;
	if (!p->ep.disconnected &&
	    endpoint_wait_event(&p->ep, RDMA_CM_EVENT_DISCONNECTED))
		return -1;
	return at_stage(p, "disconnected");
}

int main(int argc, char **argv)
{
	struct peer peer = { .receives = 1 };
	struct endpoint listening;
	int ret;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (peer_options(&peer, argc, argv) ||
	    server_operand(argc, argv, &peer.opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (peer.opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	ret = endpoint_open(&peer.ep, &peer.opt) ||
	      endpoint_listen(&peer.ep, &peer.opt);
	listening = peer.ep;
	ret = ret ? -1 : at_stage(&peer, "listening");
	while (ret >= 0 && peer.times-- > 0) {
		ret = serve(&peer);
		endpoint_disconnect(&peer.ep);
		/* The connection goes, what listens stays. */
		peer.ep.listener = NULL;
		peer.ep.channel = NULL;
		peer.ep.stop_fd = 0;
		peer_destroy(&peer);
		peer.ep = listening;
	}
	endpoint_destroy(&peer.ep);
	return ret < 0 ? EXIT_FAILED : EXIT_DONE;
}
