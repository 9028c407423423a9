/* SPDX-License-Identifier: MIT */
/*
 * flow.h - what the two programs of lesson 13 share: a flow of messages through
 * one QP, with its send queue counted, and the ways to wait for it
 *
 * A flow keeps WINDOW slots of memory to send from. Message K goes out of slot
 * K modulo WINDOW, so a slot is free again when message K - WINDOW is known to
 * be done.
 */
#ifndef FLOW_H
#define FLOW_H

#include "plan.h"

/*
 * How often we look at an empty CQ before we look around once: a look is a
 * read of memory, looking around is a system call (lesson 08).
 */
#define LOOKS 1000

/*
 * Receives in one call, and completions in one poll: as many as the ladder has
 * in a batch.
 */
#define LIST 32

struct flow {
	struct endpoint ep;
	struct plan plan;
	struct remote_region peer; /* where our WRITEs go */

	uint8_t *out; /* WINDOW slots to send from */
	struct ibv_mr *out_mr;
	struct ibv_send_wr *wrs; /* a request for each of them */
	struct ibv_sge *sges;
	uint8_t *in; /* slots in which messages come */
	uint32_t in_slots;
	struct ibv_mr *in_mr;

	/* The send queue, counted: these only ever rise. */
	uint32_t posted; /* requests handed to the card */
	uint32_t retired; /* of these, so many are known to be done */
	uint32_t posts; /* calls of ibv_post_send() */
	uint32_t completions; /* of sends */
	uint32_t received; /* messages that have come */
	uint32_t credits; /* SENDs that the peer has receives for */
	unsigned int flags; /* of every request: IBV_SEND_INLINE, or 0 */

	long long *posted_at; /* for each slot: when, in ns */
	uint32_t *took; /* ns that a sample took */
	uint32_t samples;

	/* Waiting. */
	bool armed;
	unsigned int looks;
	long long deadline; /* 0: not set */
};

/* ---- making and unmaking ------------------------------------------------- */

static inline void *pages(size_t bytes)
{
	void *memory;
	int err = posix_memalign(&memory, sysconf(_SC_PAGESIZE), bytes);

	if (err) {
		report("posix_memalign", err);
		return NULL;
	}
	memset(memory, 0, bytes);
	return memory;
}

