/* SPDX-License-Identifier: MIT */
/*
 * Lesson 17: an RC connection without the connection manager. All that both
 * programs do for it is here; client.c and server.c have what they do with it.
 *
 * One side, in the order in which it is made:
 *
 *	tcp_connect | tcp_listen, tcp_accept	a way to tell each other things
 *	find_gid				device, port and GID, by our address
 *	make_qp					PD, CQ, QP: state RESET
 *	to_init					INIT: receives can be posted
 *	exchange				their number, PSN, GID, for ours
 *	to_rtr					RTR: packets are taken
 *	to_rts					RTS: packets can be sent
 *	barrier					.. and so can the other side's
 */
#ifndef BY_HAND_H
#define BY_HAND_H

#include <arpa/inet.h>
#include <sys/random.h>

#include "tcp.h"

#define PORT_MAGIC 0x4c313772 /* "L17r" */

/* What a side has to know of the other. On the wire 64 bytes, big-endian. */
struct record {
	uint32_t qpn; /* 24 bits */
	uint32_t psn; /* 24 bits: the number of its first packet */
	uint32_t mtu; /* bytes: the longest payload of its port */
	union ibv_gid gid; /* its address */
	uint8_t buffer[REMOTE_REGION_WIRE_SIZE]; /* the server's memory, and */
	uint8_t doorbell[REMOTE_REGION_WIRE_SIZE]; /* its doorbell: lesson 08 */
};

#define RECORD_WIRE_SIZE 64

/* What to do wrongly, to see what comes of it. */
enum wrong {
	RIGHT,
	WRONG_PSN,
	WRONG_QPN,
	WRONG_NO_GRH,
	WRONG_NO_RTR,
	WRONG_NO_ACCESS,
};

struct side {
	struct tcp tcp;
	enum wrong wrong;
	struct ibv_context *verbs;
	uint8_t port; /* of the device */
	int gid_index; /* which row of the port's table is our address */
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp_channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct record mine, theirs;
};

/* ---- device, port and GID ------------------------------------------------- */

/* Our address in this TCP connection, as a GID: IPv4 is ::ffff:a.b.c.d. */
static inline int own_gid(struct side *s, union ibv_gid *gid)
{
	struct sockaddr_storage address;
	const struct sockaddr_in6 *six = (struct sockaddr_in6 *)&address;
	const struct sockaddr_in *four = (struct sockaddr_in *)&address;
	socklen_t size = sizeof(address);

	if (getsockname(s->tcp.fd, (struct sockaddr *)&address, &size)) {
		report("getsockname", errno);
		return -1;
	}
	memset(gid, 0, sizeof(*gid));
	if (address.ss_family == AF_INET6) {
		memcpy(gid->raw, &six->sin6_addr, 16);
	} else {
		gid->raw[10] = gid->raw[11] = 0xff;
		memcpy(gid->raw + 12, &four->sin_addr, 4);
	}
	return 0;
}

/* Has this device it? Then it stays open, in S. */
static inline int try_device(struct side *s, struct ibv_device *device,
			     const union ibv_gid *wanted)
{
	struct ibv_context *verbs = ibv_open_device(device);
	struct ibv_gid_entry entries[256];
	ssize_t count, i;

	if (!verbs)
		return -1;
	count = ibv_query_gid_table(verbs, entries, 256, 0);
	for (i = 0; i < count; i++) {
		if (memcmp(&entries[i].gid, wanted, sizeof(*wanted)) ||
		    entries[i].gid_type != IBV_GID_TYPE_ROCE_V2)
			continue;
		s->verbs = verbs;
		s->port = entries[i].port_num;
		s->gid_index = entries[i].gid_index;
		return 0;
	}
	ibv_close_device(verbs);
	return -1;
}

/*
 * find_gid - which device, which of its ports, and which row of the port's table
 * of GIDs
 *
 * The wrong row is the usual mistake of programs without the CM: row 0 is mostly
 * a link-local address. We take the row that holds the address of the TCP
 * connection, as RoCE v2: where TCP gets through, RoCE's packets, which are UDP
 * between the same two addresses, may as well.
 */
