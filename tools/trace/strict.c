/* SPDX-License-Identifier: MIT */
/*
 * Two mistakes that SoftRoCE lets pass and a card does not. Both parts work
 * only where the environment asks for them.
 *
 * VERBS_TRACE_LKEY=1: on SoftRoCE the lkey and the rkey of a region are the
 * same number. The program is shown another lkey, and it is put right on its
 * way to the card. Who hands out the lkey for the rkey, or uses the rkey for
 * the lkey, fails as on a card.
 *
 * VERBS_TRACE_DATA=bytes: SoftRoCE copies what is to be sent early, so a buffer
 * that is written to before its completion is sent as it was. Here the bytes
 * are added up when they are posted, and again when the completion is polled.
 */
#include <fcntl.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include "trace.h"

/* ---- keys ----------------------------------------------------------------- */

void strict_new_mr(struct ibv_mr *mr)
{
	mr->lkey = strict_lkey(mr->lkey);
}

void strict_old_mr(struct ibv_mr *mr)
{
	mr->lkey = strict_lkey(mr->lkey);
}

#define MAX_LIST 1024
#define MAX_SGE 64

/* The copies that a thread hands to the card in place of the program's lists. */
struct copies {
	struct ibv_send_wr send[MAX_LIST];
	struct ibv_recv_wr recv[MAX_LIST];
	struct ibv_sge sges[MAX_LIST];
	int n_sges;
};

static __thread struct copies *copies
	__attribute__((tls_model("initial-exec")));

static struct ibv_sge *copy_sges(struct ibv_sge *list, int count)
{
	struct ibv_sge *copy = copies->sges + copies->n_sges;
	int i;

	if (count <= 0 || count > MAX_SGE || copies->n_sges + count > MAX_LIST)
		return list;
	for (i = 0; i < count; i++) {
		copy[i] = list[i];
		copy[i].lkey = strict_lkey(list[i].lkey);
	}
	copies->n_sges += count;
	return copy;
}

static bool make_copies(void)
{
	if (!copies)
		copies = trace_alloc(sizeof(*copies));
	if (copies)
		copies->n_sges = 0;
	return copies;
}

struct ibv_send_wr *strict_send_list(struct ibv_send_wr *wr)
{
	int i = 0;

	if (!wr || !make_copies())
		return wr;
	for (; wr && i < MAX_LIST; wr = wr->next, i++) {
		copies->send[i] = *wr;
		copies->send[i].sg_list = copy_sges(wr->sg_list, wr->num_sge);
		copies->send[i].next = NULL;
		if (i)
			copies->send[i - 1].next = &copies->send[i];
		if (wr->opcode == IBV_WR_BIND_MW && wr->bind_mw.bind_info.mr)
			strict_old_mr(wr->bind_mw.bind_info.mr);
	}
	return copies->send;
}

/* The request that was refused, in the program's own list. */
void strict_send_done(struct ibv_send_wr *wr, struct ibv_send_wr *copy,
		      struct ibv_send_wr **bad)
{
	for (; wr && copy; wr = wr->next, copy = copy->next) {
		if (bad && *bad == copy)
			*bad = wr;
		if (wr->opcode == IBV_WR_BIND_MW && wr->bind_mw.bind_info.mr)
			strict_new_mr(wr->bind_mw.bind_info.mr);
	}
}

struct ibv_recv_wr *strict_recv_list(struct ibv_recv_wr *wr)
{
	int i = 0;

	if (!wr || !make_copies())
		return wr;
	for (; wr && i < MAX_LIST; wr = wr->next, i++) {
		copies->recv[i] = *wr;
		copies->recv[i].sg_list = copy_sges(wr->sg_list, wr->num_sge);
		copies->recv[i].next = NULL;
		if (i)
			copies->recv[i - 1].next = &copies->recv[i];
	}
	return copies->recv;
}

void strict_recv_done(struct ibv_recv_wr *wr, struct ibv_recv_wr *copy,
		      struct ibv_recv_wr **bad)
{
	for (; wr && copy; wr = wr->next, copy = copy->next)
		if (bad && *bad == copy)
			*bad = wr;
}

/* ---- buffers -------------------------------------------------------------- */

#define RING 1024 /* requests of one QP that have not completed */
#define MAX_BUFFERS 8 /* of one request; more are not looked at */
#define MAX_BYTES (1 << 20) /* of one buffer */

struct sent {
	uint64_t wr_id;
	uint64_t sum;
	bool signaled;
	int n_buffers; /* 0: nothing to look at */
	struct iovec buffers[MAX_BUFFERS];
};

struct ring {
	struct ring *next;
	struct ibv_context *context; /* NULL: not in use */
	uint32_t qp_num;
	int sig_all;
	unsigned int first, last;
	struct sent sent[RING];
};

static struct ring *rings;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void buffers_new_qp(struct ibv_qp *qp, int sq_sig_all)
{
	struct ring *ring;

	if (!settings.data)
		return;
	pthread_mutex_lock(&lock);
	for (ring = rings; ring && ring->context; ring = ring->next)
		;
	if (!ring) {
		ring = trace_alloc(sizeof(*ring));
		if (ring) {
			ring->next = rings;
			rings = ring;
		}
	}
	if (ring) {
		ring->context = qp->context;
		ring->qp_num = qp->qp_num;
		ring->sig_all = sq_sig_all;
		ring->first = ring->last = 0;
	}
	pthread_mutex_unlock(&lock);
}

