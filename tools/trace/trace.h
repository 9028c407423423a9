/* SPDX-License-Identifier: MIT */
/*
 * What the files of libverbstrace share. README.md describes what is recorded;
 * this is how.
 *
 * A wrapper of a call reads as
 *
 *	BEGIN(rdma_listen, "RDMACM_1.0");	finds the real one, notes the time
 *	put_ptr(&c, "id", id);			the arguments
 *	call_go(&c, 0);				from here on, the record is there
 *	return call_int(&c, real(id, backlog));	its result and errno
 *
 * and works just the same when nothing is recorded.
 */
#ifndef TRACE_H
#define TRACE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* The headers wrap these in macros of the same name. We define the functions. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_query_port

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define EXPORT __attribute__((visibility("default")))

/* ---- record.c: the file --------------------------------------------------- */

/* What the environment asks for. */
struct trace_settings {
	size_t data; /* VERBS_TRACE_DATA: so many bytes of what is sent */
	uint32_t lkey_mask; /* VERBS_TRACE_LKEY: the program sees lkey ^ this */
};

extern struct trace_settings settings;

enum {
	TRACE_UNOPENED,
	TRACE_ON,
	TRACE_OFF
};
extern _Atomic int trace_state;

int trace_open(void);

/* Whether calls are recorded. The first one opens the file. */
static inline bool trace_on(void)
{
	int state = atomic_load_explicit(&trace_state, memory_order_acquire);

	return likely(state == TRACE_ON) ||
	       (state == TRACE_UNOPENED && trace_open() == TRACE_ON);
}

extern uint64_t trace_base;

/* Nanoseconds since the trace began. */
static inline uint64_t trace_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec - trace_base;
}

/* Room in the file for LEN bytes, or NULL where there is none left. */
char *trace_reserve(size_t len);

/* Put a whole line there. The reader counts it from its first byte on. */
void trace_commit(char *place, const char *line, size_t len);

/* Memory that nobody gives back and malloc() does not know of. */
void *trace_alloc(size_t size);

/* ---- text ----------------------------------------------------------------- */

#define LIT(p, text) \
	((char *)memcpy(p, text, sizeof(text) - 1) + sizeof(text) - 1)

char *text_dec(char *p, uint64_t value);
char *text_hex(char *p, uint64_t value); /* with 0x */
char *text_bytes(char *p, const void *data, size_t len); /* 00ff.. */
char *text_string(char *p, const char *s, size_t max); /* escaped, no quotes */

/* A field of a line that is written over when more is known: the LEN bytes of
 * TEXT, or VALUE, to the right in FIELD bytes, spaces before it. What is too long
 * for it is left out. */
#define FIELD 16
void text_field(char *p, const char *text, size_t len);
void text_number(char *p, int64_t value);

static inline char *text_copy(char *p, const char *s)
{
	size_t len = strlen(s);

	memcpy(p, s, len);
	return p + len;
}

/* A number that stands for something of the program's own: small ones, as
 * learners use them, in decimal, what is packed into 64 bits in hexadecimal. */
static inline char *text_wr_id(char *p, uint64_t wr_id)
{
	return wr_id <= UINT32_MAX ? text_dec(p, wr_id) : text_hex(p, wr_id);
}

/* ---- one call ------------------------------------------------------------- */

/* The longest line of a call that is made here. Longer ones (many work requests
 * at a time) are written straight into the file. */
#define LINE_MAX_BYTES 3072

struct call {
	const char *name;
	const char *outer; /* the call that this one is part of */
	bool on;
	bool back;
	int err; /* errno, as the program has to find it */
	uint64_t t0;
	uint64_t t1;
	char *place; /* in the file, while the call has not returned */
	size_t room;
	char *p;
	char line[LINE_MAX_BYTES];
};

/* The call that this thread is in. */
extern __thread const char *inside __attribute__((tls_model("initial-exec")));
/* This thread's number: 1 for the first that made a call. */
extern __thread unsigned int thread __attribute__((tls_model("initial-exec")));

unsigned int thread_number(void);

/* Runs of polls that found nothing, by this thread. Anything else ends them. */
#define MAX_RUNS 4
struct empty_run {
	const void *cq;
	int max;
	uint64_t count;
	char *t1, *calls; /* in the file */
};
extern __thread struct empty_run runs[MAX_RUNS]
	__attribute__((tls_model("initial-exec")));
extern __thread int n_runs __attribute__((tls_model("initial-exec")));

/* The part that all lines begin with. */
char *line_begin(char *p, const char *name, const void *at, uint64_t t0);

void call_begin(struct call *c, const char *name, const void *at);
void call_go(struct call *c, size_t room);
void call_back(struct call *c);
void call_void(struct call *c);
int call_int(struct call *c, int ret); /* -1 and errno */
int call_errno(struct call *c, int ret); /* an errno, or -1 and errno */
void *call_ptr(struct call *c, void *ret); /* NULL and errno */

