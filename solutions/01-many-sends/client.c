/* SPDX-License-Identifier: MIT */
/*
 * Exercise 01: several messages, all on their way at the same time. The steps
 * are those of lesson 01. README.md has the task.
 */
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <rdma_common.h>

#define MAX_MESSAGES 16
#define MAX_LENGTH 256

struct options {
	char *server; /* name or address of the server */
	char *source; /* our own address, NULL: let the route decide */
	char *port;
	int timeout; /* seconds */
	char *messages[MAX_MESSAGES];
	int count; /* of messages */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-m TEXT]... SERVER_ADDRESS\n"
		"SEND each TEXT as a message of its own, all of them at once.\n"
		"  -a, --address ADDRESS  our own address, IPv4, IPv6 or a name; it picks the\n"
		"                         device (default: from the route to the server)\n"
		"  -p, --port PORT        the server's port, 1 to 65535 (default: 10121)\n"
		"  -t, --timeout SECONDS  the longest wait for any one event or completion,\n"
		"                         1 to 3600 (default: 10)\n"
		"  -m, --message TEXT     a message, 1 to 256 bytes; up to 16 times\n"
		"                         (default: Hello and World)\n"
		"  -h, --help             this text\n"
		"Exit status: 0 done, 1 failed, 2 usage.\n"
		"Man pages: rdma_cm(7), ibv_create_cq(3), ibv_post_send(3), ibv_poll_cq(3).\n");
}

/* A whole number from MIN to MAX, or -1. */
static int parse_number(const char *text, int min, int max)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < min || value > max)
		return -1;
	return value;
}

