/* SPDX-License-Identifier: MIT */
/*
 * Lesson 02: the listening server. The same flow seen from the other side,
 * with numbered steps of its own: bind, listen, take the request, post the
 * receive, and only then accept.
 */
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <rdma_common.h>

/* The largest message that we have room for. */
#define MAX_MESSAGE 4096

struct options {
	char *address; /* where to listen, NULL: on every address */
	char *port;
	int timeout; /* seconds */
	bool reject; /* refuse the client */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-r]\n"
		"Wait for one client, take one message from it, print it and exit.\n"
		"  -a, --address ADDRESS  listen on this address only, IPv4, IPv6 or a name\n"
		"                         (default: every address, IPv4 and IPv6)\n"
		"  -p, --port PORT        listen on this port, 1 to 65535 (default: 10121)\n"
		"  -t, --timeout SECONDS  the longest wait for any one event or completion,\n"
		"                         the first client among them, 1 to 3600 (default: 10)\n"
		"  -r, --reject           refuse the client with rdma_reject(3)\n"
		"  -h, --help             this text\n"
		"A message has 0 to 4096 bytes, and is printed as it came.\n"
		"Exit status: 0 done, 1 failed, 2 usage.\n"
		"Man pages: rdma_cm(7), rdma_listen(3), rdma_accept(3), ibv_post_recv(3).\n");
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

/* Returns 0, or -1 after the fault was named. */
static int parse_options(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		{ "address", required_argument, NULL, 'a' },
		{ "port", required_argument, NULL, 'p' },
		{ "timeout", required_argument, NULL, 't' },
		{ "reject", no_argument, NULL, 'r' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	opt->port = "10121";
	opt->timeout = 10;
	while ((c = getopt_long(argc, argv, "a:p:t:rh", longs, NULL)) != -1) {
		switch (c) {
		case 'a':
			opt->address = optarg;
			break;
		case 'p':
			opt->port = optarg;
			break;
		case 't':
			opt->timeout = parse_number(optarg, 1, 3600);
			break;
		case 'r':
			opt->reject = true;
			break;
		case 'h':
			usage(stdout);
			exit(EXIT_DONE);
		default:
			return -1;
		}
	}
	if (parse_number(opt->port, 1, 65535) < 0) {
		fprintf(stderr, "server: -p takes a port from 1 to 65535\n");
		return -1;
	}
	if (opt->timeout < 0) {
		fprintf(stderr, "server: -t takes 1 to 3600 seconds\n");
		return -1;
	}
	if (optind != argc) {
		fprintf(stderr, "server: what is %s? it takes no arguments\n",
			argv[optind]);
		return -1;
	}
	return 0;
}

/* Make Ctrl-C and SIGTERM readable on a file descriptor, as in lesson 01. */
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

/* Wait for the next event of the CM, with a deadline, as in lesson 01. */
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
 * Wait for one completion, as in lesson 01. When the client has disconnected,
 * its message may already be there, so the CQ is looked at once more.
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

/*
 * An event that we did not wait for may be the request of a second client. Its
 * id belongs to us too, as in step 6: it has to be destroyed, and that refuses
 * the connection. Otherwise NULL.
 */
static struct rdma_cm_id *second_client(const struct rdma_cm_event *event)
{
	return event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
}

/* Is it 0.0.0.0 or ::, which stand for every address of this machine? */
static bool is_wildcard(const struct sockaddr *address)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;

	return address->sa_family == AF_INET6 ?
		       IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr) :
		       four->sin_addr.s_addr == htonl(INADDR_ANY);
}

/* "10.10.10.2:40000" or "[fd10::2]:40000" */
static void print_address(const struct sockaddr *address)
{
	char text[ADDRESS_TEXT];

	address_text(address, text, sizeof(text));
	printf("%s", text);
}

