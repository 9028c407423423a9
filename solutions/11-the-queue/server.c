/* SPDX-License-Identifier: MIT */
/*
 * The server of exercise 11, as it is: it offers the lock, and two tickets are
 * taken when the client comes. The server plays their holders.
 */
#include <stdatomic.h>

#include <rdma_common.h>

#include "queue.h"

#define HOLDERS 2
#define PAUSE 350 /* ms that each of them has the lock */
#define FIRST_VALUE 5
#define HOLDER_STEP 7

struct server {
	struct endpoint ep;
	struct {
		_Atomic uint64_t next, serving, value;
	} * queue;
	struct ibv_mr *mr;
	uint64_t value; /* what it has to be while a holder of ours has it */
	bool stuck; /* the second holder never gives it back */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s]\n"
		"Offer a lock that is given in turn, and look at what a client makes of it.\n"
		"  -s, --stuck            who has the lock never gives it back\n" SERVER_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "stuck", no_argument, NULL, 's' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s", longs, NULL)) !=
	       -1) {
		if (c == 's')
			s->stuck = true;
		else if (common_option(c, opt))
			return -1;
	}
	return server_operand(argc, argv, opt);
}

static int register_memory(struct server *s)
{
	s->queue = calloc(1, sizeof(*s->queue));
	if (!s->queue) {
		report("calloc", errno);
		return -1;
	}
	s->value = FIRST_VALUE;
	s->queue->next = HOLDERS;
	s->queue->value = htobe64(s->value);
	s->mr = ibv_reg_mr(s->ep.pd, s->queue, sizeof(*s->queue),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				   IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_ATOMIC);
	if (s->mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static int accept_client(struct server *s)
{
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	remote_region_pack(wire, s->mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	param.responder_resources =
		s->ep.responder_resources < 4 ? s->ep.responder_resources : 4;
	return endpoint_accept(&s->ep, &param);
}

/*
 * A holder of ours does what holders do, and gives the lock back. That it may
 * store to `serving`, without an atomic of the card, is because nobody else
 * changes that before it is his turn.
 */
static int hold(struct server *s, uint64_t ticket)
{
	if (s->queue->serving != ticket ||
	    be64toh(s->queue->value) != s->value) {
		printf("too early: ticket %llu has the lock, and somebody else used it\n",
		       (unsigned long long)ticket);
		return -1;
	}
	if (s->stuck && ticket == HOLDERS - 1)
		return 0;
	s->value += HOLDER_STEP;
	s->queue->value = htobe64(s->value);
	s->queue->serving = ticket + 1;
	return 0;
}

/* Each holder has the lock for a while; then wait until the client leaves. */
static int serve(struct server *s)
{
	long long deadline = now_ms() + s->ep.timeout * 1000LL;
	uint64_t ticket = 0;
	int ready;

	while (!s->ep.disconnected) {
		ready = wait_readable(s->ep.channel->fd, s->ep.stop_fd,
				      ticket < HOLDERS ? PAUSE :
							 s->ep.timeout * 2000);
		if (ready < 0)
			return -1;
		if (ready &&
		    endpoint_take_event(&s->ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
		/* Their time runs from when the client has its ticket. */
		if (!ready && ticket == 0 && s->queue->next == HOLDERS &&
		    now_ms() < deadline)
			continue;
		if (!ready && ticket == HOLDERS) {
			printf("the client has not left\n");
			return -1;
		}
		if (!ready && hold(s, ticket++))
			return -1;
	}
	/* Who left that soon has not waited for the others. */
	while (ticket < HOLDERS)
		if (hold(s, ticket++))
			return -1;
	return 0;
}

static int print_end(const struct server *s)
{
	uint64_t next = s->queue->next, serving = s->queue->serving;
	uint64_t value = be64toh(s->queue->value);
	uint64_t wanted = s->value + STEP * (next - HOLDERS);

	printf("next is %llu, serving is %llu\n", (unsigned long long)next,
	       (unsigned long long)serving);
	printf("the value is %s: %llu, and %llu was expected\n",
	       value == wanted ? "right" : "wrong", (unsigned long long)value,
	       (unsigned long long)wanted);
	return next == serving && value == wanted ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &server)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (endpoint_open(ep, &opt) || endpoint_listen(ep, &opt) ||
	    endpoint_get_request(ep) || endpoint_create_qp(ep, 1, 1) ||
	    register_memory(&server) || accept_client(&server))
		goto out;
	printf("connected\n");
	if (serve(&server) == 0 && print_end(&server) == 0)
		status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (server.mr && ibv_dereg_mr(server.mr))
		report("ibv_dereg_mr", errno);
	free(server.queue);
	endpoint_destroy(ep);
	return status;
}
