/* SPDX-License-Identifier: MIT */
/*
 * The calls of librdmacm, rdma_cm(7). Each returns what the real one returned
 * and leaves errno as the real one left it.
 *
 * Whatever hands over a cm_id may have opened a device behind it.
 */
#include "trace.h"

#define CM_1_0 "RDMACM_1.0"
#define CM_1_1 "RDMACM_1.1"
#define CM_1_2 "RDMACM_1.2"
#define CM_1_3 "RDMACM_1.3"

static void look_at_id(struct rdma_cm_id *id)
{
	if (id && id->verbs)
		ops_patch(id->verbs);
}

static void put_device(struct call *c, const struct rdma_cm_id *id)
{
	if (id->verbs) {
		put_text(c, "device", id->verbs->device->name);
		put_dec(c, "port_num", id->port_num);
	}
}

static void put_conn(struct call *c, const struct rdma_conn_param *param)
{
	if (!param) {
		put_raw(c, "param", "null");
		return;
	}
	put_bytes(c, "private_data", param->private_data,
		  param->private_data ? param->private_data_len : 0);
	put_dec(c, "private_data_len", param->private_data_len);
	put_dec(c, "responder_resources", param->responder_resources);
	put_dec(c, "initiator_depth", param->initiator_depth);
	put_dec(c, "flow_control", param->flow_control);
	put_dec(c, "retry_count", param->retry_count);
	put_dec(c, "rnr_retry_count", param->rnr_retry_count);
	put_dec(c, "srq", param->srq);
	put_dec(c, "qp_num", param->qp_num);
}

/* ---- channels and ids ----------------------------------------------------- */

EXPORT struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct rdma_event_channel *channel;

	BEGIN(rdma_create_event_channel, CM_1_0);
	call_go(&c, 16);
	channel = real();
	call_back(&c);
	if (channel)
		put_int(&c, "fd", channel->fd);
	return call_ptr(&c, channel);
}

EXPORT void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	BEGIN(rdma_destroy_event_channel, CM_1_0);
	put_ptr(&c, "channel", channel);
	call_go(&c, 0);
	real(channel);
	call_void(&c);
}

EXPORT int rdma_create_id(struct rdma_event_channel *channel,
			  struct rdma_cm_id **id, void *context,
			  enum rdma_port_space ps)
{
	int ret;

	BEGIN(rdma_create_id, CM_1_0);
	put_ptr(&c, "channel", channel);
	put_text(&c, "ps", name_port_space(ps));
	call_go(&c, 32);
	ret = real(channel, id, context, ps);
	call_back(&c);
	if (!ret)
		put_ptr(&c, "id", *id);
	return call_int(&c, ret);
}

EXPORT int rdma_destroy_id(struct rdma_cm_id *id)
{
	BEGIN(rdma_destroy_id, CM_1_0);
	put_ptr(&c, "id", id);
	call_go(&c, 0);
	return call_int(&c, real(id));
}

EXPORT int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *res,
			  struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	int ret;

	BEGIN(rdma_create_ep, CM_1_0);
	put_ptr(&c, "pd", pd);
	if (res) {
		put_sockaddr(&c, "src", res->ai_src_addr);
		put_sockaddr(&c, "dst", res->ai_dst_addr);
	}
	if (init)
		put_qp_init(&c, "attr", init->qp_type, &init->cap,
			    init->sq_sig_all);
	call_go(&c, 128);
	ret = real(id, res, pd, init);
	call_back(&c);
	if (!ret) {
		look_at_id(*id);
		put_ptr(&c, "id", *id);
		put_device(&c, *id);
		if ((*id)->qp) {
			put_ptr(&c, "qp", (*id)->qp);
			put_dec(&c, "qp_num", (*id)->qp->qp_num);
		}
	}
	return call_int(&c, ret);
}

EXPORT void rdma_destroy_ep(struct rdma_cm_id *id)
{
	BEGIN(rdma_destroy_ep, CM_1_0);
	put_ptr(&c, "id", id);
	call_go(&c, 0);
	real(id);
	call_void(&c);
}

