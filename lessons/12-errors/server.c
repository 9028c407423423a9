/* SPDX-License-Identifier: MIT */
/*
 * Lesson 12: the server of the errors. A client says in its private data which
 * failure of the catalogue it wants to see. We do our part of it, watch until
 * the client disconnects, and say what this side has seen.
 */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "agree.h"
#include "sight.h"

#define INBOX 64 /* bytes that a receive has room for */
#define LENT 4096 /* bytes that the client may write to and read */

/* The longest that a client may be busy with one failure, in seconds. */
#define PATIENCE 150

/* What outlives this process, since its parent sees it too. */
struct shared {
	bool suicide; /* our death is meant */
	bool wrong; /* something was not as in the catalogue */
};

struct server {
	struct endpoint ep;
	const struct failure *failure;
	const struct part *part;
	bool full; /* say everything */
	bool over; /* the client has had enough */
	struct shared *shared;
	enum column column;
	struct rdma_cm_id *held; /* a client that we leave without an answer */
	struct ibv_qp *reset; /* a QP that is never brought up */
	uint8_t inbox[INBOX];
	struct ibv_mr *inbox_mr;
	uint8_t *lent;
	struct ibv_mr *lent_mr;
	struct sight best; /* what says most of what this side has seen */
	bool flushed; /* the receive has come back with 5 */
	char saw[SIGHT_TEXT];
};

/*
 * What is unusual about our side of a failure. The usual: memory lent with all
 * remote rights, one receive posted, accept, and watch.
 */
struct part {
	const char *name;
	bool no_receive;
	bool bad_receive; /* one with a wrong lkey */
	bool no_rights; /* memory lent without REMOTE_WRITE */
	bool no_depth; /* no READs are taken: responder_resources 0 */
	bool reject;
	bool hold; /* neither accept nor reject */
	bool in_reset; /* accept with a QP that is still in RESET */
	bool leaves; /* go first */
	/* After the handshake; the client waits until we say that it is done. */
	int (*act)(struct server *s);
};

static int take_rights_from_qp(struct server *s)
{
	struct ibv_qp_attr attr = { .qp_access_flags = 0 };
	int err = ibv_modify_qp(s->ep.id->qp, &attr, IBV_QP_ACCESS_FLAGS);

	if (err)
		report("ibv_modify_qp", err);
	return err ? -1 : 0;
}

static int take_region_back(struct server *s)
{
	if (ibv_dereg_mr(s->lent_mr)) {
		report("ibv_dereg_mr", errno);
		return -1;
	}
	s->lent_mr = NULL;
	return 0;
}

/* Nothing beforehand: what is wanted is that this process dies, or leaves. */
static int do_nothing(struct server *s)
{
	(void)s;
	return 0;
}

static const struct part parts[] = {
	{ .name = "rnr", .no_receive = true },
	{ .name = "rnr-imm", .no_receive = true },
	{ .name = "full", .no_receive = true, .in_reset = true },
	{ .name = "bad-inbox", .bad_receive = true },
	{ .name = "no-right", .no_rights = true },
	{ .name = "qp-right", .act = take_rights_from_qp },
	{ .name = "gone", .act = take_region_back },
	{ .name = "no-depth", .no_depth = true },
	{ .name = "retry", .no_receive = true, .in_reset = true },
	{ .name = "refused", .reject = true },
	{ .name = "unanswered", .hold = true },
	{ .name = "leaves", .leaves = true, .act = do_nothing },
	{ .name = "killed", .leaves = true, .act = do_nothing },
};

static const struct part usual;

static const struct part *find_part(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!strcmp(parts[i].name, name))
			return &parts[i];
	return &usual;
}

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS]\n"
		"Play the other side of the failures that a client of this lesson asks for, one\n"
		"after the other, and say what is seen of them here.\n" SERVER_USAGE_LINES
		"Man pages: ibv_poll_cq(3), rdma_get_cm_event(3), ibv_get_async_event(3).\n");
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

