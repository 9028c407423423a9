/* SPDX-License-Identifier: MIT */
/*
 * The recorder without a device: posts and polls of a context whose operations
 * do nothing, so that what is left is the recorder itself. For what it costs,
 * and for what it does when the program is treated badly.
 *
 *	VERBS_TRACE=file traced MODE
 *
 * The library is linked in and not preloaded.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../tools/trace/trace.h"

static struct ibv_context context;
static struct ibv_qp qp = { .context = &context, .qp_num = 17 };
static struct ibv_cq cq = { .context = &context };
static int found; /* how many completions a poll finds */

static int no_post_send(struct ibv_qp *q, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad)
{
	(void)q;
	(void)wr;
	(void)bad;
	return 0;
}

static int no_post_recv(struct ibv_qp *q, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad)
{
	(void)q;
	(void)wr;
	(void)bad;
	return 0;
}

static int no_poll_cq(struct ibv_cq *c, int max, struct ibv_wc *wc)
{
	(void)c;
	(void)max;
	wc->wr_id = 1;
	wc->status = IBV_WC_SUCCESS;
	wc->opcode = IBV_WC_SEND;
	wc->qp_num = 17;
	wc->wc_flags = 0;
	return found;
}

static int no_req_notify_cq(struct ibv_cq *c, int solicited_only)
{
	(void)c;
	(void)solicited_only;
	return 0;
}

static void set_operations(void)
{
	context.ops.post_send = no_post_send;
	context.ops.post_recv = no_post_recv;
	context.ops.poll_cq = no_poll_cq;
	context.ops.req_notify_cq = no_req_notify_cq;
}

static int post(uint64_t wr_id)
{
	struct ibv_sge sge = { .addr = 0x7ffff3a3e010,
			       .length = 64,
			       .lkey = 7 };
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { .remote_addr = 0x7ffff3a3e010, .rkey = 0xabc },
	};

	return ibv_post_send(&qp, &wr, &bad);
}

/* ---- what it costs -------------------------------------------------------- */

enum kind {
	POST_SEND,
	POST_RECV,
	POLL,
	POLL_EMPTY,
	NOTIFY,
	KINDS
};

static void one(enum kind kind)
{
	struct ibv_sge sge = { .addr = 0x7ffff3a3e010,
			       .length = 64,
			       .lkey = 7 };
	struct ibv_recv_wr *bad,
		wr = { .wr_id = 3, .sg_list = &sge, .num_sge = 1 };
	struct ibv_wc wc;

	switch (kind) {
	case POST_SEND:
		post(3);
		break;
	case POST_RECV:
		ibv_post_recv(&qp, &wr, &bad);
		break;
	case POLL:
	case POLL_EMPTY:
		found = kind == POLL;
		ibv_poll_cq(&cq, 1, &wc);
		break;
	default:
		ibv_req_notify_cq(&cq, 0);
	}
}

static double nanoseconds(enum kind kind, int count)
{
	struct timespec from, to;
	int i;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	for (i = 0; i < count; i++)
		one(kind);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	return ((to.tv_sec - from.tv_sec) * 1e9 + to.tv_nsec - from.tv_nsec) /
	       count;
}

/* What a line of a record would cost with the C library: a measure of the machine. */
static double by_printf(int count)
{
	struct timespec from, to, now;
	char line[512];
	int i;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	for (i = 0; i < count; i++) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		snprintf(
			line, sizeof(line),
			"{\"t0\":%ld%09ld,\"call\":\"%s\",\"at\":\"%p\",\"thread\":%d,"
			"\"qp\":%d,\"wr_id\":\"%d\",\"opcode\":\"%s\",\"addr\":\"%p\","
			"\"length\":%d,\"lkey\":\"%#x\",\"rkey\":\"%#x\",\"t1\":%ld%09ld}\n",
			(long)now.tv_sec, now.tv_nsec, "ibv_post_send",
			(void *)&now, i, i, i, "RDMA_WRITE", (void *)&now, i, i,
			i, (long)now.tv_sec, now.tv_nsec);
	}
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	return ((to.tv_sec - from.tv_sec) * 1e9 + to.tv_nsec - from.tv_nsec) /
	       count;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

#define ROUNDS 11

static int bench(void)
{
	static const char *const names[] = { "ibv_post_send", "ibv_post_recv",
					     "ibv_poll_cq that finds one",
					     "ibv_poll_cq that finds none",
					     "ibv_req_notify_cq" };
	double bare[KINDS][ROUNDS], with[KINDS][ROUNDS], measure[ROUNDS];
	int kind, i;

	for (i = 0; i < ROUNDS; i++)
		for (kind = 0; kind < KINDS; kind++)
			bare[kind][i] = nanoseconds(kind, 5000);
	ops_patch(&context);
	for (i = 0; i < ROUNDS; i++) {
		for (kind = 0; kind < KINDS; kind++)
			with[kind][i] = nanoseconds(kind, 5000);
		measure[i] = by_printf(5000);
	}
	for (kind = 0; kind < KINDS; kind++) {
		qsort(bare[kind], ROUNDS, sizeof(double), compare);
		qsort(with[kind], ROUNDS, sizeof(double), compare);
		printf("%-28s %4.0f ns\n", names[kind],
		       with[kind][ROUNDS / 2] - bare[kind][ROUNDS / 2]);
	}
	qsort(measure, ROUNDS, sizeof(double), compare);
	printf("%-28s %4.0f ns\n", "a line by snprintf", measure[ROUNDS / 2]);
	return 0;
}

