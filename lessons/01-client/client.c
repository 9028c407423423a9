/* SPDX-License-Identifier: MIT */
/*
 * Lesson 01: the bare client flow, twenty steps from an address to a message
 * and back to nothing. main() is the flow: read it from top to bottom.
 */
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <rdma_common.h>

/* The largest message that the server of lesson 02 has room for. */
#define MAX_MESSAGE 4096

struct options {
	char *server; /* name or address of the server */
	char *source; /* our own address, NULL: let the route decide */
	char *port;
	char *message;
	int timeout; /* seconds */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-m TEXT] SERVER_ADDRESS\n"
		"Connect to the server of lesson 02 and SEND it one message.\n"
		"  -a, --address ADDRESS  our own address, IPv4, IPv6 or a name; it picks the\n"
		"                         device (default: from the route to the server)\n"
		"  -p, --port PORT        the server's port, 1 to 65535 (default: 10121)\n"
		"  -t, --timeout SECONDS  the longest wait for any one event or completion,\n"
		"                         1 to 3600 (default: 10)\n"
		"  -m, --message TEXT     what to send, 0 to 4096 bytes; no NUL follows it\n"
		"                         (default: HelloWorld)\n"
		"  -h, --help             this text\n"
		"Exit status: 0 done, 1 failed, 2 usage.\n"
		"Man pages: rdma_cm(7), rdma_resolve_addr(3), ibv_post_send(3).\n");
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
	opt->message = "HelloWorld";
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
			opt->message = optarg;
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
	if (strlen(opt->message) > MAX_MESSAGE) {
		fprintf(stderr, "client: -m takes up to %d bytes\n",
			MAX_MESSAGE);
		return -1;
	}
	if (optind != argc - 1) {
		fprintf(stderr, "client: which server? one SERVER_ADDRESS\n");
		return -1;
	}
	opt->server = argv[optind];
	return 0;
}

/*
 * Make Ctrl-C and SIGTERM readable on a file descriptor. Blocked, they can
 * break no call off half way; read in the same poll() as everything else we
 * wait for, they are one more event that leads to the tear-down.
 */
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