static int register_memory(struct server *s)
{
	const int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

	s->lent = aligned_alloc(LENT, LENT);
	if (!s->lent) {
		report("aligned_alloc", errno);
		return -1;
	}
	memset(s->lent, 0, LENT);
	s->lent_mr =
		ibv_reg_mr(s->ep.pd, s->lent, LENT,
			   s->part->no_rights ? IBV_ACCESS_LOCAL_WRITE : all);
	s->inbox_mr = ibv_reg_mr(s->ep.pd, s->inbox, sizeof(s->inbox),
				 IBV_ACCESS_LOCAL_WRITE);
	if (!s->lent_mr || !s->inbox_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

static int post_receive(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->inbox,
		.length = sizeof(s->inbox),
		.lkey = s->inbox_mr->lkey ^
			(s->part->bad_receive ? WRONG_KEY : 0),
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, 0),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&s->ep, &wr);
}

/* A QP that rdma_accept() is told the number of, and nothing else. */
static int create_reset_qp(struct server *s, struct rdma_conn_param *param)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = s->ep.cq,
		.recv_cq = s->ep.cq,
		.cap = {
			.max_send_wr = 1,
			.max_recv_wr = 1,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};

	rdma_destroy_qp(s->ep.id);
	s->reset = ibv_create_qp(s->ep.pd, &attr);
	if (!s->reset) {
		report("ibv_create_qp", errno);
		return -1;
	}
	param->qp_num = s->reset->qp_num;
	return 0;
}

static void tell(struct server *s)
{
	const char *wanted = expected(s->failure->target, s->column);
	bool right = as_wanted(s->saw, wanted);

	if (s->full) {
		printf("%s: the target's side\n", s->failure->name);
		printf("  done:  %s\n", s->failure->peer);
		printf("  seen:  %s\n", s->saw);
		if (s->flushed && s->best.what == SAW_ASYNC)
			printf("  then:  the receive came back with 5 WR_FLUSH_ERR\n");
		if (s->lent)
			printf("  lent:  the memory was %s\n",
			       s->lent[0] ? "written to" : "left alone");
	} else {
		printf("%-12s %s\n", s->failure->name, s->saw);
	}
	if (right)
		return;
	s->shared->wrong = true;
	fprintf(stderr,
		"%s: seen: %s; the catalogue has for the target on %s: %s\n",
		s->failure->name, s->saw, column_names[s->column], wanted);
}

static void set_saw(struct server *s, const struct sight *sight)
{
	char text[SIGHT_TEXT];

	sight_text(sight, "receive ", text);
	snprintf(s->saw, sizeof(s->saw), "%.80s, QP %s", text,
		 qp_state(s->reset ? s->reset : s->ep.id->qp));
}

/* Keep what says most: an event, or else a completion, and that is 5 at last. */
static void keep(struct server *s, const struct sight *sight)
{
	bool wc = sight->what == SAW_WC && wr_id_op(sight->wc.wr_id) == WR_RECV;
	bool flushed = wc && sight->wc.status == IBV_WC_WR_FLUSH_ERR;

	if (sight->what == SAW_ASYNC ||
	    (wc && !flushed && s->best.what != SAW_ASYNC) ||
	    (flushed && s->best.what == SAW_NOTHING))
		s->best = *sight;
	s->flushed |= flushed;
}

/*
 * Returns 1 when something else came than ESTABLISHED, which is then what this
 * side has seen.
 */
static int await_established(struct server *s)
{
	long long deadline = now_ms() + s->ep.timeout * 1000LL;
	struct sight sight;
	int ret;

	do {
		ret = sight_wait(&s->ep, &sight, deadline);
		if (ret < 0)
			return -1;
		/* A quick client is ahead of our own event. */
		keep(s, &sight);
	} while (ret > 0 && sight.what != SAW_EVENT);
	if (ret > 0 && sight.event == RDMA_CM_EVENT_ESTABLISHED) {
		s->ep.connected = true;
		return 0;
	}
	set_saw(s, &sight);
	return 1;
}