/* ---- bad treatment -------------------------------------------------------- */

static void *many(void *number)
{
	uint64_t i;

	for (i = 0; i < 1000; i++)
		post((uintptr_t)number * 10000 + i);
	return NULL;
}

static int threads(void)
{
	pthread_t each[8];
	uintptr_t i;

	for (i = 0; i < 8; i++)
		if (pthread_create(&each[i], NULL, many, (void *)(i + 1)))
			return 1;
	for (i = 0; i < 8; i++)
		pthread_join(each[i], NULL);
	return 0;
}

static int posts(int count)
{
	int i;

	for (i = 0; i < count; i++)
		if (post(i))
			return 1;
	return 0;
}

/* Threads that go on recording while the program exits. */
static void *endless(void *unused)
{
	(void)unused;
	for (;;)
		post(1);
	return NULL;
}

static int exit_busy(void)
{
	pthread_t each;
	int i;

	for (i = 0; i < 4; i++)
		if (pthread_create(&each, NULL, endless, NULL))
			return 1;
	posts(1000);
	return 0;
}

static int with_child(void)
{
	pid_t child;
	int status;

	posts(10);
	child = fork();
	if (child == 0)
		exit(posts(5));
	if (waitpid(child, &status, 0) < 0 || status)
		return 1;
	printf("%d\n", child);
	return posts(3);
}

/* All descriptors are closed, and their numbers used for something else. */
static int closed(const char *own)
{
	struct stat st;
	int fd;

	posts(1);
	for (fd = 3; fd < 1024; fd++)
		close(fd);
	while ((fd = open(own, O_RDWR | O_CREAT, 0644)) >= 0 && fd < 1023)
		;
	if (posts(8000))
		return 1;
	return stat(own, &st) || st.st_size != 0;
}

static int small_files(void)
{
	struct rlimit limit = { .rlim_cur = 2 << 20, .rlim_max = 2 << 20 };

	return setrlimit(RLIMIT_FSIZE, &limit) || posts(9000);
}

/* errno is what the program left there. */
static int keeps_errno(void)
{
	struct ibv_wc wc;
	int i;

	for (i = 0; i < 2500; i++) {
		errno = 77;
		post(1);
		if (errno != 77)
			return 1;
		found = i % 2;
		ibv_poll_cq(&cq, 1, &wc);
		if (errno != 77)
			return 1;
		ibv_req_notify_cq(&cq, 0);
		if (errno != 77)
			return 1;
	}
	return 0;
}

/* Lists as a program may hand them over. */
static int odd_lists(void)
{
	static struct ibv_sge sges[200];
	static struct ibv_send_wr wrs[2000];
	struct ibv_send_wr *bad;
	struct ibv_recv_wr recv = { .num_sge = 0 }, *bad_recv;
	int i;

	/* None, one without buffers, numbers that cannot be. */
	if (ibv_post_send(&qp, NULL, &bad) || ibv_post_recv(&qp, &recv, NULL))
		return 1;
	wrs[0].num_sge = 0;
	ibv_post_send(&qp, wrs, &bad);
	wrs[0].num_sge = -5;
	ibv_post_send(&qp, wrs, &bad);
	wrs[0].num_sge = 1 << 30;
	wrs[0].opcode = 1234;
	wrs[0].send_flags = 0xffffffff;
	ibv_post_send(&qp, wrs, &bad);
	/* Long ones, and one that never ends. */
	for (i = 0; i < 2000; i++) {
		wrs[i].wr_id = i;
		wrs[i].opcode = IBV_WR_SEND;
		wrs[i].send_flags = 0;
		wrs[i].sg_list = sges;
		wrs[i].num_sge = i % 33;
		wrs[i].next = i < 1999 ? &wrs[i + 1] : NULL;
	}
	ibv_post_send(&qp, wrs, &bad);
	wrs[0].next = wrs;
	ibv_post_send(&qp, wrs, &bad);
	recv.num_sge = 1;
	recv.sg_list = sges;
	return ibv_post_recv(&qp, &recv, &bad_recv);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	set_operations();
	if (!strcmp(mode, "bench"))
		return bench();
	ops_patch(&context);
	if (!strcmp(mode, "posts"))
		return posts(argc > 2 ? atoi(argv[2]) : 10);
	if (!strcmp(mode, "threads"))
		return threads();
	if (!strcmp(mode, "exit-busy"))
		return exit_busy();
	if (!strcmp(mode, "fork"))
		return with_child();
	if (!strcmp(mode, "closed") && argc > 2)
		return closed(argv[2]);
	if (!strcmp(mode, "small-files"))
		return small_files();
	if (!strcmp(mode, "errno"))
		return keeps_errno();
	if (!strcmp(mode, "odd-lists"))
		return odd_lists();
	if (!strcmp(mode, "_exit")) {
		posts(10);
		_exit(0);
	}
	if (!strcmp(mode, "signal") && argc > 2) {
		posts(10);
		raise(atoi(argv[2]));
		return 0;
	}
	fprintf(stderr, "traced: no such mode\n");
	return 2;
}
