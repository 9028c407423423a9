/* SPDX-License-Identifier: MIT */
/*
 * Lesson 12: how the client provokes each failure. right_request() makes a
 * request that would succeed; each function spoils one thing about it.
 */
#ifndef PROVOKE_H
#define PROVOKE_H

#define BUFFER 4096 /* bytes that are registered */
#define INBOX 64 /* bytes that the server's receive has room for */
#define SENDS 4 /* depth of the send queue */
#define RECEIVES 64 /* and of the receive queue: the CQ has room for both */

struct client {
	struct endpoint ep;
	const struct options *opt;
	const struct failure *failure;
	const struct part *part;
	const char *nobody;
	bool full; /* say everything */
	uint8_t *buffer;
	struct ibv_mr *mr;
	struct ibv_mr *read_only; /* the same memory, with no rights */
	struct ibv_mw *mw;
	struct remote_region lent; /* by the server */
	long long since; /* us: when the failing step began */
	long long took; /* us: until it was seen */
	char saw[SIGHT_TEXT];
};

struct request {
	struct ibv_sge sge;
	struct ibv_send_wr wr;
};

/* A request with nothing wrong. The SGE is put in by post(). */
static struct request right_request(struct client *c, enum ibv_wr_opcode opcode)
{
	struct request r = {
		.sge = {
			.addr = (uintptr_t)c->buffer,
			.length = INBOX,
			.lkey = c->mr->lkey,
		},
		.wr = {
			.wr_id = wr_id_of(WR_SEND, 0),
			.num_sge = 1,
			.opcode = opcode,
			.send_flags = IBV_SEND_SIGNALED,
		},
	};

	r.wr.wr.rdma.remote_addr = c->lent.addr;
	r.wr.wr.rdma.rkey = c->lent.rkey;
	return r;
}

static void saw_text(struct client *c, const char *text)
{
	snprintf(c->saw, sizeof(c->saw), "%.80s, QP %s", text,
		 qp_state(c->ep.id ? c->ep.id->qp : NULL));
	c->took = now_us() - c->since;
}

static void saw(struct client *c, const struct sight *sight)
{
	char text[SIGHT_TEXT];

	sight_text(sight, "", text);
	saw_text(c, text);
}

/* A call has failed at once, and that is what was to be seen. */
static int saw_call(struct client *c, const char *call, int err)
{
	char text[SIGHT_TEXT];

	snprintf(text, sizeof(text), "%s %s", call, strerrorname_np(err));
	saw_text(c, text);
	return 1;
}

/* 0: posted; 1: refused at once, which is what we have seen then. */
static int post(struct client *c, struct request *r)
{
	struct ibv_send_wr *bad;
	int err;

	r->wr.sg_list = &r->sge;
	err = ibv_post_send(c->ep.id->qp, &r->wr, &bad);
	if (err)
		return saw_call(c, "ibv_post_send", err);
	c->ep.outstanding++;
	return 0;
}

/* ---- our own mistakes ---- */

static int bad_lkey(struct client *c)
{
	struct request r = right_request(c, IBV_WR_SEND);

	r.sge.lkey ^= WRONG_KEY;
	return post(c, &r);
}

static int past_region(struct client *c)
{
	struct request r = right_request(c, IBV_WR_SEND);

	r.sge.addr = (uintptr_t)c->buffer + BUFFER - INBOX + 1;
	return post(c, &r);
}

static int read_only(struct client *c)
{
	struct request r = right_request(c, IBV_WR_RDMA_READ);

	r.sge.lkey = c->read_only->lkey;
	return post(c, &r);
}

static int bind_window(struct client *c)
{
	struct ibv_mw_bind bind = {
		.send_flags = IBV_SEND_SIGNALED,
		.bind_info = {
			.mr = c->mr,
			.addr = (uintptr_t)c->buffer,
			.length = BUFFER,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
		},
	};
	int err;

	c->mw = ibv_alloc_mw(c->ep.pd, IBV_MW_TYPE_1);
	if (!c->mw)
		return saw_call(c, "ibv_alloc_mw", errno);
	err = ibv_bind_mw(c->ep.id->qp, c->mw, &bind);
	if (err)
		return saw_call(c, "ibv_bind_mw", err);
	c->ep.outstanding++;
	return 0;
}

