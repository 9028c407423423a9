/* SPDX-License-Identifier: MIT */
/*
 * The extended data path: ibv_wr_send() and its like are functions in each
 * struct ibv_qp_ex, ibv_start_poll() and ibv_next_poll() are functions in each
 * struct ibv_cq_ex. We put our own there.
 *
 * Between ibv_wr_start() and ibv_wr_complete() the QP is one thread's alone, so
 * what it asks for is gathered in one place for each QP.
 */
#include <pthread.h>

#include "trace.h"

#define AT __builtin_return_address(0)
#define GATHER 16384

struct ex_qp {
	struct ex_qp *next;
	const void *_Atomic qp;
	struct ibv_qp_ex real; /* the functions, as they were */
	uint64_t t0;
	char *p; /* in text; NULL: nothing was asked for yet */
	bool sges, cut;
	char text[GATHER];
};

struct ex_cq {
	struct ex_cq *next;
	const void *_Atomic cq;
	struct ibv_cq_ex real;
};

#define SLOTS 256
static struct ex_qp *_Atomic qps[SLOTS];
static struct ex_cq *_Atomic cqs[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static unsigned int slot_of(const void *key)
{
	return ((uintptr_t)key >> 6) % SLOTS;
}

/* Entries are never given back, only used again, so no lock is needed here. */
static struct ex_qp *find_qp(const void *qp)
{
	struct ex_qp *each = atomic_load(&qps[slot_of(qp)]);

	while (each &&
	       atomic_load_explicit(&each->qp, memory_order_acquire) != qp)
		each = each->next;
	return each;
}

static struct ex_cq *find_cq(const void *cq)
{
	struct ex_cq *each = atomic_load(&cqs[slot_of(cq)]);

	while (each &&
	       atomic_load_explicit(&each->cq, memory_order_acquire) != cq)
		each = each->next;
	return each;
}

/* ---- requests ------------------------------------------------------------- */

/* Where the next request's text goes, or NULL where there is no more room. */
static char *next_request(struct ex_qp *q, struct ibv_qp_ex *qp,
			  unsigned int opcode)
{
	char *p;

	if (q->cut || q->p + 1024 > q->text + GATHER) {
		q->cut = true;
		return NULL;
	}
	p = q->p;
	if (p != q->text) {
		if (q->sges)
			*p++ = ']';
		p = LIT(p, "},");
	}
	q->sges = false;
	p = LIT(p, "{\"wr_id\":\"");
	p = text_wr_id(p, qp->wr_id);
	p = LIT(p, "\",\"opcode\":\"");
	p = text_copy(p, name_wr_opcode(opcode));
	p = LIT(p, "\",\"flags\":");
	return text_send_flags(p, qp->wr_flags);
}

static char *text_remote(char *p, uint64_t addr, uint32_t rkey)
{
	p = LIT(p, ",\"remote_addr\":\"");
	p = text_hex(p, addr);
	p = LIT(p, "\",\"rkey\":\"");
	p = text_hex(p, rkey);
	*p++ = '"';
	return p;
}

static char *text_key(char *p, const char *key, uint64_t value)
{
	p = LIT(p, ",\"");
	p = text_copy(p, key);
	p = LIT(p, "\":\"");
	p = text_hex(p, value);
	*p++ = '"';
	return p;
}

static void our_wr_start(struct ibv_qp_ex *qp)
{
	struct ex_qp *q = find_qp(qp);

	q->real.wr_start(qp);
	q->p = q->text;
	q->sges = q->cut = false;
	q->t0 = trace_on() ? trace_now() : 0;
}

static void our_wr_send(struct ibv_qp_ex *qp)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_SEND);

	if (p)
		q->p = p;
	q->real.wr_send(qp);
}

static void our_wr_send_imm(struct ibv_qp_ex *qp, __be32 imm)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_SEND_WITH_IMM);

	if (p)
		q->p = text_key(p, "imm", be32toh(imm));
	q->real.wr_send_imm(qp, imm);
}

static void our_wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_SEND_WITH_INV);

	if (p)
		q->p = text_key(p, "invalidate_rkey", rkey);
	q->real.wr_send_inv(qp, rkey);
}

static void our_wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_LOCAL_INV);

	if (p)
		q->p = text_key(p, "invalidate_rkey", rkey);
	q->real.wr_local_inv(qp, rkey);
}

static void our_wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey,
			      uint64_t addr)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_RDMA_WRITE);

	if (p)
		q->p = text_remote(p, addr, rkey);
	q->real.wr_rdma_write(qp, rkey, addr);
}

