/* SPDX-License-Identifier: MIT */
/*
 * A program that nobody of this course has written, as far as lessons 07 and
 * 08 can tell: it speaks their formats byte by byte, with none of the helpers
 * of rdma_common.h, through the synchronous calls of rdma_verbs.h. It is
 * either side, and can be told to do wrong.
 *
 *	foreign server [FLAG...]
 *	foreign client [FLAG...] SERVER_ADDRESS
 *
 * Flags of the client:
 *	--notice send|doorbell|none	(doorbell)
 *	--text TEXT		written with its NUL (hello from elsewhere)
 *	--bytes N		N times the letter x instead, and no NUL
 *	--offset N		written so far behind the start of the buffer
 *	--wrong-key		with the doorbell's key
 *	--number N		what the doorbell gets (1)
 *	--message TEXT		what the SEND says, with its NUL (RDMA_WRITE_DONE)
 *	--private HEX		our own private data
 *	--then leave|stay|exit	disconnect; wait for the server to do so; exit
 *				without a word (leave)
 * Flags of the server:
 *	--size N		of the buffer (4096)
 *	--then leave|stay	disconnect; wait for the client to do so (leave)
 *
 * It waits for ever: whoever starts it has a deadline.
 */
#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

static const char *notice = "doorbell", *then = "leave";
static const char *text = "hello from elsewhere", *message = "RDMA_WRITE_DONE";
static const char *private_hex = "", *port = "10121";
static unsigned long long number = 1;
static long bytes = -1, offset, size = 4096;
static bool wrong_key;

static struct rdma_cm_id *listener, *id;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void put(uint8_t *to, uint64_t value, int n)
{
	while (n-- > 0) {
		to[n] = value;
		value >>= 8;
	}
}

static uint64_t get(const uint8_t *from, int n)
{
	uint64_t value = 0;
	int i;

	for (i = 0; i < n; i++)
		value = value << 8 | from[i];
	return value;
}

static struct rdma_addrinfo *look_up(const char *host, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags,
				       .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info;

	if (rdma_getaddrinfo(host, port, &hints, &info))
		die("rdma_getaddrinfo");
	return info;
}

static struct ibv_qp_init_attr attr = {
	.cap = { .max_send_wr = 4,
		 .max_recv_wr = 4,
		 .max_send_sge = 1,
		 .max_recv_sge = 1 },
	.sq_sig_all = 1,
};

/* Take the completion of our last request; 1 when it is a bad one. */
static int reap(const char *what)
{
	struct ibv_wc wc;

	if (rdma_get_send_comp(id, &wc) != 1)
		die("rdma_get_send_comp");
	printf("%s: status %d\n", what, wc.status);
	return wc.status != IBV_WC_SUCCESS;
}

static size_t from_hex(uint8_t *to, size_t room)
{
	char digits[3] = "";
	size_t n;

	for (n = 0; n < room && n < strlen(private_hex) / 2; n++) {
		memcpy(digits, private_hex + 2 * n, 2);
		to[n] = strtoul(digits, NULL, 16);
	}
	return n;
}

static int client(const char *server)
{
	struct rdma_addrinfo *info = look_up(server, 0);
	struct rdma_conn_param param = { .retry_count = 6 };
	uint8_t private[56];
	size_t length = bytes >= 0 ? (size_t)bytes : strlen(text) + 1;
	uint8_t *out = calloc(1, length + 1), raw[32];
	char *done = strdup(message);
	uint8_t *bell = calloc(1, 8);
	struct ibv_mr *out_mr, *done_mr, *bell_mr;
	struct rdma_cm_event *event;
	int bad = 0;

	if (rdma_create_ep(&id, info, NULL, &attr))
		die("rdma_create_ep");
	param.private_data = private;
	param.private_data_len = from_hex(private, sizeof(private));
	if (rdma_connect(id, &param))
		die("rdma_connect");
	if (id->event->param.conn.private_data_len < 32)
		return 1;
	memcpy(raw, id->event->param.conn.private_data, 32);
	printf("connected: buffer of %u bytes, doorbell of %u\n",
	       (unsigned int)get(raw + 12, 4), (unsigned int)get(raw + 28, 4));

	if (bytes >= 0)
		memset(out, 'x', length);
	else
		memcpy(out, text, length);
	put(bell, number, 8);
	out_mr = rdma_reg_msgs(id, out, length + 1);
	done_mr = rdma_reg_msgs(id, done, strlen(done) + 1);
	bell_mr = rdma_reg_msgs(id, bell, 8);
	if (!out_mr || !done_mr || !bell_mr)
		die("rdma_reg_msgs");

	if (rdma_post_write(id, NULL, out, length, out_mr, 0,
			    get(raw, 8) + offset,
			    get(raw + (wrong_key ? 24 : 8), 4)))
		die("rdma_post_write");
	bad = reap("WRITE");
	if (!bad && !strcmp(notice, "send")) {
		if (rdma_post_send(id, NULL, done, strlen(done) + 1, done_mr,
				   0))
			die("rdma_post_send");
		bad = reap("SEND");
	} else if (!bad && !strcmp(notice, "doorbell")) {
		if (rdma_post_write(id, NULL, bell, 8, bell_mr, 0,
				    get(raw + 16, 8), get(raw + 24, 4)))
			die("rdma_post_write");
		bad = reap("doorbell");
	}
	printf("done\n");
	if (!strcmp(then, "exit"))
		_exit(bad);
	if (!strcmp(then, "stay")) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
		if (rdma_get_cm_event(id->channel, &event))
			die("rdma_get_cm_event");
		printf("%s\n", rdma_event_str(event->event));
		rdma_ack_cm_event(event);
	}
	rdma_disconnect(id);
	rdma_dereg_mr(out_mr);
	rdma_dereg_mr(done_mr);
	rdma_dereg_mr(bell_mr);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(info);
	free(out);
	free(done);
	free(bell);
	return bad;
}