static int flush(struct client *c)
{
	struct request r = right_request(c, IBV_WR_SEND);
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int err = ibv_modify_qp(c->ep.id->qp, &attr, IBV_QP_STATE);

	if (err) {
		report("ibv_modify_qp", err);
		return -1;
	}
	return post(c, &r);
}

/* ---- requests that the target does not like ---- */

static int send_right(struct client *c)
{
	struct request r = right_request(c, IBV_WR_SEND);

	return post(c, &r);
}

static int write_right(struct client *c)
{
	struct request r = right_request(c, IBV_WR_RDMA_WRITE);

	return post(c, &r);
}

static int read_right(struct client *c)
{
	struct request r = right_request(c, IBV_WR_RDMA_READ);

	return post(c, &r);
}

static int write_imm(struct client *c)
{
	struct request r = right_request(c, IBV_WR_RDMA_WRITE_WITH_IMM);

	return post(c, &r);
}

static int bad_rkey(struct client *c)
{
	struct request r = right_request(c, IBV_WR_RDMA_WRITE);

	r.wr.wr.rdma.rkey ^= WRONG_KEY;
	return post(c, &r);
}

static int past_end(struct client *c)
{
	struct request r = right_request(c, IBV_WR_RDMA_WRITE);

	r.wr.wr.rdma.remote_addr = c->lent.addr + c->lent.size - INBOX + 1;
	return post(c, &r);
}

static int too_long(struct client *c)
{
	struct request r = right_request(c, IBV_WR_SEND);

	r.sge.length = INBOX + 1;
	return post(c, &r);
}

/* ---- too many, too much ---- */

static int fill_queue(struct client *c)
{
	struct request r = right_request(c, IBV_WR_SEND);
	int ret;

	do
		ret = post(c, &r);
	while (ret == 0 && c->ep.outstanding < 10000);
	return ret;
}

/*
 * SoftRoCE frees a place in the send queue when the acknowledgement has come,
 * and not when the completion is polled. So a queue that has room for 7 takes 14
 * WRITEs that nobody polls, and a CQ of 7 overflows.
 */
static int fill_cq(struct client *c)
{
	struct request r = right_request(c, IBV_WR_RDMA_WRITE);
	long long deadline = now_ms() + 2000;
	int left = 2 * c->ep.cq->cqe, ret;
	struct sight sight = { 0 };

	while (left > 0 && now_ms() < deadline) {
		ret = post(c, &r);
		left -= ret == 0;
	}
	c->ep.outstanding = 0; /* some are lost: do not wait for them */
	if (wait_readable(c->ep.id->verbs->async_fd, c->ep.stop_fd, 2000) > 0 &&
	    sight_async(c->ep.id->verbs, &sight) < 0)
		return -1;
	saw(c, &sight);
	return 1;
}

static int many_sges(struct client *c)
{
	struct request r = right_request(c, IBV_WR_SEND);
	struct ibv_send_wr *bad;
	struct ibv_sge many[40];
	int err, i;

	for (i = 0; i < 40; i++)
		many[i] = r.sge;
	r.wr.sg_list = many;
	r.wr.num_sge = 40;
	err = ibv_post_send(c->ep.id->qp, &r.wr, &bad);
	if (err)
		return saw_call(c, "ibv_post_send", err);
	c->ep.outstanding++;
	return 0;
}

static int misaligned(struct client *c)
{
	struct request r = right_request(c, IBV_WR_ATOMIC_FETCH_AND_ADD);

	r.sge.length = sizeof(uint64_t);
	r.wr.wr.atomic.remote_addr = c->lent.addr + 4;
	r.wr.wr.atomic.rkey = c->lent.rkey;
	r.wr.wr.atomic.compare_add = 1;
	return post(c, &r);
}

