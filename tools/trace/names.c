/* SPDX-License-Identifier: MIT */
/*
 * Numbers of the verbs by name, without their prefix, and the structures that
 * several calls have.
 */
#include <arpa/inet.h>
#include <stdio.h>

#include "trace.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define NAME(table, number) \
	((number) < COUNT(table) && table[number] ? table[number] : "UNKNOWN")

const char *name_cm_event(unsigned int event)
{
	static const char *const names[] = {
		"ADDR_RESOLVED",  "ADDR_ERROR",	     "ROUTE_RESOLVED",
		"ROUTE_ERROR",	  "CONNECT_REQUEST", "CONNECT_RESPONSE",
		"CONNECT_ERROR",  "UNREACHABLE",     "REJECTED",
		"ESTABLISHED",	  "DISCONNECTED",    "DEVICE_REMOVAL",
		"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE",
		"TIMEWAIT_EXIT",
	};

	return NAME(names, event);
}

const char *name_wr_opcode(unsigned int opcode)
{
	static const char *const names[] = {
		[IBV_WR_RDMA_WRITE] = "RDMA_WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "RDMA_WRITE_WITH_IMM",
		[IBV_WR_SEND] = "SEND",
		[IBV_WR_SEND_WITH_IMM] = "SEND_WITH_IMM",
		[IBV_WR_RDMA_READ] = "RDMA_READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "ATOMIC_CMP_AND_SWP",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "ATOMIC_FETCH_AND_ADD",
		[IBV_WR_LOCAL_INV] = "LOCAL_INV",
		[IBV_WR_BIND_MW] = "BIND_MW",
		[IBV_WR_SEND_WITH_INV] = "SEND_WITH_INV",
		[IBV_WR_TSO] = "TSO",
		[IBV_WR_DRIVER1] = "DRIVER1",
		[15] = "ATOMIC_WRITE",
	};

	return NAME(names, opcode);
}

const char *name_wc_opcode(unsigned int opcode)
{
	static const char *const names[] = {
		[IBV_WC_SEND] = "SEND",
		[IBV_WC_RDMA_WRITE] = "RDMA_WRITE",
		[IBV_WC_RDMA_READ] = "RDMA_READ",
		[IBV_WC_COMP_SWAP] = "COMP_SWAP",
		[IBV_WC_FETCH_ADD] = "FETCH_ADD",
		[IBV_WC_BIND_MW] = "BIND_MW",
		[IBV_WC_LOCAL_INV] = "LOCAL_INV",
		[IBV_WC_TSO] = "TSO",
		[9] = "ATOMIC_WRITE",
		[IBV_WC_RECV] = "RECV",
		[IBV_WC_RECV_RDMA_WITH_IMM] = "RECV_RDMA_WITH_IMM",
	};

	return NAME(names, opcode);
}

const char *name_wc_status(unsigned int status)
{
	static const char *const names[] = {
		"SUCCESS",
		"LOC_LEN_ERR",
		"LOC_QP_OP_ERR",
		"LOC_EEC_OP_ERR",
		"LOC_PROT_ERR",
		"WR_FLUSH_ERR",
		"MW_BIND_ERR",
		"BAD_RESP_ERR",
		"LOC_ACCESS_ERR",
		"REM_INV_REQ_ERR",
		"REM_ACCESS_ERR",
		"REM_OP_ERR",
		"RETRY_EXC_ERR",
		"RNR_RETRY_EXC_ERR",
		"LOC_RDD_VIOL_ERR",
		"REM_INV_RD_REQ_ERR",
		"REM_ABORT_ERR",
		"INV_EECN_ERR",
		"INV_EEC_STATE_ERR",
		"FATAL_ERR",
		"RESP_TIMEOUT_ERR",
		"GENERAL_ERR",
		"TM_ERR",
		"TM_RNDV_INCOMPLETE",
	};

	return NAME(names, status);
}

const char *name_qp_type(unsigned int type)
{
	static const char *const names[] = {
		[IBV_QPT_RC] = "RC",
		[IBV_QPT_UC] = "UC",
		[IBV_QPT_UD] = "UD",
		[IBV_QPT_RAW_PACKET] = "RAW_PACKET",
		[IBV_QPT_XRC_SEND] = "XRC_SEND",
		[IBV_QPT_XRC_RECV] = "XRC_RECV",
		[IBV_QPT_DRIVER] = "DRIVER",
	};

	return NAME(names, type);
}