static int server(void)
{
	struct rdma_addrinfo *info = look_up(NULL, RAI_PASSIVE);
	struct rdma_conn_param param = { .retry_count = 6,
					 .rnr_retry_count = 3 };
	volatile uint8_t *bell = aligned_alloc(8, 8);
	char *buffer = calloc(1, size + 1), *in = calloc(1, 4096);
	struct ibv_mr *buffer_mr, *bell_mr, *in_mr;
	struct rdma_cm_event *event;
	uint8_t raw[32];
	struct ibv_wc wc;
	int n = 0;

	if (rdma_create_ep(&listener, info, NULL, &attr))
		die("rdma_create_ep");
	if (rdma_listen(listener, 1))
		die("rdma_listen");
	printf("listening on %s\n", port);
	if (rdma_get_request(listener, &id))
		die("rdma_get_request");
	memset((void *)bell, 0, 8);
	buffer_mr = rdma_reg_write(id, buffer, size);
	bell_mr = rdma_reg_write(id, (void *)bell, 8);
	in_mr = rdma_reg_msgs(id, in, 4096);
	if (!buffer_mr || !bell_mr || !in_mr)
		die("rdma_reg_write");
	if (rdma_post_recv(id, NULL, in, 4096, in_mr))
		die("rdma_post_recv");
	put(raw, (uintptr_t)buffer, 8);
	put(raw + 8, buffer_mr->rkey, 4);
	put(raw + 12, size, 4);
	put(raw + 16, (uintptr_t)bell, 8);
	put(raw + 24, bell_mr->rkey, 4);
	put(raw + 28, 8, 4);
	param.private_data = raw;
	param.private_data_len = 32;
	if (rdma_accept(id, &param))
		die("rdma_accept");

	/* A byte by byte look at the doorbell: only 1, big-endian, will do. */
	while (n == 0 && !(bell[7] == 1 && !bell[0] && !bell[1] && !bell[2] &&
			   !bell[3] && !bell[4] && !bell[5] && !bell[6]))
		n = ibv_poll_cq(id->recv_cq, 1, &wc);
	if (n < 0)
		die("ibv_poll_cq");
	if (n == 0)
		printf("doorbell\n");
	else if (wc.status || wc.byte_len != 16 ||
		 memcmp(in, "RDMA_WRITE_DONE", 16))
		printf("wrong SEND: status %d, %u bytes\n", wc.status,
		       wc.byte_len);
	else
		printf("SEND\n");
	printf("text: %s\n", buffer);
	if (!strcmp(then, "stay")) {
		rdma_ack_cm_event(id->event);
		id->event = NULL;
		if (rdma_get_cm_event(id->channel, &event))
			die("rdma_get_cm_event");
		rdma_ack_cm_event(event);
	}
	rdma_disconnect(id);
	rdma_dereg_mr(buffer_mr);
	rdma_dereg_mr(bell_mr);
	rdma_dereg_mr(in_mr);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(info);
	free(buffer);
	free(in);
	free((void *)bell);
	return 0;
}

enum {
	NOTICE = 256,
	TEXT,
	BYTES,
	OFFSET,
	WRONG_KEY,
	NUMBER,
	MESSAGE,
	PRIVATE,
	THEN,
	SIZE
};

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "notice", required_argument, NULL, NOTICE },
		{ "text", required_argument, NULL, TEXT },
		{ "bytes", required_argument, NULL, BYTES },
		{ "offset", required_argument, NULL, OFFSET },
		{ "wrong-key", no_argument, NULL, WRONG_KEY },
		{ "number", required_argument, NULL, NUMBER },
		{ "message", required_argument, NULL, MESSAGE },
		{ "private", required_argument, NULL, PRIVATE },
		{ "then", required_argument, NULL, THEN },
		{ "size", required_argument, NULL, SIZE },
		{ NULL, 0, NULL, 0 },
	};
	const char *role = argc > 1 ? argv[1] : "";
	int c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	optind = 2;
	while ((c = getopt_long(argc, argv, "p:", longs, NULL)) != -1) {
		switch (c) {
		case 'p':
			port = optarg;
			break;
		case NOTICE:
			notice = optarg;
			break;
		case TEXT:
			text = optarg;
			break;
		case BYTES:
			bytes = strtol(optarg, NULL, 0);
			break;
		case OFFSET:
			offset = strtol(optarg, NULL, 0);
			break;
		case WRONG_KEY:
			wrong_key = true;
			break;
		case NUMBER:
			number = strtoull(optarg, NULL, 0);
			break;
		case MESSAGE:
			message = optarg;
			break;
		case PRIVATE:
			private_hex = optarg;
			break;
		case THEN:
			then = optarg;
			break;
		case SIZE:
			size = strtol(optarg, NULL, 0);
			break;
		default:
			return 2;
		}
	}
	if (!strcmp(role, "server") && optind == argc)
		return server();
	if (!strcmp(role, "client") && optind == argc - 1)
		return client(argv[optind]);
	fprintf(stderr,
		"usage: foreign server|client [FLAG...] [SERVER_ADDRESS]\n");
	return 2;
}
