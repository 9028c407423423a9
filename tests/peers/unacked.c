/* SPDX-License-Identifier: MIT */
/*
 * What does ibv_destroy_cq() do when an event of the CQ was taken from the
 * completion channel and never acknowledged? `unacked` finds out; with an
 * argument it acknowledges. Status 0 when the CQ was destroyed, 1 on a fault,
 * 3 when ibv_destroy_cq() did not return within two seconds.
 *
 * The completion is that of a receive which is flushed: the QP goes from INIT
 * to ERR, and no peer is needed.
 */
#include <rdma_common.h>

static void too_late(int signal)
{
	static const char text[] = "ibv_destroy_cq did not return\n";
	ssize_t ignored = write(STDOUT_FILENO, text, sizeof(text) - 1);

	(void)ignored;
	(void)signal;
	_exit(3);
}

static int fail(const char *call, int err)
{
	report(call, err);
	return EXIT_FAILED;
}

int main(int argc, char **argv)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 1, .max_recv_wr = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr *bad, wr = { .wr_id = 1 };
	struct ibv_context *context, **contexts;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq, *event_cq;
	struct ibv_pd *pd;
	struct ibv_qp *qp;
	void *unused;
	int err;

	(void)argv;
	contexts = rdma_get_devices(NULL);
	if (!contexts || !contexts[0])
		return fail("rdma_get_devices", errno);
	context = contexts[0];
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 2, NULL, channel, 0);
	if (!pd || !channel || !cq)
		return fail("ibv_create_cq", errno);
	init.send_cq = cq;
	init.recv_cq = cq;
	qp = ibv_create_qp(pd, &init);
	if (!qp)
		return fail("ibv_create_qp", errno);
	err = ibv_modify_qp(qp, &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS);
	if (err)
		return fail("ibv_modify_qp", err);
	err = ibv_post_recv(qp, &wr, &bad);
	if (err)
		return fail("ibv_post_recv", err);
	err = ibv_req_notify_cq(cq, 0);
	if (err)
		return fail("ibv_req_notify_cq", err);
	attr.qp_state = IBV_QPS_ERR;
	err = ibv_modify_qp(qp, &attr, IBV_QP_STATE);
	if (err)
		return fail("ibv_modify_qp", err);
	if (wait_readable(channel->fd, -1, 5000) != 1)
		return fail("poll", ETIMEDOUT);
	if (ibv_get_cq_event(channel, &event_cq, &unused))
		return fail("ibv_get_cq_event", errno);
	if (argc > 1)
		ibv_ack_cq_events(event_cq, 1);
	err = ibv_destroy_qp(qp);
	if (err)
		return fail("ibv_destroy_qp", err);

	signal(SIGALRM, too_late);
	alarm(2);
	err = ibv_destroy_cq(cq);
	if (err)
		return fail("ibv_destroy_cq", err);
	alarm(0);
	printf("ibv_destroy_cq returned\n");
	ibv_destroy_comp_channel(channel);
	ibv_dealloc_pd(pd);
	rdma_free_devices(contexts);
	return EXIT_DONE;
}
