/* SPDX-License-Identifier: MIT */
/*
 * Two queue pairs of one device, connected to each other by hand, for the tests
 * of the recorder: the calls that no lesson makes, and mistakes.
 *
 *	loop [--threads N] MODE
 *
 * Prints the status of the last completion by number. Each thread opens the
 * device for itself.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

static const char *mode;

struct side {
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char buffer[4096];
};

struct loop {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct side a, b;
	union ibv_gid gid;
	int status;
};

#define MUST(what)                                            \
	do {                                                  \
		if (!(what)) {                                \
			fprintf(stderr, "loop: %s\n", #what); \
			exit(1);                              \
		}                                             \
	} while (0)

static int is(const char *name)
{
	return !strcmp(mode, name);
}

/* ---- setting up ----------------------------------------------------------- */

static void make_cq(struct loop *l)
{
	struct ibv_cq_init_attr_ex init = {
		.cqe = 64,
		.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM |
			    IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_SRC_QP,
	};

	if (is("ex"))
		l->cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(l->context, &init));
	else
		l->cq = ibv_create_cq(l->context, 64, NULL, NULL, 0);
	MUST(l->cq);
}

static void make_side(struct loop *l, struct side *side)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = l->cq,
		.recv_cq = l->cq,
		.srq = l->srq,
		.cap = { .max_send_wr = 16,
			 .max_recv_wr = 16,
			 .max_send_sge = 2,
			 .max_recv_sge = 2,
			 .max_inline_data = 64 },
		.qp_type = IBV_QPT_RC,
		.pd = l->pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_ATOMIC,
	};

	if (is("ex")) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags =
			IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
			IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
			IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	}
	side->qp = ibv_create_qp_ex(l->context, &init);
	MUST(side->qp);
	side->mr = ibv_reg_mr(l->pd, side->buffer, sizeof(side->buffer),
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				      IBV_ACCESS_REMOTE_READ |
				      IBV_ACCESS_REMOTE_ATOMIC |
				      IBV_ACCESS_MW_BIND);
	MUST(side->mr);
	MUST(!ibv_modify_qp(side->qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS));
}

static void connect_side(struct loop *l, struct side *side, struct side *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = { .is_global = 1,
			     .port_num = 1,
			     .grh = { .dgid = l->gid,
				      .sgid_index = 1,
				      .hop_limit = 1 } },
	};

	MUST(!ibv_modify_qp(side->qp, &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 14;
	attr.retry_cnt = 3;
	attr.rnr_retry = 3;
	attr.max_rd_atomic = 4;
	MUST(!ibv_modify_qp(side->qp, &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC));
}

static void set_up(struct loop *l)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = 16,
						   .max_sge = 1 } };

	MUST(list && list[0]);
	l->context = ibv_open_device(list[0]);
	MUST(l->context);
	ibv_free_device_list(list);
	MUST(!ibv_query_gid(l->context, 1, 1, &l->gid));
	l->pd = ibv_alloc_pd(l->context);
	MUST(l->pd);
	make_cq(l);
	if (is("srq"))
		MUST((l->srq = ibv_create_srq(l->pd, &srq)));
	make_side(l, &l->a);
	make_side(l, &l->b);
	connect_side(l, &l->a, &l->b);
	connect_side(l, &l->b, &l->a);
}

static void tear_down(struct loop *l)
{
	MUST(!ibv_destroy_qp(l->a.qp) && !ibv_destroy_qp(l->b.qp));
	MUST(!ibv_dereg_mr(l->a.mr) && !ibv_dereg_mr(l->b.mr));
	if (l->srq)
		MUST(!ibv_destroy_srq(l->srq));
	MUST(!ibv_destroy_cq(l->cq) && !ibv_dealloc_pd(l->pd));
	MUST(!ibv_close_device(l->context));
}

/* ---- working -------------------------------------------------------------- */