const char *name_qp_state(unsigned int state)
{
	static const char *const names[] = {
		"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR",
	};

	return NAME(names, state);
}

const char *name_async_event(unsigned int event)
{
	static const char *const names[] = {
		"CQ_ERR",
		"QP_FATAL",
		"QP_REQ_ERR",
		"QP_ACCESS_ERR",
		"COMM_EST",
		"SQ_DRAINED",
		"PATH_MIG",
		"PATH_MIG_ERR",
		"DEVICE_FATAL",
		"PORT_ACTIVE",
		"PORT_ERR",
		"LID_CHANGE",
		"PKEY_CHANGE",
		"SM_CHANGE",
		"SRQ_ERR",
		"SRQ_LIMIT_REACHED",
		"QP_LAST_WQE_REACHED",
		"CLIENT_REREGISTER",
		"GID_CHANGE",
		"WQ_FATAL",
	};

	return NAME(names, event);
}

const char *name_port_space(unsigned int ps)
{
	switch (ps) {
	case RDMA_PS_TCP:
		return "TCP";
	case RDMA_PS_UDP:
		return "UDP";
	case RDMA_PS_IB:
		return "IB";
	case RDMA_PS_IPOIB:
		return "IPOIB";
	}
	return "UNKNOWN";
}

/* ---- flags, as a list of names -------------------------------------------- */

static char *text_flags(char *p, unsigned int flags, const char *const *names,
			int count)
{
	char *first = p + 1;
	int i;

	*p++ = '[';
	for (i = 0; i < count; i++) {
		if (!(flags & 1U << i))
			continue;
		flags &= ~(1U << i);
		if (p != first)
			*p++ = ',';
		*p++ = '"';
		p = text_copy(p, names[i]);
		*p++ = '"';
	}
	if (flags) {
		if (p != first)
			*p++ = ',';
		*p++ = '"';
		p = text_hex(p, flags);
		*p++ = '"';
	}
	*p++ = ']';
	return p;
}

char *text_send_flags(char *p, unsigned int flags)
{
	static const char *const names[] = { "FENCE", "SIGNALED", "SOLICITED",
					     "INLINE", "IP_CSUM" };

	return text_flags(p, flags, names, COUNT(names));
}

char *text_access(char *p, unsigned int flags)
{
	static const char *const names[] = {
		"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC",
		"MW_BIND",     "ZERO_BASED",   "ON_DEMAND",   "HUGETLB",
	};

	return text_flags(p, flags, names, COUNT(names));
}

char *text_wc_flags(char *p, unsigned int flags)
{
	static const char *const names[] = { "GRH", "WITH_IMM", "IP_CSUM_OK",
					     "WITH_INV" };

	return text_flags(p, flags, names, COUNT(names));
}

char *text_qp_mask(char *p, unsigned int mask)
{
	static const char *const names[] = {
		"STATE",
		"CUR_STATE",
		"EN_SQD_ASYNC_NOTIFY",
		"ACCESS_FLAGS",
		"PKEY_INDEX",
		"PORT",
		"QKEY",
		"AV",
		"PATH_MTU",
		"TIMEOUT",
		"RETRY_CNT",
		"RNR_RETRY",
		"RQ_PSN",
		"MAX_QP_RD_ATOMIC",
		"ALT_PATH",
		"MIN_RNR_TIMER",
		"SQ_PSN",
		"MAX_DEST_RD_ATOMIC",
		"PATH_MIG_STATE",
		"CAP",
		"DEST_QPN",
	};

	return text_flags(p, mask, names, COUNT(names));
}

/* ---- structures ----------------------------------------------------------- */

void put_access(struct call *c, const char *key, unsigned int flags)
{
	char text[256];

	*text_access(text, flags) = '\0';
	put_raw(c, key, text);
}

void put_sockaddr(struct call *c, const char *key, const struct sockaddr *addr)
{
	char host[INET6_ADDRSTRLEN] = "", text[INET6_ADDRSTRLEN + 32];
	const struct sockaddr_in *in = (const void *)addr;
	const struct sockaddr_in6 *in6 = (const void *)addr;

	if (!addr) {
		put_raw(c, key, "null");
		return;
	}
	switch (addr->sa_family) {
	case AF_INET:
		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(text, sizeof(text), "%s:%d", host,
			 ntohs(in->sin_port));
		break;
	case AF_INET6:
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		if (in6->sin6_scope_id)
			snprintf(text, sizeof(text), "[%s%%%u]:%d", host,
				 in6->sin6_scope_id, ntohs(in6->sin6_port));
		else
			snprintf(text, sizeof(text), "[%s]:%d", host,
				 ntohs(in6->sin6_port));
		break;
	default:
		snprintf(text, sizeof(text), "family %d", addr->sa_family);
	}
	put_text(c, key, text);
}