EXPORT int rdma_migrate_id(struct rdma_cm_id *id,
			   struct rdma_event_channel *channel)
{
	BEGIN(rdma_migrate_id, CM_1_0);
	put_ptr(&c, "id", id);
	put_ptr(&c, "channel", channel);
	call_go(&c, 0);
	return call_int(&c, real(id, channel));
}

EXPORT int rdma_set_option(struct rdma_cm_id *id, int level, int optname,
			   void *optval, size_t optlen)
{
	BEGIN(rdma_set_option, CM_1_0);
	put_ptr(&c, "id", id);
	put_int(&c, "level", level);
	put_int(&c, "option", optname);
	put_bytes(&c, "value", optval, optlen > 64 ? 64 : optlen);
	call_go(&c, 0);
	return call_int(&c, real(id, level, optname, optval, optlen));
}

/* ---- addresses ------------------------------------------------------------ */

EXPORT int rdma_getaddrinfo(const char *node, const char *service,
			    const struct rdma_addrinfo *hints,
			    struct rdma_addrinfo **res)
{
	int ret;

	BEGIN(rdma_getaddrinfo, CM_1_0);
	put_text(&c, "node", node);
	put_text(&c, "service", service);
	if (hints) {
		put_hex(&c, "flags", hints->ai_flags);
		put_text(&c, "ps",
			 hints->ai_port_space ?
				 name_port_space(hints->ai_port_space) :
				 NULL);
	}
	call_go(&c, 128);
	ret = real(node, service, hints, res);
	call_back(&c);
	if (!ret && *res) {
		put_sockaddr(&c, "src", (*res)->ai_src_addr);
		put_sockaddr(&c, "dst", (*res)->ai_dst_addr);
	}
	/* Not -1 alone: it may be an EAI_ number, which errno knows nothing of. */
	put_int(&c, "ret", ret);
	call_void(&c);
	return ret;
}

EXPORT void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	BEGIN(rdma_freeaddrinfo, CM_1_0);
	call_go(&c, 0);
	real(res);
	call_void(&c);
}

EXPORT int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	int ret;

	BEGIN(rdma_bind_addr, CM_1_0);
	put_ptr(&c, "id", id);
	put_sockaddr(&c, "addr", addr);
	call_go(&c, 64);
	ret = real(id, addr);
	call_back(&c);
	if (!ret) {
		look_at_id(id);
		put_device(&c, id);
	}
	return call_int(&c, ret);
}

EXPORT int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
			     struct sockaddr *dst, int timeout_ms)
{
	int ret;

	BEGIN(rdma_resolve_addr, CM_1_0);
	put_ptr(&c, "id", id);
	put_sockaddr(&c, "src", src);
	put_sockaddr(&c, "dst", dst);
	put_int(&c, "timeout_ms", timeout_ms);
	call_go(&c, 0);
	ret = real(id, src, dst, timeout_ms);
	call_back(&c);
	if (!ret)
		look_at_id(id);
	return call_int(&c, ret);
}

EXPORT int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	int ret;

	BEGIN(rdma_resolve_route, CM_1_0);
	put_ptr(&c, "id", id);
	put_int(&c, "timeout_ms", timeout_ms);
	call_go(&c, 0);
	ret = real(id, timeout_ms);
	call_back(&c);
	if (!ret)
		look_at_id(id);
	return call_int(&c, ret);
}

EXPORT __be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	__be16 port;

	BEGIN(rdma_get_src_port, CM_1_0);
	put_ptr(&c, "id", id);
	call_go(&c, 0);
	port = real(id);
	call_back(&c);
	put_dec(&c, "ret", be16toh(port));
	call_void(&c);
	return port;
}

EXPORT __be16 rdma_get_dst_port(struct rdma_cm_id *id)
{
	__be16 port;

	BEGIN(rdma_get_dst_port, CM_1_0);
	put_ptr(&c, "id", id);
	call_go(&c, 0);
	port = real(id);
	call_back(&c);
	put_dec(&c, "ret", be16toh(port));
	call_void(&c);
	return port;
}

