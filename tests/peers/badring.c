/* SPDX-License-Identifier: MIT */
/*
 * A peer for lesson 14 that writes what it should not. As a client it writes one
 * header and one tail, as the flags say, into the server's ring, and leaves when
 * the server does. As a server (without an address) it lends a ring, writes one
 * head into the client's memory if it is told to, and reads nothing.
 *
 *	badring [--head N]
 *	badring [--length N] [--seq N] [--tail N] SERVER_ADDRESS
 */
#include <rdma_common.h>

#define RING 16384

static struct {
	uint32_t header[4]; /* length, seq, 0, 0; big-endian */
	uint64_t number;
	uint8_t ring[RING];
	uint64_t word;
} memory;
static struct ibv_mr *own, *ring, *word;

static int post(struct endpoint *ep, const void *from, uint32_t length,
		const struct remote_region *to)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)from,
		.length = length,
		.lkey = own->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma.remote_addr = to->addr,
		.wr.rdma.rkey = to->rkey,
	};
	struct ibv_wc wc;

	if (endpoint_post_send(ep, &wr) || endpoint_wait_wc(ep, &wc))
		return -1;
	return check_wc(&wc);
}

static int register_memory(struct endpoint *ep)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	own = ibv_reg_mr(ep->pd, &memory, sizeof(memory), 0);
	ring = ibv_reg_mr(ep->pd, memory.ring, RING, remote);
	word = ibv_reg_mr(ep->pd, &memory.word, sizeof(memory.word), remote);
	if (own && ring && word)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static int be_server(struct endpoint *ep, const struct options *opt, long head)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint8_t wire[2 * REMOTE_REGION_WIRE_SIZE];
	struct remote_region to;

	if (endpoint_listen(ep, opt) || endpoint_get_request(ep) ||
	    endpoint_create_qp(ep, 1, 1) || register_memory(ep))
		return -1;
	remote_region_pack(wire, ring);
	remote_region_pack(wire + REMOTE_REGION_WIRE_SIZE, word);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (remote_region_unpack(&to, ep->private_data + 24) ||
	    endpoint_accept(ep, &param))
		return -1;
	memory.number = htobe64(head);
	return head ? post(ep, &memory.number, 8, &to) : 0;
}

static int be_client(struct endpoint *ep, const struct options *opt, long tail)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint32_t words[] = { 0, htobe32(10), htobe32(256), htobe32(RING) };
	uint8_t wire[24 + REMOTE_REGION_WIRE_SIZE];
	struct remote_region to_ring, to_tail;

	if (endpoint_resolve(ep, opt) || endpoint_create_qp(ep, 1, 1) ||
	    register_memory(ep))
		return -1;
	memcpy(wire, "LESSON14", 8);
	memcpy(wire + 8, words, sizeof(words));
	remote_region_pack(wire + 24, word);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (endpoint_connect(ep, &param) ||
	    remote_region_unpack(&to_ring, ep->private_data) ||
	    remote_region_unpack(&to_tail,
				 ep->private_data + REMOTE_REGION_WIRE_SIZE))
		return -1;
	memory.number = htobe64(tail);
	if (post(ep, memory.header, sizeof(memory.header), &to_ring))
		return -1;
	return post(ep, &memory.number, 8, &to_tail);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "head", required_argument, NULL, 'H' },
		{ "length", required_argument, NULL, 'l' },
		{ "seq", required_argument, NULL, 's' },
		{ "tail", required_argument, NULL, 'T' },
		{ NULL, 0, NULL, 0 },
	};
	struct options opt = OPTIONS_DEFAULT;
	struct endpoint ep = { 0 };
	long head = 0, tail = 0;
	int c, ret;

	setvbuf(stdout, NULL, _IOLBF, 0);
	memory.header[1] = htobe32(1);
	while ((c = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) != -1) {
		if (c == 'H')
			head = strtol(optarg, NULL, 0);
		else if (c == 'l')
			memory.header[0] = htobe32(strtoul(optarg, NULL, 0));
		else if (c == 's')
			memory.header[1] = htobe32(strtoul(optarg, NULL, 0));
		else if (c == 'T')
			tail = strtol(optarg, NULL, 0);
		else if (common_option(c, &opt))
			return EXIT_USAGE;
	}
	opt.server = argv[optind];
	ret = endpoint_open(&ep, &opt);
	if (!ret)
		ret = opt.server ? be_client(&ep, &opt, tail) :
				   be_server(&ep, &opt, head);
	/* The other side leaves first. */
	while (!ret && !ep.disconnected)
		ret = endpoint_wait_event(&ep, RDMA_CM_EVENT_DISCONNECTED);
	if (endpoint_disconnect(&ep))
		ret = -1;
	if (word)
		ibv_dereg_mr(word);
	if (ring)
		ibv_dereg_mr(ring);
	if (own)
		ibv_dereg_mr(own);
	endpoint_destroy(&ep);
	return ret ? EXIT_FAILED : EXIT_DONE;
}