void put_gid(struct call *c, const char *key, const union ibv_gid *gid)
{
	char text[INET6_ADDRSTRLEN] = "";

	inet_ntop(AF_INET6, gid->raw, text, sizeof(text));
	put_text(c, key, text);
}

void put_ah_attr(struct call *c, const char *key, const struct ibv_ah_attr *a)
{
	char text[256], gid[INET6_ADDRSTRLEN] = "";

	inet_ntop(AF_INET6, a->grh.dgid.raw, gid, sizeof(gid));
	snprintf(text, sizeof(text),
		 "{\"is_global\":%d,\"dgid\":\"%s\",\"sgid_index\":%d,"
		 "\"hop_limit\":%d,\"traffic_class\":%d,\"dlid\":%d,\"sl\":%d,"
		 "\"port_num\":%d}",
		 a->is_global, a->is_global ? gid : "", a->grh.sgid_index,
		 a->grh.hop_limit, a->grh.traffic_class, a->dlid, a->sl,
		 a->port_num);
	put_raw(c, key, text);
}

void put_qp_init(struct call *c, const char *key, enum ibv_qp_type type,
		 const struct ibv_qp_cap *cap, int sq_sig_all)
{
	char text[256];

	snprintf(text, sizeof(text),
		 "{\"qp_type\":\"%s\",\"sq_sig_all\":%d,\"max_send_wr\":%u,"
		 "\"max_recv_wr\":%u,\"max_send_sge\":%u,\"max_recv_sge\":%u,"
		 "\"max_inline_data\":%u}",
		 name_qp_type(type), sq_sig_all, cap->max_send_wr,
		 cap->max_recv_wr, cap->max_send_sge, cap->max_recv_sge,
		 cap->max_inline_data);
	put_raw(c, key, text);
}

void put_qp_attr(struct call *c, const struct ibv_qp_attr *attr, int mask)
{
	char text[512];

	*text_qp_mask(text, mask) = '\0';
	put_raw(c, "mask", text);
	if (mask & IBV_QP_STATE)
		put_text(c, "state", name_qp_state(attr->qp_state));
	if (mask & IBV_QP_CUR_STATE)
		put_text(c, "cur_state", name_qp_state(attr->cur_qp_state));
	if (mask & IBV_QP_ACCESS_FLAGS)
		put_access(c, "access", attr->qp_access_flags);
	if (mask & IBV_QP_PKEY_INDEX)
		put_dec(c, "pkey_index", attr->pkey_index);
	if (mask & IBV_QP_PORT)
		put_dec(c, "port_num", attr->port_num);
	if (mask & IBV_QP_QKEY)
		put_hex(c, "qkey", attr->qkey);
	if (mask & IBV_QP_AV)
		put_ah_attr(c, "ah_attr", &attr->ah_attr);
	if (mask & IBV_QP_PATH_MTU)
		put_dec(c, "path_mtu", 128U << attr->path_mtu);
	if (mask & IBV_QP_TIMEOUT)
		put_dec(c, "timeout", attr->timeout);
	if (mask & IBV_QP_RETRY_CNT)
		put_dec(c, "retry_cnt", attr->retry_cnt);
	if (mask & IBV_QP_RNR_RETRY)
		put_dec(c, "rnr_retry", attr->rnr_retry);
	if (mask & IBV_QP_RQ_PSN)
		put_dec(c, "rq_psn", attr->rq_psn);
	if (mask & IBV_QP_SQ_PSN)
		put_dec(c, "sq_psn", attr->sq_psn);
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		put_dec(c, "max_rd_atomic", attr->max_rd_atomic);
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		put_dec(c, "max_dest_rd_atomic", attr->max_dest_rd_atomic);
	if (mask & IBV_QP_MIN_RNR_TIMER)
		put_dec(c, "min_rnr_timer", attr->min_rnr_timer);
	if (mask & IBV_QP_DEST_QPN)
		put_dec(c, "dest_qp_num", attr->dest_qp_num);
}