static void our_wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey,
				  uint64_t addr, __be32 imm)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_RDMA_WRITE_WITH_IMM);

	if (p)
		q->p = text_key(text_remote(p, addr, rkey), "imm",
				be32toh(imm));
	q->real.wr_rdma_write_imm(qp, rkey, addr, imm);
}

static void our_wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t addr)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_RDMA_READ);

	if (p)
		q->p = text_remote(p, addr, rkey);
	q->real.wr_rdma_read(qp, rkey, addr);
}

static void our_wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey,
				  uint64_t addr, uint64_t compare,
				  uint64_t swap)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_ATOMIC_CMP_AND_SWP);

	if (p)
		q->p = text_key(text_key(text_remote(p, addr, rkey),
					 "compare_add", compare),
				"swap", swap);
	q->real.wr_atomic_cmp_swp(qp, rkey, addr, compare, swap);
}

static void our_wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey,
				    uint64_t addr, uint64_t add)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_ATOMIC_FETCH_AND_ADD);

	if (p)
		q->p = text_key(text_remote(p, addr, rkey), "compare_add", add);
	q->real.wr_atomic_fetch_add(qp, rkey, addr, add);
}

static void our_wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw,
			   uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct ex_qp *q = find_qp(qp);
	char *p = next_request(q, qp, IBV_WR_BIND_MW);

	if (p)
		q->p = text_key(p, "rkey", rkey);
	if (settings.lkey_mask && info->mr)
		strict_old_mr(info->mr);
	q->real.wr_bind_mw(qp, mw, rkey, info);
	if (settings.lkey_mask && info->mr)
		strict_new_mr(info->mr);
}

/* ---- what belongs to a request -------------------------------------------- */

static char *more_sges(struct ex_qp *q, size_t count)
{
	char *p = q->p;

	if (q->cut || p == q->text)
		return NULL;
	if (p + count * 72 + 64 > q->text + GATHER) {
		q->cut = true;
		return NULL;
	}
	if (q->sges) {
		*p++ = ',';
	} else {
		p = LIT(p, ",\"sges\":[");
		q->sges = true;
	}
	return p;
}

static void our_wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr,
			   uint32_t length)
{
	struct ex_qp *q = find_qp(qp);
	char *p = more_sges(q, 1);

	if (p)
		q->p = text_sge(p, addr, length, lkey);
	q->real.wr_set_sge(qp, strict_lkey(lkey), addr, length);
}

#define MAX_SGE 64

static void our_wr_set_sge_list(struct ibv_qp_ex *qp, size_t count,
				const struct ibv_sge *list)
{
	struct ex_qp *q = find_qp(qp);
	struct ibv_sge copy[MAX_SGE];
	char *p = count && count <= MAX_SGE ? more_sges(q, count) : NULL;
	size_t i;

	for (i = 0; p && i < count; i++) {
		if (i)
			*p++ = ',';
		p = text_sge(p, list[i].addr, list[i].length, list[i].lkey);
	}
	if (p)
		q->p = p;
	if (settings.lkey_mask && count <= MAX_SGE) {
		for (i = 0; i < count; i++) {
			copy[i] = list[i];
			copy[i].lkey = strict_lkey(list[i].lkey);
		}
		list = copy;
	}
	q->real.wr_set_sge_list(qp, count, list);
}

static void our_wr_set_inline_data(struct ibv_qp_ex *qp, void *addr,
				   size_t length)
{
	struct ex_qp *q = find_qp(qp);
	char *p = more_sges(q, 1);

	if (p)
		q->p = text_sge(p, (uintptr_t)addr, length, 0);
	q->real.wr_set_inline_data(qp, addr, length);
}

static void our_wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t count,
					const struct ibv_data_buf *list)
{
	struct ex_qp *q = find_qp(qp);
	char *p = count && count <= MAX_SGE ? more_sges(q, count) : NULL;
	size_t i;

	for (i = 0; p && i < count; i++) {
		if (i)
			*p++ = ',';
		p = text_sge(p, (uintptr_t)list[i].addr, list[i].length, 0);
	}
	if (p)
		q->p = p;
	q->real.wr_set_inline_data_list(qp, count, list);
}

