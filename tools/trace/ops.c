/* SPDX-License-Identifier: MIT */
/*
 * Calls that are inline in the program: ibv_post_send() is
 * qp->context->ops.post_send(), and so on. They are seen by putting our own
 * functions into the table of each context when it is opened. The calls of the
 * data path are here: no lock, no allocation, no printf().
 */
#include <pthread.h>

#include "trace.h"

/* A list that is longer is cut off in the record, not in the call. */
#define MAX_LIST 1024
#define MAX_SGE 64

#define AT __builtin_return_address(0)

/* ---- contexts ------------------------------------------------------------- */

#define MAX_CONTEXTS 256
static struct context {
	struct ibv_context *_Atomic context;
	struct ibv_context_ops ops; /* what was there before */
	struct verbs_context ex;
} contexts[MAX_CONTEXTS];
static _Atomic int n_contexts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct context *find(const struct ibv_context *context)
{
	int count = atomic_load_explicit(&n_contexts, memory_order_acquire);
	int i;

	for (i = 0; i < count; i++)
		if (likely(atomic_load_explicit(&contexts[i].context,
						memory_order_acquire) ==
			   context))
			return &contexts[i];
	return NULL;
}

/* ---- pieces of lines ------------------------------------------------------ */

/* What is known after the call is written over these. */
#define NOTHING "null            "
static const char results[] = ",\"t1\":" NOTHING ",\"ret\":" NOTHING
			      ",\"bad\":" NOTHING ",\"error\":" NOTHING;
_Static_assert(sizeof(NOTHING) - 1 == FIELD, "a field");
#define T1_AT 6
#define RET_AT (T1_AT + FIELD + 7)
#define BAD_AT (RET_AT + FIELD + 7)
#define ERROR_AT (BAD_AT + FIELD + 9)

static void write_results(char *place, uint64_t t1, int ret, int bad)
{
	const char *name;
	char quoted[FIELD];
	size_t len;

	text_number(place + T1_AT, t1);
	if (likely(!ret)) {
		text_number(place + RET_AT, 0);
		return;
	}
	if (bad >= 0)
		text_number(place + BAD_AT, bad);
	/* The few that are too long stay null; the number is there. */
	name = strerrorname_np(ret > 0 ? ret : errno);
	len = name ? strlen(name) : FIELD;
	if (len + 2 <= FIELD) {
		quoted[0] = '"';
		memcpy(quoted + 1, name, len);
		quoted[len + 1] = '"';
		text_field(place + ERROR_AT, quoted, len + 2);
	}
	text_number(place + RET_AT, ret);
}

char *text_sge(char *p, uint64_t addr, uint32_t length, uint32_t lkey)
{
	p = LIT(p, "{\"addr\":\"");
	p = text_hex(p, addr);
	p = LIT(p, "\",\"length\":");
	p = text_dec(p, length);
	p = LIT(p, ",\"lkey\":\"");
	p = text_hex(p, lkey);
	return LIT(p, "\"}");
}

static char *text_sges(char *p, const struct ibv_sge *sge, int count)
{
	int i;

	p = LIT(p, ",\"num_sge\":");
	if (unlikely(count < 0)) {
		*p++ = '-';
		p = text_dec(p, 0U - (unsigned int)count);
	} else {
		p = text_dec(p, count);
	}
	p = LIT(p, ",\"sges\":[");
	if (count > MAX_SGE)
		count = 0;
	for (i = 0; i < count; i++) {
		if (i)
			*p++ = ',';
		p = text_sge(p, sge[i].addr, sge[i].length, sge[i].lkey);
	}
	*p++ = ']';
	return p;
}

static size_t sges_bound(int count)
{
	return count > 0 && count <= MAX_SGE ? count * 72 : 0;
}

size_t send_wr_bound(const struct ibv_send_wr *wr)
{
	return 480 + 2 * settings.data + sges_bound(wr->num_sge);
}

