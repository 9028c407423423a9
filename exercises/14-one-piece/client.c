/* SPDX-License-Identifier: MIT */
/*
 * Exercise 14: send messages through a ring, each in one piece, also at its end.
 */
#include "piece.h"

struct client {
	struct endpoint ep;
	/* What is written is taken from here. Longer than the ring, so that too long a
	 * message does no harm; the card refuses it, as only RING bytes are
	 * registered. */
	uint8_t mirror[RING + 256];
	uint64_t own_tail; /* big-endian */
	struct ibv_mr *mirror_mr, *own_mr;
	_Atomic uint64_t head_word; /* the server writes here */
	struct ibv_mr *head_mr;
	struct remote_region ring, tail_word; /* the server's */
	uint64_t tail; /* messages are in the ring up to here */
	long count;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT] SERVER_ADDRESS\n"
		"Send messages through a ring of 1024 bytes.\n"
		"  -n, --count COUNT      how many, 1 to 1000000 (default: 100)\n" CLIENT_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct client *c)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	c->count = 100;
	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "n:", longs,
				   NULL)) != -1) {
		if (flag == 'n')
			c->count = parse_number(optarg, 1, 1000000);
		else if (common_option(flag, opt))
			return -1;
	}
	if (c->count < 0) {
		fprintf(stderr, "client: -n takes 1 to 1000000\n");
		return -1;
	}
	return client_operand(argc, argv, opt);
}

static int register_memory(struct client *c)
{
	c->mirror_mr = ibv_reg_mr(c->ep.pd, c->mirror, RING, 0);
	c->own_mr = ibv_reg_mr(c->ep.pd, &c->own_tail, sizeof(c->own_tail), 0);
	c->head_mr =
		ibv_reg_mr(c->ep.pd, &c->head_word, sizeof(c->head_word),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (c->mirror_mr && c->own_mr && c->head_mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static void deregister(struct ibv_mr *mr)
{
	if (mr && ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
}

static int connect_to_server(struct client *c)
{
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	remote_region_pack(wire, c->head_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (endpoint_connect(&c->ep, &param) ||
	    remote_region_unpack(&c->ring, c->ep.private_data) ||
	    remote_region_unpack(&c->tail_word,
				 c->ep.private_data + REMOTE_REGION_WIRE_SIZE))
		return -1;
	printf("connected\n");
	return 0;
}

/* RDMA WRITE, and wait until it is acknowledged. */
static int write_and_wait(struct client *c, const struct ibv_mr *mr,
			  const void *from, uint32_t length, uint64_t to,
			  uint32_t rkey)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)from,
		.length = length,
		.lkey = mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = to,
		.wr.rdma.rkey = rkey,
	};
	struct ibv_wc wc;
	int ret;

	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	ret = endpoint_wait_wc(&c->ep, &wc);
	if (ret > 0)
		fprintf(stderr, "the server has left\n");
	return ret ? -1 : check_wc(&wc);
}

/* LENGTH bytes of the mirror at PLACE go to the same place in the ring. */
static int write_ring(struct client *c, uint32_t place, uint32_t length)
{
	return write_and_wait(c, c->mirror_mr, c->mirror + place, length,
			      c->ring.addr + place, c->ring.rkey);
}

/* The server's tail word gets our tail. */
static int write_tail(struct client *c)
{
	c->own_tail = htobe64(c->tail);
	return write_and_wait(c, c->own_mr, &c->own_tail, sizeof(c->own_tail),
			      c->tail_word.addr, c->tail_word.rkey);
}

static uint64_t read_head(struct client *c)
{
	return be64toh(
		atomic_load_explicit(&c->head_word, memory_order_acquire));
}

/* Wait until the server has read so far that BYTES bytes are free. */
static int wait_for_room(struct client *c, uint32_t bytes)
{
	long long deadline = now_ms() + c->ep.timeout * 1000LL;
	int ready;

	while (RING - (c->tail - read_head(c)) < bytes) {
		if (c->ep.disconnected || now_ms() > deadline) {
			fprintf(stderr,
				"no room for %u bytes: the server has "
				"read up to %llu of %llu\n",
				bytes, (unsigned long long)read_head(c),
				(unsigned long long)c->tail);
			return -1;
		}
		ready = wait_readable(c->ep.channel->fd, c->ep.stop_fd, 1);
		if (ready < 0)
			return -1;
		if (ready &&
		    endpoint_take_event(&c->ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	}
	return 0;
}

/*
 * Send message NUMBER.
 *
 * TODO: this works as long as messages fit before the end of the ring and there is
 * room for them.
 * 1. A message that does not fit before the end goes to the beginning, and the
 *    server has to be told: a header with SKIP.
 * 2. Nothing may be written over that the server has not read: wait_for_room().
 */
static int send_message(struct client *c, uint32_t number)
{
	uint32_t length = length_of(number), space = space_of(length);
	uint32_t place = c->tail % RING;
	struct header header = { .length = htobe32(length),
				 .number = htobe32(number) };
	(void)wait_for_room;
	memcpy(c->mirror + place, &header, sizeof(header));
	pattern_fill(c->mirror + place + sizeof(header), length, number);
	if (write_ring(c, place, space))
		return -1;
	c->tail += space;
	return write_tail(c);
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct client client = { 0 };
	struct endpoint *ep = &client.ep;
	int status = EXIT_FAILED;
	long i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &client)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (endpoint_open(ep, &opt) || endpoint_resolve(ep, &opt) ||
	    endpoint_create_qp(ep, 1, 1) || register_memory(&client) ||
	    connect_to_server(&client))
		goto out;
	for (i = 1; i <= client.count; i++)
		if (send_message(&client, i))
			goto out;
	/* The whole ring is free when all of it was read. */
	if (wait_for_room(&client, RING))
		goto out;
	printf("%ld messages were read\n", client.count);
	status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	deregister(client.mirror_mr);
	deregister(client.own_mr);
	deregister(client.head_mr);
	endpoint_destroy(ep);
	return status;
}