/* COUNT completions; the status of the last is kept. Five seconds at most. */
static void complete(struct loop *l, int count)
{
	time_t deadline = time(NULL) + 5;
	struct ibv_wc wc;
	int n;

	while (count) {
		n = ibv_poll_cq(l->cq, 1, &wc);
		MUST(n >= 0);
		MUST(n || time(NULL) < deadline);
		if (n) {
			l->status = wc.status;
			count--;
		}
	}
}

static struct ibv_send_wr write_wr(struct loop *l, struct ibv_sge *sge,
				   uint64_t wr_id)
{
	*sge = (struct ibv_sge){ .addr = (uintptr_t)l->a.buffer,
				 .length = 64,
				 .lkey = l->a.mr->lkey };
	return (struct ibv_send_wr){
		.wr_id = wr_id,
		.sg_list = sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = (uintptr_t)l->b.buffer,
			     .rkey = l->b.mr->rkey },
	};
}

static void receive(struct loop *l, uint64_t wr_id)
{
	struct ibv_sge sge = { .addr = (uintptr_t)l->b.buffer,
			       .length = 256,
			       .lkey = l->b.mr->lkey };
	struct ibv_recv_wr *bad,
		wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 };

	if (l->srq)
		MUST(!ibv_post_srq_recv(l->srq, &wr, &bad));
	else
		MUST(!ibv_post_recv(l->b.qp, &wr, &bad));
}

/* WRITEs and SENDs of all kinds, two in one list, one refused. */
static void plain(struct loop *l)
{
	struct ibv_sge sge[3];
	struct ibv_send_wr *bad, wr[3];

	receive(l, 100);
	wr[0] = write_wr(l, &sge[0], 1);
	wr[1] = write_wr(l, &sge[1], 0x1234567890);
	wr[1].opcode = IBV_WR_SEND_WITH_IMM;
	wr[1].imm_data = htobe32(0xc0ffee);
	wr[1].send_flags |= IBV_SEND_INLINE;
	wr[0].next = &wr[1];
	MUST(!ibv_post_send(l->a.qp, wr, &bad));
	complete(l, 3);
	wr[0] = write_wr(l, &sge[0], 3);
	wr[0].opcode = IBV_WR_RDMA_READ;
	MUST(!ibv_post_send(l->a.qp, wr, &bad));
	complete(l, 1);
	wr[0] = write_wr(l, &sge[0], 4);
	wr[0].opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr[0].wr.atomic.remote_addr = (uintptr_t)l->b.buffer;
	wr[0].wr.atomic.compare_add = 5;
	wr[0].wr.atomic.rkey = l->b.mr->rkey;
	sge[0].length = 8;
	MUST(!ibv_post_send(l->a.qp, wr, &bad));
	complete(l, 1);
	/* The second of three has too many buffers. */
	wr[0] = write_wr(l, &sge[0], 5);
	wr[1] = write_wr(l, &sge[1], 6);
	wr[2] = write_wr(l, &sge[2], 7);
	wr[1].num_sge = 60;
	wr[0].next = &wr[1];
	wr[1].next = &wr[2];
	wr[1].sg_list = calloc(60, sizeof(*sge));
	MUST(ibv_post_send(l->a.qp, wr, &bad) && bad == &wr[1]);
	complete(l, 1);
	free(wr[1].sg_list);
}

/*
 * The extended calls. All four completions are there before the first is looked at.
 * With rxe (rdma-core 44) a program that had called ibv_next_poll() in vain and
 * polled again later was seen to read completions without end that were none.
 */