static char *text_send_wr(char *p, const struct ibv_send_wr *wr,
			  struct ibv_qp *qp)
{
	p = LIT(p, "{\"wr_id\":\"");
	p = text_wr_id(p, wr->wr_id);
	p = LIT(p, "\",\"opcode\":\"");
	p = text_copy(p, name_wr_opcode(wr->opcode));
	p = LIT(p, "\",\"flags\":");
	p = text_send_flags(p, wr->send_flags);
	p = text_sges(p, wr->sg_list, wr->num_sge);
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		p = LIT(p, ",\"remote_addr\":\"");
		p = text_hex(p, wr->wr.rdma.remote_addr);
		p = LIT(p, "\",\"rkey\":\"");
		p = text_hex(p, wr->wr.rdma.rkey);
		*p++ = '"';
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		p = LIT(p, ",\"remote_addr\":\"");
		p = text_hex(p, wr->wr.atomic.remote_addr);
		p = LIT(p, "\",\"rkey\":\"");
		p = text_hex(p, wr->wr.atomic.rkey);
		p = LIT(p, "\",\"compare_add\":\"");
		p = text_hex(p, wr->wr.atomic.compare_add);
		p = LIT(p, "\",\"swap\":\"");
		p = text_hex(p, wr->wr.atomic.swap);
		*p++ = '"';
		break;
	case IBV_WR_BIND_MW:
		p = LIT(p, ",\"rkey\":\"");
		p = text_hex(p, wr->bind_mw.rkey);
		p = LIT(p, "\",\"bind_addr\":\"");
		p = text_hex(p, wr->bind_mw.bind_info.addr);
		p = LIT(p, "\",\"bind_length\":");
		p = text_dec(p, wr->bind_mw.bind_info.length);
		p = LIT(p, ",\"access\":");
		p = text_access(p, wr->bind_mw.bind_info.mw_access_flags);
		break;
	default:
		break;
	}
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND_WITH_IMM:
		p = LIT(p, ",\"imm\":\"");
		p = text_hex(p, be32toh(wr->imm_data));
		*p++ = '"';
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		p = LIT(p, ",\"invalidate_rkey\":\"");
		p = text_hex(p, wr->invalidate_rkey);
		*p++ = '"';
		break;
	default:
		break;
	}
	if (unlikely(qp->qp_type == IBV_QPT_UD)) {
		p = LIT(p, ",\"ah\":\"");
		p = text_hex(p, (uintptr_t)wr->wr.ud.ah);
		p = LIT(p, "\",\"remote_qpn\":");
		p = text_dec(p, wr->wr.ud.remote_qpn);
		p = LIT(p, ",\"remote_qkey\":\"");
		p = text_hex(p, wr->wr.ud.remote_qkey);
		*p++ = '"';
	}
	if (unlikely(settings.data))
		p = buffers_post(p, qp, wr);
	*p++ = '}';
	return p;
}

static char *text_recv_wr(char *p, const struct ibv_recv_wr *wr)
{
	p = LIT(p, "{\"wr_id\":\"");
	p = text_wr_id(p, wr->wr_id);
	*p++ = '"';
	p = text_sges(p, wr->sg_list, wr->num_sge);
	*p++ = '}';
	return p;
}

/* The line of a post. It is in the file before the request is with the card. */
struct post {
	char *place; /* where its results go */
	uint64_t t0;
	char *line, *p;
	char *reserved;
	size_t bound;
	char local[LINE_MAX_BYTES / 2];
};

static bool post_begin(struct post *post, const char *name, const void *at,
		       size_t bound, size_t *results_at)
{
	post->bound = bound + 256 + sizeof(results);
	post->t0 = trace_now();
	post->reserved = NULL;
	post->line = post->local;
	n_runs = 0;
	if (unlikely(post->bound > sizeof(post->local))) {
		post->reserved = trace_reserve(post->bound);
		if (!post->reserved)
			return false;
		post->line = post->reserved;
	}
	/* In the file the first byte stays empty until the line is whole. */
	post->p = line_begin(post->line, name, at, post->t0);
	if (post->reserved)
		post->line[0] = '\0';
	*results_at = post->p - post->line;
	post->p = LIT(post->p, results);
	return true;
}