static void our_wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah,
			       uint32_t remote_qpn, uint32_t remote_qkey)
{
	struct ex_qp *q = find_qp(qp);
	char *p = q->p;

	if (!q->cut && !q->sges && p != q->text) {
		p = LIT(p, ",\"ah\":\"");
		p = text_hex(p, (uintptr_t)ah);
		p = LIT(p, "\",\"remote_qpn\":");
		p = text_dec(p, remote_qpn);
		q->p = text_key(p, "remote_qkey", remote_qkey);
	}
	q->real.wr_set_ud_addr(qp, ah, remote_qpn, remote_qkey);
}

/* ---- the end of a batch --------------------------------------------------- */

/* One line for the batch; as for other posts, it is there before the call. */
static char *batch_line(struct ex_qp *q, struct ibv_qp_ex *qp, const char *name,
			const void *at, size_t *room)
{
	size_t bound = (q->p - q->text) + 512;
	char *place, *p;

	n_runs = 0;
	place = trace_reserve(bound);
	if (!place)
		return NULL;
	p = line_begin(place, name, at, q->t0);
	place[0] = '\0';
	*room = bound;
	p = LIT(p, ",\"qp\":\"");
	p = text_hex(p, (uintptr_t)qp);
	p = LIT(p, "\",\"qp_num\":");
	p = text_dec(p, qp->qp_base.qp_num);
	p = LIT(p, ",\"wrs\":[");
	memcpy(p, q->text, q->p - q->text);
	p += q->p - q->text;
	if (q->sges)
		*p++ = ']';
	if (p[-1] != '[' || q->sges)
		*p++ = '}';
	p = LIT(p, "],\"cut\":");
	p = text_dec(p, q->cut);
	memset(p, ' ', bound - (p - place));
	place[bound - 1] = '\n';
	memcpy(p, ",\"t1\":null}", 11);
	__atomic_store_n(place, '{', __ATOMIC_RELEASE);
	return p;
}

static void batch_result(char *p, int ret)
{
	p = LIT(p, ",\"t1\":");
	p = text_dec(p, trace_now());
	p = LIT(p, ",\"ret\":");
	if (ret < 0)
		*p++ = '-';
	p = text_dec(p, ret < 0 ? -ret : ret);
	*p = '}';
}

static int our_wr_complete(struct ibv_qp_ex *qp)
{
	struct ex_qp *q = find_qp(qp);
	int err = errno, ret;
	size_t room;
	char *p = NULL;

	if (trace_on())
		p = batch_line(q, qp, "ibv_wr_complete", AT, &room);
	errno = err;
	ret = q->real.wr_complete(qp);
	if (p) {
		err = errno;
		batch_result(p, ret);
		errno = err;
	}
	return ret;
}

static void our_wr_abort(struct ibv_qp_ex *qp)
{
	struct ex_qp *q = find_qp(qp);
	int err = errno;
	size_t room;
	char *p = NULL;

	if (trace_on())
		p = batch_line(q, qp, "ibv_wr_abort", AT, &room);
	errno = err;
	q->real.wr_abort(qp);
	if (p)
		batch_result(p, 0);
}

#define SWAP(name)                                        \
	do {                                              \
		if (qp->name && qp->name != our_##name) { \
			q->real.name = qp->name;          \
			qp->name = our_##name;            \
		}                                         \
	} while (0)

void ex_patch_qp(struct ibv_qp_ex *qp)
{
	struct ex_qp *q;
	unsigned int slot = slot_of(qp);

	if (!trace_on() && !settings.lkey_mask)
		return;
	pthread_mutex_lock(&lock);
	q = find_qp(qp);
	for (struct ex_qp *each = q ? NULL : atomic_load(&qps[slot]); each;
	     each = each->next)
		if (!atomic_load(&each->qp))
			q = each;
	if (!q) {
		q = trace_alloc(sizeof(*q));
		if (q) {
			q->next = atomic_load(&qps[slot]);
			atomic_store(&qps[slot], q);
		}
	}
	if (q) {
		q->p = q->text;
		atomic_store(&q->qp, qp);
		SWAP(wr_send);
		SWAP(wr_send_imm);
		SWAP(wr_send_inv);
		SWAP(wr_local_inv);
		SWAP(wr_rdma_write);
		SWAP(wr_rdma_write_imm);
		SWAP(wr_rdma_read);
		SWAP(wr_atomic_cmp_swp);
		SWAP(wr_atomic_fetch_add);
		SWAP(wr_bind_mw);
		SWAP(wr_set_sge);
		SWAP(wr_set_sge_list);
		SWAP(wr_set_inline_data);
		SWAP(wr_set_inline_data_list);
		SWAP(wr_set_ud_addr);
		SWAP(wr_complete);
		SWAP(wr_abort);
		SWAP(wr_start);
	}
	pthread_mutex_unlock(&lock);
}