static void extended(struct loop *l)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(l->a.qp);
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)l->cq;
	volatile uint64_t *answer = (void *)(l->a.buffer + 1024);
	struct ibv_poll_cq_attr attr = { 0 };
	time_t deadline = time(NULL) + 5;
	int i;

	*answer = UINT64_MAX;

	MUST(qp);
	receive(l, 100);
	ibv_wr_start(qp);
	qp->wr_id = 1;
	qp->wr_flags = 0;
	ibv_wr_rdma_write(qp, l->b.mr->rkey, (uintptr_t)l->b.buffer);
	ibv_wr_set_sge(qp, l->a.mr->lkey, (uintptr_t)l->a.buffer, 64);
	qp->wr_id = 2;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_send_imm(qp, htobe32(7));
	ibv_wr_set_sge(qp, l->a.mr->lkey, (uintptr_t)l->a.buffer, 32);
	qp->wr_id = 3;
	ibv_wr_rdma_read(qp, l->b.mr->rkey, (uintptr_t)l->b.buffer);
	ibv_wr_set_sge(qp, l->a.mr->lkey, (uintptr_t)l->a.buffer, 16);
	qp->wr_id = 4;
	ibv_wr_atomic_fetch_add(qp, l->b.mr->rkey, (uintptr_t)l->b.buffer, 9);
	ibv_wr_set_sge(qp, l->a.mr->lkey, (uintptr_t)answer, 8);
	MUST(!ibv_wr_complete(qp));
	ibv_wr_start(qp);
	qp->wr_id = 5;
	ibv_wr_send(qp);
	ibv_wr_abort(qp);
	/* The answer to the last request comes right before its completion. */
	while (*answer == UINT64_MAX)
		MUST(time(NULL) < deadline);
	usleep(200000);
	MUST(!ibv_start_poll(cq, &attr));
	for (i = 0; i < 3; i++)
		MUST(!ibv_next_poll(cq));
	l->status = cq->status;
	MUST(ibv_next_poll(cq) == ENOENT);
	ibv_end_poll(cq);
}

/* The buffer is written to before its completion. */
static void reuse(struct loop *l, int early)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = write_wr(l, &sge, 1);

	memset(l->a.buffer, 'a', 64);
	MUST(!ibv_post_send(l->a.qp, &wr, &bad));
	if (!early)
		complete(l, 1);
	memset(l->a.buffer, 'b', 64);
	wr.wr_id = 2;
	MUST(!ibv_post_send(l->a.qp, &wr, &bad));
	complete(l, early ? 2 : 1);
}

static void wrong_keys(struct loop *l)
{
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = write_wr(l, &sge, 1);

	if (is("lkey-for-rkey"))
		wr.wr.rdma.rkey = l->b.mr->lkey;
	else
		sge.lkey = l->a.mr->rkey;
	MUST(!ibv_post_send(l->a.qp, &wr, &bad));
	complete(l, 1);
}

static void window(struct loop *l)
{
	struct ibv_mw *mw = ibv_alloc_mw(l->pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {
		.wr_id = 50,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = { .mr = l->b.mr,
			       .addr = (uintptr_t)l->b.buffer,
			       .length = 128,
			       .mw_access_flags = IBV_ACCESS_REMOTE_WRITE },
	};
	struct ibv_sge sge;
	struct ibv_send_wr *bad, wr = write_wr(l, &sge, 1);

	MUST(mw);
	MUST(!ibv_bind_mw(l->b.qp, mw, &bind));
	complete(l, 1);
	MUST(l->status == IBV_WC_SUCCESS);
	wr.wr.rdma.rkey = mw->rkey;
	MUST(!ibv_post_send(l->a.qp, &wr, &bad));
	complete(l, 1);
	MUST(!ibv_dealloc_mw(mw));
}

static void *run(void *unused)
{
	struct loop *l = calloc(1, sizeof(*l));

	(void)unused;
	MUST(l);
	set_up(l);
	if (is("plain") || is("srq"))
		plain(l);
	else if (is("ex"))
		extended(l);
	else if (is("reuse") || is("no-reuse"))
		reuse(l, is("reuse"));
	else if (is("window"))
		window(l);
	else if (is("crash"))
		ibv_dereg_mr((struct ibv_mr *)8);
	else
		wrong_keys(l);
	printf("%d\n", l->status);
	tear_down(l);
	free(l);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[16];
	int count = 1, i;

	if (argc == 4 && !strcmp(argv[1], "--threads"))
		count = atoi(argv[2]);
	mode = argv[argc - 1];
	if (argc < 2 || count < 1 || count > 16) {
		fprintf(stderr, "usage: loop [--threads N] MODE\n");
		return 2;
	}
	for (i = 0; i < count; i++)
		MUST(!pthread_create(&threads[i], NULL, run, NULL));
	for (i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