static void post_go(struct post *post, size_t results_at)
{
	size_t len;

	post->p = LIT(post->p, "]}");
	len = post->p - post->line;
	if (post->reserved) {
		memset(post->p, ' ', post->bound - len);
		post->line[post->bound - 1] = '\n';
		__atomic_store_n(post->line, '{', __ATOMIC_RELEASE);
		post->place = post->line + results_at;
		return;
	}
	*post->p++ = '\n';
	post->place = trace_reserve(len + 1);
	if (post->place) {
		trace_commit(post->place, post->line, len + 1);
		post->place += results_at;
	}
}

/* ---- posting -------------------------------------------------------------- */

static int our_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
			 struct ibv_send_wr **bad)
{
	struct context *context = find(qp->context);
	struct ibv_send_wr *each, *given = wr;
	size_t bound = 0, results_at = 0;
	struct post post;
	int err = errno, count = 0, ret, failed = -1;
	bool on = trace_on();

	if (unlikely(!context))
		return EIO;
	if (likely(on)) {
		for (each = wr; each && count < MAX_LIST; each = each->next) {
			bound += send_wr_bound(each);
			count++;
		}
		on = post_begin(&post, "ibv_post_send", AT, bound, &results_at);
	}
	if (likely(on)) {
		post.p = LIT(post.p, ",\"qp\":\"");
		post.p = text_hex(post.p, (uintptr_t)qp);
		post.p = LIT(post.p, "\",\"qp_num\":");
		post.p = text_dec(post.p, qp->qp_num);
		post.p = LIT(post.p, ",\"wrs\":[");
		count = 0;
		for (each = wr; each && count < MAX_LIST; each = each->next) {
			if (count++)
				*post.p++ = ',';
			post.p = text_send_wr(post.p, each, qp);
		}
		post_go(&post, results_at);
	}
	if (unlikely(settings.lkey_mask))
		given = strict_send_list(wr);
	errno = err;
	ret = context->ops.post_send(qp, given, bad);
	err = errno;
	if (unlikely(given != wr))
		strict_send_done(wr, given, bad);
	if (unlikely(ret)) {
		failed = 0;
		for (each = wr;
		     each && bad && each != *bad && failed < MAX_LIST;
		     each = each->next)
			failed++;
		if (settings.data)
			buffers_refused(qp, count - failed);
	}
	if (likely(on && post.place))
		write_results(post.place, trace_now(), ret, failed);
	errno = err;
	return ret;
}

/* Both kinds of receive: on a QP and on an SRQ. */
static bool recv_line(struct post *post, const char *name, const void *at,
		      const char *key, const void *queue, struct ibv_qp *qp,
		      struct ibv_recv_wr *wr, size_t *results_at)
{
	struct ibv_recv_wr *each;
	size_t bound = 0;
	int count = 0;

	for (each = wr; each && count < MAX_LIST; each = each->next) {
		bound += 96 + sges_bound(each->num_sge);
		count++;
	}
	if (!post_begin(post, name, at, bound, results_at))
		return false;
	post->p = LIT(post->p, ",\"");
	post->p = text_copy(post->p, key);
	post->p = LIT(post->p, "\":\"");
	post->p = text_hex(post->p, (uintptr_t)queue);
	*post->p++ = '"';
	if (qp) {
		post->p = LIT(post->p, ",\"qp_num\":");
		post->p = text_dec(post->p, qp->qp_num);
	}
	post->p = LIT(post->p, ",\"wrs\":[");
	count = 0;
	for (each = wr; each && count < MAX_LIST; each = each->next) {
		if (count++)
			*post->p++ = ',';
		post->p = text_recv_wr(post->p, each);
	}
	post_go(post, *results_at);
	return true;
}