static int accept_client(struct server *s)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	const struct sight nothing = { 0 };
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
	int err;

	/* What the client's card is told: how often to try again. */
	param.rnr_retry_count = 0;
	if (!s->part->no_depth)
		param.responder_resources = param.initiator_depth = 1;
	if (s->part->in_reset && create_reset_qp(s, &param))
		return -1;
	remote_region_pack(wire, s->lent_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (rdma_accept(s->ep.id, &param)) {
		err = errno;
		report("rdma_accept", err);
		set_saw(s, &nothing);
		/* It has left already: the next one may come. */
		return err == EINVAL ? 1 : -1;
	}
	return await_established(s);
}

/* Do what is to be done after the handshake, and tell the client: an empty SEND. */
static int act(struct server *s)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_wc wc;
	int ret;

	if (!s->part->act)
		return 0;
	if (s->part->act(s) || endpoint_post_send(&s->ep, &wr))
		return -1;
	if (!s->part->leaves)
		return 0;
	/* It has to arrive before we go, unless the client is the first to go. */
	ret = endpoint_wait_wc(&s->ep, &wc);
	if (ret > 0)
		return 0;
	if (ret || check_wc(&wc))
		return -1;
	if (!strcmp(s->failure->name, "killed")) {
		s->shared->suicide = true;
		raise(SIGKILL);
	}
	return 0;
}

/*
 * Watch until the client disconnects, and keep what was seen. The state of the
 * QP is asked for before we disconnect ourselves, which changes it.
 */
static int watch(struct server *s)
{
	long long deadline = now_ms() + PATIENCE * 1000LL;
	struct sight sight;
	int ret;

	while (!s->part->leaves && !s->ep.disconnected) {
		ret = sight_wait(&s->ep, &sight, deadline);
		if (ret < 0)
			return -1;
		if (ret == 0) {
			fprintf(stderr, "the client has not come back\n");
			return -1;
		}
		keep(s, &sight);
	}
	/* What came with the goodbye; and the card may be a moment behind. */
	deadline = now_ms() + 300;
	do {
		if (sight_now(&s->ep, &sight) < 0)
			return -1;
		keep(s, &sight);
		set_saw(s, &s->best);
	} while (!as_wanted(s->saw, expected(s->failure->target, s->column)) &&
		 now_ms() < deadline);
	tell(s);
	return 0;
}

/* Take down what belongs to this client, and keep the listener. */
static void forget_client(struct server *s)
{
	struct endpoint *ep = &s->ep;

	endpoint_disconnect(ep);
	if (s->reset)
		ibv_destroy_qp(s->reset);
	if (s->lent_mr)
		ibv_dereg_mr(s->lent_mr);
	if (s->inbox_mr)
		ibv_dereg_mr(s->inbox_mr);
	if (ep->cq)
		ibv_destroy_cq(ep->cq);
	if (ep->comp_channel)
		ibv_destroy_comp_channel(ep->comp_channel);
	if (ep->pd)
		ibv_dealloc_pd(ep->pd);
	if (ep->id)
		rdma_destroy_id(ep->id);
	free(s->lent);
	s->reset = NULL;
	s->lent_mr = s->inbox_mr = NULL;
	s->lent = NULL;
	ep->cq = NULL;
	ep->comp_channel = NULL;
	ep->pd = NULL;
	ep->id = NULL;
	ep->outstanding = 0;
	s->flushed = false;
	memset(&s->best, 0, sizeof(s->best));
	ep->disconnected = false;
}

static void let_go(struct server *s)
{
	if (s->held)
		rdma_destroy_id(s->held);
	s->held = NULL;
}

/* Failures that come to no connection. */
static void refuse(struct server *s)
{
	static const char why[] = "as you wished";

	snprintf(s->saw, sizeof(s->saw), "CONNECT_REQUEST 0, QP none");
	if (s->part->hold) {
		s->held = s->ep.id;
		s->ep.id = NULL;
	} else {
		rdma_reject(s->ep.id, why, sizeof(why));
	}
	tell(s);
}

