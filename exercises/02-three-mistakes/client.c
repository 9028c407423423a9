/* SPDX-License-Identifier: MIT */
/*
 * The client of exercise 02, as it is: it says who it is, sends one message,
 * and looks at what comes back. It is written with helpers that later lessons
 * explain.
 */
#include <rdma_common.h>

#include "hello.h"

struct client {
	struct endpoint ep;
	struct ibv_mr *mr;
	const char *name;
	const char *message;
	bool silent; /* no message */
	bool rude; /* the request says nothing */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n NAME] [-m TEXT] [-s | -r] SERVER_ADDRESS\n"
		"Say who we are in the request, and SEND one message.\n"
		"  -n, --name NAME        who we are, 1 to 27 bytes (default: Ada)\n"
		"  -m, --message TEXT     what to send, 1 to 4096 bytes (default: HelloWorld)\n"
		"  -s, --silent           send nothing: leave when we are connected\n"
		"  -r, --rude             do not say who we are\n" CLIENT_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "name", required_argument, NULL, 'n' },
		{ "message", required_argument, NULL, 'm' },
		{ "silent", no_argument, NULL, 's' },
		{ "rude", no_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	c->name = "Ada";
	c->message = "HelloWorld";
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:m:sr", longs,
				   NULL)) != -1) {
		switch (flag) {
		case 'n':
			c->name = optarg;
			break;
		case 'm':
			c->message = optarg;
			break;
		case 's':
			c->silent = true;
			break;
		case 'r':
			c->rude = true;
			break;
		default:
			if (common_option(flag, opt))
				return -1;
		}
	}
	if (!*c->name || strlen(c->name) > 27 || !*c->message ||
	    strlen(c->message) > 4096) {
		fprintf(stderr,
			"client: -n takes 1 to 27 bytes, -m 1 to 4096\n");
		return -1;
	}
	return client_operand(argc, argv, opt);
}

static int send_message(struct client *c)
{
	struct ibv_sge sge = { .length = strlen(c->message) };
	struct ibv_send_wr wr = { .wr_id = wr_id_of(WR_SEND, 0),
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_wc wc;
	int ret;

	c->mr = ibv_reg_mr(c->ep.pd, (char *)c->message, sge.length, 0);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	sge.addr = (uintptr_t)c->message;
	sge.lkey = c->mr->lkey;
	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	ret = endpoint_wait_wc(&c->ep, &wc);
	if (ret > 0)
		fprintf(stderr, "the server left before the message came\n");
	if (ret)
		return -1;
	printf("message: %s\n", ibv_wc_status_str(wc.status));
	return check_wc(&wc);
}

static int talk(struct client *c, const struct options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct hello hello = { 0 }, welcome;

	memcpy(hello.magic, HELLO_MAGIC, sizeof(hello.magic));
	memcpy(hello.name, c->name, strlen(c->name));
	if (!c->rude) {
		param.private_data = &hello;
		param.private_data_len = sizeof(hello);
	}
	if (endpoint_open(&c->ep, opt) || endpoint_resolve(&c->ep, opt) ||
	    endpoint_create_qp(&c->ep, 1, 1) ||
	    endpoint_connect(&c->ep, &param))
		return -1;
	memcpy(&welcome, c->ep.private_data, sizeof(welcome));
	if (memcmp(welcome.magic, HELLO_MAGIC, sizeof(welcome.magic)))
		printf("welcome: none\n");
	else
		printf("welcome: %.*s\n", (int)sizeof(welcome.name),
		       welcome.name);
	if (memcmp(&welcome, &hello, sizeof(hello)))
		fprintf(stderr, "that is not my name\n");
	if (c->silent)
		return 0;
	return send_message(c);
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &client)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (talk(&client, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&client.ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(&client.ep);
	return status;
}