static int recv_failed(struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int failed = 0;

	for (; wr && bad && wr != *bad && failed < MAX_LIST; wr = wr->next)
		failed++;
	return failed;
}

static int our_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	struct context *context = find(qp->context);
	struct ibv_recv_wr *given = wr;
	struct post post;
	size_t results_at = 0;
	int err = errno, ret;
	bool on = trace_on();

	if (unlikely(!context))
		return EIO;
	if (likely(on))
		on = recv_line(&post, "ibv_post_recv", AT, "qp", qp, qp, wr,
			       &results_at);
	if (unlikely(settings.lkey_mask))
		given = strict_recv_list(wr);
	errno = err;
	ret = context->ops.post_recv(qp, given, bad);
	err = errno;
	if (unlikely(given != wr))
		strict_recv_done(wr, given, bad);
	if (likely(on && post.place))
		write_results(post.place, trace_now(), ret,
			      ret ? recv_failed(wr, bad) : -1);
	errno = err;
	return ret;
}

static int our_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			     struct ibv_recv_wr **bad)
{
	struct context *context = find(srq->context);
	struct ibv_recv_wr *given = wr;
	struct post post;
	size_t results_at = 0;
	int err = errno, ret;
	bool on = trace_on();

	if (unlikely(!context))
		return EIO;
	if (likely(on))
		on = recv_line(&post, "ibv_post_srq_recv", AT, "srq", srq, NULL,
			       wr, &results_at);
	if (unlikely(settings.lkey_mask))
		given = strict_recv_list(wr);
	errno = err;
	ret = context->ops.post_srq_recv(srq, given, bad);
	err = errno;
	if (unlikely(given != wr))
		strict_recv_done(wr, given, bad);
	if (likely(on && post.place))
		write_results(post.place, trace_now(), ret,
			      ret ? recv_failed(wr, bad) : -1);
	errno = err;
	return ret;
}

/* ---- polling -------------------------------------------------------------- */

char *text_wc(char *p, const struct ibv_wc *wc, struct ibv_cq *cq)
{
	p = LIT(p, "{\"wr_id\":\"");
	p = text_wr_id(p, wc->wr_id);
	p = LIT(p, "\",\"status\":");
	p = text_dec(p, wc->status);
	p = LIT(p, ",\"status_name\":\"");
	p = text_copy(p, name_wc_status(wc->status));
	p = LIT(p, "\",\"qp_num\":");
	p = text_dec(p, wc->qp_num);
	/* The rest means nothing in a failed completion. */
	if (unlikely(wc->status != IBV_WC_SUCCESS)) {
		p = LIT(p, ",\"vendor_err\":");
		p = text_dec(p, wc->vendor_err);
		*p++ = '}';
		return p;
	}
	p = LIT(p, ",\"opcode\":\"");
	p = text_copy(p, name_wc_opcode(wc->opcode));
	p = LIT(p, "\",\"byte_len\":");
	p = text_dec(p, wc->byte_len);
	if (wc->wc_flags) {
		p = LIT(p, ",\"flags\":");
		p = text_wc_flags(p, wc->wc_flags);
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM) {
		p = LIT(p, ",\"imm\":\"");
		p = text_hex(p, be32toh(wc->imm_data));
		*p++ = '"';
	}
	if (wc->wc_flags & IBV_WC_WITH_INV) {
		p = LIT(p, ",\"invalidated_rkey\":\"");
		p = text_hex(p, wc->invalidated_rkey);
		*p++ = '"';
	}
	if (wc->wc_flags & IBV_WC_GRH) {
		p = LIT(p, ",\"src_qp\":");
		p = text_dec(p, wc->src_qp);
	}
	if (unlikely(settings.data) && !(wc->opcode & IBV_WC_RECV))
		p = buffers_completed(p, cq->context, wc);
	*p++ = '}';
	return p;
}