EXPORT struct ibv_context **rdma_get_devices(int *num_devices)
{
	struct ibv_context **list, **each;
	int count = 0;

	BEGIN(rdma_get_devices, CM_1_0);
	call_go(&c, 24);
	list = real(num_devices);
	call_back(&c);
	for (each = list; each && *each; each++, count++)
		ops_patch(*each);
	put_int(&c, "devices", count);
	return call_ptr(&c, list);
}

EXPORT void rdma_free_devices(struct ibv_context **list)
{
	BEGIN(rdma_free_devices, CM_1_0);
	call_go(&c, 0);
	real(list);
	call_void(&c);
}

/* ---- queue pairs ---------------------------------------------------------- */

EXPORT int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
			  struct ibv_qp_init_attr *init)
{
	int ret;

	BEGIN(rdma_create_qp, CM_1_0);
	put_ptr(&c, "id", id);
	put_ptr(&c, "pd", pd);
	put_ptr(&c, "send_cq", init->send_cq);
	put_ptr(&c, "recv_cq", init->recv_cq);
	put_ptr(&c, "srq", init->srq);
	put_qp_init(&c, "attr", init->qp_type, &init->cap, init->sq_sig_all);
	look_at_id(id);
	call_go(&c, 256);
	ret = real(id, pd, init);
	call_back(&c);
	if (!ret) {
		put_ptr(&c, "qp", id->qp);
		put_dec(&c, "qp_num", id->qp->qp_num);
		put_qp_init(&c, "got", init->qp_type, &init->cap,
			    init->sq_sig_all);
	}
	return call_int(&c, ret);
}

EXPORT int rdma_create_qp_ex(struct rdma_cm_id *id,
			     struct ibv_qp_init_attr_ex *init)
{
	int ret;

	BEGIN(rdma_create_qp_ex, CM_1_0);
	put_ptr(&c, "id", id);
	put_ptr(&c, "send_cq", init->send_cq);
	put_ptr(&c, "recv_cq", init->recv_cq);
	put_ptr(&c, "srq", init->srq);
	put_qp_init(&c, "attr", init->qp_type, &init->cap, init->sq_sig_all);
	look_at_id(id);
	call_go(&c, 256);
	ret = real(id, init);
	call_back(&c);
	if (!ret) {
		put_ptr(&c, "qp", id->qp);
		put_dec(&c, "qp_num", id->qp->qp_num);
		put_qp_init(&c, "got", init->qp_type, &init->cap,
			    init->sq_sig_all);
	}
	return call_int(&c, ret);
}

EXPORT void rdma_destroy_qp(struct rdma_cm_id *id)
{
	struct ibv_qp *qp;
	uint32_t qp_num;

	BEGIN(rdma_destroy_qp, CM_1_0);
	put_ptr(&c, "id", id);
	call_go(&c, 56);
	qp = id->qp;
	qp_num = qp ? qp->qp_num : 0;
	real(id);
	call_back(&c);
	put_ptr(&c, "qp", qp);
	put_dec(&c, "qp_num", qp_num);
	call_void(&c);
}

EXPORT int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd,
			   struct ibv_srq_init_attr *init)
{
	int ret;

	BEGIN(rdma_create_srq, CM_1_0);
	put_ptr(&c, "id", id);
	put_ptr(&c, "pd", pd);
	put_dec(&c, "max_wr", init->attr.max_wr);
	put_dec(&c, "max_sge", init->attr.max_sge);
	call_go(&c, 32);
	ret = real(id, pd, init);
	call_back(&c);
	if (!ret)
		put_ptr(&c, "srq", id->srq);
	return call_int(&c, ret);
}

EXPORT int rdma_create_srq_ex(struct rdma_cm_id *id,
			      struct ibv_srq_init_attr_ex *init)
{
	int ret;