int main(int argc, char **argv)
{
	struct options opt = { 0 };
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;
	struct rdma_event_channel *channel = NULL;
	struct rdma_cm_event *event;
	struct rdma_cm_id *listener = NULL, *id = NULL, *second;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_mr *mr = NULL;
	struct ibv_wc wc;
	char buffer[MAX_MESSAGE];
	bool connected = false, disconnected = false;
	int outstanding = 0;
	int stop_fd = -1;
	int status = EXIT_FAILED;
	int err;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}

	/*
	 * Step 1: rdma_getaddrinfo(3), with RAI_PASSIVE: an address to listen
	 * on. Without -a we ask for "::", which takes IPv4 clients as well.
	 */
	err = rdma_getaddrinfo(opt.address ? opt.address : "::", opt.port,
			       &hints, &info);
	if (err) {
		report_getaddrinfo(opt.address, err);
		goto out;
	}
	if (check_zone(info->ai_src_addr))
		goto out;
	printf("1 rdma_getaddrinfo: %s port %s\n",
	       opt.address ? opt.address : "every address", opt.port);
	stop_fd = open_stop_fd();
	if (stop_fd < 0)
		goto out;

	/* Step 2: rdma_create_event_channel(3), where the CM's events come. */
	channel = rdma_create_event_channel();
	if (!channel) {
		report("rdma_create_event_channel", errno);
		goto out;
	}
	if (fcntl(channel->fd, F_SETFL, O_NONBLOCK)) { /* as in lesson 01 */
		report("fcntl", errno);
		goto out;
	}
	printf("2 rdma_create_event_channel\n");

	/*
	 * Step 3: rdma_create_id(3). This id listens and does nothing else,
	 * as a listening socket does. Each client will bring an id of its own.
	 */
	if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		goto out;
	}
	printf("3 rdma_create_id\n");

	/* Step 4: rdma_bind_addr(3). */
	if (rdma_bind_addr(listener, info->ai_src_addr)) {
		report_address("rdma_bind_addr", info->ai_src_addr, errno);
		goto out;
	}
	/*
	 * Bound to one address, the listener belongs to the device that has
	 * it. A bind to 127.0.0.1 succeeds as well, and no client can ever
	 * reach it: no device stands behind it. (Bound to every address the
	 * listener has no one device, and verbs is NULL as it should be.)
	 */
	if (!listener->verbs && !is_wildcard(info->ai_src_addr)) {
		report_address("rdma_bind_addr", info->ai_src_addr, ENODEV);
		goto out;
	}
	printf("4 rdma_bind_addr\n");

	/*
	 * Step 5: rdma_listen(3). The backlog is how many requests may wait
	 * while we are busy; this server takes one client.
	 */
	if (rdma_listen(listener, 1)) {
		report("rdma_listen", errno);
		goto out;
	}
	printf("5 rdma_listen\nlistening on ");
	print_address(rdma_get_local_addr(listener));
	printf("\n");

	/*
	 * Step 6: rdma_get_cm_event(3): a client asks for a connection. The
	 * event carries a new id, on our channel, already tied to the device
	 * that the request came in on. It is ours now, and outlives the event.
	 * Everything else in the event (its private data, its parameters)
	 * dies with it and would have to be copied here.
	 */
	if (wait_event(channel, stop_fd, "a client (CONNECT_REQUEST)",
		       opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!err)
		id = event->id;

	/* Step 7: rdma_ack_cm_event(3). */
	rdma_ack_cm_event(event);
	if (err)
		goto out;
	printf("6 rdma_get_cm_event: CONNECT_REQUEST\n");
	printf("7 rdma_ack_cm_event\n");

	if (opt.reject) {
		/*
		 * A server may say no: the client sees REJECTED, status 28.
		 * Up to 148 bytes of private data could say why.
		 */
		if (rdma_reject(id, NULL, 0))
			report("rdma_reject", errno);
		else
			status = EXIT_DONE;
		printf("rdma_reject: the client was refused\n");
		goto out;
	}

	/* Step 8: ibv_alloc_pd(3), on the device of the request. */
	pd = ibv_alloc_pd(id->verbs);
	if (!pd) {
		report("ibv_alloc_pd", errno);
		goto out;
	}
	printf("8 ibv_alloc_pd\n");

	/*
	 * Step 9: ibv_reg_mr(3). The card will write into this buffer, and
	 * LOCAL_WRITE is the right for our own card to do so. Without it the
	 * message is refused when it comes, and the client gets the error.
	 */
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	printf("9 ibv_reg_mr: %zu bytes\n", sizeof(buffer));

	/* Step 10: ibv_create_cq(3): one receive will complete. */
	cq = ibv_create_cq(id->verbs, 1, NULL, NULL, 0);
	if (!cq) {
		report("ibv_create_cq", errno);
		goto out;
	}
	printf("10 ibv_create_cq\n");

	/* Step 11: rdma_create_qp(3). The CM moves it to INIT at once. */
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
	printf("11 rdma_create_qp: QP number %u\n", id->qp->qp_num);

	/*
	 * Step 12: ibv_post_recv(3), before the accept. TCP buffers what
	 * nobody has asked for yet; RDMA puts a message straight into a buffer
	 * that was posted for it. The client may SEND in the moment in which
	 * it sees our accept, so the buffer has to be there by then. Where it
	 * is not, the client's card is told RNR (receiver not ready) and
	 * tries again, rnr_retry_count times, and then gives up.
	 */
	struct ibv_sge sge = {
		.addr = (uintptr_t)buffer,
		.length = sizeof(buffer),
		.lkey = mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = {
		.wr_id = 12,
		.sg_list = &sge,
		.num_sge = 1,
	};
	err = ibv_post_recv(id->qp, &wr, &bad);
	if (err) {
		report("ibv_post_recv", err);
		goto out;
	}
	outstanding = 1;
	printf("12 ibv_post_recv: room for %zu bytes\n", sizeof(buffer));

	/*
	 * Step 13: rdma_accept(3) answers the ConnectRequest with our QP
	 * number, and moves the QP through RTR to RTS. The count is how often
	 * the client's card tries again when we have no receive posted: 3
	 * turns a receive that we forgot into an error there after about two
	 * seconds. The counts for our own sends came with its request.
	 */
	struct rdma_conn_param param = { .rnr_retry_count = 3 };

	if (rdma_accept(id, &param)) {
		report("rdma_accept", errno);
		goto out;
	}
	printf("13 rdma_accept\n");

	/*
	 * Step 14: rdma_get_cm_event: the client has seen our answer and said
	 * so (ReadyToUse). Or it has gone, and it says that.
	 */
	if (wait_event(channel, stop_fd, "ESTABLISHED", opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_ESTABLISHED);
	second = second_client(event);

	/* Step 15: rdma_ack_cm_event. */
	rdma_ack_cm_event(event);
	if (second)
		rdma_destroy_id(second);
	if (err)
		goto out;
	connected = true;
	printf("14 rdma_get_cm_event: ESTABLISHED\n");
	printf("15 rdma_ack_cm_event\n");

	/*
	 * Step 16: ibv_poll_cq(3). The completion says that a message is in
	 * the buffer, and byte_len how long it is: RDMA keeps the messages'
	 * boundaries, and sends no NUL that nobody asked it to send.
	 */
	if (wait_completion(cq, channel->fd, stop_fd, opt.timeout, &wc))
		goto out;
	outstanding = 0;
	if (wc.status != IBV_WC_SUCCESS) {
		report_wc(&wc, "receive");
		goto out;
	}
	printf("16 ibv_poll_cq: received %u bytes: ", wc.byte_len);
	fwrite(buffer, 1, wc.byte_len, stdout);
	printf("\n");

	/* Step 17: rdma_get_cm_event: the client has said goodbye. */
	if (wait_event(channel, stop_fd, "DISCONNECTED", opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_DISCONNECTED);
	second = second_client(event);
	disconnected = !second; /* nothing else comes of this client */

	/* Step 18: rdma_ack_cm_event. */
	rdma_ack_cm_event(event);
	if (second)
		rdma_destroy_id(second);
	if (err)
		goto out;
	printf("17 rdma_get_cm_event: DISCONNECTED\n");
	printf("18 rdma_ack_cm_event\n");
	status = EXIT_DONE;

out:
	/*
	 * Step 19: rdma_disconnect(3), also when the client was the one to
	 * begin: this answers its DisconnectRequest, which it waits for, and
	 * moves our QP to the error state. Until then the QP stays as it was
	 * and its receives stay posted, whatever the client does.
	 */
	if (connected) {
		if (rdma_disconnect(id)) {
			report("rdma_disconnect", errno);
			status = EXIT_FAILED;
		}
		printf("19 rdma_disconnect\n");

		/*
		 * Step 19a: where we were the one to begin, wait for the
		 * client's goodbye now.
		 */
		if (!disconnected &&
		    !wait_event(channel, stop_fd, "DISCONNECTED",
				opt.timeout) &&
		    !rdma_get_cm_event(channel, &event)) {
			expect_event(event, RDMA_CM_EVENT_DISCONNECTED);
			second = second_client(event);
			rdma_ack_cm_event(event);
			if (second)
				rdma_destroy_id(second);
		}

		/*
		 * Step 19b: a receive that is still posted is flushed to the
		 * CQ. Until it is seen there the buffer is the card's.
		 */
		if (outstanding &&
		    wait_completion(cq, -1, stop_fd, opt.timeout, &wc))
			status = EXIT_FAILED;
	}

	/* Step 20: rdma_destroy_qp(3); then what 10, 9 and 8 made. */
	if (id && id->qp) {
		rdma_destroy_qp(id);
		printf("20 rdma_destroy_qp\n");
	}
	if (cq && ibv_destroy_cq(cq))
		report("ibv_destroy_cq", errno);
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
	if (pd && ibv_dealloc_pd(pd))
		report("ibv_dealloc_pd", errno);

	/* Step 21: rdma_destroy_id(3), the connection's and the listener's. */
	if (id)
		rdma_destroy_id(id);
	if (listener) {
		rdma_destroy_id(listener);
		printf("21 rdma_destroy_id\n");
	}

	/* Step 22: rdma_destroy_event_channel(3). */
	if (channel) {
		rdma_destroy_event_channel(channel);
		printf("22 rdma_destroy_event_channel\n");
	}
	if (stop_fd >= 0)
		close(stop_fd);
	if (info)
		rdma_freeaddrinfo(info);
	return status;
}