/*
 * A program that polls makes thousands of calls that find nothing. One line
 * stands for all that came one after the other: how many, and when the last
 * ended. It is kept up to date in the file.
 */
bool run_goes_on(const void *cq, int max, uint64_t t1)
{
	int i;

	for (i = 0; i < n_runs; i++) {
		struct empty_run *run = &runs[i];

		if (run->cq != cq || run->max != max)
			continue;
		text_number(run->t1, t1);
		text_number(run->calls, ++run->count);
		return true;
	}
	return false;
}

static char *poll_begin(char *p, const char *name, const void *at,
			const void *cq, int max, int ret, uint64_t t0,
			uint64_t t1, char **t1_at)
{
	p = line_begin(p, name, at, t0);
	p = LIT(p, ",\"t1\":");
	*t1_at = p;
	text_number(p, t1);
	p += FIELD;
	p = LIT(p, ",\"cq\":\"");
	p = text_hex(p, (uintptr_t)cq);
	p = LIT(p, "\",\"max\":");
	p = text_dec(p, max);
	p = LIT(p, ",\"ret\":");
	if (ret < 0)
		*p++ = '-';
	return text_dec(p, ret < 0 ? -ret : ret);
}

void run_begins(const char *name, const void *at, const void *cq, int max,
		int ret, uint64_t t0, uint64_t t1)
{
	char line[512], *p, *t1_at, *calls_at, *place;

	p = poll_begin(line, name, at, cq, max, ret, t0, t1, &t1_at);
	p = LIT(p, ",\"calls\":");
	calls_at = p;
	text_number(p, 1);
	p += FIELD;
	p = LIT(p, "}\n");
	place = trace_reserve(p - line);
	if (!place)
		return;
	trace_commit(place, line, p - line);
	if (n_runs == MAX_RUNS)
		n_runs = 0;
	runs[n_runs].cq = cq;
	runs[n_runs].max = max;
	runs[n_runs].count = 1;
	runs[n_runs].t1 = place + (t1_at - line);
	runs[n_runs].calls = place + (calls_at - line);
	n_runs++;
}

static void completions(const void *at, struct ibv_cq *cq, int max,
			const struct ibv_wc *wc, int count, uint64_t t0,
			uint64_t t1)
{
	char local[LINE_MAX_BYTES / 2], *line = local, *p, *t1_at,
					*place = NULL;
	size_t bound = 300 + count * WC_BOUND;
	int i;

	n_runs = 0;
	if (bound > sizeof(local)) {
		place = trace_reserve(bound);
		if (!place)
			return;
		line = place;
	}
	p = poll_begin(line, "ibv_poll_cq", at, cq, max, count, t0, t1, &t1_at);
	if (place)
		line[0] = '\0';
	p = LIT(p, ",\"wcs\":[");
	for (i = 0; i < count; i++) {
		if (i)
			*p++ = ',';
		p = text_wc(p, &wc[i], cq);
	}
	p = LIT(p, "]}");
	if (place) {
		memset(p, ' ', bound - (p - line));
		line[bound - 1] = '\n';
		__atomic_store_n(line, '{', __ATOMIC_RELEASE);
		return;
	}
	*p++ = '\n';
	place = trace_reserve(p - line);
	if (place)
		trace_commit(place, line, p - line);
}

static int our_poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	struct context *context = find(cq->context);
	uint64_t t0 = 0, t1;
	int err = errno, ret;
	bool on = trace_on();

	if (unlikely(!context))
		return -1;
	if (likely(on))
		t0 = trace_now();
	errno = err;
	ret = context->ops.poll_cq(cq, max, wc);
	if (unlikely(!on))
		return ret;
	err = errno;
	t1 = trace_now();
	if (ret > 0)
		completions(AT, cq, max, wc, ret, t0, t1);
	else if (!run_goes_on(cq, max, t1))
		run_begins("ibv_poll_cq", AT, cq, max, ret, t0, t1);
	errno = err;
	return ret;
}