/*
 * Some things never happen: a server that does not answer the connection
 * request raises no event at all, and rdma_get_cm_event() by itself would
 * block for as long. So wait for the channel with a deadline first.
 */
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
 * Wait for one completion. The CQ is polled once a millisecond, which is easy
 * and slow: lesson 04 shows the two proper ways. In between we listen to CM_FD,
 * the CM's channel: a peer that dies or disconnects completes nothing here, and
 * a program that looks at its CQ alone would wait for ever. During the
 * tear-down there is nothing left to listen for, and CM_FD is -1, which poll(2)
 * passes over.
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
				"the connection ended before the completion "
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
	struct ibv_wc wc;
	char buffer[MAX_MESSAGE];
	size_t length;
	bool connected = false;
	int outstanding = 0;
	int stop_fd = -1;
	int status = EXIT_FAILED;
	int err;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	length = strlen(opt.message);
	memcpy(buffer, opt.message, length);

	/*
	 * Step 1: rdma_getaddrinfo(3), the getaddrinfo(3) of RDMA: from a name
	 * and a port to a socket address. RDMA_PS_TCP asks for the port space
	 * of connected, reliable service; no TCP is spoken. As the first call
	 * into the library it also looks for the devices, and where there is
	 * none it says so: ENODEV.
	 */
	err = rdma_getaddrinfo(opt.server, opt.port, &hints, &info);
	if (err) {
		report_getaddrinfo(opt.server, err);
		goto out;
	}
	if (opt.source) {
		hints.ai_flags = RAI_PASSIVE; /* "an address of our own" */
		err = rdma_getaddrinfo(opt.source, NULL, &hints, &source);
		if (err) {
			report_getaddrinfo(opt.source, err);
			goto out;
		}
	}
	if (check_zone(info->ai_dst_addr) ||
	    (source && check_zone(source->ai_src_addr)))
		goto out;
	printf("1 rdma_getaddrinfo: %s port %s\n", opt.server, opt.port);
	stop_fd = open_stop_fd();
	if (stop_fd < 0)
		goto out;

	/*
	 * Step 2: rdma_create_event_channel(3). The connection manager (CM)
	 * answers by events, never by a return value; this is the file
	 * descriptor that they come in on. Behind it is /dev/infiniband/rdma_cm,
	 * which is there when the kernel module rdma_ucm is loaded.
	 */
	channel = rdma_create_event_channel();
	if (!channel) {
		report("rdma_create_event_channel", errno);
		goto out;
	}
	/*
	 * Every wait of ours is a poll(2) with a deadline. Should an event be
	 * one that the library has to keep for itself, then the next step is
	 * to say so (EAGAIN), and not to sleep in rdma_get_cm_event() where no
	 * Ctrl-C reaches us.
	 */
	if (fcntl(channel->fd, F_SETFL, O_NONBLOCK)) {
		report("fcntl", errno);
		goto out;
	}
	printf("2 rdma_create_event_channel\n");

	/*
	 * Step 3: rdma_create_id(3). The id is what a socket is to TCP: it is
	 * bound to nothing yet, to no address and no device.
	 */
	if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		goto out;
	}
	printf("3 rdma_create_id\n");

	/*
	 * Step 4: rdma_resolve_addr(3): from the IP address to the RDMA
	 * address (the GID) of the peer, by ARP or neighbour discovery, and
	 * from the route to the device of ours that leads there. It returns
	 * at once; the answer is the event of step 5. The kernel gives up
	 * after the time in the last argument, in milliseconds: half of our
	 * own deadline, so that its reason comes before our patience ends.
	 */
	if (rdma_resolve_addr(id, source ? source->ai_src_addr : NULL,
			      info->ai_dst_addr, opt.timeout * 500)) {
		report_address("rdma_resolve_addr", info->ai_dst_addr, errno);
		goto out;
	}
	printf("4 rdma_resolve_addr\n");

	/* Step 5: rdma_get_cm_event(3): the address is resolved, or is not. */
	if (wait_event(channel, stop_fd, "ADDR_RESOLVED", opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_ADDR_RESOLVED);

	/*
	 * Step 6: rdma_ack_cm_event(3) gives the event's memory back. Each
	 * event has to be acknowledged, also one that we did not want:
	 * rdma_destroy_id() waits, for ever, until all of its events are.
	 */
	rdma_ack_cm_event(event);
	if (err)
		goto out;
	printf("5 rdma_get_cm_event: ADDR_RESOLVED\n");
	printf("6 rdma_ack_cm_event\n");

	/*
	 * Step 7a: ibv_alloc_pd(3). The protection domain says what belongs
	 * together: a QP may use only memory regions of its own domain.
	 */
	pd = ibv_alloc_pd(id->verbs);
	if (!pd) {
		report("ibv_alloc_pd", errno);
		goto out;
	}
	printf("7a ibv_alloc_pd\n");

	/*
	 * Step 7b: ibv_reg_mr(3). The card reads the buffer by itself, without
	 * the CPU, so its pages are pinned and the card learns where they are.
	 * The lkey in mr is the proof of it that each request has to show.
	 * A region that is only sent from needs no access flag.
	 */
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), 0);
	if (!mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	printf("7b ibv_reg_mr: %zu bytes\n", sizeof(buffer));

	/*
	 * Step 7c: ibv_create_cq(3). The completion queue is where the card
	 * says what it has done. One entry is enough: we ask for one thing.
	 */
	cq = ibv_create_cq(id->verbs, 1, NULL, NULL, 0);
	if (!cq) {
		report("ibv_create_cq", errno);
		goto out;
	}
	printf("7c ibv_create_cq\n");

	/*
	 * Step 7: rdma_create_qp(3). The queue pair is the connection's end:
	 * a queue of what to send and a queue of where to receive. RC is the
	 * reliable connected type, the one that is like TCP. One of each is
	 * enough here; the device has to find room for whatever we ask.
	 */
	struct ibv_qp_init_attr attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {
			.max_send_wr = 1,
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
	printf("7 rdma_create_qp: QP number %u\n", id->qp->qp_num);

	/*
	 * Step 8: rdma_resolve_route(3): from the two addresses to the path
	 * between them. On InfiniBand the subnet manager is asked; on RoCE the
	 * IP route was all that there is to know, and the event comes at once.
	 * 127.0.0.1 comes as far as this: the CM lends it any one device, and
	 * then finds that no way leads out of that to this address (ENODEV).
	 */
	if (rdma_resolve_route(id, opt.timeout * 500)) {
		report("rdma_resolve_route", errno);
		goto out;
	}
	printf("8 rdma_resolve_route\n");

	/* Step 9: rdma_get_cm_event: the route is resolved. */
	if (wait_event(channel, stop_fd, "ROUTE_RESOLVED", opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_ROUTE_RESOLVED);

	/* Step 10: rdma_ack_cm_event. */
	rdma_ack_cm_event(event);
	if (err)
		goto out;
	printf("9 rdma_get_cm_event: ROUTE_RESOLVED\n");
	printf("10 rdma_ack_cm_event\n");

	/*
	 * Step 11: rdma_connect(3) sends the ConnectRequest, which carries our
	 * QP number. Had the server anything to send, our receives would have
	 * to be posted before this line.
	 */
	struct rdma_conn_param param = {
		/*
		 * How often the card sends again what nobody acknowledged.
		 * 6 and not the highest, 7: SoftRoCE takes 7 for "for ever".
		 */
		.retry_count = 6,
		/*
		 * How often the server's card tries again when it sends and we
		 * have no receive posted (RNR, receiver not ready). Each side
		 * says this for the other one: the count for our own SEND
		 * comes with the server's answer. 7 means for ever.
		 */
		.rnr_retry_count = 3,
	};
	if (rdma_connect(id, &param)) {
		report("rdma_connect", errno);
		goto out;
	}
	printf("11 rdma_connect\n");

	/*
	 * Step 12: rdma_get_cm_event: the server has accepted. The call moves
	 * the QP to RTS (ready to send) inside. Or REJECTED, or UNREACHABLE.
	 */
	if (wait_event(channel, stop_fd, "ESTABLISHED", opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_ESTABLISHED);

	/* Step 13: rdma_ack_cm_event. */
	rdma_ack_cm_event(event);
	if (err)
		goto out;
	connected = true;
	printf("12 rdma_get_cm_event: ESTABLISHED\n");
	printf("13 rdma_ack_cm_event\n");

	/*
	 * Step 14: ibv_post_send(3) puts a work request on the send queue and
	 * returns: the card has been asked, and nothing is sent yet. From here
	 * to its completion the buffer is the card's. An empty message has no
	 * buffer (num_sge 0) and is a message all the same.
	 */
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffer,
		.length = length,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = 14, /* any number; the completion brings it back */
		.sg_list = &sge,
		.num_sge = length ? 1 : 0,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	err = ibv_post_send(id->qp, &wr, &bad);
	if (err) {
		report("ibv_post_send", err);
		goto out;
	}
	outstanding = 1;
	printf("14 ibv_post_send: SEND of %zu bytes\n", length);

	/*
	 * Step 14a: ibv_poll_cq(3). The completion says that the server's card
	 * has the message and answers for it (its program may not have looked
	 * yet). Leave this out and the disconnect of step 15 races
	 * with the message: it may throw it away before it has left.
	 */
	if (wait_completion(cq, channel->fd, stop_fd, opt.timeout, &wc))
		goto out;
	outstanding = 0;
	if (wc.status != IBV_WC_SUCCESS) {
		report_wc(&wc, "SEND");
		goto out;
	}
	printf("14a ibv_poll_cq: %s\n", ibv_wc_status_str(wc.status));
	status = EXIT_DONE;

out:
	/*
	 * From here on, what exists is taken down in the reverse order of its
	 * making, be the run a good one or not.
	 *
	 * Step 15: rdma_disconnect(3) sends the DisconnectRequest and moves
	 * our QP to the error state: what is still in its queues is flushed.
	 */
	if (connected) {
		if (rdma_disconnect(id)) {
			report("rdma_disconnect", errno);
			status = EXIT_FAILED;
		}
		printf("15 rdma_disconnect\n");

		/* Step 16: rdma_get_cm_event: the peer has said goodbye too. */
		if (wait_event(channel, stop_fd, "DISCONNECTED", opt.timeout)) {
			status = EXIT_FAILED;
		} else if (rdma_get_cm_event(channel, &event)) {
			report("rdma_get_cm_event", errno);
			status = EXIT_FAILED;
		} else {
			err = expect_event(event, RDMA_CM_EVENT_DISCONNECTED);

			/* Step 17: rdma_ack_cm_event. */
			rdma_ack_cm_event(event);
			if (err) {
				status = EXIT_FAILED;
			} else {
				printf("16 rdma_get_cm_event: DISCONNECTED\n");
				printf("17 rdma_ack_cm_event\n");
			}
		}

		/*
		 * Step 17a: a request that was still on its way has been
		 * flushed to the CQ. Until it is seen there, the card may
		 * still be reading the buffer.
		 */
		if (outstanding &&
		    wait_completion(cq, -1, stop_fd, opt.timeout, &wc))
			status = EXIT_FAILED;
	}

	/* Step 18: rdma_destroy_qp(3); then what 7c, 7b and 7a made. */
	if (id && id->qp) {
		rdma_destroy_qp(id);
		printf("18 rdma_destroy_qp\n");
	}
	if (cq && ibv_destroy_cq(cq))
		report("ibv_destroy_cq", errno);
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
	if (pd && ibv_dealloc_pd(pd))
		report("ibv_dealloc_pd", errno);

	/* Step 19: rdma_destroy_id(3). */
	if (id) {
		rdma_destroy_id(id);
		printf("19 rdma_destroy_id\n");
	}

	/* Step 20: rdma_destroy_event_channel(3). */
	if (channel) {
		rdma_destroy_event_channel(channel);
		printf("20 rdma_destroy_event_channel\n");
	}
	if (stop_fd >= 0)
		close(stop_fd);
	if (source)
		rdma_freeaddrinfo(source);
	if (info)
		rdma_freeaddrinfo(info);
	return status;
}