static struct ring *find_ring(struct ibv_context *context, uint32_t qp_num)
{
	struct ring *ring;

	for (ring = rings; ring; ring = ring->next)
		if (ring->context == context && ring->qp_num == qp_num)
			break;
	return ring;
}

void buffers_old_qp(struct ibv_qp *qp)
{
	struct ring *ring;

	if (!settings.data)
		return;
	pthread_mutex_lock(&lock);
	ring = find_ring(qp->context, qp->qp_num);
	if (ring)
		ring->context = NULL;
	pthread_mutex_unlock(&lock);
}

/* By way of the kernel: the address may be nonsense, or unmapped by now. */
static ssize_t read_safely(void *to, const void *from, size_t len)
{
	struct iovec local = { .iov_base = to, .iov_len = len };
	struct iovec remote = { .iov_base = (void *)from, .iov_len = len };
	ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
	int fd;

	if (got >= 0 || (errno != ENOSYS && errno != EPERM))
		return got;
	fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	got = pread(fd, to, len, (uintptr_t)from);
	close(fd);
	return got;
}

/* FNV-1a, 64 bits. Returns false where memory cannot be read. */
static bool add_up(const struct iovec *buffers, int count, uint64_t *sum)
{
	unsigned char part[4096];
	uint64_t hash = 0xcbf29ce484222325;
	int i;

	for (i = 0; i < count; i++) {
		const char *from = buffers[i].iov_base;
		size_t left = buffers[i].iov_len;

		if (left > MAX_BYTES)
			left = MAX_BYTES;
		while (left) {
			size_t want = left < sizeof(part) ? left : sizeof(part);
			ssize_t got = read_safely(part, from, want), j;

			if (got <= 0)
				return false;
			for (j = 0; j < got; j++)
				hash = (hash ^ part[j]) * 0x100000001b3;
			from += got;
			left -= got;
		}
	}
	*sum = hash;
	return true;
}

/* Does the card read the buffers of this request? */
static bool is_read_from(const struct ibv_send_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return wr->num_sge > 0 && wr->num_sge <= MAX_SGE;
	default:
		return false;
	}
}

char *buffers_post(char *p, struct ibv_qp *qp, const struct ibv_send_wr *wr)
{
	struct sent sent = { .wr_id = wr->wr_id };
	unsigned char first[64];
	struct ring *ring;
	ssize_t got;
	int i, count = 0, err = errno;

	if (is_read_from(wr)) {
		for (i = 0; i < wr->num_sge && count < MAX_BUFFERS; i++) {
			sent.buffers[count].iov_base =
				(void *)(uintptr_t)wr->sg_list[i].addr;
			sent.buffers[count++].iov_len = wr->sg_list[i].length;
		}
		got = sent.buffers[0].iov_len;
		if (got > (ssize_t)settings.data)
			got = settings.data;
		got = read_safely(first, sent.buffers[0].iov_base, got);
		if (got >= 0) {
			p = LIT(p, ",\"data\":\"");
			p = text_bytes(p, first, got);
			*p++ = '"';
		}
		if (add_up(sent.buffers, count, &sent.sum)) {
			p = LIT(p, ",\"sum\":\"");
			p = text_hex(p, sent.sum);
			*p++ = '"';
			/* An inline buffer is free once it is posted. */
			if (!(wr->send_flags & IBV_SEND_INLINE))
				sent.n_buffers = count;
		}
	}
	pthread_mutex_lock(&lock);
	ring = find_ring(qp->context, qp->qp_num);
	if (ring && ring->last - ring->first < RING) {
		sent.signaled = ring->sig_all ||
				(wr->send_flags & IBV_SEND_SIGNALED);
		ring->sent[ring->last++ % RING] = sent;
	}
	pthread_mutex_unlock(&lock);
	errno = err;
	return p;
}

/* The last COUNT requests were not taken after all. */
void buffers_refused(struct ibv_qp *qp, int count)
{
	struct ring *ring;

	pthread_mutex_lock(&lock);
	ring = find_ring(qp->context, qp->qp_num);
	if (ring && ring->last - ring->first >= (unsigned int)count)
		ring->last -= count;
	pthread_mutex_unlock(&lock);
}

static bool has_changed(const struct sent *sent)
{
	uint64_t sum;

	return sent->n_buffers &&
	       add_up(sent->buffers, sent->n_buffers, &sum) && sum != sent->sum;
}

/*
 * Requests complete in order: the completion of one is that of all before it
 * that were not signalled.
 */
char *buffers_completed(char *p, struct ibv_context *context,
			const struct ibv_wc *wc)
{
	struct ring *ring;
	unsigned int last;
	int changed = 0, err = errno;

	pthread_mutex_lock(&lock);
	ring = find_ring(context, wc->qp_num);
	for (last = ring ? ring->first : 0; ring && last != ring->last; last++)
		if (ring->sent[last % RING].signaled &&
		    ring->sent[last % RING].wr_id == wc->wr_id)
			break;
	if (ring && last != ring->last) {
		for (; ring->first != last + 1; ring->first++) {
			struct sent *sent = &ring->sent[ring->first % RING];

			if (!has_changed(sent) || ++changed > 8)
				continue;
			if (changed == 1)
				p = LIT(p, ",\"changed\":[\"");
			else
				p = LIT(p, ",\"");
			p = text_wr_id(p, sent->wr_id);
			*p++ = '"';
		}
		if (changed)
			*p++ = ']';
	}
	pthread_mutex_unlock(&lock);
	errno = err;
	return p;
}