static int our_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	struct context *context = find(cq->context);
	char line[512], *p, *place;
	uint64_t t0 = 0;
	int err = errno, ret;
	bool on = trace_on();

	if (unlikely(!context))
		return EIO;
	if (likely(on))
		t0 = trace_now();
	errno = err;
	ret = context->ops.req_notify_cq(cq, solicited_only);
	if (unlikely(!on))
		return ret;
	err = errno;
	n_runs = 0;
	p = line_begin(line, "ibv_req_notify_cq", AT, t0);
	p = LIT(p, ",\"t1\":");
	p = text_dec(p, trace_now());
	p = LIT(p, ",\"cq\":\"");
	p = text_hex(p, (uintptr_t)cq);
	p = LIT(p, "\",\"solicited_only\":");
	p = text_dec(p, !!solicited_only);
	p = LIT(p, ",\"ret\":");
	p = text_dec(p, ret);
	p = LIT(p, "}\n");
	place = trace_reserve(p - line);
	if (place)
		trace_commit(place, line, p - line);
	errno = err;
	return ret;
}

/* ---- memory windows ------------------------------------------------------- */

static struct ibv_mw *our_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct context *context = find(pd->context);
	struct ibv_mw *mw;
	struct call c;

	call_begin(&c, "ibv_alloc_mw", AT);
	put_ptr(&c, "pd", pd);
	put_int(&c, "type", type);
	call_go(&c, 32);
	mw = context->ops.alloc_mw(pd, type);
	call_back(&c);
	if (mw)
		put_hex(&c, "rkey", mw->rkey);
	return call_ptr(&c, mw);
}

static int our_bind_mw(struct ibv_qp *qp, struct ibv_mw *mw,
		       struct ibv_mw_bind *bind)
{
	struct context *context = find(qp->context);
	struct ibv_mr *mr = bind->bind_info.mr;
	struct call c;
	int ret;

	call_begin(&c, "ibv_bind_mw", AT);
	put_ptr(&c, "qp", qp);
	put_dec(&c, "qp_num", qp->qp_num);
	put_ptr(&c, "mw", mw);
	put_ptr(&c, "mr", mr);
	put_dec(&c, "wr_id", bind->wr_id);
	put_hex(&c, "addr", bind->bind_info.addr);
	put_dec(&c, "length", bind->bind_info.length);
	put_access(&c, "access", bind->bind_info.mw_access_flags);
	if (settings.lkey_mask && mr)
		strict_old_mr(mr);
	call_go(&c, 32);
	ret = context->ops.bind_mw(qp, mw, bind);
	call_back(&c);
	if (settings.lkey_mask && mr)
		strict_new_mr(mr);
	put_hex(&c, "rkey", mw->rkey);
	return call_errno(&c, ret);
}

static int our_dealloc_mw(struct ibv_mw *mw)
{
	struct context *context = find(mw->context);
	struct call c;

	call_begin(&c, "ibv_dealloc_mw", AT);
	put_ptr(&c, "mw", mw);
	call_go(&c, 0);
	return call_errno(&c, context->ops.dealloc_mw(mw));
}

/* ---- the extended calls --------------------------------------------------- */

static int our_query_port(struct ibv_context *ctx, uint8_t port_num,
			  struct ibv_port_attr *attr, size_t size)
{
	struct context *context = find(ctx);
	struct call c;

	call_begin(&c, "ibv_query_port", AT);
	put_ptr(&c, "context", ctx);
	put_dec(&c, "port_num", port_num);
	call_go(&c, 0);
	return call_errno(&c,
			  context->ex.query_port(ctx, port_num, attr, size));
}

static int our_query_device_ex(struct ibv_context *ctx,
			       const struct ibv_query_device_ex_input *input,
			       struct ibv_device_attr_ex *attr, size_t size)
{
	struct context *context = find(ctx);
	struct call c;

