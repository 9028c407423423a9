/* SPDX-License-Identifier: MIT */
/*
 * What the two programs of lesson 18 share: what a datagram looks like, and one
 * UD queue pair with the memory for its datagrams.
 */
#ifndef DATAGRAM_H
#define DATAGRAM_H

#include <arpa/inet.h>

#include <rdma_common.h>

/*
 * In front of each datagram that is received the card puts 40 bytes: who sent
 * it (ibv_poll_cq(3), IBV_WC_GRH). They are in the receive, and in byte_len, and
 * not in what was sent.
 */
#define GRH 40

/* The largest datagram of any card; that of ours is the port's active_mtu. */
#define MAX_DATAGRAM 4096

/* SENDs that can be under way. */
#define SENDS 16

#define MAGIC 0x4c313864 /* "L18d": anybody may send us something */

enum kind {
	DATA = 1, /* number SEQ of COUNT, and bytes that depend on SEQ */
	ASK, /* how many have arrived? */
	REPORT, /* SEQ have, COUNT of them more than once */
};

/* Everything is big-endian. */
struct datagram {
	uint32_t magic, kind, seq, count;
	uint8_t data[];
};

/* Where to: all three stand in each request. */
struct destination {
	struct ibv_ah *ah; /* the way: which port of which machine */
	uint32_t qpn; /* which queue pair there */
	uint32_t qkey; /* and the Q_Key, which has to be that queue pair's */
};

struct ud {
	struct endpoint ep;
	int cm_fd; /* wait for the CM as well: its channel, or -1 */
	uint32_t recvs; /* receives that are posted */
	uint8_t *memory; /* a slot for each receive, then for each SEND */
	struct ibv_mr *mr;
	uint32_t sent, completed; /* SENDs, since the beginning */
	struct destination peer; /* the other side */
	struct destination multicast; /* with --group: the group */
	struct rdma_cm_id *member; /* the id that is the member */
	struct sockaddr_storage group;
	union ibv_gid mgid; /* the group's GID; its LID is for InfiniBand */
	uint16_t mlid;
	bool joined, attached;
};

#define SLOT (GRH + MAX_DATAGRAM)

static inline uint8_t *slot_of(struct ud *u, uint32_t slot)
{
	return u->memory + (size_t)slot * SLOT;
}

static inline int ud_post_receive(struct ud *u, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)slot_of(u, slot),
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

/*
 * A UD queue pair on the id. There is no peer in it, and no connection to wait
 * for: rdma_create_qp() takes it through to RTS, and it can send at once, and
 * receive from everybody who knows its number and its Q_Key.
 */
static inline int ud_create_qp(struct ud *u)
{
	struct endpoint *ep = &u->ep;
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = SENDS,
			.max_recv_wr = u->recvs,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_UD,
	};

	ep->pd = ibv_alloc_pd(ep->id->verbs);
	if (!ep->pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	ep->comp_channel = ibv_create_comp_channel(ep->id->verbs);
	if (!ep->comp_channel) {
		report("ibv_create_comp_channel", errno);
		return -1;
	}
	ep->cq = ibv_create_cq(ep->id->verbs, SENDS + u->recvs, NULL,
			       ep->comp_channel, 0);
	if (!ep->cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	u->cm_fd = -1;
	attr.send_cq = ep->cq;
	attr.recv_cq = ep->cq;
	if (rdma_create_qp(ep->id, ep->pd, &attr)) {
		report("rdma_create_qp", errno);
		return -1;
	}
	return 0;
}

/* The memory, and all receives. */
static inline int ud_post_receives(struct ud *u)
{
	size_t size = (size_t)(u->recvs + SENDS) * SLOT;
	uint32_t i;

	u->memory = calloc(1, size);
	if (!u->memory) {
		report("calloc", errno);
		return -1;
	}
	u->mr = ibv_reg_mr(u->ep.pd, u->memory, size, IBV_ACCESS_LOCAL_WRITE);
	if (!u->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	for (i = 0; i < u->recvs; i++)
		if (ud_post_receive(u, i))
			return -1;
	return 0;
}

/*
 * ud_wait - the next completion, LIMIT_MS milliseconds at the most
 *
 * As endpoint_wait_wc() of lesson 04, but that nothing has come is no fault
 * here: it returns 1 then, and so it does when the CM has something to say. 0:
 * WC is a datagram that was received. Completions of SENDs are counted, and go
 * no further.
 */
static inline int ud_wait(struct ud *u, struct ibv_wc *wc, long long limit_ms)
{
	long long deadline = now_ms() + limit_ms, left;
	bool armed = false;
	int n, err, ready;

	for (;;) {
		n = endpoint_poll(&u->ep, wc);
		if (n < 0 || (n > 0 && check_wc(wc)))
			return -1;
		if (n > 0 && wr_id_op(wc->wr_id) == WR_RECV)
			return 0;
		if (n > 0) {
			u->completed++;
			return 1;
		}
		left = deadline - now_ms();
		if (left <= 0)
			return 1;
		if (!armed) {
			err = ibv_req_notify_cq(u->ep.cq, 0);
			if (err) {
				report("ibv_req_notify_cq", err);
				return -1;
			}
			armed = true;
			continue; /* look again: lesson 04 */
		}
		ready = wait_either(u->ep.comp_channel->fd, u->cm_fd,
				    u->ep.stop_fd, left);
		if (ready < 0 || ((ready & 1) && endpoint_take_notice(&u->ep)))
			return -1;
		if (ready & 2)
			return 1;
		armed = false;
	}
}

/* Fill in the slot of the next SEND; the caller has seen that there is one. */
static inline struct datagram *ud_prepare(struct ud *u, enum kind kind,
					  uint32_t seq, uint32_t count)
{
	struct datagram *d = (void *)slot_of(u, u->recvs + u->sent % SENDS);

	d->magic = htobe32(MAGIC);
	d->kind = htobe32(kind);
	d->seq = htobe32(seq);
	d->count = htobe32(count);
	return d;
}

/* Send it. */
static inline int ud_send(struct ud *u, const struct datagram *d,
			  uint32_t length, const struct destination *to)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)d,
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
			.ah = to->ah,
			.remote_qpn = to->qpn,
			.remote_qkey = to->qkey,
		},
	};

	u->sent++;
	return endpoint_post_send(&u->ep, &wr);
}