static int serve(struct server *s)
{
	int ret;

	s->part = find_part(s->failure->name);
	s->column = column_here(s->ep.id->verbs);
	if (s->part->reject || s->part->hold) {
		refuse(s);
		return 0;
	}
	/* This fails as well when the client has left: the next one may come. */
	if (endpoint_create_qp(&s->ep, 1, 1)) {
		s->shared->wrong = true;
		return 0;
	}
	if (register_memory(s) || (!s->part->no_receive && post_receive(s)))
		return -1;
	ret = accept_client(s);
	if (ret > 0)
		tell(s);
	if (ret)
		return ret < 0 ? -1 : 0;
	if (act(s))
		return -1;
	return watch(s);
}

/*
 * Who is it, and what does it want? It may be anybody: whoever asks for nothing
 * that we know is refused, and has done no harm.
 */
static int answer(struct server *s)
{
	char name[NAME_SIZE];
	int ret = 0;

	if (request_unpack(s->ep.private_data, s->ep.private_data_len, name,
			   &s->full)) {
		rdma_reject(s->ep.id, NULL, 0);
		fprintf(stderr, "a client that is none of this lesson was "
				"refused\n");
	} else if (!strcmp(name, BYE)) {
		rdma_reject(s->ep.id, BYE, sizeof(BYE));
		s->over = true;
	} else if (!strcmp(name, HELLO)) {
		rdma_reject(s->ep.id, NULL, 0);
	} else {
		s->failure = find_failure(name);
		if (s->failure) {
			ret = serve(s);
		} else {
			rdma_reject(s->ep.id, NULL, 0);
			fprintf(stderr,
				"a client was refused that asked for a failure that is not in the catalogue\n");
		}
	}
	forget_client(s);
	return ret;
}

static int run(struct server *s, const struct options *opt)
{
	if (endpoint_open(&s->ep, opt) || endpoint_listen(&s->ep, opt))
		return -1;
	while (!s->over) {
		if (endpoint_get_request(&s->ep))
			return -1;
		s->ep.timeout = opt->timeout;
		let_go(s);
		if (answer(s))
			return -1;
		/* Some failures take the client that long. */
		s->ep.timeout = PATIENCE;
	}
	return s->shared->wrong ? -1 : 0;
}

static int child(const struct options *opt, struct shared *shared)
{
	struct server server = { .shared = shared };
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ret = run(&server, opt);
	forget_client(&server);
	let_go(&server);
	endpoint_destroy(&server.ep);
	return ret ? EXIT_FAILED : EXIT_DONE;
}

/* Wait for the child, and hand Ctrl-C and SIGTERM on. Returns its status. */
static int wait_for_child(pid_t pid, const sigset_t *signals)
{
	int sig, status;

	for (;;) {
		if (sigwait(signals, &sig))
			return -1;
		if (sig != SIGCHLD)
			kill(pid, sig);
		else if (waitpid(pid, &status, WNOHANG) == pid)
			return status;
	}
}

/*
 * One of the failures is that a server dies. So the server is a child of this
 * process, which starts another one then. It forks before anything of RDMA is
 * opened: what is opened does not survive a fork well (ibv_fork_init(3)).
 */
static int supervise(const struct options *opt)
{
	struct shared *shared = mmap(NULL, sizeof(*shared),
				     PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sigset_t signals;
	pid_t pid;
	int status;

	if (shared == MAP_FAILED) {
		report("mmap", errno);
		return EXIT_FAILED;
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGCHLD);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	do {
		shared->suicide = false;
		pid = fork();
		if (pid == 0)
			return child(opt, shared);
		status = pid < 0 ? -1 : wait_for_child(pid, &signals);
		if (shared->suicide)
			printf("%-12s the process of the server is dead; here "
			       "is another\n",
			       "killed");
	} while (shared->suicide);
	munmap(shared, sizeof(*shared));
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	return supervise(&opt);
}
