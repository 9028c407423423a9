/* SPDX-License-Identifier: MIT */
/*
 * The client of exercise 03, as it is: it knocks several times, each time as
 * somebody else, and says what came of it. It is written with helpers that
 * later lessons explain.
 */
#include <rdma_common.h>

#include "hello.h"

#define MAX_KNOCKS 16

struct client {
	struct endpoint ep;
	struct ibv_mr *mr;
	char message[16];
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-k KIND]... SERVER_ADDRESS\n"
		"Knock at the door as each KIND, one after the other.\n"
		"  -k, --knock KIND       who we are; up to 16 times (default: good)\n"
		"                         empty    the request says nothing\n"
		"                         foreign  it says something else\n"
		"                         odd      version 3, and the last field is not zero\n"
		"                         late     version 4, and the last field is not zero\n"
		"                         old      a hello, version 2\n"
		"                         new      a hello, version 4\n"
		"                         swapped  version 3, with its bytes the wrong way round\n"
		"                         turned   each field with its bytes the wrong way round\n"
		"                         good     version 3: send a message when we are let in\n"
		"                         crowd    the same, and others knock meanwhile: foreign,\n"
		"                                  odd, old, and somebody good\n"
		"                         slow     the same as good, and somebody good knocks before\n"
		"                                  we have come in\n" CLIENT_USAGE_LINES);
}

static bool is_kind(const char *kind)
{
	static const char *const kinds[] = {
		"empty",   "foreign", "odd",  "late",  "old",  "new",
		"swapped", "turned",  "good", "crowd", "slow",
	};
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kind, kinds[i]))
			return true;
	return false;
}

static int parse_options(int argc, char **argv, struct options *opt,
			 const char **knocks, int *count)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "knock", required_argument, NULL, 'k' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "k:", longs, NULL)) !=
	       -1) {
		if (c != 'k') {
			if (common_option(c, opt))
				return -1;
			continue;
		}
		if (*count == MAX_KNOCKS || !is_kind(optarg)) {
			fprintf(stderr,
				"client: -k takes a kind, 16 times at most\n");
			return -1;
		}
		knocks[(*count)++] = optarg;
	}
	if (!*count)
		knocks[(*count)++] = "good";
	return client_operand(argc, argv, opt);
}

static struct hello hello_of(const char *kind)
{
	struct hello hello = { .magic = htobe32(HELLO_MAGIC),
			       .version = htobe16(HELLO_VERSION) };

	if (!strcmp(kind, "foreign"))
		hello.magic = htobe32(0x48656c6c); /* "Hell" */
	else if (!strcmp(kind, "old"))
		hello.version = htobe16(HELLO_VERSION - 1);
	else if (!strcmp(kind, "new"))
		hello.version = htobe16(HELLO_VERSION + 1);
	else if (!strcmp(kind, "swapped"))
		hello.version = htole16(HELLO_VERSION);
	else if (!strcmp(kind, "turned"))
		hello = (struct hello){ .magic = htole32(HELLO_MAGIC),
					.version = htole16(HELLO_VERSION) };
	else if (!strcmp(kind, "odd"))
		hello.zero = htobe16(1);
	else if (!strcmp(kind, "late"))
		hello = (struct hello){ .magic = htobe32(HELLO_MAGIC),
					.version = htobe16(HELLO_VERSION + 1),
					.zero = htobe16(0x100) };
	return hello;
}

/*
 * Wait for what comes of our request. Returns 1 when we are let in, 0 when we
 * are refused, which it tells, -1 after having reported anything else. NAME is who
 * we are, as it is printed.
 */
static int wait_for_answer(struct endpoint *ep, const char *name)
{
	struct rdma_cm_event *event;
	const uint8_t *data;
	int ready, ret = -1, i;

	ready = wait_readable(ep->channel->fd, ep->stop_fd, ep->timeout * 1000);
	if (ready <= 0) {
		if (ready == 0)
			printf("%s: no answer\n", name);
		return -1;
	}
	if (rdma_get_cm_event(ep->channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	if (event->event == RDMA_CM_EVENT_ESTABLISHED) {
		printf("%s: let in\n", name);
		ep->connected = true;
		ret = 1;
	} else if (event->event == RDMA_CM_EVENT_REJECTED) {
		printf("%s: refused, status %d, it says ", name, event->status);
		data = event->param.conn.private_data;
		for (i = 0; i < 8 && data; i++)
			printf("%02x", data[i]);
		printf("%s\n", data ? "" : "nothing");
		ret = 0;
	} else {
		report_event(event);
	}
	rdma_ack_cm_event(event);
	return ret;
}

static int send_message(struct client *c)
{
	struct ibv_sge sge = { .addr = (uintptr_t)c->message,
			       .length = strlen(c->message) };
	struct ibv_send_wr wr = { .wr_id = wr_id_of(WR_SEND, 0),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;

	c->mr = ibv_reg_mr(c->ep.pd, c->message, sizeof(c->message), 0);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	sge.lkey = c->mr->lkey;
	if (endpoint_post_send(&c->ep, &wr) || endpoint_wait_wc(&c->ep, &wc))
		return -1;
	printf("message: %s\n", ibv_wc_status_str(wc.status));
	return check_wc(&wc);
}

static int knock(const struct options *opt, const char *kind, const char *name);

/*
 * The answer to us is there, so the server has accepted. It does not know yet that
 * we are in: rdma_get_cm_event says so to it when it takes the answer. Whoever
 * knocks now finds the server between the two, however quick or slow it is.
 */
static void knock_before_us(struct endpoint *ep, const struct options *opt)
{
	if (wait_readable(ep->channel->fd, ep->stop_fd, ep->timeout * 1000) > 0)
		knock(opt, "good", "meanwhile good");
}

/* We are in, and are being served: whoever knocks now comes too early. */
static void knock_beside_us(const struct options *opt)
{
	knock(opt, "foreign", "meanwhile foreign");
	knock(opt, "odd", "meanwhile odd");
	knock(opt, "old", "meanwhile old");
	knock(opt, "good", "meanwhile good");
}

/* Returns 1 when we were let in and all went well, 0 when we were refused. */
static int knock(const struct options *opt, const char *kind, const char *name)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct client client = { .message = "HelloWorld" };
	struct hello hello = hello_of(kind);
	int ret = -1;

	if (strcmp(kind, "empty")) {
		param.private_data = &hello;
		param.private_data_len = sizeof(hello);
	}
	if (endpoint_open(&client.ep, opt) ||
	    endpoint_resolve(&client.ep, opt) ||
	    endpoint_create_qp(&client.ep, 1, 1))
		goto out;
	if (rdma_connect(client.ep.id, &param)) {
		report("rdma_connect", errno);
		goto out;
	}
	if (!strcmp(kind, "slow"))
		knock_before_us(&client.ep, opt);
	ret = wait_for_answer(&client.ep, name);
	if (ret == 1 && !strcmp(kind, "crowd"))
		knock_beside_us(opt);
	if (ret == 1 && send_message(&client))
		ret = -1;
out:
	if (endpoint_disconnect(&client.ep))
		ret = -1;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&client.ep);
	return ret;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	const char *knocks[MAX_KNOCKS];
	int count = 0, status = EXIT_DONE, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, knocks, &count)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	for (i = 0; i < count && status == EXIT_DONE; i++)
		if (knock(&opt, knocks[i], knocks[i]) < 0)
			status = EXIT_FAILED;
	return status;
}