	BEGIN(rdma_create_srq_ex, CM_1_0);
	put_ptr(&c, "id", id);
	put_dec(&c, "max_wr", init->attr.max_wr);
	put_dec(&c, "max_sge", init->attr.max_sge);
	call_go(&c, 32);
	ret = real(id, init);
	call_back(&c);
	if (!ret)
		put_ptr(&c, "srq", id->srq);
	return call_int(&c, ret);
}

EXPORT void rdma_destroy_srq(struct rdma_cm_id *id)
{
	BEGIN(rdma_destroy_srq, CM_1_0);
	put_ptr(&c, "id", id);
	put_ptr(&c, "srq", id->srq);
	call_go(&c, 0);
	real(id);
	call_void(&c);
}

EXPORT int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr,
			     int *mask)
{
	int ret;

	BEGIN(rdma_init_qp_attr, CM_1_2);
	put_ptr(&c, "id", id);
	put_text(&c, "wanted", name_qp_state(attr->qp_state));
	call_go(&c, 512);
	ret = real(id, attr, mask);
	call_back(&c);
	if (!ret)
		put_qp_attr(&c, attr, *mask);
	return call_int(&c, ret);
}

/* ---- connections ---------------------------------------------------------- */

EXPORT int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	BEGIN(rdma_listen, CM_1_0);
	put_ptr(&c, "id", id);
	put_int(&c, "backlog", backlog);
	call_go(&c, 0);
	return call_int(&c, real(id, backlog));
}

EXPORT int rdma_get_request(struct rdma_cm_id *listen, struct rdma_cm_id **id)
{
	int ret;

	BEGIN(rdma_get_request, CM_1_0);
	put_ptr(&c, "listen_id", listen);
	call_go(&c, 64);
	ret = real(listen, id);
	call_back(&c);
	if (!ret) {
		look_at_id(*id);
		put_ptr(&c, "id", *id);
		put_device(&c, *id);
	}
	return call_int(&c, ret);
}

EXPORT int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	BEGIN(rdma_connect, CM_1_0);
	put_ptr(&c, "id", id);
	put_conn(&c, param);
	look_at_id(id);
	call_go(&c, 0);
	return call_int(&c, real(id, param));
}

EXPORT int rdma_establish(struct rdma_cm_id *id)
{
	BEGIN(rdma_establish, CM_1_2);
	put_ptr(&c, "id", id);
	call_go(&c, 0);
	return call_int(&c, real(id));
}

EXPORT int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
	BEGIN(rdma_accept, CM_1_0);
	put_ptr(&c, "id", id);
	put_conn(&c, param);
	look_at_id(id);
	call_go(&c, 0);
	return call_int(&c, real(id, param));
}

EXPORT int rdma_reject(struct rdma_cm_id *id, const void *private_data,
		       uint8_t private_data_len)
{
	BEGIN(rdma_reject, CM_1_0);
	put_ptr(&c, "id", id);
	put_bytes(&c, "private_data", private_data, private_data_len);
	put_dec(&c, "private_data_len", private_data_len);
	call_go(&c, 0);
	return call_int(&c, real(id, private_data, private_data_len));
}

EXPORT int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data,
			   uint8_t private_data_len)
{
	BEGIN(rdma_reject_ece, CM_1_3);
	put_ptr(&c, "id", id);
	put_bytes(&c, "private_data", private_data, private_data_len);
	put_dec(&c, "private_data_len", private_data_len);
	call_go(&c, 0);
	return call_int(&c, real(id, private_data, private_data_len));
}

EXPORT int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	BEGIN(rdma_notify, CM_1_0);
	put_ptr(&c, "id", id);
	put_text(&c, "event", name_async_event(event));
	call_go(&c, 0);
	return call_int(&c, real(id, event));
}

EXPORT int rdma_disconnect(struct rdma_cm_id *id)
{
	BEGIN(rdma_disconnect, CM_1_0);
	put_ptr(&c, "id", id);
	call_go(&c, 0);
	return call_int(&c, real(id));
}