/* Is it one of ours, and as long as it has to be? Otherwise NULL. */
static inline const struct datagram *ud_parse(struct ud *u,
					      const struct ibv_wc *wc)
{
	const struct datagram *d =
		(void *)(slot_of(u, wr_id_slot(wc->wr_id)) + GRH);

	if (wc->byte_len < GRH + sizeof(*d) || be32toh(d->magic) != MAGIC)
		return NULL;
	return d;
}

/* What the event MULTICAST_JOIN brings, and our queue pair as a member. */
static inline int ud_attach(struct ud *u, struct rdma_ud_param *ud)
{
	int err;

	u->multicast.qpn = ud->qp_num;
	u->multicast.qkey = ud->qkey;
	u->mgid = ud->ah_attr.grh.dgid;
	u->mlid = ud->ah_attr.dlid;
	u->multicast.ah = ibv_create_ah(u->ep.pd, &ud->ah_attr);
	if (!u->multicast.ah) {
		report("ibv_create_ah", errno);
		return -1;
	}
	err = ibv_attach_mcast(u->ep.id->qp, &u->mgid, u->mlid);
	if (err) {
		report("ibv_attach_mcast", err);
		return -1;
	}
	u->attached = true;
	return 0;
}

/*
 * An id for the group, on the card of ours. The CM lets an id join only as long
 * as it has an address and nothing more, and ours has a peer already.
 */
static inline int ud_member(struct ud *u, const char *group)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_UDP };
	struct rdma_addrinfo *info = NULL;
	struct sockaddr_storage own;
	int err;

	err = rdma_getaddrinfo(group, NULL, &hints, &info);
	if (err) {
		report_getaddrinfo(group, err);
		return -1;
	}
	memcpy(&u->group, info->ai_dst_addr, info->ai_dst_len);
	rdma_freeaddrinfo(info);
	memcpy(&own, rdma_get_local_addr(u->ep.id), sizeof(own));
	((struct sockaddr_in *)&own)->sin_port = 0; /* any */
	if (rdma_create_id(u->ep.channel, &u->member, NULL, RDMA_PS_UDP)) {
		report("rdma_create_id", errno);
		return -1;
	}
	if (rdma_resolve_addr(u->member, (struct sockaddr *)&own,
			      (struct sockaddr *)&u->group,
			      u->ep.timeout * 500)) {
		report_address("rdma_resolve_addr",
			       (struct sockaddr *)&u->group, errno);
		return -1;
	}
	return endpoint_wait_event(&u->ep, RDMA_CM_EVENT_ADDR_RESOLVED);
}

/*
 * ud_join - become a member of the group
 *
 * The event MULTICAST_JOIN brings what a SEND to the group needs. The number of
 * the queue pair is the same for all groups: all ones, "everybody".
 */
static inline int ud_join(struct ud *u, const char *group)
{
	struct rdma_cm_event *event;
	int ready, ret;

	if (ud_member(u, group))
		return -1;
	if (rdma_join_multicast(u->member, (struct sockaddr *)&u->group,
				NULL)) {
		report("rdma_join_multicast", errno);
		return -1;
	}
	u->joined = true;
	ready = wait_readable(u->ep.channel->fd, u->ep.stop_fd,
			      u->ep.timeout * 1000);
	if (ready == 0)
		fprintf(stderr, "waited %d s to become a member of %s\n",
			u->ep.timeout, group);
	if (ready <= 0)
		return -1;
	if (rdma_get_cm_event(u->ep.channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	ret = expect_event(event, RDMA_CM_EVENT_MULTICAST_JOIN);
	if (!ret)
		ret = ud_attach(u, &event->param.ud);
	rdma_ack_cm_event(event);
	if (!ret)
		printf("joined %s: QP number 0x%x, Q_Key 0x%x\n", group,
		       u->multicast.qpn, u->multicast.qkey);
	return ret;
}

/*
 * There is no goodbye, and the receives are not flushed: nothing is an error in
 * them. Once the queue pair is gone the memory is ours again.
 */
static inline void ud_destroy(struct ud *u)
{
	if (u->attached && ibv_detach_mcast(u->ep.id->qp, &u->mgid, u->mlid))
		report("ibv_detach_mcast", errno);
	if (u->joined &&
	    rdma_leave_multicast(u->member, (struct sockaddr *)&u->group))
		report("rdma_leave_multicast", errno);
	if (u->ep.id && u->ep.id->qp)
		rdma_destroy_qp(u->ep.id);
	if (u->peer.ah && ibv_destroy_ah(u->peer.ah))
		report("ibv_destroy_ah", errno);
	if (u->multicast.ah && ibv_destroy_ah(u->multicast.ah))
		report("ibv_destroy_ah", errno);
	if (u->member)
		rdma_destroy_id(u->member);
	if (u->mr && ibv_dereg_mr(u->mr))
		report("ibv_dereg_mr", errno);
	free(u->memory);
	endpoint_destroy(&u->ep);
}

#endif
