/* SPDX-License-Identifier: MIT */
/*
 * A client for the tests: it does what the lessons' clients do, up to a stage,
 * and then misbehaves. peer.h has the flags.
 *
 * Stages, in order:
 *	resolved	the route is known, receives are posted
 *	request		the ConnectRequest is out; the answer is not waited for
 *	established	connected
 *	failed		a message could not be sent, or was not answered
 *	sent		--messages have been sent, and completed
 *	disconnect	the DisconnectRequest is out; the answer is not waited for
 */
#include "peer.h"

static void usage(FILE *out)
{
	fprintf(out,
		"usage: badclient [-a ADDRESS] [-p PORT] [-t SECONDS] [FLAG...] SERVER_ADDRESS\n"
		"stages: resolved, request, established, failed, sent, disconnect\n" PEER_USAGE);
}

/* Send the messages; with --echo wait for an answer to each. */
static int talk(struct peer *p)
{
	long i;
	int ret;

	for (i = 0; i < p->messages; i++) {
		ret = send_one(p);
		if (ret)
			return ret;
		if (!p->echo)
			continue;
		ret = wait_for(p, WR_RECV);
		if (ret)
			return ret;
		if (post_one_receive(p))
			return -1;
	}
	return 0;
}

static int run(struct peer *p)
{
	struct rdma_conn_param param;
	uint8_t data[256];
	int ret;

	if (endpoint_open(&p->ep, &p->opt) ||
	    endpoint_resolve(&p->ep, &p->opt) || peer_prepare(p))
		return -1;
	if ((ret = at_stage(p, "resolved")))
		return ret;
	if (peer_param(p, &param, data, sizeof(data)))
		return -1;
	if (rdma_connect(p->ep.id, &param)) {
		report("rdma_connect", errno);
		return -1;
	}
	if ((ret = at_stage(p, "request")))
		return ret;
	if (endpoint_wait_event(&p->ep, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	p->ep.connected = true;
	p->through = true;
	if ((ret = at_stage(p, "established")))
		return ret;
	for (long i = 0; i < p->unasked; i++)
		if ((ret = send_one(p)))
			return ret;
	if ((ret = talk(p))) {
		at_stage(p, "failed");
		return ret;
	}
	if ((ret = at_stage(p, "sent")))
		return ret;
	if (p->at && !strcmp(p->at, "disconnect")) {
		if (rdma_disconnect(p->ep.id)) {
			report("rdma_disconnect", errno);
			return -1;
		}
		p->ep.connected = false;
		return at_stage(p, "disconnect");
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct peer peer = { 0 };
	long long deadline;
	int ret = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (peer_options(&peer, argc, argv) ||
	    client_operand(argc, argv, &peer.opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (peer.opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	deadline = now_ms() + peer.opt.timeout * 1000LL;
	while (ret >= 0 && peer.times-- > 0) {
		do {
			ret = run(&peer);
			peer_destroy(&peer);
		} while (peer.persist && ret < 0 && !peer.through &&
			 now_ms() < deadline);
	}
	return ret < 0 ? EXIT_FAILED : EXIT_DONE;
}
