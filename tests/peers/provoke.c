/* SPDX-License-Identifier: MIT */
/*
 * Makes one call fail, and reports it as the lessons do: for the lines of
 * advice that no lesson's program runs into by itself.
 *
 *	provoke WHAT SERVER	as a client
 *	provoke accept		as a server, whose client has to leave when this
 *				says `prepared`; SIGINT tells that it has
 */
#include <sys/mman.h>

#include "peer.h"

/* A region as WHAT says, which has to be refused. */
static int provoke_reg(struct peer *p, const char *what)
{
	long page = sysconf(_SC_PAGESIZE);
	int access = IBV_ACCESS_LOCAL_WRITE;
	size_t size = page;
	char *memory;
	struct ibv_mr *mr;

	if (endpoint_create_qp(&p->ep, 1, 1))
		return -1;
	memory = mmap(NULL, page, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return -1;
	if (!strcmp(what, "reg-rights"))
		access = IBV_ACCESS_REMOTE_WRITE;
	else if (!strcmp(what, "reg-empty"))
		size = 0;
	else if (!strcmp(what, "reg-unmapped"))
		munmap(memory, page);
	else if (!strcmp(what, "reg-readonly"))
		mprotect(memory, page, PROT_READ);
	else
		return -1;
	mr = ibv_reg_mr(p->ep.pd, memory, size, access);
	if (mr) {
		fprintf(stderr, "it did not fail\n");
		ibv_dereg_mr(mr);
		return -1;
	}
	report("ibv_reg_mr", errno);
	return 0;
}

static int provoke_qp(struct peer *p)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1000,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};

	if (!rdma_create_qp(p->ep.id, NULL, &attr)) {
		fprintf(stderr, "it did not fail\n");
		return -1;
	}
	report("rdma_create_qp", errno);
	return 0;
}

/* More receives, or more SENDs to a peer that takes none, than there is room. */
static int provoke_full(struct peer *p, bool sends)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct ibv_send_wr send = { .opcode = IBV_WR_SEND }, *bad_send;
	struct ibv_recv_wr recv = { 0 }, *bad_recv;
	int i, err = 0;

	if (peer_prepare(p) || endpoint_connect(&p->ep, &param))
		return -1;
	for (i = 0; i < 10000 && !err; i++)
		err = sends ? ibv_post_send(p->ep.id->qp, &send, &bad_send) :
			      ibv_post_recv(p->ep.id->qp, &recv, &bad_recv);
	if (!err) {
		fprintf(stderr, "it did not fail\n");
		return -1;
	}
	report(sends ? "ibv_post_send" : "ibv_post_recv", err);
	return 0;
}

/* Accept a client that has left. */
static int provoke_accept(struct peer *p)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	if (endpoint_listen(&p->ep, &p->opt) || endpoint_get_request(&p->ep) ||
	    peer_prepare(p))
		return -1;
	/* No event tells that the client has left; a signal of the test does. */
	printf("prepared\n");
	wait_readable(-1, p->ep.stop_fd, 20000);
	if (!rdma_accept(p->ep.id, &param)) {
		fprintf(stderr, "it did not fail\n");
		return -1;
	}
	report("rdma_accept", errno);
	return 0;
}

static int provoke(struct peer *p, const char *what)
{
	if (endpoint_open(&p->ep, &p->opt))
		return -1;
	if (!strcmp(what, "accept"))
		return provoke_accept(p);
	if (endpoint_resolve(&p->ep, &p->opt))
		return -1;
	if (!strncmp(what, "reg-", 4))
		return provoke_reg(p, what);
	if (!strcmp(what, "qp"))
		return provoke_qp(p);
	if (!strcmp(what, "send-full"))
		return provoke_full(p, true);
	if (!strcmp(what, "recv-full"))
		return provoke_full(p, false);
	return -1;
}

int main(int argc, char **argv)
{
	struct peer peer = { .opt = OPTIONS_DEFAULT };
	int ret;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 2) {
		fprintf(stderr, "usage: provoke WHAT [SERVER_ADDRESS]\n");
		return EXIT_USAGE;
	}
	peer.opt.server = argc > 2 ? argv[2] : "127.0.0.1";
	ret = provoke(&peer, argv[1]);
	peer_destroy(&peer);
	return ret ? EXIT_FAILED : EXIT_DONE;
}
