/* SPDX-License-Identifier: MIT */
/*
 * The calls of libibverbs that are functions of it. Those that are inline in
 * the program (posting, polling, the extended ones) are in ops.c and ex.c.
 */
#include <endian.h>

#include "trace.h"

#define V1_0 "IBVERBS_1.0"
#define V1_1 "IBVERBS_1.1"

/* ---- devices -------------------------------------------------------------- */

EXPORT struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list;
	int count = 0;

	BEGIN(ibv_get_device_list, V1_1);
	call_go(&c, 24);
	list = real(num_devices);
	call_back(&c);
	while (list && list[count])
		count++;
	put_int(&c, "devices", count);
	return call_ptr(&c, list);
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	BEGIN(ibv_free_device_list, V1_1);
	call_go(&c, 0);
	real(list);
	call_void(&c);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *context;

	BEGIN(ibv_open_device, V1_1);
	put_text(&c, "device", device ? device->name : NULL);
	call_go(&c, 0);
	context = real(device);
	call_back(&c);
	if (context)
		ops_patch(context);
	return call_ptr(&c, context);
}

EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	struct ibv_context *context;

	BEGIN(ibv_import_device, "IBVERBS_1.10");
	put_int(&c, "fd", cmd_fd);
	call_go(&c, 0);
	context = real(cmd_fd);
	call_back(&c);
	if (context)
		ops_patch(context);
	return call_ptr(&c, context);
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	int ret;

	BEGIN(ibv_close_device, V1_1);
	put_ptr(&c, "context", context);
	ops_unpatch(context);
	call_go(&c, 0);
	ret = real(context);
	call_back(&c);
	if (ret)
		ops_patch(context);
	return call_errno(&c, ret);
}

EXPORT int ibv_query_device(struct ibv_context *context,
			    struct ibv_device_attr *attr)
{
	BEGIN(ibv_query_device, V1_1);
	put_ptr(&c, "context", context);
	call_go(&c, 0);
	return call_errno(&c, real(context, attr));
}

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port_num,
			  struct _compat_ibv_port_attr *attr)
{
	BEGIN(ibv_query_port, V1_1);
	put_ptr(&c, "context", context);
	put_dec(&c, "port_num", port_num);
	call_go(&c, 0);
	return call_errno(&c, real(context, port_num, attr));
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port_num,
			 int index, union ibv_gid *gid)
{
	int ret;

	BEGIN(ibv_query_gid, V1_1);
	put_ptr(&c, "context", context);
	put_dec(&c, "port_num", port_num);
	put_int(&c, "index", index);
	call_go(&c, 64);
	ret = real(context, port_num, index, gid);
	call_back(&c);
	if (!ret)
		put_gid(&c, "gid", gid);
	return call_errno(&c, ret);
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port_num,
			     uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t size)
{
	int ret;

	BEGIN(_ibv_query_gid_ex, "IBVERBS_1.11");
	put_ptr(&c, "context", context);
	put_dec(&c, "port_num", port_num);
	put_dec(&c, "index", index);
	call_go(&c, 64);
	ret = real(context, port_num, index, entry, flags, size);
	call_back(&c);
	if (!ret)
		put_gid(&c, "gid", &entry->gid);
	return call_errno(&c, ret);
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context,
				    struct ibv_gid_entry *entries, size_t max,
				    uint32_t flags, size_t size)
{
	ssize_t ret;

	BEGIN(_ibv_query_gid_table, "IBVERBS_1.11");
	put_ptr(&c, "context", context);
	call_go(&c, 0);
	ret = real(context, entries, max, flags, size);
	call_back(&c);
	put_int(&c, "ret", ret);
	call_void(&c);
	return ret;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port_num,
			  int index, __be16 *pkey)
{
	BEGIN(ibv_query_pkey, V1_1);
	put_ptr(&c, "context", context);
	put_dec(&c, "port_num", port_num);
	put_int(&c, "index", index);
	call_go(&c, 0);
	return call_errno(&c, real(context, port_num, index, pkey));
}

EXPORT int ibv_fork_init(void)
{
	BEGIN(ibv_fork_init, V1_1);
	call_go(&c, 0);
	return call_errno(&c, real());
}

/* ---- protection domains and memory ---------------------------------------- */

EXPORT struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	BEGIN(ibv_alloc_pd, V1_1);
	put_ptr(&c, "context", context);
	if (context)
		ops_patch(context);
	call_go(&c, 0);
	return call_ptr(&c, real(context));
}

EXPORT int ibv_dealloc_pd(struct ibv_pd *pd)
{
	BEGIN(ibv_dealloc_pd, V1_1);
	put_ptr(&c, "pd", pd);
	call_go(&c, 0);
	return call_errno(&c, real(pd));
}