	call_begin(&c, "ibv_query_device_ex", AT);
	put_ptr(&c, "context", ctx);
	call_go(&c, 0);
	return call_errno(&c,
			  context->ex.query_device_ex(ctx, input, attr, size));
}

static struct ibv_cq_ex *our_create_cq_ex(struct ibv_context *ctx,
					  struct ibv_cq_init_attr_ex *init)
{
	struct context *context = find(ctx);
	struct ibv_cq_ex *cq;
	struct call c;

	call_begin(&c, "ibv_create_cq_ex", AT);
	put_ptr(&c, "context", ctx);
	put_dec(&c, "cqe", init->cqe);
	put_ptr(&c, "comp_channel", init->channel);
	put_hex(&c, "wc_flags", init->wc_flags);
	call_go(&c, 32);
	cq = context->ex.create_cq_ex(ctx, init);
	call_back(&c);
	if (cq) {
		ex_patch_cq(cq);
		put_int(&c, "got_cqe", cq->cqe);
	}
	return call_ptr(&c, cq);
}

static struct ibv_qp *our_create_qp_ex(struct ibv_context *ctx,
				       struct ibv_qp_init_attr_ex *init)
{
	struct context *context = find(ctx);
	struct ibv_qp *qp;
	struct call c;

	call_begin(&c, "ibv_create_qp_ex", AT);
	put_ptr(&c, "context", ctx);
	put_ptr(&c, "pd",
		init->comp_mask & IBV_QP_INIT_ATTR_PD ? init->pd : NULL);
	put_ptr(&c, "send_cq", init->send_cq);
	put_ptr(&c, "recv_cq", init->recv_cq);
	put_ptr(&c, "srq", init->srq);
	put_qp_init(&c, "attr", init->qp_type, &init->cap, init->sq_sig_all);
	if (init->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		put_hex(&c, "send_ops_flags", init->send_ops_flags);
	call_go(&c, 200);
	qp = context->ex.create_qp_ex(ctx, init);
	call_back(&c);
	if (qp) {
		buffers_new_qp(qp, init->sq_sig_all);
		put_dec(&c, "qp_num", qp->qp_num);
		put_qp_init(&c, "got", init->qp_type, &init->cap,
			    init->sq_sig_all);
	}
	return call_ptr(&c, qp);
}

static struct ibv_srq *our_create_srq_ex(struct ibv_context *ctx,
					 struct ibv_srq_init_attr_ex *init)
{
	struct context *context = find(ctx);
	struct call c;

	call_begin(&c, "ibv_create_srq_ex", AT);
	put_ptr(&c, "context", ctx);
	put_dec(&c, "max_wr", init->attr.max_wr);
	put_dec(&c, "max_sge", init->attr.max_sge);
	call_go(&c, 0);
	return call_ptr(&c, context->ex.create_srq_ex(ctx, init));
}

static struct ibv_pd *
our_alloc_parent_domain(struct ibv_context *ctx,
			struct ibv_parent_domain_init_attr *attr)
{
	struct context *context = find(ctx);
	struct call c;

	call_begin(&c, "ibv_alloc_parent_domain", AT);
	put_ptr(&c, "context", ctx);
	put_ptr(&c, "pd", attr->pd);
	call_go(&c, 0);
	return call_ptr(&c, context->ex.alloc_parent_domain(ctx, attr));
}

static int our_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
			 uint32_t flags, struct ibv_sge *sges, uint32_t count)
{
	struct context *context = find(pd->context);
	struct call c;

	call_begin(&c, "ibv_advise_mr", AT);
	put_ptr(&c, "pd", pd);
	put_int(&c, "advice", advice);
	call_go(&c, 0);
	return call_errno(&c, context->ex.advise_mr(pd, advice, flags, sges,
						    count));
}

/* ---- patching ------------------------------------------------------------- */