void put_int(struct call *c, const char *key, int64_t value);
void put_dec(struct call *c, const char *key, uint64_t value);
void put_hex(struct call *c, const char *key, uint64_t value);
void put_ptr(struct call *c, const char *key, const void *value);
void put_text(struct call *c, const char *key, const char *value);
void put_bytes(struct call *c, const char *key, const void *data, size_t len);
void put_raw(struct call *c, const char *key, const char *json);

void *trace_real(const char *name, const char *version);

#define BEGIN(function, version)                                            \
	static typeof(&function) found;                                     \
	typeof(&function) real = __atomic_load_n(&found, __ATOMIC_RELAXED); \
	struct call c;                                                      \
                                                                            \
	if (unlikely(!real)) {                                              \
		real = trace_real(#function, version);                      \
		__atomic_store_n(&found, real, __ATOMIC_RELAXED);           \
	}                                                                   \
	call_begin(&c, #function, __builtin_return_address(0))

/* ---- names.c -------------------------------------------------------------- */

const char *name_cm_event(unsigned int event);
const char *name_wr_opcode(unsigned int opcode);
const char *name_wc_opcode(unsigned int opcode);
const char *name_wc_status(unsigned int status);
const char *name_qp_type(unsigned int type);
const char *name_qp_state(unsigned int state);
const char *name_async_event(unsigned int event);
const char *name_port_space(unsigned int ps);
char *text_send_flags(char *p, unsigned int flags); /* a JSON list */
char *text_access(char *p, unsigned int flags);
char *text_wc_flags(char *p, unsigned int flags);
char *text_qp_mask(char *p, unsigned int mask);

void put_access(struct call *c, const char *key, unsigned int flags);
void put_sockaddr(struct call *c, const char *key, const struct sockaddr *addr);
void put_gid(struct call *c, const char *key, const union ibv_gid *gid);
void put_ah_attr(struct call *c, const char *key, const struct ibv_ah_attr *a);
void put_qp_init(struct call *c, const char *key, enum ibv_qp_type type,
		 const struct ibv_qp_cap *cap, int sq_sig_all);
void put_qp_attr(struct call *c, const struct ibv_qp_attr *attr, int mask);

/* ---- ops.c: calls that are inline in the program -------------------------- */

void ops_patch(struct ibv_context *context);
void ops_unpatch(struct ibv_context *context);

/* What a post puts into the file (also by way of ex.c). */
size_t send_wr_bound(const struct ibv_send_wr *wr);
char *text_sge(char *p, uint64_t addr, uint32_t length, uint32_t lkey);
char *text_wc(char *p, const struct ibv_wc *wc, struct ibv_cq *cq);
#define WC_BOUND 512

/* Note that a poll of CQ found nothing. Returns false where a line is needed. */
bool run_goes_on(const void *cq, int max, uint64_t t1);
void run_begins(const char *name, const void *at, const void *cq, int max,
		int ret, uint64_t t0, uint64_t t1);

/* ---- ex.c: ibv_wr_*() and ibv_start_poll() -------------------------------- */

void ex_patch_qp(struct ibv_qp_ex *qp);
void ex_forget_qp(struct ibv_qp *qp);
void ex_patch_cq(struct ibv_cq_ex *cq);
void ex_forget_cq(struct ibv_cq *cq);

/* ---- strict.c: what SoftRoCE lets pass ------------------------------------ */

void strict_new_mr(struct ibv_mr *mr);
void strict_old_mr(struct ibv_mr *mr);

static inline uint32_t strict_lkey(uint32_t lkey)
{
	return lkey ? lkey ^ settings.lkey_mask : 0;
}

struct ibv_send_wr *strict_send_list(struct ibv_send_wr *wr);
struct ibv_recv_wr *strict_recv_list(struct ibv_recv_wr *wr);
void strict_send_done(struct ibv_send_wr *wr, struct ibv_send_wr *copy,
		      struct ibv_send_wr **bad);
void strict_recv_done(struct ibv_recv_wr *wr, struct ibv_recv_wr *copy,
		      struct ibv_recv_wr **bad);

void buffers_new_qp(struct ibv_qp *qp, int sq_sig_all);
void buffers_old_qp(struct ibv_qp *qp);
/* The first bytes and the checksum of what WR sends, as text; noted for later. */
char *buffers_post(char *p, struct ibv_qp *qp, const struct ibv_send_wr *wr);
void buffers_refused(struct ibv_qp *qp, int count);
/* The requests that this completion ends, and whose bytes are others now. */
char *buffers_completed(char *p, struct ibv_context *context,
			const struct ibv_wc *wc);

#endif
