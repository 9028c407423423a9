/* SPDX-License-Identifier: MIT */
/*
 * Lesson 12: seeing. Whatever can tell a program that something went wrong
 * comes on one of three ways: a completion in the CQ, an event of the CM, an
 * asynchronous event of the device. sight_wait() listens to all three.
 */
#ifndef SIGHT_H
#define SIGHT_H

#include <rdma_common.h>

/* What came, and what it said. */
struct sight {
	enum {
		SAW_NOTHING,
		SAW_WC,
		SAW_EVENT,
		SAW_ASYNC,
	} what;
	struct ibv_wc wc;
	enum rdma_cm_event_type event;
	int status; /* of the event */
	struct rdma_cm_id *id; /* of the event */
	enum ibv_event_type async;
};

#define SIGHT_TEXT 128

/* The names of the statuses, as enum ibv_wc_status has them. */
static const char *const wc_names[] = {
	[IBV_WC_SUCCESS] = "SUCCESS",
	[IBV_WC_LOC_LEN_ERR] = "LOC_LEN_ERR",
	[IBV_WC_LOC_QP_OP_ERR] = "LOC_QP_OP_ERR",
	[IBV_WC_LOC_EEC_OP_ERR] = "LOC_EEC_OP_ERR",
	[IBV_WC_LOC_PROT_ERR] = "LOC_PROT_ERR",
	[IBV_WC_WR_FLUSH_ERR] = "WR_FLUSH_ERR",
	[IBV_WC_MW_BIND_ERR] = "MW_BIND_ERR",
	[IBV_WC_BAD_RESP_ERR] = "BAD_RESP_ERR",
	[IBV_WC_LOC_ACCESS_ERR] = "LOC_ACCESS_ERR",
	[IBV_WC_REM_INV_REQ_ERR] = "REM_INV_REQ_ERR",
	[IBV_WC_REM_ACCESS_ERR] = "REM_ACCESS_ERR",
	[IBV_WC_REM_OP_ERR] = "REM_OP_ERR",
	[IBV_WC_RETRY_EXC_ERR] = "RETRY_EXC_ERR",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR_RETRY_EXC_ERR",
	[IBV_WC_LOC_RDD_VIOL_ERR] = "LOC_RDD_VIOL_ERR",
	[IBV_WC_REM_INV_RD_REQ_ERR] = "REM_INV_RD_REQ_ERR",
	[IBV_WC_REM_ABORT_ERR] = "REM_ABORT_ERR",
	[IBV_WC_INV_EECN_ERR] = "INV_EECN_ERR",
	[IBV_WC_INV_EEC_STATE_ERR] = "INV_EEC_STATE_ERR",
	[IBV_WC_FATAL_ERR] = "FATAL_ERR",
	[IBV_WC_RESP_TIMEOUT_ERR] = "RESP_TIMEOUT_ERR",
	[IBV_WC_GENERAL_ERR] = "GENERAL_ERR",
	[IBV_WC_TM_ERR] = "TM_ERR",
	[IBV_WC_TM_RNDV_INCOMPLETE] = "TM_RNDV_INCOMPLETE",
};

static inline const char *wc_name(enum ibv_wc_status status)
{
	if (status < sizeof(wc_names) / sizeof(wc_names[0]))
		return wc_names[status];
	return "?";
}

static inline const char *async_name(enum ibv_event_type type)
{
	switch (type) {
	case IBV_EVENT_CQ_ERR:
		return "CQ_ERR";
	case IBV_EVENT_QP_FATAL:
		return "QP_FATAL";
	case IBV_EVENT_QP_REQ_ERR:
		return "QP_REQ_ERR";
	case IBV_EVENT_QP_ACCESS_ERR:
		return "QP_ACCESS_ERR";
	case IBV_EVENT_DEVICE_FATAL:
		return "DEVICE_FATAL";
	case IBV_EVENT_PORT_ERR:
		return "PORT_ERR";
	default:
		return NULL; /* no sign of trouble */
	}
}

static inline const char *qp_state_name(enum ibv_qp_state state)
{
	static const char *const names[] = {
		[IBV_QPS_RESET] = "RESET", [IBV_QPS_INIT] = "INIT",
		[IBV_QPS_RTR] = "RTR",	   [IBV_QPS_RTS] = "RTS",
		[IBV_QPS_SQD] = "SQD",	   [IBV_QPS_SQE] = "SQE",
		[IBV_QPS_ERR] = "ERR",
	};

	return state <= IBV_QPS_ERR ? names[state] : "?";
}

/* The state that the card has the QP in, or "none". */
static inline const char *qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	if (!qp || ibv_query_qp(qp, &attr, IBV_QP_STATE, &init))
		return "none";
	return qp_state_name(attr.qp_state);
}

