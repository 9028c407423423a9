/* SPDX-License-Identifier: MIT */
/*
 * peer.h - what the two bad peers have in common
 *
 * They go through a connection as the lessons do, print `at STAGE` on each
 * stage's line, and misbehave at the stage that --at names, as --do says. A
 * test waits for that line; nothing waits by sleeping.
 */
#ifndef PEER_H
#define PEER_H

#include <sys/prctl.h>

#include <rdma_common.h>

#define PEER_BUFFER (1 << 20)
#define PEER_WINDOW 16 /* the most messages under way, and receives posted */

enum deed {
	DO_NOTHING,
	DO_EXIT, /* exit without tearing anything down */
	DO_KILL, /* the same by SIGKILL */
	DO_STALL, /* do nothing more until a signal comes */
	DO_LEAVE, /* tear down at once, in good order */
	DO_REJECT, /* server, at request: rdma_reject */
};

struct peer {
	struct options opt;
	struct endpoint ep;
	const char *at; /* the stage of the deed */
	enum deed deed;
	const char *private_spec; /* NULL: none; see private_data() */
	const char *text; /* what messages hold; NULL: a pattern */
	bool from_stdin; /* or what stdin holds */
	long messages; /* how many to send (client) or take (server) */
	long size; /* bytes of each message */
	long receives; /* how many to post before the handshake */
	long receive_size; /* bytes of each */
	int receive_access; /* of the memory that they point to */
	bool echo; /* server: send each back; client: wait for it */
	long unasked; /* messages sent right after ESTABLISHED */
	long rnr_retry;
	long retry;
	long depth; /* responder_resources and initiator_depth */
	bool persist; /* client: try again until there is a server */
	bool through; /* it was there */
	long times; /* how many clients to serve, or connections to make */
	int arrived[WR_ATOMIC + 1]; /* completions seen and not yet waited for */
	uint8_t *memory[2]; /* offered to the peer: addr, rkey, size in
			       private data are those of the first, addr2,
			       rkey2, size2 of the second */
	long memory_size[2];
	struct ibv_mr *mr[2];
	uint8_t *buffer; /* what is sent from and received into */
	struct ibv_mr *send_mr, *recv_mr;
};

enum { /* flags without a letter */
	FLAG_AT = 256,
	FLAG_DO,
	FLAG_PRIVATE,
	FLAG_TEXT,
	FLAG_MESSAGES,
	FLAG_SIZE,
	FLAG_RECEIVES,
	FLAG_RECEIVE_SIZE,
	FLAG_READ_ONLY,
	FLAG_ECHO,
	FLAG_UNASKED,
	FLAG_RNR_RETRY,
	FLAG_RETRY,
	FLAG_DEPTH,
	FLAG_MEMORY,
	FLAG_MEMORY2,
	FLAG_TIMES,
	FLAG_STDIN,
	FLAG_PERSIST,
};

#define PEER_USAGE                                                                              \
	"  --at STAGE --do exit|kill|stall|leave|reject    where to misbehave, and how\n"       \
	"  --private SPEC       private data, items with commas between them: hex:00ff,\n"      \
	"                       text:abc, zero:N, rubbish:N, u32:N, u64:N, and of the\n"        \
	"                       memory that is offered addr, rkey, size, addr2, rkey2, size2\n" \
	"  --memory N, --memory2 N    bytes of the memory that is offered (4096, 8)\n"          \
	"  --messages N --size N --text TEXT | --stdin    what is sent\n"                       \
	"  --receives N         receives posted before the handshake (server 1, client 0)\n"    \
	"  --receive-size N     bytes of each (4096)\n"                                         \
	"  --read-only          the receives point to memory without LOCAL_WRITE\n"             \
	"  --unasked N          send N messages right after ESTABLISHED\n"                      \
	"  --echo               server: send each message back; client: wait for it\n"          \
	"  --retry N --rnr-retry N --depth N   what the handshake says (6, 3, 0)\n"             \
	"  --persist            client: try again until there is a server\n"                    \
	"  --times N            clients to serve, or connections to make, one by one (1)\n"

