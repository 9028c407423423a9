/* SPDX-License-Identifier: MIT */
/*
 * A client that makes more READs at a time than the server has granted. No QP
 * of rdma_create_qp() does that, since librdmacm sets it to what was granted. So
 * this one is made and driven by hand.
 *
 *	greedy ASKED MADE COUNT SERVER
 *
 * ASKED is what the handshake says, MADE what our QP is set to. COUNT READs of
 * the server's memory are posted at once, and each completion is printed.
 */
#include "peer.h"

struct greedy {
	struct endpoint ep;
	struct ibv_qp *qp;
	uint8_t *memory;
	struct ibv_mr *mr;
	long asked, made, count;
};

static int make_qp(struct greedy *g)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = g->count,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct endpoint *ep = &g->ep;

	ep->pd = ibv_alloc_pd(ep->id->verbs);
	ep->comp_channel = ibv_create_comp_channel(ep->id->verbs);
	ep->cq = ibv_create_cq(ep->id->verbs, g->count + 1, NULL,
			       ep->comp_channel, 0);
	g->memory = malloc(PEER_BUFFER);
	if (!ep->pd || !ep->comp_channel || !ep->cq || !g->memory)
		return -1;
	g->mr = ibv_reg_mr(ep->pd, g->memory, PEER_BUFFER,
			   IBV_ACCESS_LOCAL_WRITE);
	init.send_cq = init.recv_cq = ep->cq;
	g->qp = ibv_create_qp(ep->pd, &init);
	return g->mr && g->qp ? 0 : -1;
}

static int move_to(struct greedy *g, enum ibv_qp_state state)
{
	struct ibv_qp_attr attr = { .qp_state = state };
	int mask, err;

	if (rdma_init_qp_attr(g->ep.id, &attr, &mask)) {
		report("rdma_init_qp_attr", errno);
		return -1;
	}
	if (state == IBV_QPS_RTS)
		attr.max_rd_atomic = g->made;
	err = ibv_modify_qp(g->qp, &attr, mask);
	if (err)
		report("ibv_modify_qp", err);
	return err ? -1 : 0;
}

static int connect_server(struct greedy *g)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	param.initiator_depth = g->asked;
	param.qp_num = g->qp->qp_num;
	if (move_to(g, IBV_QPS_INIT))
		return -1;
	if (rdma_connect(g->ep.id, &param)) {
		report("rdma_connect", errno);
		return -1;
	}
	if (endpoint_wait_event(&g->ep, RDMA_CM_EVENT_CONNECT_RESPONSE) ||
	    move_to(g, IBV_QPS_RTR) || move_to(g, IBV_QPS_RTS))
		return -1;
	if (rdma_establish(g->ep.id)) {
		report("rdma_establish", errno);
		return -1;
	}
	printf("granted %u, and we make %ld\n", g->ep.initiator_depth, g->made);
	return 0;
}

static int read_all(struct greedy *g)
{
	struct remote_region region;
	struct ibv_send_wr *bad;
	struct ibv_sge sge = {
		.addr = (uintptr_t)g->memory,
		.length = 4096,
		.lkey = g->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_READ, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_READ,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_wc wc;
	long i;

	if (remote_region_unpack(&region, g->ep.private_data))
		return -1;
	wr.wr.rdma.remote_addr = region.addr;
	wr.wr.rdma.rkey = region.rkey;
	for (i = 0; i < g->count; i++) {
		if (ibv_post_send(g->qp, &wr, &bad))
			return -1;
		g->ep.outstanding++;
	}
	for (i = 0; i < g->count; i++) {
		if (endpoint_wait_wc(&g->ep, &wc))
			return -1;
		printf("READ: status %d\n", wc.status);
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct greedy greedy = { 0 };
	int ret;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc != 5)
		return EXIT_USAGE;
	greedy.asked = parse_number(argv[1], 0, 255);
	greedy.made = parse_number(argv[2], 0, 255);
	greedy.count = parse_number(argv[3], 1, 128);
	opt.server = argv[4];
	ret = endpoint_open(&greedy.ep, &opt) ||
	      endpoint_resolve(&greedy.ep, &opt) || make_qp(&greedy) ||
	      connect_server(&greedy) || read_all(&greedy);
	if (greedy.ep.id)
		rdma_disconnect(greedy.ep.id);
	if (greedy.qp)
		ibv_destroy_qp(greedy.qp);
	if (greedy.mr)
		ibv_dereg_mr(greedy.mr);
	endpoint_destroy(&greedy.ep);
	free(greedy.memory);
	return ret ? EXIT_FAILED : EXIT_DONE;
}