/* Returns 0, or -1 after usage was asked for or the fault was named. */
static int parse_options(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		{ "address", required_argument, NULL, 'a' },
		{ "port", required_argument, NULL, 'p' },
		{ "timeout", required_argument, NULL, 't' },
		{ "message", required_argument, NULL, 'm' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	opt->port = "10121";
	opt->timeout = 10;
	while ((c = getopt_long(argc, argv, "a:p:t:m:h", longs, NULL)) != -1) {
		switch (c) {
		case 'a':
			opt->source = optarg;
			break;
		case 'p':
			opt->port = optarg;
			break;
		case 't':
			opt->timeout = parse_number(optarg, 1, 3600);
			break;
		case 'm':
			if (opt->count == MAX_MESSAGES || !*optarg ||
			    strlen(optarg) > MAX_LENGTH) {
				fprintf(stderr,
					"client: -m takes 1 to %d bytes, and "
					"may be there %d times\n",
					MAX_LENGTH, MAX_MESSAGES);
				return -1;
			}
			opt->messages[opt->count++] = optarg;
			break;
		case 'h':
			usage(stdout);
			exit(EXIT_DONE);
		default:
			return -1;
		}
	}
	if (parse_number(opt->port, 1, 65535) < 0) {
		fprintf(stderr, "client: -p takes a port from 1 to 65535\n");
		return -1;
	}
	if (opt->timeout < 0) {
		fprintf(stderr, "client: -t takes 1 to 3600 seconds\n");
		return -1;
	}
	if (optind != argc - 1) {
		fprintf(stderr, "client: which server? one SERVER_ADDRESS\n");
		return -1;
	}
	opt->server = argv[optind];
	if (!opt->count) {
		opt->messages[0] = "Hello";
		opt->messages[1] = "World";
		opt->count = 2;
	}
	return 0;
}

/* The five helpers of lesson 01, shortened. */

static int open_stop_fd(void)
{
	sigset_t signals;
	int fd;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (fd < 0)
		report("signalfd", errno);
	return fd;
}

/*
 * Wait until FD can be read, for TIMEOUT_MS milliseconds at the most.
 * Returns 1 when it can, 0 when the time is over, -1 after Ctrl-C or a fault.
 */
static int wait_readable(int fd, int stop_fd, int timeout_ms)
{
	struct pollfd fds[] = { { .fd = fd, .events = POLLIN },
				{ .fd = stop_fd, .events = POLLIN } };
	struct signalfd_siginfo info;

	if (poll(fds, 2, timeout_ms) < 0) {
		report("poll", errno);
		return -1;
	}
	if (fds[1].revents) {
		if (read(stop_fd, &info, sizeof(info)) == sizeof(info))
			fprintf(stderr, "stopped by %s\n",
				strsignal(info.ssi_signo));
		return -1;
	}
	return fds[0].revents ? 1 : 0;
}

/* Wait for the CM's next event. Returns 0 when it is there, or -1. */
static int wait_event(struct rdma_event_channel *channel, int stop_fd,
		      const char *what, int timeout)
{
	int ready = wait_readable(channel->fd, stop_fd, timeout * 1000);

	if (ready == 0)
		fprintf(stderr,
			"waited %d s for %s and nothing came: is the peer "
			"alive and answering? (-t waits longer)\n",
			timeout, what);
	return ready == 1 ? 0 : -1;
}

/* Milliseconds on a clock that nobody sets. */
static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/*
 * Wait for one completion, of whatever status. Returns 0 with it in WC, or -1
 * when the deadline is over, or the peer has disconnected (CM_FD is readable)
 * and no completion is there.
 */
static int wait_completion(struct ibv_cq *cq, int cm_fd, int stop_fd,
			   int timeout, struct ibv_wc *wc)
{
	long long deadline = now_ms() + timeout * 1000LL;
	int ready = 0;
	int n;

	while ((n = ibv_poll_cq(cq, 1, wc)) == 0) {
		if (ready == 1) {
			fprintf(stderr,
				"the peer disconnected before the completion "
				"came\n");
			return -1;
		}
		if (now_ms() > deadline) {
			fprintf(stderr,
				"waited %d s for a completion and none came: "
				"is the peer frozen, or UDP port 4791 shut?\n",
				timeout);
			return -1;
		}
		ready = wait_readable(cm_fd, stop_fd, 1);
		if (ready < 0)
			return -1;
	}
	if (n < 0) {
		report("ibv_poll_cq", EIO);
		return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options opt = { 0 };
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL, *source = NULL;
	struct rdma_event_channel *channel = NULL;
	struct rdma_cm_event *event;
	struct rdma_cm_id *id = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_mr *mr = NULL;
#ifdef SOLUTION
	struct ibv_wc wc;
#endif
	/* One place for each message, so that none disturbs another. */
	char buffer[MAX_MESSAGES][MAX_LENGTH];
	bool connected = false;
	int outstanding = 0; /* requests whose completion we have not seen */
	int stop_fd = -1;
	int status = EXIT_FAILED;
	int err, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	for (i = 0; i < opt.count; i++)
		memcpy(buffer[i], opt.messages[i], strlen(opt.messages[i]));

	/* Step 1: rdma_getaddrinfo. */
	err = rdma_getaddrinfo(opt.server, opt.port, &hints, &info);
	if (err) {
		report_getaddrinfo(opt.server, err);
		goto out;
	}
	if (opt.source) {
		hints.ai_flags = RAI_PASSIVE;
		err = rdma_getaddrinfo(opt.source, NULL, &hints, &source);
		if (err) {
			report_getaddrinfo(opt.source, err);
			goto out;
		}
	}
	stop_fd = open_stop_fd();
	if (stop_fd < 0)
		goto out;

	/* Steps 2 and 3: rdma_create_event_channel, rdma_create_id. */
	channel = rdma_create_event_channel();
	if (!channel) {
		report("rdma_create_event_channel", errno);
		goto out;
	}
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		goto out;
	}

	/* Steps 4, 5 and 6: rdma_resolve_addr, its event, its acknowledgement. */
	if (rdma_resolve_addr(id, source ? source->ai_src_addr : NULL,
			      info->ai_dst_addr, opt.timeout * 500)) {
		report("rdma_resolve_addr", errno);
		goto out;
	}
	if (wait_event(channel, stop_fd, "ADDR_RESOLVED", opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_ADDR_RESOLVED);
	rdma_ack_cm_event(event);
	if (err)
		goto out;

	/* Steps 7a and 7b: ibv_alloc_pd, ibv_reg_mr. All messages in one. */
	pd = ibv_alloc_pd(id->verbs);
	if (!pd) {
		report("ibv_alloc_pd", errno);
		goto out;
	}
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), 0);
	if (!mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}

	/* Steps 7c and 7: ibv_create_cq, rdma_create_qp. */
#ifdef SOLUTION
	/*
	 * Everything that can be outstanding has to find room: a request in
	 * the send queue from its posting on, a completion in the CQ until it
	 * is polled. A CQ that overflows loses completions.
	 */
	cq = ibv_create_cq(id->verbs, opt.count, NULL, NULL, 0);
#else
	/*
	 * TODO 1: these sizes are lesson 01's, for one message. How many
	 * requests will be in the send queue, and how many completions may lie
	 * in the CQ at the same time? Read ibv_create_cq(3), and "cap" in
	 * ibv_create_qp(3).
	 */
	cq = ibv_create_cq(id->verbs, 1, NULL, NULL, 0);
#endif
	if (!cq) {
		report("ibv_create_cq", errno);
		goto out;
	}
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
#ifdef SOLUTION
			.max_send_wr = opt.count,
#else
			.max_send_wr = 1,
#endif
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};
	if (rdma_create_qp(id, pd, &attr)) {
		report("rdma_create_qp", errno);
		goto out;
	}

	/* Steps 8, 9 and 10: rdma_resolve_route, its event, the ack. */
	if (rdma_resolve_route(id, opt.timeout * 500)) {
		report("rdma_resolve_route", errno);
		goto out;
	}
	if (wait_event(channel, stop_fd, "ROUTE_RESOLVED", opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_ROUTE_RESOLVED);
	rdma_ack_cm_event(event);
	if (err)
		goto out;

	/* Steps 11, 12 and 13: rdma_connect, its event, the ack. */
	struct rdma_conn_param param = { .retry_count = 6,
					 .rnr_retry_count = 3 };
	if (rdma_connect(id, &param)) {
		report("rdma_connect", errno);
		goto out;
	}
	if (wait_event(channel, stop_fd, "ESTABLISHED", opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_ESTABLISHED);
	rdma_ack_cm_event(event);
	if (err)
		goto out;
	connected = true;
	printf("connected\n");

#ifdef SOLUTION
	/*
	 * Step 14: all messages are posted before the first completion is
	 * waited for. The card takes them in the order of the queue, and wr_id
	 * says later which of them has completed.
	 */
	for (i = 0; i < opt.count; i++) {
		struct ibv_sge sge = {
			.addr = (uintptr_t)buffer[i],
			.length = strlen(opt.messages[i]),
			.lkey = mr->lkey,
		};
		struct ibv_send_wr *bad, wr = {
			.wr_id = i,
			.sg_list = &sge,
			.num_sge = 1,
			.opcode = IBV_WR_SEND,
			.send_flags = IBV_SEND_SIGNALED,
		};

		err = ibv_post_send(id->qp, &wr, &bad);
		if (err) {
			report("ibv_post_send", err);
			goto out;
		}
		outstanding++;
		printf("posted message %d\n", i);
	}

	/*
	 * Step 14a: one completion for each. Whichever fails is reported; the
	 * others come as flushed then, and the tear-down takes them.
	 */
	while (outstanding) {
		if (wait_completion(cq, channel->fd, stop_fd, opt.timeout, &wc))
			goto out;
		outstanding--;
		if (wc.status != IBV_WC_SUCCESS) {
			report_wc(&wc, "SEND");
			goto out;
		}
		printf("message %llu: %s\n", (unsigned long long)wc.wr_id,
		       ibv_wc_status_str(wc.status));
	}
	status = EXIT_DONE;
#else
	/*
	 * TODO 2: post one SEND for each of the opt.count messages, all of
	 * them, before you wait for anything. Message i is in buffer[i] and
	 * strlen(opt.messages[i]) bytes long. Give each request a wr_id by
	 * which you know it again. Read ibv_post_send(3).
	 *
	 * TODO 3: wait for the completion of every one of them, and look at
	 * its status: wait_completion() above takes one. Only when all were
	 * good is status EXIT_DONE. Read ibv_poll_cq(3).
	 */
#endif

out:
#ifdef SOLUTION
	/*
	 * Steps 15 to 17: rdma_disconnect, its event, the ack; and what was
	 * still outstanding, once it was flushed.
	 */
	if (connected) {
		if (rdma_disconnect(id)) {
			report("rdma_disconnect", errno);
			status = EXIT_FAILED;
		}
		if (wait_event(channel, stop_fd, "DISCONNECTED", opt.timeout)) {
			status = EXIT_FAILED;
		} else if (rdma_get_cm_event(channel, &event)) {
			report("rdma_get_cm_event", errno);
			status = EXIT_FAILED;
		} else {
			if (expect_event(event, RDMA_CM_EVENT_DISCONNECTED))
				status = EXIT_FAILED;
			rdma_ack_cm_event(event);
		}
		for (; outstanding; outstanding--)
			if (wait_completion(cq, -1, stop_fd, opt.timeout,
					    &wc)) {
				status = EXIT_FAILED;
				break;
			}
	}
	/* Steps 18 to 20: everything, in the reverse order of its making. */
	if (id && id->qp)
		rdma_destroy_qp(id);
	if (cq && ibv_destroy_cq(cq))
		report("ibv_destroy_cq", errno);
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
	if (pd && ibv_dealloc_pd(pd))
		report("ibv_dealloc_pd", errno);
	if (id)
		rdma_destroy_id(id);
	if (channel)
		rdma_destroy_event_channel(channel);
#else
	/*
	 * TODO 4: say goodbye, where there is a connection: rdma_disconnect(3),
	 * its event, the acknowledgement. Then the completion of every request
	 * that is still outstanding: it comes as flushed, and until it has come
	 * the buffer is the card's. Then destroy everything that exists, in the
	 * reverse order of its making. This is the way out of every failure
	 * above as well, so any of these may not exist.
	 */
	(void)connected;
	(void)outstanding;
	(void)wait_completion;
#endif
	if (stop_fd >= 0)
		close(stop_fd);
	if (source)
		rdma_freeaddrinfo(source);
	if (info)
		rdma_freeaddrinfo(info);
	return status;
}