static const struct option peer_flags[] = {
	COMMON_LONG_FLAGS,
	{ "at", required_argument, NULL, FLAG_AT },
	{ "do", required_argument, NULL, FLAG_DO },
	{ "private", required_argument, NULL, FLAG_PRIVATE },
	{ "text", required_argument, NULL, FLAG_TEXT },
	{ "messages", required_argument, NULL, FLAG_MESSAGES },
	{ "size", required_argument, NULL, FLAG_SIZE },
	{ "receives", required_argument, NULL, FLAG_RECEIVES },
	{ "receive-size", required_argument, NULL, FLAG_RECEIVE_SIZE },
	{ "read-only", no_argument, NULL, FLAG_READ_ONLY },
	{ "echo", no_argument, NULL, FLAG_ECHO },
	{ "unasked", required_argument, NULL, FLAG_UNASKED },
	{ "rnr-retry", required_argument, NULL, FLAG_RNR_RETRY },
	{ "retry", required_argument, NULL, FLAG_RETRY },
	{ "depth", required_argument, NULL, FLAG_DEPTH },
	{ "memory", required_argument, NULL, FLAG_MEMORY },
	{ "memory2", required_argument, NULL, FLAG_MEMORY2 },
	{ "stdin", no_argument, NULL, FLAG_STDIN },
	{ "persist", no_argument, NULL, FLAG_PERSIST },
	{ "times", required_argument, NULL, FLAG_TIMES },
	{ NULL, 0, NULL, 0 },
};

static inline enum deed deed_of(const char *word)
{
	static const char *const words[] = {
		[DO_EXIT] = "exit",	[DO_KILL] = "kill",
		[DO_STALL] = "stall",	[DO_LEAVE] = "leave",
		[DO_REJECT] = "reject",
	};
	int i;

	for (i = DO_EXIT; i <= DO_REJECT; i++)
		if (!strcmp(word, words[i]))
			return i;
	return DO_NOTHING;
}

static inline int take_number(long *value, long max)
{
	*value = parse_number(optarg, 0, max);
	return *value < 0 ? -1 : 0;
}

/* One flag. Returns -1 when it or its value is wrong. */
static inline int peer_flag(struct peer *p, int c)
{
	switch (c) {
	case FLAG_AT:
		p->at = optarg;
		return 0;
	case FLAG_DO:
		p->deed = deed_of(optarg);
		return p->deed == DO_NOTHING ? -1 : 0;
	case FLAG_PRIVATE:
		p->private_spec = optarg;
		return 0;
	case FLAG_TEXT:
		p->text = optarg;
		p->size = strlen(optarg);
		return 0;
	case FLAG_PERSIST:
		p->persist = true;
		return 0;
	case FLAG_STDIN:
		p->from_stdin = true;
		return 0;
	case FLAG_READ_ONLY:
		p->receive_access = 0;
		return 0;
	case FLAG_ECHO:
		p->echo = true;
		return 0;
	case FLAG_MESSAGES:
		return take_number(&p->messages, 1000000);
	case FLAG_SIZE:
		return take_number(&p->size, PEER_BUFFER);
	case FLAG_RECEIVES:
		return take_number(&p->receives, PEER_WINDOW);
	case FLAG_RECEIVE_SIZE:
		return take_number(&p->receive_size, PEER_BUFFER);
	case FLAG_UNASKED:
		return take_number(&p->unasked, PEER_WINDOW);
	case FLAG_RNR_RETRY:
		return take_number(&p->rnr_retry, 7);
	case FLAG_RETRY:
		return take_number(&p->retry, 7);
	case FLAG_DEPTH:
		return take_number(&p->depth, 255);
	case FLAG_MEMORY:
		return take_number(&p->memory_size[0], PEER_BUFFER);
	case FLAG_MEMORY2:
		return take_number(&p->memory_size[1], PEER_BUFFER);
	case FLAG_TIMES:
		return take_number(&p->times, 1000000);
	default:
		return common_option(c, &p->opt);
	}
}

