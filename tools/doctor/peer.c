/* SPDX-License-Identifier: MIT */
/*
 * The way to another machine: does its UDP port 4791 take packets, does its
 * connection manager answer, and do packets of full length get there?
 */
#include "doctor.h"

/* What a doctor that serves says with its accept. */
#define HELLO "DOCTOR01"

/* Bytes of the SEND that tries the way: several packets of any MTU. */
#define PROBE 16384

/*
 * wait_answer - the next event of the CM, whatever it is
 *
 * Returns 0 with the event in EP->event and its status in STATUS, -1 when none
 * came.
 */
static int wait_answer(struct endpoint *ep, int *status)
{
	struct rdma_cm_event *event;

	if (wait_readable(ep->channel->fd, ep->stop_fd,
			  ANSWER_TIMEOUT * 1000) <= 0 ||
	    rdma_get_cm_event(ep->channel, &event))
		return -1;
	ep->event = event->event;
	ep->private_data_len = 0;
	if (event->param.conn.private_data) {
		ep->private_data_len = event->param.conn.private_data_len;
		memcpy(ep->private_data, event->param.conn.private_data,
		       ep->private_data_len);
	}
	*status = event->status;
	rdma_ack_cm_event(event);
	return 0;
}

/* CALL has failed: what is to be seen, and the fix that the course knows. */
static enum answer call_failed(struct text *text, const char *call, int err)
{
	const char *advice = report_advice(call, err);

	snprintf(text->seen, sizeof(text->seen), "%s: %s", call, strerror(err));
	snprintf(text->fix, sizeof(text->fix), "%s",
		 fix_of(err, advice ? advice : "see dmesg"));
	return UNRESOLVED;
}

/* An event in place of the one that was hoped for. */
static enum answer bad_event(struct text *text, struct endpoint *ep, int status)
{
	snprintf(text->seen, sizeof(text->seen), "%s, status %d%s%s",
		 rdma_event_str(ep->event), status, status < -1 ? " " : "",
		 status < -1 ? strerror(-status) : "");
	snprintf(text->fix, sizeof(text->fix), "%s", addr_error_reason(status));
	return UNRESOLVED;
}

/* From the address to the route, as endpoint_resolve() does, without a word. */
static enum answer resolve(struct endpoint *ep, const struct sockaddr *address,
			   struct text *text)
{
	const int limit = 2000;
	int status = 0;

	if (rdma_create_id(ep->channel, &ep->id, NULL, RDMA_PS_TCP))
		return call_failed(text, "rdma_create_id", errno);
	if (rdma_resolve_addr(ep->id, NULL, (struct sockaddr *)address, limit))
		return call_failed(text, "rdma_resolve_addr", errno);
	if (wait_answer(ep, &status))
		return call_failed(text, "rdma_resolve_addr", ETIMEDOUT);
	if (ep->event != RDMA_CM_EVENT_ADDR_RESOLVED)
		return bad_event(text, ep, status);
	if (rdma_resolve_route(ep->id, limit))
		return call_failed(text, "rdma_resolve_route", errno);
	if (wait_answer(ep, &status))
		return call_failed(text, "rdma_resolve_route", ETIMEDOUT);
	if (ep->event != RDMA_CM_EVENT_ROUTE_RESOLVED)
		return bad_event(text, ep, status);
	if (endpoint_set_ack_timeout(ep) || endpoint_create_qp(ep, 1, 1))
		return call_failed(text, "rdma_create_qp", errno);
	return ANSWERED;
}

enum answer connect_to(struct endpoint *ep, const struct sockaddr *address,
		       struct text *text)
{
	static const struct options opt = { .timeout = ANSWER_TIMEOUT };
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct sockaddr_storage with_port = { 0 };
	enum answer answer;
	int status = 0;

