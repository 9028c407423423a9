/* SPDX-License-Identifier: MIT */
/*
 * What a device says of itself and does on its own, a line for each: a name, and
 * what was found. docs/softroce-and-real-nics.md has a table of these lines, and
 * a test compares the two. It needs no peer.
 */
#include <rdma_common.h>

static char memory[4096] __attribute__((aligned(4096)));

static void keys(struct ibv_pd *pd)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ;
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof(memory), all);

	if (mr)
		printf("lkey-and-rkey %s\n",
		       mr->lkey == mr->rkey ? "equal" : "different");
	if (mr)
		ibv_dereg_mr(mr);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	if (mr)
		printf("rkey-without-remote-rights %s\n",
		       mr->rkey == 0	    ? "0" :
		       mr->rkey == mr->lkey ? "as the lkey" :
					      "another number");
	if (mr)
		ibv_dereg_mr(mr);
	mr = ibv_reg_mr(pd, memory, sizeof(memory),
			all | IBV_ACCESS_RELAXED_ORDERING);
	printf("relaxed-ordering %s\n", mr ? "accepted" : "refused");
	if (mr)
		ibv_dereg_mr(mr);
	mr = ibv_reg_mr(pd, memory, sizeof(memory), all | IBV_ACCESS_ON_DEMAND);
	printf("on-demand-paging %s\n",
	       mr ? "accepted" : strerrorname_np(errno));
	if (mr)
		ibv_dereg_mr(mr);
}

/* How many receives fit into a queue that was made for 32. */
static int room(struct ibv_qp *qp)
{
	struct ibv_recv_wr wr = { 0 }, *bad;
	int n = 0;

	while (n < 1000 && !ibv_post_recv(qp, &wr, &bad))
		n++;
	return n;
}

static void queues(struct ibv_context *verbs, struct ibv_pd *pd)
{
	struct ibv_cq *cq = ibv_create_cq(verbs, 16, NULL, NULL, 0);
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
	};
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = 32,
			.max_recv_wr = 32,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp;

	if (!cq)
		return;
	printf("cq-of-16 %d\n", cq->cqe);
	qp = ibv_create_qp(pd, &attr);
	if (qp) {
		printf("send-queue-of-32 %u\n", attr.cap.max_send_wr);
		printf("receive-queue-of-32 %u\n", attr.cap.max_recv_wr);
		printf("inline-unasked %u\n", attr.cap.max_inline_data);
		if (!ibv_modify_qp(qp, &init,
				   IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					   IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
			printf("receives-that-fit %d\n", room(qp));
		ibv_destroy_qp(qp);
	}
	ibv_destroy_cq(cq);
}

static void device(struct ibv_context *verbs)
{
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;

	if (ibv_query_device_ex(verbs, NULL, &attr) ||
	    ibv_query_port(verbs, 1, &port))
		return;
	printf("max-sge %d\n", attr.orig_attr.max_sge);
	printf("reads-per-qp %d\n", attr.orig_attr.max_qp_rd_atom);
	printf("atomics %s\n",
	       attr.orig_attr.atomic_cap == IBV_ATOMIC_GLOB ? "GLOB" :
	       attr.orig_attr.atomic_cap == IBV_ATOMIC_HCA  ? "HCA" :
							      "none");
	printf("longest-message %u\n", port.max_msg_sz);
	printf("clock %llu kHz\n", (unsigned long long)attr.hca_core_clock);
	printf("tag-matching %u\n", attr.tm_caps.max_num_tags);
	printf("rate-code %u\n", port.active_speed);
	printf("largest-mtu %d\n", 128 << port.max_mtu);
	printf("mtu %d\n", 128 << port.active_mtu);
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *verbs = list && list[0] ? ibv_open_device(list[0]) :
						      NULL;
	struct ibv_pd *pd = verbs ? ibv_alloc_pd(verbs) : NULL;

	if (!pd) {
		fprintf(stderr, "no device\n");
		return EXIT_FAILED;
	}
	device(verbs);
	keys(pd);
	queues(verbs, pd);
	ibv_dealloc_pd(pd);
	ibv_close_device(verbs);
	ibv_free_device_list(list);
	return EXIT_DONE;
}