#define SWAP(table, saved, name)                                     \
	do {                                                         \
		if ((table)->name && (table)->name != our_##name) {  \
			(saved)->name = (table)->name;               \
			__atomic_store_n(&(table)->name, our_##name, \
					 __ATOMIC_RELEASE);          \
		}                                                    \
	} while (0)

/* Only what this libibverbs has: its table may be shorter than ours. */
#define SWAP_EX(slot, context_, name)                                       \
	do {                                                                \
		struct verbs_context *v = verbs_get_ctx_op(context_, name); \
                                                                            \
		if (v)                                                      \
			SWAP(v, &(slot)->ex, name);                         \
	} while (0)

#define RESTORE_EX(slot, context_, name)                                    \
	do {                                                                \
		struct verbs_context *v = verbs_get_ctx_op(context_, name); \
                                                                            \
		if (v && v->name == our_##name)                             \
			v->name = (slot)->ex.name;                          \
	} while (0)

static void swap_all(struct context *slot, struct ibv_context *context)
{
	SWAP(&context->ops, &slot->ops, post_send);
	SWAP(&context->ops, &slot->ops, post_recv);
	SWAP(&context->ops, &slot->ops, post_srq_recv);
	SWAP(&context->ops, &slot->ops, poll_cq);
	SWAP(&context->ops, &slot->ops, req_notify_cq);
	SWAP(&context->ops, &slot->ops, alloc_mw);
	SWAP(&context->ops, &slot->ops, bind_mw);
	SWAP(&context->ops, &slot->ops, dealloc_mw);
	SWAP_EX(slot, context, query_port);
	SWAP_EX(slot, context, query_device_ex);
	SWAP_EX(slot, context, create_cq_ex);
	SWAP_EX(slot, context, create_qp_ex);
	SWAP_EX(slot, context, create_srq_ex);
	SWAP_EX(slot, context, alloc_parent_domain);
	SWAP_EX(slot, context, advise_mr);
}

/*
 * Quick where nothing is to be done: it is called whenever a context comes by.
 * The provider may have put other functions there since, so each is looked at.
 */
void ops_patch(struct ibv_context *context)
{
	struct context *slot;
	int i, count;

	if (!trace_on() && !settings.lkey_mask)
		return;
	slot = find(context);
	if (slot && context->ops.post_send == our_post_send &&
	    context->ops.poll_cq == our_poll_cq)
		return;
	pthread_mutex_lock(&lock);
	slot = find(context);
	count = atomic_load(&n_contexts);
	for (i = 0; !slot && i < count; i++)
		if (!atomic_load(&contexts[i].context))
			slot = &contexts[i];
	if (!slot && count < MAX_CONTEXTS)
		slot = &contexts[count++];
	if (slot) {
		/* Whoever finds our function in the table finds the slot. */
		if (atomic_load(&slot->context) != context) {
			slot->ops = context->ops;
			atomic_store(&slot->context, context);
		}
		atomic_store(&n_contexts, count);
		swap_all(slot, context);
	}
	pthread_mutex_unlock(&lock);
}

static void restore_ex(struct context *slot, struct ibv_context *context)
{
	RESTORE_EX(slot, context, query_port);
	RESTORE_EX(slot, context, query_device_ex);
	RESTORE_EX(slot, context, create_cq_ex);
	RESTORE_EX(slot, context, create_qp_ex);
	RESTORE_EX(slot, context, create_srq_ex);
	RESTORE_EX(slot, context, alloc_parent_domain);
	RESTORE_EX(slot, context, advise_mr);
}

/* Before the context is closed: its memory may be the next context's. */
void ops_unpatch(struct ibv_context *context)
{
	struct context *slot;

	pthread_mutex_lock(&lock);
	slot = find(context);
	if (slot) {
		context->ops = slot->ops;
		restore_ex(slot, context);
		atomic_store(&slot->context, NULL);
	}
	pthread_mutex_unlock(&lock);
}