static void put_region(struct call *c, struct ibv_pd *pd, void *addr,
		       size_t length)
{
	put_ptr(c, "pd", pd);
	put_hex(c, "addr", (uintptr_t)addr);
	put_dec(c, "length", length);
}

/* ibv_reg_mr() of libibverbs calls ibv_reg_mr_iova2(): one region all the same. */
static __thread int registering __attribute__((tls_model("initial-exec")));

/* The keys as the card has them; and the lkey that the program is shown. */
static struct ibv_mr *new_region(struct call *c, struct ibv_mr *mr)
{
	call_back(c);
	registering--;
	if (mr) {
		put_hex(c, "lkey", mr->lkey);
		put_hex(c, "rkey", mr->rkey);
		if (settings.lkey_mask && !registering) {
			strict_new_mr(mr);
			put_hex(c, "lkey_shown", mr->lkey);
		}
	}
	return call_ptr(c, mr);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length,
				 int access)
{
	BEGIN(ibv_reg_mr, V1_1);
	put_region(&c, pd, addr, length);
	put_access(&c, "access", access);
	call_go(&c, 64);
	registering++;
	return new_region(&c, real(pd, addr, length, access));
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr,
				      size_t length, uint64_t iova, int access)
{
	BEGIN(ibv_reg_mr_iova, "IBVERBS_1.7");
	put_region(&c, pd, addr, length);
	put_hex(&c, "iova", iova);
	put_access(&c, "access", access);
	call_go(&c, 64);
	registering++;
	return new_region(&c, real(pd, addr, length, iova, access));
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr,
				       size_t length, uint64_t iova,
				       unsigned int access)
{
	BEGIN(ibv_reg_mr_iova2, "IBVERBS_1.8");
	put_region(&c, pd, addr, length);
	put_hex(&c, "iova", iova);
	put_access(&c, "access", access);
	call_go(&c, 64);
	registering++;
	return new_region(&c, real(pd, addr, length, iova, access));
}

EXPORT struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset,
					size_t length, uint64_t iova, int fd,
					int access)
{
	BEGIN(ibv_reg_dmabuf_mr, "IBVERBS_1.12");
	put_region(&c, pd, NULL, length);
	put_hex(&c, "iova", iova);
	put_access(&c, "access", access);
	call_go(&c, 64);
	registering++;
	return new_region(&c, real(pd, offset, length, iova, fd, access));
}

EXPORT int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd,
			void *addr, size_t length, int access)
{
	int ret;

	BEGIN(ibv_rereg_mr, V1_1);
	put_ptr(&c, "mr", mr);
	put_hex(&c, "flags", flags);
	put_region(&c, pd, addr, length);
	put_access(&c, "access", access);
	if (settings.lkey_mask)
		strict_old_mr(mr);
	call_go(&c, 64);
	ret = real(mr, flags, pd, addr, length, access);
	call_back(&c);
	put_hex(&c, "lkey", mr->lkey);
	put_hex(&c, "rkey", mr->rkey);
	if (settings.lkey_mask)
		strict_new_mr(mr);
	return call_errno(&c, ret);
}

EXPORT int ibv_dereg_mr(struct ibv_mr *mr)
{
	struct ibv_mr gone;
	int ret;

	BEGIN(ibv_dereg_mr, V1_1);
	put_ptr(&c, "mr", mr);
	call_go(&c, 96);
	/* From here on a crash, of a region that is none, is seen to be in here. */
	gone = *mr;
	ret = real(mr);
	call_back(&c);
	put_hex(&c, "addr", (uintptr_t)gone.addr);
	put_dec(&c, "length", gone.length);
	put_hex(&c, "rkey", gone.rkey);
	return call_errno(&c, ret);
}

/* ---- completion queues ---------------------------------------------------- */

EXPORT struct ibv_comp_channel *
ibv_create_comp_channel(struct ibv_context *context)
{
	struct ibv_comp_channel *channel;

	BEGIN(ibv_create_comp_channel, V1_0);
	put_ptr(&c, "context", context);
	call_go(&c, 16);
	channel = real(context);
	call_back(&c);
	if (channel)
		put_int(&c, "fd", channel->fd);
	return call_ptr(&c, channel);
}

EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	BEGIN(ibv_destroy_comp_channel, V1_0);
	put_ptr(&c, "comp_channel", channel);
	call_go(&c, 0);
	return call_errno(&c, real(channel));
}

EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
				    void *cq_context,
				    struct ibv_comp_channel *channel,
				    int comp_vector)
{
	struct ibv_cq *cq;

	BEGIN(ibv_create_cq, V1_1);
	put_ptr(&c, "context", context);
	put_int(&c, "cqe", cqe);
	put_ptr(&c, "comp_channel", channel);
	if (context)
		ops_patch(context);
	call_go(&c, 24);
	cq = real(context, cqe, cq_context, channel, comp_vector);
	call_back(&c);
	if (cq)
		put_int(&c, "got_cqe", cq->cqe);
	return call_ptr(&c, cq);
}

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	BEGIN(ibv_resize_cq, V1_1);
	put_ptr(&c, "cq", cq);
	put_int(&c, "cqe", cqe);
	call_go(&c, 0);
	return call_errno(&c, real(cq, cqe));
}

EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	int ret;

	BEGIN(ibv_destroy_cq, V1_1);
	put_ptr(&c, "cq", cq);
	call_go(&c, 0);
	ret = real(cq);
	call_back(&c);
	if (!ret)
		ex_forget_cq(cq);
	return call_errno(&c, ret);
}

EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel,
			    struct ibv_cq **cq, void **cq_context)
{
	int ret;

	BEGIN(ibv_get_cq_event, V1_1);
	put_ptr(&c, "comp_channel", channel);
	call_go(&c, 32);
	ret = real(channel, cq, cq_context);
	call_back(&c);
	if (!ret)
		put_ptr(&c, "cq", *cq);
	return call_int(&c, ret);
}

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	BEGIN(ibv_ack_cq_events, V1_1);
	put_ptr(&c, "cq", cq);
	put_dec(&c, "nevents", nevents);
	call_go(&c, 0);
	real(cq, nevents);
	call_void(&c);
}

/* ---- shared receive queues ------------------------------------------------ */

EXPORT struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
				      struct ibv_srq_init_attr *init)
{
	BEGIN(ibv_create_srq, V1_1);
	put_ptr(&c, "pd", pd);
	put_dec(&c, "max_wr", init->attr.max_wr);
	put_dec(&c, "max_sge", init->attr.max_sge);
	call_go(&c, 0);
	return call_ptr(&c, real(pd, init));
}

EXPORT int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr,
			  int mask)
{
	BEGIN(ibv_modify_srq, V1_1);
	put_ptr(&c, "srq", srq);
	if (mask & IBV_SRQ_MAX_WR)
		put_dec(&c, "max_wr", attr->max_wr);
	if (mask & IBV_SRQ_LIMIT)
		put_dec(&c, "srq_limit", attr->srq_limit);
	call_go(&c, 0);
	return call_errno(&c, real(srq, attr, mask));
}

EXPORT int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr)
{
	BEGIN(ibv_query_srq, V1_1);
	put_ptr(&c, "srq", srq);
	call_go(&c, 0);
	return call_errno(&c, real(srq, attr));
}

EXPORT int ibv_destroy_srq(struct ibv_srq *srq)
{
	BEGIN(ibv_destroy_srq, V1_1);
	put_ptr(&c, "srq", srq);
	call_go(&c, 0);
	return call_errno(&c, real(srq));
}

/* ---- queue pairs ---------------------------------------------------------- */

EXPORT struct ibv_qp *ibv_create_qp(struct ibv_pd *pd,
				    struct ibv_qp_init_attr *init)
{
	struct ibv_qp *qp;

	BEGIN(ibv_create_qp, V1_1);
	put_ptr(&c, "pd", pd);
	put_ptr(&c, "send_cq", init->send_cq);
	put_ptr(&c, "recv_cq", init->recv_cq);
	put_ptr(&c, "srq", init->srq);
	put_qp_init(&c, "attr", init->qp_type, &init->cap, init->sq_sig_all);
	if (pd)
		ops_patch(pd->context);
	call_go(&c, 200);
	qp = real(pd, init);
	call_back(&c);
	if (qp) {
		buffers_new_qp(qp, init->sq_sig_all);
		put_dec(&c, "qp_num", qp->qp_num);
		put_qp_init(&c, "got", init->qp_type, &init->cap,
			    init->sq_sig_all);
	}
	return call_ptr(&c, qp);
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct ibv_qp_ex *ex;

	BEGIN(ibv_qp_to_qp_ex, "IBVERBS_1.6");
	put_ptr(&c, "qp", qp);
	call_go(&c, 0);
	ex = real(qp);
	call_back(&c);
	if (ex)
		ex_patch_qp(ex);
	return call_ptr(&c, ex);
}

EXPORT int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	BEGIN(ibv_modify_qp, V1_1);
	put_ptr(&c, "qp", qp);
	if (qp && attr) {
		put_dec(&c, "qp_num", qp->qp_num);
		put_qp_attr(&c, attr, mask);
	}
	call_go(&c, 0);
	return call_errno(&c, real(qp, attr, mask));
}

EXPORT int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
			struct ibv_qp_init_attr *init)
{
	int ret;