	/* A port is at the same place in IPv4 and IPv6. */
	memcpy(&with_port, address,
	       address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
						sizeof(struct sockaddr_in));
	if (!((struct sockaddr_in *)&with_port)->sin_port)
		((struct sockaddr_in *)&with_port)->sin_port =
			htons(atoi(DOCTOR_PORT));
	if (endpoint_open(ep, &opt))
		return call_failed(text, "rdma_create_event_channel", errno);
	answer = resolve(ep, (const struct sockaddr *)&with_port, text);
	if (answer != ANSWERED)
		return answer;
	if (rdma_connect(ep->id, &param))
		return call_failed(text, "rdma_connect", errno);
	if (wait_answer(ep, &status)) {
		snprintf(text->seen, sizeof(text->seen),
			 "no answer to a connection request in %d s",
			 ANSWER_TIMEOUT);
		snprintf(text->fix, sizeof(text->fix),
			 "see lab/lab log, dmesg, and the firewall");
		return SILENT;
	}
	if (ep->event == RDMA_CM_EVENT_ESTABLISHED) {
		ep->connected = true;
		snprintf(text->seen, sizeof(text->seen), "it accepts");
		return ANSWERED;
	}
	if (ep->event == RDMA_CM_EVENT_REJECTED) {
		snprintf(text->seen, sizeof(text->seen),
			 "REJECTED, status %d: %s", status,
			 status == 8 ? "it answers, and nobody listens there" :
				       "it answers, and refuses");
		return ANSWERED;
	}
	bad_event(text, ep, status);
	return SILENT;
}

/*
 * What says the other machine to a datagram on UDP port 4791? SoftRoCE and a
 * card drop it, for it is no RoCE packet. Where nobody has the port the kernel
 * there sends an ICMP error, and so does a firewall that rejects. Returns that
 * error, or 0 when nothing came.
 */
static int udp_error(const struct sockaddr *address, socklen_t size)
{
	struct sockaddr_storage to = { 0 };
	struct pollfd poll_fd = { .events = POLLIN };
	int fd, err = 0, i;
	char answer;

	memcpy(&to, address, size);
	((struct sockaddr_in *)&to)->sin_port = htons(4791);
	fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, size)) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	poll_fd.fd = fd;
	for (i = 0; i < 10 && !err; i++) {
		if (send(fd, "doctor", 6, 0) < 0)
			err = errno;
		else if (poll(&poll_fd, 1, 300) > 0 &&
			 recv(fd, &answer, 1, MSG_DONTWAIT) < 0)
			err = errno;
	}
	close(fd);
	return err;
}

/* A long SEND to another doctor: are packets of full length taken? */
static void check_data(struct endpoint *ep)
{
	void *memory = calloc(1, PROBE);
	struct ibv_mr *mr = memory ? ibv_reg_mr(ep->pd, memory, PROBE, 0) :
				     NULL;
	struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = PROBE };
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_wc wc = { .status = IBV_WC_GENERAL_ERR };
	int ret = -1;

	if (mr) {
		sge.lkey = mr->lkey;
		ret = endpoint_post_send(ep, &wr) || endpoint_wait_wc(ep, &wc);
	}
	if (ret == 0 && wc.status == IBV_WC_SUCCESS)
		finding(OK, "peer-data", NULL,
			"a SEND of %d bytes arrived and was acknowledged",
			PROBE);
	else if (ret == 0 && wc.status == IBV_WC_RETRY_EXC_ERR)
		finding(FAIL, "peer-data",
			"make the MTU the same on both machines and on what is between them: ip link show; sudo ip link set CARD mtu 1500",
			"the connection is there, and a SEND of %d bytes gets no answer (status 12): long packets are lost on the way",
			PROBE);
	else
		finding(FAIL, "peer-data", wc_advice(wc.status),
			"a SEND of %d bytes: %s, status %d", PROBE,
			ibv_wc_status_str(wc.status), wc.status);
	endpoint_disconnect(ep);
	if (mr)
		ibv_dereg_mr(mr);
	free(memory);
}