static inline int find_gid(struct side *s)
{
	char text[INET6_ADDRSTRLEN];
	struct ibv_device **list;
	struct ibv_port_attr attr;
	int count = 0, i, err;

	if (own_gid(s, &s->mine.gid))
		return -1;
	list = ibv_get_device_list(&count);
	for (i = 0; i < count; i++)
		if (!try_device(s, list[i], &s->mine.gid))
			break;
	if (list)
		ibv_free_device_list(list);
	inet_ntop(AF_INET6, s->mine.gid.raw, text, sizeof(text));
	if (!s->verbs) {
		fprintf(stderr,
			"no RDMA device has the RoCE v2 GID %s: use the address "
			"of a card that has one (see `rdma link`)\n",
			text);
		return -1;
	}
	err = ibv_query_port(s->verbs, s->port, &attr);
	if (err) {
		report("ibv_query_port", err);
		return -1;
	}
	s->mine.mtu = 128 << attr.active_mtu;
	printf("device %s port %u, GID %d: %s, MTU %u\n",
	       ibv_get_device_name(s->verbs->device), s->port, s->gid_index,
	       text, s->mine.mtu);
	return 0;
}

/* ---- the queue pair, state by state --------------------------------------- */

static inline int make_qp(struct side *s, uint32_t sends, uint32_t recvs)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = sends,
			.max_recv_wr = recvs,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};

	s->pd = ibv_alloc_pd(s->verbs);
	if (!s->pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	s->comp_channel = ibv_create_comp_channel(s->verbs);
	if (!s->comp_channel) {
		report("ibv_create_comp_channel", errno);
		return -1;
	}
	s->cq = ibv_create_cq(s->verbs, sends + recvs, NULL, s->comp_channel,
			      0);
	if (!s->cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	attr.send_cq = s->cq;
	attr.recv_cq = s->cq;
	s->qp = ibv_create_qp(s->pd, &attr);
	if (!s->qp) {
		report("ibv_create_qp", errno);
		return -1;
	}
	/*
	 * The first packet's number is drawn, so that packets of an earlier
	 * connection with the same QP number are not taken for ours.
	 */
	if (getrandom(&s->mine.psn, sizeof(s->mine.psn), 0) < 0) {
		report("getrandom", errno);
		return -1;
	}
	s->mine.psn &= 0xffffff;
	s->mine.qpn = s->qp->qp_num;
	printf("RESET: QP number 0x%x, first PSN 0x%x\n", s->mine.qpn,
	       s->mine.psn);
	return 0;
}

/* ibv_modify_qp(3) returns the errno value. */
static inline int modify(struct side *s, struct ibv_qp_attr *attr, int mask,
			 const char *state)
{
	int err = ibv_modify_qp(s->qp, attr, mask | IBV_QP_STATE);

	if (!err) {
		printf("%s\n", state);
		return 0;
	}
	fprintf(stderr, "ibv_modify_qp to %.*s: %s: %s\n",
		(int)strcspn(state, ":"), state, strerror(err),
		err == ETIMEDOUT ? "nobody answers for the peer's GID" :
				   "an attribute is missing or wrong, or the "
				   "QP is not in the state before");
	return -1;
}

/*
 * INIT: it belongs to a port, and it is said what a peer may do. Receives can be
 * posted from here on; nothing is received yet.
 */
static inline int to_init(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = s->port,
		/* Partitions are InfiniBand's VLANs; RoCE has row 0 only. */
		.pkey_index = 0,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	if (s->wrong == WRONG_NO_ACCESS)
		attr.qp_access_flags = 0;
	return modify(s, &attr,
		      IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_ACCESS_FLAGS,
		      "INIT");
}

/* RTR, ready to receive: all that it has to know of the peer. */
static inline int to_rtr(struct side *s)
{
	uint32_t bytes = s->mine.mtu < s->theirs.mtu ? s->mine.mtu :
						       s->theirs.mtu;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		/* Both sides must use the same, and neither more than it has. */
		.path_mtu = bytes >= 4096 ? IBV_MTU_4096 :
			    bytes >= 2048 ? IBV_MTU_2048 :
			    bytes >= 1024 ? IBV_MTU_1024 :
			    bytes >= 512  ? IBV_MTU_512 :
					    IBV_MTU_256,
		.dest_qp_num = s->theirs.qpn,
		.rq_psn = s->theirs.psn, /* the first packet that we take */
		/* READs and atomics of the peer at a time: there are none. */
		.max_dest_rd_atomic = 0,
		/* When a receive is missing, the peer waits 0.64 ms (12). */
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1, /* with a GRH: RoCE always */
			.port_num = s->port,
			.grh = {
				.dgid = s->theirs.gid,
				.sgid_index = s->gid_index,
				.hop_limit = 64, /* as IP's TTL */
			},
		},
	};

	if (s->wrong == WRONG_PSN)
		/* Behind. Ahead, their packets would look like repeats. */
		attr.rq_psn = (s->theirs.psn - 0x1000) & 0xffffff;
	if (s->wrong == WRONG_QPN)
		attr.dest_qp_num ^= 0x8000;
	if (s->wrong == WRONG_NO_GRH)
		attr.ah_attr.is_global = 0;
	return modify(s, &attr,
		      IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			      IBV_QP_MIN_RNR_TIMER,
		      "RTR: ready to receive");
}