/* ---- time, and the CM ---- */

/* Wait for whatever comes, and keep it as what was seen. Returns 1, or -1. */
static int see(struct client *c, struct sight *sight, int ms)
{
	if (sight_wait(&c->ep, sight, now_ms() + ms) < 0)
		return -1;
	saw(c, sight);
	return 1;
}

/*
 * From a name to a route, as endpoint_resolve() does; but what comes in place
 * of what was hoped for is what we want to see: 1 then.
 */
static int resolve(struct client *c, struct rdma_cm_id **id, const char *host)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;
	struct sight sight;
	int err, ret = -1;

	err = rdma_getaddrinfo(host, c->opt->port, &hints, &info);
	if (err) {
		report_getaddrinfo(host, err);
		return -1;
	}
	c->since = now_us();
	if (rdma_create_id(c->ep.channel, id, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
	} else if (rdma_resolve_addr(*id, NULL, info->ai_dst_addr, 2000)) {
		ret = saw_call(c, "rdma_resolve_addr", errno);
	} else {
		ret = see(c, &sight, 10000);
		if (ret > 0 && sight.event == RDMA_CM_EVENT_ADDR_RESOLVED)
			ret = 0;
	}
	rdma_freeaddrinfo(info);
	if (ret)
		return ret;
	if (rdma_resolve_route(*id, 2000))
		return saw_call(c, "rdma_resolve_route", errno);
	ret = see(c, &sight, 10000);
	return ret > 0 && sight.event == RDMA_CM_EVENT_ROUTE_RESOLVED ? 0 : ret;
}

static int nowhere(struct client *c)
{
	return resolve(c, &c->ep.id, c->nobody);
}

static int localhost(struct client *c)
{
	bool six = strchr(c->opt->server, ':');

	return resolve(c, &c->ep.id, six ? "::1" : "127.0.0.1");
}

/* To an address that somebody has told ARP about, and that answers nothing. */
static int unreachable(struct client *c)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	int ret = resolve(c, &c->ep.id, c->nobody);
	struct sight sight;

	if (ret)
		return ret;
	if (endpoint_create_qp(&c->ep, SENDS, RECEIVES))
		return -1;
	c->since = now_us();
	if (rdma_connect(c->ep.id, &param)) {
		report("rdma_connect", errno);
		return -1;
	}
	return see(c, &sight, 300000);
}

/* The handshake is under way, and our QP is moved to where it cannot go on. */
static int half_way(struct client *c)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	struct sight sight;
	int err = ibv_modify_qp(c->ep.id->qp, &attr, IBV_QP_STATE);

	if (err) {
		report("ibv_modify_qp", err);
		return -1;
	}
	do { /* our receive comes back as well: not what we look for */
		if (see(c, &sight, c->ep.timeout * 1000) < 0)
			return -1;
	} while (sight.what == SAW_WC);
	return 1;
}

static int just_wait(struct client *c)
{
	(void)c;
	return 0;
}

/* WRITE until one of them is not answered any more. */
static int freeze(struct client *c)
{
	long long deadline = now_ms() + c->ep.timeout * 1000LL;
	struct sight sight;
	int ret;

	printf("%s: now %s\n", c->failure->name, c->failure->help);
	while (now_ms() < deadline) {
		c->since = now_us();
		ret = write_right(c);
		if (ret == 0)
			ret = sight_wait(&c->ep, &sight, deadline);
		if (ret <= 0 || sight.what != SAW_WC ||
		    sight.wc.status != IBV_WC_SUCCESS) {
			/* It answers our goodbye when it goes on again. */
			c->ep.timeout = 60;
			saw(c, &sight);
			return ret < 0 ? -1 : 1;
		}
		if (wait_readable(-1, c->ep.stop_fd, 100) < 0)
			return -1;
	}
	return 0;
}