static inline int peer_options(struct peer *p, int argc, char **argv)
{
	int c;

	p->opt = (struct options)OPTIONS_DEFAULT;
	p->opt.timeout = 60;
	p->messages = 1;
	p->size = 10;
	p->receive_size = 4096;
	p->receive_access = IBV_ACCESS_LOCAL_WRITE;
	p->rnr_retry = 3;
	p->retry = 6;
	p->memory_size[0] = 4096;
	p->memory_size[1] = 8;
	p->times = 1;
	while ((c = getopt_long(argc, argv, COMMON_FLAGS, peer_flags, NULL)) !=
	       -1)
		if (peer_flag(p, c))
			return -1;
	return !p->at == !p->deed ? 0 : -1;
}

/*
 * Print the stage; if it is the one of the deed, do that. Returns 0 to go on,
 * 1 to tear down and leave, -1 when the stall is over.
 */
static inline int at_stage(struct peer *p, const char *stage)
{
	printf("at %s\n", stage);
	if (!p->at || strcmp(p->at, stage))
		return 0;
	switch (p->deed) {
	case DO_EXIT:
		_exit(0);
	case DO_KILL:
		kill(getpid(), SIGKILL);
		return -1;
	case DO_STALL:
		printf("stalling\n");
		wait_readable(-1, p->ep.stop_fd, p->opt.timeout * 1000);
		return -1;
	case DO_LEAVE:
		printf("leaving\n");
		return 1;
	default:
		return 0;
	}
}

/* One item of --private into OUT. Returns its length, or -1. */
static inline int private_item(struct peer *p, const char *item, uint8_t *out,
			       size_t room)
{
	const char *value = strchr(item, ':');
	int second = *item && item[strlen(item) - 1] == '2';
	unsigned long long number;
	size_t len, i;
	uint64_t u64;
	uint32_t u32;

	value = value ? value + 1 : "";
	number = strtoull(value, NULL, 0);
	if (!strncmp(item, "addr", 4))
		number = (uintptr_t)p->memory[second];
	else if (!strncmp(item, "rkey", 4))
		number = p->mr[second] ? p->mr[second]->rkey : 0;
	else if (!strncmp(item, "size", 4))
		number = p->memory_size[second];
	u64 = htobe64(number);
	u32 = htobe32(number);
	if (!strncmp(item, "hex:", 4)) {
		len = strlen(value) / 2;
		for (i = 0; i < len && i < room; i++)
			if (sscanf(value + 2 * i, "%2hhx", &out[i]) != 1)
				return -1;
	} else if (!strncmp(item, "text:", 5)) {
		len = strlen(value);
		memcpy(out, value, len < room ? len : room);
	} else if (!strncmp(item, "zero:", 5)) {
		len = number;
		memset(out, 0, len < room ? len : room);
	} else if (!strncmp(item, "rubbish:", 8)) {
		len = number;
		memset(out, 0xa5, len < room ? len : room);
	} else if (!strncmp(item, "addr", 4) || !strncmp(item, "u64:", 4)) {
		len = sizeof(u64);
		memcpy(out, &u64, len < room ? len : room);
	} else if (!strncmp(item, "rkey", 4) || !strncmp(item, "size", 4) ||
		   !strncmp(item, "u32:", 4)) {
		len = sizeof(u32);
		memcpy(out, &u32, len < room ? len : room);
	} else {
		return -1;
	}
	return len <= room ? (int)len : -1;
}

/* The private data that --private describes. Returns its length, or -1. */
static inline int private_data(struct peer *p, uint8_t *out, size_t room)
{
	char *spec, *item, *rest = NULL;
	int total = 0, len = 0;

	if (!p->private_spec)
		return 0;
	spec = strdup(p->private_spec);
	if (!spec)
		return -1;
	for (item = strtok_r(spec, ",", &rest); item;
	     item = strtok_r(NULL, ",", &rest)) {
		len = private_item(p, item, out + total, room - total);
		if (len < 0) {
			fprintf(stderr, "--private: what is %s?\n", item);
			break;
		}
		total += len;
	}
	free(spec);
	return len < 0 ? -1 : total;
}

/* The parameters of rdma_connect and rdma_accept. */
static inline int peer_param(struct peer *p, struct rdma_conn_param *param,
			     uint8_t *data, size_t room)
{
	int len = private_data(p, data, room);

	if (len < 0)
		return -1;
	memset(param, 0, sizeof(*param));
	param->private_data = len ? data : NULL;
	param->private_data_len = len;
	param->retry_count = p->retry;
	param->rnr_retry_count = p->rnr_retry;
	param->responder_resources = p->depth;
	param->initiator_depth = p->depth;
	return 0;
}