/* RTS, ready to send: how our own packets are numbered, and how patiently. */
static inline int to_rts(struct side *s)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = s->mine.psn,
		.timeout = ACK_TIMEOUT, /* 134 ms, see rdma_common.h */
		.retry_cnt = 6, /* on SoftRoCE 7 is for ever */
		.rnr_retry = 3,
		.max_rd_atomic = 0,
	};

	return modify(s, &attr,
		      IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
		      "RTS: ready to send");
}

/* ---- the exchange --------------------------------------------------------- */

static inline void record_pack(uint8_t *wire, const struct record *r)
{
	uint32_t words[4] = { htobe32(PORT_MAGIC), htobe32(r->qpn),
			      htobe32(r->psn), htobe32(r->mtu) };

	memcpy(wire, words, 16);
	memcpy(wire + 16, r->gid.raw, 16); /* big-endian as it is */
	memcpy(wire + 32, r->buffer, 16);
	memcpy(wire + 48, r->doorbell, 16);
}

/* 0, or -1 after having reported, when it cannot be a record */
static inline int record_unpack(struct record *r, const uint8_t *wire)
{
	uint32_t words[4];

	memcpy(words, wire, 16);
	r->qpn = be32toh(words[1]);
	r->psn = be32toh(words[2]);
	r->mtu = be32toh(words[3]);
	memcpy(r->gid.raw, wire + 16, 16);
	memcpy(r->buffer, wire + 32, 16);
	memcpy(r->doorbell, wire + 48, 16);
	if (be32toh(words[0]) == PORT_MAGIC && r->qpn <= 0xffffff &&
	    r->psn <= 0xffffff && r->mtu >= 256 && r->mtu <= 4096)
		return 0;
	fprintf(stderr, "what came by TCP is no record of a queue pair: is it "
			"the peer of this lesson?\n");
	return -1;
}

static inline int exchange(struct side *s)
{
	uint8_t wire[RECORD_WIRE_SIZE];
	char text[INET6_ADDRSTRLEN];

	record_pack(wire, &s->mine);
	if (tcp_send(&s->tcp, wire, sizeof(wire)) ||
	    tcp_receive(&s->tcp, wire, sizeof(wire)) ||
	    record_unpack(&s->theirs, wire))
		return -1;
	inet_ntop(AF_INET6, s->theirs.gid.raw, text, sizeof(text));
	printf("exchanged: the peer has QP number 0x%x, first PSN 0x%x, GID %s, "
	       "MTU %u\n",
	       s->theirs.qpn, s->theirs.psn, text, s->theirs.mtu);
	return 0;
}

/*
 * barrier - wait until the other side is as far as we are
 *
 * A packet that comes before RTR is dropped. The CM has its third message,
 * ReadyToUse, for this.
 */
static inline int barrier(struct side *s)
{
	char ready = 'r';

	return tcp_send(&s->tcp, &ready, 1) || tcp_receive(&s->tcp, &ready, 1) ?
		       -1 :
		       0;
}

/* ---- both ends ------------------------------------------------------------ */

static inline int side_open(struct side *s, const struct options *opt)
{
	s->tcp.timeout = opt->timeout;
	s->tcp.stop_fd = open_stop_fd();
	return s->tcp.stop_fd < 0 ? -1 : 0;
}

/*
 * There is no disconnect: the peer is told by the end of the TCP connection.
 * Destroying the queue pair takes back what is posted; memory is deregistered
 * after that and before the PD goes.
 */
static inline void side_destroy_qp(struct side *s)
{
	if (s->qp && ibv_destroy_qp(s->qp))
		report("ibv_destroy_qp", errno);
	s->qp = NULL;
}

static inline void side_destroy(struct side *s)
{
	side_destroy_qp(s);
	if (s->cq && ibv_destroy_cq(s->cq))
		report("ibv_destroy_cq", errno);
	if (s->comp_channel && ibv_destroy_comp_channel(s->comp_channel))
		report("ibv_destroy_comp_channel", errno);
	if (s->pd && ibv_dealloc_pd(s->pd))
		report("ibv_dealloc_pd", errno);
	if (s->verbs)
		ibv_close_device(s->verbs);
	if (s->tcp.fd >= 0)
		close(s->tcp.fd);
	if (s->tcp.listen_fd >= 0)
		close(s->tcp.listen_fd);
	if (s->tcp.stop_fd > 0)
		close(s->tcp.stop_fd);
}

#endif
