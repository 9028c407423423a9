/* SPDX-License-Identifier: MIT */
/*
 * Exercise 02: the server of lesson 02, for clients that introduce themselves.
 */
#ifndef SOLUTION
/*
 * TODO: there are three mistakes in main(), from step 6 on. Find them and mend
 * them. README.md says what they look like from outside; what each call
 * promises is in rdma_get_cm_event(3), rdma_ack_cm_event(3), rdma_accept(3),
 * rdma_destroy_id(3) and ibv_post_recv(3).
 */
#endif
#include <rdma_common.h>

#include "hello.h"

#define MAX_MESSAGE 4096

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS]\n"
		"Wait for one client, welcome it by its name, take one message and exit.\n" SERVER_USAGE_LINES
		"Man pages: rdma_get_cm_event(3), rdma_accept(3), ibv_post_recv(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) != -1)
		if (common_option(c, opt))
			return -1;
	return server_operand(argc, argv, opt);
}

/* Wait for the next event of the CM, with a deadline, as in lesson 02. */
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

/* Wait for one completion, as in lesson 02. */
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

/* Is it a hello, and does its name end? It comes from a stranger. */
static bool is_hello(const struct hello *hello)
{
	return !memcmp(hello->magic, HELLO_MAGIC, sizeof(hello->magic)) &&
	       hello->name[0] && memchr(hello->name, 0, sizeof(hello->name));
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;
	struct rdma_event_channel *channel = NULL;
	struct rdma_cm_event *event;
	struct rdma_cm_id *listener = NULL, *id = NULL;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_mr *mr = NULL;
	struct ibv_wc wc;
#ifdef SOLUTION
	struct hello hello = { 0 };
#else
	const struct hello *hello = NULL;
#endif
	struct hello welcome = { 0 };
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
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}

	/* Steps 1 to 5: an address, a channel, an id that listens on it. */
	err = rdma_getaddrinfo(opt.address ? opt.address : "::", opt.port,
			       &hints, &info);
	if (err) {
		report_getaddrinfo(opt.address, err);
		goto out;
	}
	stop_fd = open_stop_fd();
	if (stop_fd < 0)
		goto out;
	channel = rdma_create_event_channel();
	if (!channel) {
		report("rdma_create_event_channel", errno);
		goto out;
	}
	if (rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		goto out;
	}
	if (rdma_bind_addr(listener, info->ai_src_addr)) {
		report("rdma_bind_addr", errno);
		goto out;
	}
	if (rdma_listen(listener, 1)) {
		report("rdma_listen", errno);
		goto out;
	}
	printf("listening on ");
	print_address(rdma_get_local_addr(listener));
	printf("\n");

	/* Steps 6 and 7: a client asks. Its request says who it is. */
	if (wait_event(channel, stop_fd, "a client (CONNECT_REQUEST)",
		       opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
	err = expect_event(event, RDMA_CM_EVENT_CONNECT_REQUEST);
	if (!err) {
		id = event->id;
		if (event->param.conn.private_data_len >= sizeof(struct hello))
#ifdef SOLUTION
			memcpy(&hello, event->param.conn.private_data,
			       sizeof(hello));
#else
			hello = event->param.conn.private_data;
#endif
	}
	rdma_ack_cm_event(event);
	if (err)
		goto out;
#ifdef SOLUTION
	if (!is_hello(&hello)) {
#else
	if (!hello || !is_hello(hello)) {
#endif
		fprintf(stderr, "the client did not say who it is\n");
		if (rdma_reject(id, NULL, 0))
			report("rdma_reject", errno);
		goto out;
	}

	/* Steps 8 to 11: what the connection needs. */
	pd = ibv_alloc_pd(id->verbs);
	if (!pd) {
		report("ibv_alloc_pd", errno);
		goto out;
	}
	mr = ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	cq = ibv_create_cq(id->verbs, 1, NULL, NULL, 0);
	if (!cq) {
		report("ibv_create_cq", errno);
		goto out;
	}
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
#ifdef SOLUTION
	/* Step 12: the receive, before the client can know of us. */
	err = ibv_post_recv(id->qp, &wr, &bad);
	if (err) {
		report("ibv_post_recv", err);
		goto out;
	}
	outstanding = 1;

#endif
	/* Steps 13 to 15: accept, with the client's name as we understood it. */
	memcpy(welcome.magic, HELLO_MAGIC, sizeof(welcome.magic));
#ifdef SOLUTION
	memcpy(welcome.name, hello.name, sizeof(welcome.name));
#else
	memcpy(welcome.name, hello->name, sizeof(welcome.name));
#endif
	struct rdma_conn_param param = {
		.private_data = &welcome,
		.private_data_len = sizeof(welcome),
		.rnr_retry_count = 0, /* the client's SEND is tried once */
	};
	if (rdma_accept(id, &param)) {
		report("rdma_accept", errno);
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

#ifndef SOLUTION
	/* Step 12: now that there is a connection, the receive for its message. */
	err = ibv_post_recv(id->qp, &wr, &bad);
	if (err) {
		report("ibv_post_recv", err);
		goto out;
	}
	outstanding = 1;

#endif
	/* Step 16: the message. */
	if (wait_completion(cq, channel->fd, stop_fd, opt.timeout, &wc))
		goto out;
	outstanding = 0;
	if (wc.status != IBV_WC_SUCCESS) {
		report_wc(&wc, "receive");
		goto out;
	}
	printf("%s says: %.*s\n", welcome.name, (int)wc.byte_len, buffer);

	/* Steps 17 and 18: the client says goodbye. */
	if (wait_event(channel, stop_fd, "DISCONNECTED", opt.timeout))
		goto out;
	if (rdma_get_cm_event(channel, &event)) {
		report("rdma_get_cm_event", errno);
		goto out;
	}
#ifdef SOLUTION
	err = expect_event(event, RDMA_CM_EVENT_DISCONNECTED);
	rdma_ack_cm_event(event);
	disconnected = true;
	if (err)
		goto out;
#else
	disconnected = true;
	if (expect_event(event, RDMA_CM_EVENT_DISCONNECTED))
		goto out;
#endif
	status = EXIT_DONE;

out:
	/* Step 19: goodbye from us, and what is still outstanding. */
	if (connected) {
		if (rdma_disconnect(id)) {
			report("rdma_disconnect", errno);
			status = EXIT_FAILED;
		}
		if (!disconnected &&
		    !wait_event(channel, stop_fd, "DISCONNECTED",
				opt.timeout) &&
		    !rdma_get_cm_event(channel, &event)) {
			expect_event(event, RDMA_CM_EVENT_DISCONNECTED);
			rdma_ack_cm_event(event);
		}
		if (outstanding &&
		    wait_completion(cq, -1, stop_fd, opt.timeout, &wc))
			status = EXIT_FAILED;
	}

	/* Steps 20 to 22: everything, in the reverse order of its making. */
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
	if (listener)
		rdma_destroy_id(listener);
	if (channel)
		rdma_destroy_event_channel(channel);
	if (stop_fd >= 0)
		close(stop_fd);
	if (info)
		rdma_freeaddrinfo(info);
	return status;
}