	BEGIN(ibv_query_qp, V1_1);
	put_ptr(&c, "qp", qp);
	if (qp)
		put_dec(&c, "qp_num", qp->qp_num);
	call_go(&c, 24);
	ret = real(qp, attr, mask, init);
	call_back(&c);
	if (!ret && (mask & IBV_QP_STATE))
		put_text(&c, "state", name_qp_state(attr->qp_state));
	return call_errno(&c, ret);
}

EXPORT int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct ibv_qp gone;
	int ret;

	BEGIN(ibv_destroy_qp, V1_1);
	put_ptr(&c, "qp", qp);
	call_go(&c, 24);
	gone = *qp;
	ret = real(qp);
	call_back(&c);
	put_dec(&c, "qp_num", gone.qp_num);
	if (!ret) {
		ex_forget_qp(qp);
		buffers_old_qp(&gone);
	}
	return call_errno(&c, ret);
}

EXPORT int ibv_set_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	BEGIN(ibv_set_ece, "IBVERBS_1.10");
	put_ptr(&c, "qp", qp);
	call_go(&c, 0);
	return call_errno(&c, real(qp, ece));
}

EXPORT int ibv_query_ece(struct ibv_qp *qp, struct ibv_ece *ece)
{
	BEGIN(ibv_query_ece, "IBVERBS_1.10");
	put_ptr(&c, "qp", qp);
	call_go(&c, 0);
	return call_errno(&c, real(qp, ece));
}

/* ---- datagrams ------------------------------------------------------------ */

EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	BEGIN(ibv_create_ah, V1_1);
	put_ptr(&c, "pd", pd);
	put_ah_attr(&c, "attr", attr);
	call_go(&c, 0);
	return call_ptr(&c, real(pd, attr));
}

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
			       struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	int ret;

	BEGIN(ibv_init_ah_from_wc, V1_1);
	put_ptr(&c, "context", context);
	call_go(&c, 256);
	ret = real(context, port_num, wc, grh, attr);
	call_back(&c);
	if (!ret)
		put_ah_attr(&c, "attr", attr);
	return call_int(&c, ret);
}

EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd,
					    struct ibv_wc *wc,
					    struct ibv_grh *grh,
					    uint8_t port_num)
{
	BEGIN(ibv_create_ah_from_wc, V1_1);
	put_ptr(&c, "pd", pd);
	put_dec(&c, "src_qp", wc->src_qp);
	call_go(&c, 0);
	return call_ptr(&c, real(pd, wc, grh, port_num));
}

EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	BEGIN(ibv_destroy_ah, V1_1);
	put_ptr(&c, "ah", ah);
	call_go(&c, 0);
	return call_errno(&c, real(ah));
}

EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
			    uint16_t lid)
{
	BEGIN(ibv_attach_mcast, V1_1);
	put_ptr(&c, "qp", qp);
	put_gid(&c, "gid", gid);
	call_go(&c, 0);
	return call_errno(&c, real(qp, gid, lid));
}

EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid,
			    uint16_t lid)
{
	BEGIN(ibv_detach_mcast, V1_1);
	put_ptr(&c, "qp", qp);
	put_gid(&c, "gid", gid);
	call_go(&c, 0);
	return call_errno(&c, real(qp, gid, lid));
}

/* ---- asynchronous events -------------------------------------------------- */

EXPORT int ibv_get_async_event(struct ibv_context *context,
			       struct ibv_async_event *event)
{
	int ret;

	BEGIN(ibv_get_async_event, V1_1);
	put_ptr(&c, "context", context);
	call_go(&c, 64);
	ret = real(context, event);
	call_back(&c);
	if (!ret) {
		put_text(&c, "event", name_async_event(event->event_type));
		switch (event->event_type) {
		case IBV_EVENT_CQ_ERR:
			put_ptr(&c, "cq", event->element.cq);
			break;
		case IBV_EVENT_SRQ_ERR:
		case IBV_EVENT_SRQ_LIMIT_REACHED:
			put_ptr(&c, "srq", event->element.srq);
			break;
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_COMM_EST:
		case IBV_EVENT_SQ_DRAINED:
		case IBV_EVENT_PATH_MIG:
		case IBV_EVENT_PATH_MIG_ERR:
		case IBV_EVENT_QP_LAST_WQE_REACHED:
			put_ptr(&c, "qp", event->element.qp);
			break;
		default:
			put_int(&c, "port_num", event->element.port_num);
		}
	}
	return call_int(&c, ret);
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	BEGIN(ibv_ack_async_event, V1_1);
	put_text(&c, "event", name_async_event(event->event_type));
	call_go(&c, 0);
	real(event);
	call_void(&c);
}