EXPORT int rdma_set_local_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	BEGIN(rdma_set_local_ece, CM_1_3);
	put_ptr(&c, "id", id);
	call_go(&c, 0);
	return call_int(&c, real(id, ece));
}

EXPORT int rdma_get_remote_ece(struct rdma_cm_id *id, struct ibv_ece *ece)
{
	BEGIN(rdma_get_remote_ece, CM_1_3);
	put_ptr(&c, "id", id);
	call_go(&c, 0);
	return call_int(&c, real(id, ece));
}

/* ---- multicast ------------------------------------------------------------ */

EXPORT int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr,
			       void *context)
{
	BEGIN(rdma_join_multicast, CM_1_0);
	put_ptr(&c, "id", id);
	put_sockaddr(&c, "addr", addr);
	call_go(&c, 0);
	return call_int(&c, real(id, addr, context));
}

EXPORT int rdma_join_multicast_ex(struct rdma_cm_id *id,
				  struct rdma_cm_join_mc_attr_ex *attr,
				  void *context)
{
	BEGIN(rdma_join_multicast_ex, CM_1_1);
	put_ptr(&c, "id", id);
	put_sockaddr(&c, "addr", attr->addr);
	put_dec(&c, "join_flags", attr->join_flags);
	call_go(&c, 0);
	return call_int(&c, real(id, attr, context));
}

EXPORT int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	BEGIN(rdma_leave_multicast, CM_1_0);
	put_ptr(&c, "id", id);
	put_sockaddr(&c, "addr", addr);
	call_go(&c, 0);
	return call_int(&c, real(id, addr));
}

/* ---- events --------------------------------------------------------------- */

static bool is_datagram(const struct rdma_cm_id *id)
{
	return id && (id->ps == RDMA_PS_UDP || id->ps == RDMA_PS_IPOIB);
}

static void put_event(struct call *c, const struct rdma_cm_event *event)
{
	put_ptr(c, "event_ptr", event);
	put_text(c, "event", name_cm_event(event->event));
	put_int(c, "status", event->status);
	put_ptr(c, "id", event->id);
	if (event->listen_id)
		put_ptr(c, "listen_id", event->listen_id);
	if (event->id)
		put_device(c, event->id);
	switch (event->event) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
	case RDMA_CM_EVENT_ESTABLISHED:
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		break;
	default:
		return;
	}
	if (is_datagram(event->id)) {
		const struct rdma_ud_param *ud = &event->param.ud;

		put_dec(c, "qp_num", ud->qp_num);
		put_hex(c, "qkey", ud->qkey);
		/* After a join it is the pointer that the program gave. */
		if (event->event != RDMA_CM_EVENT_MULTICAST_JOIN) {
			put_bytes(c, "private_data", ud->private_data,
				  ud->private_data ? ud->private_data_len : 0);
			put_dec(c, "private_data_len", ud->private_data_len);
		}
	} else {
		put_conn(c, &event->param.conn);
	}
}

EXPORT int rdma_get_cm_event(struct rdma_event_channel *channel,
			     struct rdma_cm_event **event)
{
	int ret;

	BEGIN(rdma_get_cm_event, CM_1_0);
	put_ptr(&c, "channel", channel);
	call_go(&c, 900);
	ret = real(channel, event);
	call_back(&c);
	if (!ret) {
		look_at_id((*event)->id);
		put_event(&c, *event);
	}
	return call_int(&c, ret);
}

EXPORT int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	const char *name = NULL;
	struct rdma_cm_id *id = NULL;
	int ret;

	BEGIN(rdma_ack_cm_event, CM_1_0);
	put_ptr(&c, "event_ptr", event);
	call_go(&c, 64);
	if (event) {
		name = name_cm_event(event->event);
		id = event->id;
	}
	ret = real(event);
	call_back(&c);
	put_text(&c, "event", name);
	put_ptr(&c, "id", id);
	return call_int(&c, ret);
}