static inline int post_one_receive(struct peer *p)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)p->buffer,
		.length = p->receive_size,
		.lkey = p->recv_mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, 0),
		.sg_list = &sge,
		.num_sge = p->receive_size ? 1 : 0,
	};

	return endpoint_post_recv(&p->ep, &wr);
}

/* The QP, the memory and the receives. All receives share one buffer. */
static inline int peer_prepare(struct peer *p)
{
	const int offered = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			    IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	long i;

	if (endpoint_create_qp(&p->ep, PEER_WINDOW, PEER_WINDOW))
		return -1;
	p->buffer = calloc(2, PEER_BUFFER);
	if (!p->buffer)
		return -1;
	p->recv_mr =
		ibv_reg_mr(p->ep.pd, p->buffer, PEER_BUFFER, p->receive_access);
	p->send_mr =
		ibv_reg_mr(p->ep.pd, p->buffer + PEER_BUFFER, PEER_BUFFER, 0);
	if (!p->recv_mr || !p->send_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	for (i = 0; i < 2; i++) {
		if (!p->memory_size[i])
			continue;
		p->memory[i] = aligned_alloc(4096, (p->memory_size[i] + 4095) /
							   4096 * 4096);
		if (!p->memory[i])
			return -1;
		memset(p->memory[i], 0, p->memory_size[i]);
		p->mr[i] = ibv_reg_mr(p->ep.pd, p->memory[i], p->memory_size[i],
				      offered);
		if (!p->mr[i]) {
			report("ibv_reg_mr", errno);
			return -1;
		}
	}
	if (p->from_stdin)
		p->size = fread(p->buffer + PEER_BUFFER, 1, PEER_BUFFER, stdin);
	for (i = 0; i < p->receives; i++)
		if (post_one_receive(p))
			return -1;
	return 0;
}

/*
 * Wait until a request of the kind OP has completed, and say of each receive
 * how long the message was. Returns 0, 1 when the other side has gone, -1 on a
 * fault.
 */
static inline int wait_for(struct peer *p, enum wr_op op)
{
	struct ibv_wc wc;
	int ret;

	while (!p->arrived[op]) {
		ret = endpoint_wait_wc(&p->ep, &wc);
		if (ret)
			return ret;
		if (check_wc(&wc))
			return -1;
		p->arrived[wr_id_op(wc.wr_id)]++;
		if (wr_id_op(wc.wr_id) == WR_RECV)
			printf("received %u bytes\n", wc.byte_len);
	}
	p->arrived[op]--;
	return 0;
}

/* SEND one message. Returns as wait_for(). */
static inline int send_one(struct peer *p)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)p->buffer + PEER_BUFFER,
		.length = p->size,
		.lkey = p->send_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.sg_list = &sge,
		.num_sge = p->size ? 1 : 0,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (p->text)
		memcpy(p->buffer + PEER_BUFFER, p->text, p->size);
	else if (!p->from_stdin)
		pattern_fill(p->buffer + PEER_BUFFER, p->size, 1);
	if (endpoint_post_send(&p->ep, &wr))
		return -1;
	return wait_for(p, WR_SEND);
}

/* Take everything down; DISCONNECT in good order or just destroy. */
static inline void peer_destroy(struct peer *p)
{
	int i;

	endpoint_disconnect(&p->ep);
	for (i = 0; i < 2; i++)
		if (p->mr[i])
			ibv_dereg_mr(p->mr[i]);
	if (p->recv_mr)
		ibv_dereg_mr(p->recv_mr);
	if (p->send_mr)
		ibv_dereg_mr(p->send_mr);
	endpoint_destroy(&p->ep);
	for (i = 0; i < 2; i++)
		free(p->memory[i]);
	free(p->buffer);
	memset(p->memory, 0, sizeof(p->memory));
	memset(p->mr, 0, sizeof(p->mr));
	memset(p->arrived, 0, sizeof(p->arrived));
	p->recv_mr = p->send_mr = NULL;
	p->buffer = NULL;
}

#endif