/* QP is destroyed; its memory may be another one's next. */
void ex_forget_qp(struct ibv_qp *qp)
{
	struct ex_qp *q;

	pthread_mutex_lock(&lock);
	q = find_qp(qp);
	if (q)
		atomic_store(&q->qp, NULL);
	pthread_mutex_unlock(&lock);
}

/* ---- completions ---------------------------------------------------------- */

/* The current completion of CQ as the other calls show it. */
static void one_completion(struct ibv_cq_ex *cq, const char *name,
			   const void *at, uint64_t t0)
{
	struct ibv_wc wc = { .wr_id = cq->wr_id, .status = cq->status };
	char line[WC_BOUND + 512], *p, *place;

	if (cq->read_qp_num)
		wc.qp_num = cq->read_qp_num(cq);
	if (cq->read_vendor_err)
		wc.vendor_err = cq->read_vendor_err(cq);
	if (wc.status == IBV_WC_SUCCESS) {
		if (cq->read_opcode)
			wc.opcode = cq->read_opcode(cq);
		if (cq->read_byte_len)
			wc.byte_len = cq->read_byte_len(cq);
		if (cq->read_wc_flags)
			wc.wc_flags = cq->read_wc_flags(cq);
		if (cq->read_src_qp)
			wc.src_qp = cq->read_src_qp(cq);
		if ((wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) &&
		    cq->read_imm_data)
			wc.imm_data = cq->read_imm_data(cq);
	}
	n_runs = 0;
	p = line_begin(line, name, at, t0);
	p = LIT(p, ",\"t1\":");
	p = text_dec(p, trace_now());
	p = LIT(p, ",\"cq\":\"");
	p = text_hex(p, (uintptr_t)cq);
	p = LIT(p, "\",\"ret\":0,\"wcs\":[");
	p = text_wc(p, &wc, ibv_cq_ex_to_cq(cq));
	p = LIT(p, "]}\n");
	place = trace_reserve(p - line);
	if (place)
		trace_commit(place, line, p - line);
}

static int our_start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr)
{
	struct ex_cq *q = find_cq(cq);
	bool on = trace_on();
	uint64_t t0 = on ? trace_now() : 0, t1;
	int ret = q->real.start_poll(cq, attr);
	int err = errno;

	if (on && !ret) {
		one_completion(cq, "ibv_start_poll", AT, t0);
	} else if (on) {
		t1 = trace_now();
		if (!run_goes_on(cq, 1, t1))
			run_begins("ibv_start_poll", AT, cq, 1, ret, t0, t1);
	}
	errno = err;
	return ret;
}

static int our_next_poll(struct ibv_cq_ex *cq)
{
	struct ex_cq *q = find_cq(cq);
	bool on = trace_on();
	uint64_t t0 = on ? trace_now() : 0;
	int ret = q->real.next_poll(cq);
	int err = errno;

	if (on && !ret)
		one_completion(cq, "ibv_next_poll", AT, t0);
	errno = err;
	return ret;
}

void ex_patch_cq(struct ibv_cq_ex *cq)
{
	struct ex_cq *q;
	unsigned int slot = slot_of(cq);

	/* A CQ for ibv_poll_cq() alone has none of these. */
	if (!cq->start_poll || !cq->next_poll || !trace_on())
		return;
	pthread_mutex_lock(&lock);
	q = find_cq(cq);
	for (struct ex_cq *each = q ? NULL : atomic_load(&cqs[slot]); each;
	     each = each->next)
		if (!atomic_load(&each->cq))
			q = each;
	if (!q) {
		q = trace_alloc(sizeof(*q));
		if (q) {
			q->next = atomic_load(&cqs[slot]);
			atomic_store(&cqs[slot], q);
		}
	}
	if (q) {
		q->real.start_poll = cq->start_poll;
		q->real.next_poll = cq->next_poll;
		atomic_store(&q->cq, cq);
		cq->start_poll = our_start_poll;
		cq->next_poll = our_next_poll;
	}
	pthread_mutex_unlock(&lock);
}

void ex_forget_cq(struct ibv_cq *cq)
{
	struct ex_cq *q;

	pthread_mutex_lock(&lock);
	q = find_cq(cq);
	if (q)
		atomic_store(&q->cq, NULL);
	pthread_mutex_unlock(&lock);
}