static int time_wait(struct client *c)
{
	struct sight sight;

	if (rdma_disconnect(c->ep.id)) {
		report("rdma_disconnect", errno);
		return -1;
	}
	c->ep.connected = false;
	do {
		if (sight_wait(&c->ep, &sight, now_ms() + 10000) <= 0)
			return -1;
	} while (sight.what != SAW_EVENT ||
		 sight.event == RDMA_CM_EVENT_DISCONNECTED);
	saw(c, &sight);
	return 1;
}

/* A second connection that says it is of the same QP as the first. */
static int stale(struct client *c)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct rdma_cm_id *second = NULL;
	struct sight sight;
	int ret = resolve(c, &second, c->opt->server);

	if (ret == 0) {
		param.qp_num = c->ep.id->qp->qp_num;
		c->since = now_us();
		if (rdma_connect(second, &param)) {
			report("rdma_connect", errno);
			ret = -1;
		}
	}
	while (ret == 0) {
		if (sight_wait(&c->ep, &sight, now_ms() + 5000) < 0)
			ret = -1;
		else if (sight.what != SAW_EVENT || sight.id == second)
			ret = 1;
	}
	if (ret > 0) {
		saw(c, &sight);
	}
	if (second)
		rdma_destroy_id(second);
	return ret;
}

/* What is unusual about our side of a failure. */
struct part {
	const char *name;
	int (*act)(struct client *c);
	enum {
		CONNECTED, /* act() once there is a connection */
		CONNECTING, /* act() right after rdma_connect() */
		ALONE, /* act() in place of it all */
	} from;
	bool ready; /* the server says when it has done its part */
	int depth; /* initiator_depth */
	int patience; /* ms; 0: the deadline */
	int port; /* to be added to the server's */
	int receives; /* depth of the receive queue; 0: plenty */
};

static const struct part parts[] = {
	{ .name = "bad-lkey", .act = bad_lkey },
	{ .name = "past-region", .act = past_region },
	{ .name = "read-only", .act = read_only, .depth = 1 },
	{ .name = "bind", .act = bind_window },
	{ .name = "flush", .act = flush },
	{ .name = "no-read", .act = read_right },
	{ .name = "qp-right", .act = write_right, .ready = true },
	{ .name = "bad-rkey", .act = bad_rkey },
	{ .name = "gone", .act = write_right, .ready = true },
	{ .name = "past-end", .act = past_end },
	{ .name = "no-right", .act = write_right },
	{ .name = "small-inbox", .act = too_long },
	{ .name = "bad-inbox", .act = send_right },
	{ .name = "retry", .act = send_right },
	{ .name = "frozen", .act = freeze },
	{ .name = "rnr", .act = send_right },
	{ .name = "rnr-imm", .act = write_imm },
	{ .name = "nobody", .act = just_wait, .from = CONNECTING, .port = 1 },
	{ .name = "refused", .act = just_wait, .from = CONNECTING },
	{ .name = "stale", .act = stale },
	{ .name = "unanswered",
	  .act = just_wait,
	  .from = CONNECTING,
	  .patience = 2000 },
	{ .name = "half-way", .act = half_way, .from = CONNECTING },
	{ .name = "nowhere", .act = nowhere, .from = ALONE },
	{ .name = "localhost", .act = localhost, .from = ALONE },
	{ .name = "unreachable", .act = unreachable, .from = ALONE },
	{ .name = "leaves", .act = just_wait, .ready = true },
	{ .name = "killed", .act = just_wait, .ready = true },
	{ .name = "timewait", .act = time_wait },
	{ .name = "small-cq", .act = fill_cq, .receives = 1 },
	{ .name = "full", .act = fill_queue },
	{ .name = "many-sges", .act = many_sges },
	{ .name = "misaligned", .act = misaligned, .depth = 1 },
	{ .name = "no-depth", .act = read_right, .depth = 1, .patience = 2000 },
};

static const struct part *find_part(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!strcmp(parts[i].name, name))
			return &parts[i];
	return NULL;
}

#endif