/* The fix for a peer that does not answer, as UDP port 4791 has it. */
static void silent_peer(const char *name, const char *seen, int err)
{
	if (err == ECONNREFUSED)
		finding(FAIL, "peer-udp",
			"make softroce on the other machine (as root); is it there already, its firewall rejects: let UDP port 4791 in",
			"%s says that nobody has UDP port 4791 (%s)", name,
			strerror(err));
	else if (err)
		finding(FAIL, "peer-udp",
			"let UDP port 4791 through, on both machines and between them: sudo ufw allow 4791/udp, or sudo firewall-cmd --add-port=4791/udp",
			"UDP port 4791 of %s: %s", name, strerror(err));
	else
		finding(FAIL, "peer-udp",
			"run make doctor on the other machine: has it a device? Then let UDP port 4791 through, on both: sudo ufw allow 4791/udp, or sudo firewall-cmd --add-port=4791/udp",
			"UDP port 4791 of %s stays silent: a firewall drops it, or there is no device",
			name);
	finding(FAIL, "peer-cm", "what mends peer-udp mends this", "%s: %s",
		name, seen);
}

void check_peer(const char *name, const char *port)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;
	struct endpoint ep = { 0 };
	struct text text = { 0 };
	enum answer answer;
	int err;

	err = rdma_getaddrinfo(name, port, &hints, &info);
	if (err) {
		finding(FAIL, "peer-cm",
			"give the address of the other machine's card",
			"%s is no name or address that is known here", name);
		return;
	}
	if (check_zone(info->ai_dst_addr)) {
		finding(FAIL, "peer-cm", "PEER=fe80::1%CARD",
			"a link-local address needs its zone");
		goto out;
	}
	answer = connect_to(&ep, info->ai_dst_addr, &text);
	switch (answer) {
	case UNRESOLVED:
		finding(FAIL, "peer-cm", text.fix, "%s: %s", name, text.seen);
		break;
	case SILENT:
		silent_peer(name, text.seen,
			    udp_error(info->ai_dst_addr, info->ai_dst_len));
		break;
	case ANSWERED:
		finding(OK, "peer-udp", NULL,
			"UDP port 4791 of %s takes our packets, and its answers reach us",
			name);
		finding(OK, "peer-cm", NULL, "%s, port %s: %s", name, port,
			text.seen);
		if (ep.connected && !memcmp(ep.private_data, HELLO, 8))
			check_data(&ep);
		break;
	}
	endpoint_disconnect(&ep);
	endpoint_destroy(&ep);
out:
	rdma_freeaddrinfo(info);
}

/*
 * serve - wait for one doctor on another machine, SECONDS at the most, and take
 * its SEND
 */
void serve(const char *port, int seconds)
{
	struct options opt = { .port = port, .timeout = seconds };
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0), .num_sge = 1 };
	void *memory = calloc(1, PROBE);
	struct endpoint ep = { 0 };
	struct ibv_mr *mr = NULL;
	struct ibv_sge sge;
	struct ibv_wc wc;
	int ret = -1;

	param.private_data = HELLO;
	param.private_data_len = 8;
	if (!memory || endpoint_open(&ep, &opt) || endpoint_listen(&ep, &opt) ||
	    endpoint_get_request(&ep) || endpoint_create_qp(&ep, 1, 1))
		goto out;
	ep.timeout = ANSWER_TIMEOUT;
	mr = ibv_reg_mr(ep.pd, memory, PROBE, IBV_ACCESS_LOCAL_WRITE);
	if (!mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	sge = (struct ibv_sge){ (uintptr_t)memory, PROBE, mr->lkey };
	wr.sg_list = &sge;
	if (endpoint_post_recv(&ep, &wr) || endpoint_accept(&ep, &param))
		goto out;
	ret = endpoint_wait_wc(&ep, &wc);
	if (ret == 0 && !check_wc(&wc))
		finding(OK, "serve", NULL,
			"a connection came, and %u bytes on it", wc.byte_len);
	else
		finding(FAIL, "serve", "see what the other doctor says",
			"a connection came, and no whole message on it");
	if (!ep.disconnected)
		endpoint_wait_event(&ep, RDMA_CM_EVENT_DISCONNECTED);
	ret = 0;
out:
	if (ret < 0)
		finding(FAIL, "serve", "make doctor, without SERVE, says why",
			"no doctor came, or its connection failed");
	endpoint_disconnect(&ep);
	if (mr)
		ibv_dereg_mr(mr);
	endpoint_destroy(&ep);
	free(memory);
}