/* What was seen, as the catalogue writes it. */
static inline void sight_text(const struct sight *sight, const char *request,
			      char *text)
{
	switch (sight->what) {
	case SAW_WC:
		snprintf(text, SIGHT_TEXT, "%s%d %s", request, sight->wc.status,
			 wc_name(sight->wc.status));
		break;
	case SAW_EVENT:
		/* 14 letters are RDMA_CM_EVENT_ */
		snprintf(text, SIGHT_TEXT, "%s %d",
			 rdma_event_str(sight->event) + 14, sight->status);
		break;
	case SAW_ASYNC:
		snprintf(text, SIGHT_TEXT, "async %s",
			 async_name(sight->async));
		break;
	case SAW_NOTHING:
		snprintf(text, SIGHT_TEXT, "nothing");
		break;
	}
}

/* An event of the CM: copy what counts, and acknowledge. */
static inline int sight_event(struct endpoint *ep, struct sight *sight)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (rdma_get_cm_event(ep->channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		/* One that knocks while we are busy: no sign of trouble. */
		id = event->id;
		rdma_ack_cm_event(event);
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return 1;
	}
	sight->what = SAW_EVENT;
	sight->event = event->event;
	sight->status = event->status;
	sight->id = event->id;
	ep->private_data_len = 0;
	if (event->param.conn.private_data) {
		ep->private_data_len = event->param.conn.private_data_len;
		memcpy(ep->private_data, event->param.conn.private_data,
		       ep->private_data_len);
	}
	if (event->event == RDMA_CM_EVENT_DISCONNECTED)
		ep->disconnected = true;
	rdma_ack_cm_event(event);
	return 1;
}

/* An asynchronous event. Some are no trouble ("port active"): 0. */
static inline int sight_async(struct ibv_context *verbs, struct sight *sight)
{
	struct ibv_async_event event;

	if (ibv_get_async_event(verbs, &event)) {
		report("ibv_get_async_event", errno);
		return -1;
	}
	sight->async = event.event_type;
	ibv_ack_async_event(&event);
	if (!async_name(sight->async))
		return 0;
	sight->what = SAW_ASYNC;
	return 1;
}

/* A completion, if there is one. */
static inline int sight_wc(struct endpoint *ep, struct sight *sight)
{
	int n = ep->cq ? endpoint_poll(ep, &sight->wc) : 0;

	if (n > 0)
		sight->what = SAW_WC;
	return n;
}

/*
 * sight_wait - wait for a sign of any of the three kinds, until DEADLINE
 * (now_ms())
 *
 * Poll, arm, poll again, and sleep, as in lesson 04. Returns 1 with what came,
 * 0 when the time is over, -1 after Ctrl-C or a fault, which it reports.
 */
static inline int sight_wait(struct endpoint *ep, struct sight *sight,
			     long long deadline)
{
	struct ibv_context *verbs = ep->id ? ep->id->verbs : NULL;
	long long left;
	int n;

	memset(sight, 0, sizeof(*sight));
	for (;;) {
		struct pollfd fds[] = {
			{ .fd = ep->channel->fd, .events = POLLIN },
			{ .fd = verbs ? verbs->async_fd : -1,
			  .events = POLLIN },
			{ .fd = ep->comp_channel ? ep->comp_channel->fd : -1,
			  .events = POLLIN },
			{ .fd = ep->stop_fd, .events = POLLIN },
		};

		n = sight_wc(ep, sight);
		if (n)
			return n;
		if (ep->cq && ibv_req_notify_cq(ep->cq, 0)) {
			report("ibv_req_notify_cq", EIO);
			return -1;
		}
		n = sight_wc(ep, sight);
		if (n)
			return n;
		left = deadline - now_ms();
		n = poll(fds, 4, left > 0 ? left : 0);
		if (n < 0) {
			report("poll", errno);
			return -1;
		}
		if (fds[3].revents)
			return wait_readable(-1, ep->stop_fd, 0);
		if (fds[2].revents && endpoint_take_notice(ep))
			return -1;
		if (fds[2].revents)
			continue;
		n = fds[1].revents ? sight_async(verbs, sight) : 0;
		if (n)
			return n;
		if (fds[0].revents)
			return sight_event(ep, sight);
		if (left <= 0)
			return 0;
	}
}

/* The same without waiting, and without the CM: 1, 0 or -1. */
static inline int sight_now(struct endpoint *ep, struct sight *sight)
{
	struct pollfd fd = { .fd = ep->id->verbs->async_fd, .events = POLLIN };
	int n;

	memset(sight, 0, sizeof(*sight));
	n = sight_wc(ep, sight);
	if (n || poll(&fd, 1, 0) <= 0)
		return n;
	return sight_async(ep->id->verbs, sight);
}

#endif