/* flow_memory - IN_SLOTS to receive into (0: none), and those to send from */
static inline int flow_memory(struct flow *f, uint32_t in_slots)
{
	const struct plan *plan = &f->plan;
	size_t size = plan->size;
	uint32_t i;

	if (size <= plan->max_inline)
		f->flags = IBV_SEND_INLINE;
	f->out = pages(size * plan->window);
	f->wrs = calloc(plan->window, sizeof(*f->wrs));
	f->sges = calloc(plan->window, sizeof(*f->sges));
	f->posted_at = calloc(plan->window, sizeof(*f->posted_at));
	f->took = calloc(plan->count, sizeof(*f->took));
	if (!f->out || !f->wrs || !f->sges || !f->posted_at || !f->took) {
		report("calloc", ENOMEM);
		return -1;
	}
	f->out_mr = ibv_reg_mr(f->ep.pd, f->out, size * plan->window, 0);
	if (!f->out_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	for (i = 0; i < plan->window; i++) {
		pattern_fill(f->out + i * size, size - STAMP, i);
		f->sges[i].addr = (uintptr_t)(f->out + i * size);
		f->sges[i].length = size;
		f->sges[i].lkey = f->out_mr->lkey;
		f->wrs[i].sg_list = &f->sges[i];
		f->wrs[i].num_sge = 1;
		f->wrs[i].opcode = plan->op == WR_SEND ? IBV_WR_SEND :
							 IBV_WR_RDMA_WRITE;
	}
	f->in_slots = in_slots;
	if (!in_slots)
		return 0;
	f->in = pages(size * in_slots);
	if (!f->in)
		return -1;
	f->in_mr = ibv_reg_mr(
		f->ep.pd, f->in, size * in_slots,
		IBV_ACCESS_LOCAL_WRITE |
			(plan->op == WR_WRITE ? IBV_ACCESS_REMOTE_WRITE : 0));
	if (!f->in_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

/* flow_aim - message K is to be written to slot K modulo WINDOW of the peer */
static inline int flow_aim(struct flow *f)
{
	const struct plan *plan = &f->plan;
	uint32_t i;

	if (f->peer.size < (uint64_t)plan->size * plan->window) {
		fprintf(stderr,
			"the peer lends %u bytes, and %u messages of %u bytes "
			"do not fit there\n",
			f->peer.size, plan->window, plan->size);
		return -1;
	}
	for (i = 0; i < plan->window; i++) {
		f->wrs[i].wr.rdma.remote_addr =
			f->peer.addr + (uint64_t)i * plan->size;
		f->wrs[i].wr.rdma.rkey = f->peer.rkey;
	}
	return 0;
}

/*
 * flow_create_qp - endpoint_create_qp() with room for messages in the requests
 *
 * The CQ has room for every request, signalled or not: one that fails
 * completes in any case. We ask for as much inline as a message needs, and for
 * none where messages do not go inline: how much there is depends on the
 * device, and it makes each entry of the send queue larger.
 */
static inline int flow_create_qp(struct flow *f, uint32_t recvs)
{
	struct endpoint *ep = &f->ep;
	const struct plan *plan = &f->plan;
	bool inlined = plan->size <= plan->max_inline;
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = plan->window,
			.max_recv_wr = recvs,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = inlined ? plan->size : 0,
		},
		.qp_type = IBV_QPT_RC,
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
	ep->cq = ibv_create_cq(ep->id->verbs, plan->window + recvs, NULL,
			       ep->comp_channel, 0);
	if (!ep->cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	attr.send_cq = ep->cq;
	attr.recv_cq = ep->cq;
	if (rdma_create_qp(ep->id, ep->pd, &attr)) {
		report("rdma_create_qp", errno);
		if (inlined)
			fprintf(stderr,
				"%u bytes inline were asked for: the device "
				"may have less\n",
				plan->size);
		return -1;
	}
	return 0;
}

/* flow_destroy - the connection and its memory; not the listener */
static inline void flow_destroy(struct flow *f)
{
	struct endpoint *ep = &f->ep;

	if (f->in_mr && ibv_dereg_mr(f->in_mr))
		report("ibv_dereg_mr", errno);
	if (f->out_mr && ibv_dereg_mr(f->out_mr))
		report("ibv_dereg_mr", errno);
	free(f->in);
	free(f->out);
	free(f->wrs);
	free(f->sges);
	free(f->posted_at);
	free(f->took);
	endpoint_destroy(ep);
	memset(f, 0, sizeof(*f));
}

/* ---- the send queue, counted --------------------------------------------- */

static inline long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* flow_room - free slots of the send queue, as far as we know */
static inline uint32_t flow_room(const struct flow *f)
{
	return f->plan.window - (f->posted - f->retired);
}

/*
 * is_signalled - does request K ask for a completion?
 *
 * Every SIGNAL-th does, and the last one: whoever stops posting with requests
 * that nobody will ever tell of waits for ever.
 */
static inline bool is_signalled(const struct plan *plan, uint32_t k)
{
	return (k + 1) % plan->signal == 0 || k == plan->count - 1;
}

/*
 * flow_post - hand the next N messages to the card in one call
 *
 * The requests are linked into a list. What a call costs (on a real card the
 * doorbell, on SoftRoCE a system call) is then shared by N.
 */
static inline int flow_post(struct flow *f, uint32_t n)
{
	const struct plan *plan = &f->plan;
	struct ibv_send_wr *first = &f->wrs[f->posted % plan->window];
	struct ibv_send_wr *bad, *wr = first;
	long long now = now_ns();
	uint32_t i, k, slot;
	int err;

	for (i = 0; i < n; i++) {
		k = f->posted + i;
		slot = k % plan->window;
		if (i > 0)
			wr->next = &f->wrs[slot];
		wr = &f->wrs[slot];
		atomic_store_explicit(
			stamp_of(f->out + (size_t)slot * plan->size,
				 plan->size),
			htobe64(k + 1ULL), memory_order_relaxed);
		wr->wr_id = wr_id_of(plan->op, k);
		wr->send_flags = f->flags;
		if (is_signalled(plan, k)) {
			wr->send_flags |= IBV_SEND_SIGNALED;
			f->ep.outstanding++;
			f->posted_at[slot] = now;
		}
	}
	wr->next = NULL;
	err = ibv_post_send(f->ep.id->qp, first, &bad);
	f->posts++;
	if (err) {
		report("ibv_post_send", err);
		for (wr = bad; wr;
		     wr = wr->next) /* from there on: not posted */
			if (wr->send_flags & IBV_SEND_SIGNALED)
				f->ep.outstanding--;
		return -1;
	}
	f->posted += n;
	return 0;
}

/*
 * flow_retire - a SEND or a WRITE has completed, and with it all before it
 *
 * The requests of a send queue complete in order. So the completion of number
 * K frees the slots of all those before it that asked for none.
 */
static inline int flow_retire(struct flow *f, const struct ibv_wc *wc)
{
	uint32_t k = wr_id_slot(wc->wr_id);

	f->ep.outstanding--;
	if (check_wc(wc))
		return -1;
	f->retired = k + 1;
	f->completions++;
	return 0;
}

static inline void flow_sample(struct flow *f, long long took)
{
	if (f->samples < f->plan.count)
		f->took[f->samples++] = took;
}

/* ---- waiting ------------------------------------------------------------- */

static inline void flow_progress(struct flow *f)
{
	f->deadline = 0;
}

/* What is the matter, in the way of endpoint_wait_wc(); 1: the peer has gone. */
static inline int flow_look_around(struct flow *f, int fd, int timeout_ms)
{
	struct endpoint *ep = &f->ep;
	int ready = wait_either(fd, ep->channel->fd, ep->stop_fd, timeout_ms);

	if (ready < 0)
		return -1;
	if ((ready & 1) && endpoint_take_notice(ep))
		return -1;
	if (ready & 2)
		return endpoint_take_event(ep, RDMA_CM_EVENT_DISCONNECTED);
	return 0;
}

/*
 * flow_idle - nothing has come: wait in the way that was asked for
 *
 * Returns 0 when it is time to look again, 1 when the peer has disconnected
 * and it was looked once more since, -1 after a deadline, Ctrl-C or a fault.
 */
static inline int flow_idle(struct flow *f, bool by_event)
{
	struct endpoint *ep = &f->ep;
	long long left;
	int err;

	if (!by_event && ++f->looks % LOOKS != 0)
		return 0;
	if (ep->disconnected)
		return 1;
	if (by_event && !f->armed) {
		err = ibv_req_notify_cq(ep->cq, 0);
		if (err) {
			report("ibv_req_notify_cq", err);
			return -1;
		}
		f->armed = true;
		return 0; /* and look once more before sleeping */
	}
	if (!f->deadline)
		f->deadline = now_ms() + ep->timeout * 1000LL;
	left = f->deadline - now_ms();
	if (left <= 0) {
		fprintf(stderr,
			"waited %d s and nothing came: is the peer frozen, or "
			"UDP port 4791 shut?\n",
			ep->timeout);
		return -1;
	}
	f->armed = false;
	return flow_look_around(f, by_event ? ep->comp_channel->fd : -1,
				by_event ? left : 0);
}

/*
 * flow_poll - take up to MAX completions, or wait for a moment
 *
 * Returns how many; 0 when it is worth looking again; -1 after having
 * reported, also when the peer has disconnected.
 */
static inline int flow_poll(struct flow *f, struct ibv_wc *wcs, int max)
{
	int n = ibv_poll_cq(f->ep.cq, max, wcs);

	if (n > 0) {
		flow_progress(f);
		return n;
	}
	if (n < 0) {
		report("ibv_poll_cq", EIO);
		return -1;
	}
	n = flow_idle(f, f->plan.wait == WAIT_EVENT);
	if (n > 0)
		fprintf(stderr,
			"the peer disconnected: %u of %u messages are done\n",
			f->posted > f->received ? f->retired : f->received,
			f->plan.count);
	return n ? -1 : 0;
}

/* ---- receiving ----------------------------------------------------------- */

/* flow_post_receives - slots FIRST to FIRST + N - 1, as one list */
static inline int flow_post_receives(struct flow *f, uint32_t first, uint32_t n)
{
	struct ibv_sge sges[LIST];
	struct ibv_recv_wr wrs[LIST], *bad;
	uint32_t i, slot;
	int err;

	for (i = 0; i < n; i++) {
		slot = (first + i) % f->in_slots;
		sges[i].addr = (uintptr_t)(f->in + (size_t)slot * f->plan.size);
		sges[i].length = f->plan.size;
		sges[i].lkey = f->in_mr->lkey;
		wrs[i].wr_id = wr_id_of(WR_RECV, slot);
		wrs[i].next = i + 1 < n ? &wrs[i + 1] : NULL;
		wrs[i].sg_list = &sges[i];
		wrs[i].num_sge = 1;
	}
	err = ibv_post_recv(f->ep.id->qp, wrs, &bad);
	if (err) {
		report("ibv_post_recv", err);
		return -1;
	}
	f->ep.outstanding += n;
	return 0;
}

/* flow_fill_receives - all slots, before the connection is up */
static inline int flow_fill_receives(struct flow *f)
{
	uint32_t slot, n;

	for (slot = 0; slot < f->in_slots; slot += n) {
		n = f->in_slots - slot < LIST ? f->in_slots - slot : LIST;
		if (flow_post_receives(f, slot, n))
			return -1;
	}
	return 0;
}

/* flow_received - is that message the next one, and as long as it should be? */
static inline int flow_received(struct flow *f, const struct ibv_wc *wc)
{
	uint8_t *slot = f->in + (size_t)wr_id_slot(wc->wr_id) * f->plan.size;
	uint64_t number;

	f->ep.outstanding--;
	if (check_wc(wc))
		return -1;
	number = wc->byte_len == f->plan.size ? stamp_read(slot, f->plan.size) :
						0;
	if (number == f->received + 1) {
		f->received++;
		return 0;
	}
	fprintf(stderr,
		"waited for message %u of %u bytes, and %u bytes with number "
		"%llu came\n",
		f->received + 1, f->plan.size, wc->byte_len,
		(unsigned long long)number);
	return -1;
}

/*
 * flow_check - is each slot as the last message left it that used it?
 */
static inline int flow_check(struct flow *f)
{
	const struct plan *plan = &f->plan;
	uint32_t s, last;
	uint64_t number;
	uint8_t *slot;

	for (s = 0; s < f->in_slots && s < plan->count; s++) {
		slot = f->in + (size_t)s * plan->size;
		last = plan->count - 1 - (plan->count - 1 - s) % f->in_slots;
		number = stamp_read(slot, plan->size);
		if (number != last + 1) {
			fprintf(stderr,
				"slot %u has message %llu, and should have "
				"%u\n",
				s, (unsigned long long)number, last + 1);
			return -1;
		}
		if (message_check(slot, plan))
			return -1;
	}
	return 0;
}

#endif
