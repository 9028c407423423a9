/* SPDX-License-Identifier: MIT */
/*
 * Exercise 18: what both programs know: the questions and the answers, and a UD
 * queue pair as in lesson 18.
 */
#ifndef QUESTION_H
#define QUESTION_H

#include <rdma_common.h>

/* What the card puts in front of each datagram that is received. */
#define GRH 40

#define SLOT 64 /* bytes of a receive: the GRH, and what is below */
#define RECVS 4
#define SENDS 4

/* Both big-endian. */
struct question {
	uint32_t number; /* 1, 2, .. COUNT; COUNT + 1 is a goodbye */
	uint32_t count;
	uint32_t previous; /* the answer to the question before; 0 in the first */
};

struct answer {
	uint32_t number; /* of the question */
	uint32_t value; /* answer_to(number) */
};

static inline uint32_t answer_to(uint32_t number)
{
	return number * number + 7;
}

struct ud {
	struct endpoint ep;
	uint8_t slots[RECVS + SENDS][SLOT]; /* the receives, then the SENDs */
	struct ibv_mr *mr;
	struct ibv_ah *ah; /* the way to the other side */
	uint32_t qpn; /* its queue pair */
	uint32_t sent, completed;
};

/* Post the receive with this number, 0 to RECVS - 1. */
static inline int ud_post_receive(struct ud *u, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)u->slots[slot],
		.length = SLOT,
		.lkey = u->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&u->ep, &wr);
}

/* A UD queue pair, the memory, and all receives. */
static inline int ud_create(struct ud *u)
{
	struct endpoint *ep = &u->ep;
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = SENDS,
			.max_recv_wr = RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_UD,
	};
	uint32_t i;

	ep->pd = ibv_alloc_pd(ep->id->verbs);
	ep->comp_channel = ibv_create_comp_channel(ep->id->verbs);
	if (!ep->pd || !ep->comp_channel) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	ep->cq = ibv_create_cq(ep->id->verbs, SENDS + RECVS, NULL,
			       ep->comp_channel, 0);
	if (!ep->cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	attr.send_cq = ep->cq;
	attr.recv_cq = ep->cq;
	if (rdma_create_qp(ep->id, ep->pd, &attr)) {
		report("rdma_create_qp", errno);
		return -1;
	}
	u->mr = ibv_reg_mr(ep->pd, u->slots, sizeof(u->slots),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!u->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	for (i = 0; i < RECVS; i++)
		if (ud_post_receive(u, i))
			return -1;
	return 0;
}

/*
 * ud_wait - the next datagram, LIMIT_MS milliseconds at the most
 *
 * 0: it is in WC, its receive is u->slots[wr_id_slot(wc->wr_id)]. 1: none has
 * come. -1: a fault, or Ctrl-C. Completions of SENDs are counted on the way.
 */
static inline int ud_wait(struct ud *u, struct ibv_wc *wc, long long limit_ms)
{
	long long deadline = now_ms() + limit_ms, left;
	bool armed = false;
	int n, ready;

	for (;;) {
		n = endpoint_poll(&u->ep, wc);
		if (n < 0 || (n > 0 && check_wc(wc)))
			return -1;
		if (n > 0 && wr_id_op(wc->wr_id) == WR_RECV)
			return 0;
		if (n > 0) {
			u->completed++;
			continue;
		}
		left = deadline - now_ms();
		if (left <= 0)
			return 1;
		if (!armed) {
			if (ibv_req_notify_cq(u->ep.cq, 0))
				return -1;
			armed = true;
			continue;
		}
		ready = wait_readable(u->ep.comp_channel->fd, u->ep.stop_fd,
				      left);
		if (ready < 0 || (ready > 0 && endpoint_take_notice(&u->ep)))
			return -1;
		armed = false;
	}
}

/* Send LENGTH bytes, 24 at the most, to the other side. */
static inline int ud_send(struct ud *u, const void *data, uint32_t length)
{
	uint8_t *slot = u->slots[RECVS + u->sent % SENDS];
	struct ibv_sge sge = {
		.addr = (uintptr_t)slot,
		.length = length,
		.lkey = u->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, u->sent % SENDS),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.ud = {
			.ah = u->ah,
			.remote_qpn = u->qpn,
			.remote_qkey = RDMA_UDP_QKEY,
		},
	};
	struct ibv_wc wc;

	while (u->sent - u->completed >= SENDS) {
		int n = endpoint_poll(&u->ep, &wc);

		if (n < 0 || (n > 0 && check_wc(&wc)))
			return -1;
		if (n > 0 && wr_id_op(wc.wr_id) == WR_SEND)
			u->completed++;
		else if (n > 0 && ud_post_receive(u, wr_id_slot(wc.wr_id)))
			return -1; /* a datagram more that is lost */
	}
	memcpy(slot, data, length);
	u->sent++;
	return endpoint_post_send(&u->ep, &wr);
}

static inline void ud_destroy(struct ud *u)
{
	if (u->ep.id && u->ep.id->qp)
		rdma_destroy_qp(u->ep.id);
	if (u->ah && ibv_destroy_ah(u->ah))
		report("ibv_destroy_ah", errno);
	if (u->mr && ibv_dereg_mr(u->mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&u->ep);
}

#endif
