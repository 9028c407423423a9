/* SPDX-License-Identifier: MIT */
/*
 * Lesson 06: memory. The client is told where the server's memory is, and has
 * its card write there. --wrong has it try what it may not.
 */
#include <rdma_common.h>

#define MAX_SIZE (1 << 20)

/* The number that the bytes are made of: the server expects this pattern. */
#define SEED 6

/* What can be wrong with the request, to see what happens. */
enum wrong {
	NOTHING,
	RKEY,
	END,
	LKEY,
	LOCAL_END,
};

static const char *const wrong_names[] = {
	[NOTHING] = "nothing", [RKEY] = "rkey",		  [END] = "end",
	[LKEY] = "lkey",       [LOCAL_END] = "local-end",
};

struct client_options {
	struct options common;
	long size; /* bytes to write */
	enum wrong wrong;
};

/* A memory region as its owner tells a peer of it. */
struct remote_region {
	uint64_t addr; /* in the owner's address space */
	uint32_t rkey;
	uint32_t size; /* bytes */
};

struct client {
	struct endpoint ep;
	struct remote_region region; /* the server's */
	size_t size;
	uint8_t *memory; /* ours, that is written from */
	struct ibv_mr *mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-s BYTES]\n"
		"              [--wrong WHAT] SERVER_ADDRESS\n"
		"Write into the memory that the server offers.\n"
		"  -s, --size BYTES       how much, 0 to 1048576 (default: 4096)\n"
		"  --wrong WHAT           what is wrong with the request (default: nothing):\n"
		"                         rkey       the server's key, plus 1\n"
		"                         end        two bytes, the second past the server's end\n"
		"                         lkey       our own key, plus 1\n"
		"                         local-end  one byte more than our own region has\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), ibv_reg_mr(3), rdma_connect(3).\n");
}

static int parse_wrong(const char *text, enum wrong *wrong)
{
	int i;

	for (i = NOTHING; i <= LOCAL_END; i++) {
		if (!strcmp(text, wrong_names[i])) {
			*wrong = i;
			return 0;
		}
	}
	fprintf(stderr, "client: --wrong %s: what is that?\n", text);
	return -1;
}

enum {
	WRONG = 256
};

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "size", required_argument, NULL, 's' },
		{ "wrong", required_argument, NULL, WRONG },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:", longs, NULL)) !=
	       -1) {
		switch (c) {
		case 's':
			opt->size = parse_number(optarg, 0, MAX_SIZE);
			if (opt->size >= 0)
				break;
			fprintf(stderr, "client: -s takes 0 to %d bytes\n",
				MAX_SIZE);
			return -1;
		case WRONG:
			if (parse_wrong(optarg, &opt->wrong))
				return -1;
			break;
		default:
			if (common_option(c, &opt->common))
				return -1;
		}
	}
	return client_operand(argc, argv, &opt->common);
}

/*
 * Our own memory, that the card reads from. Reading is what every region
 * allows, so it needs no right. (It has room for the two bytes of --wrong end,
 * and a region of 0 bytes is not to be had.)
 */
static int register_memory(struct client *c)
{
	size_t bytes = c->size > 2 ? c->size : 2;

	c->memory = malloc(bytes);
	if (!c->memory) {
		report("malloc", errno);
		return -1;
	}
	pattern_fill(c->memory, bytes, SEED);
	c->mr = ibv_reg_mr(c->ep.pd, c->memory, bytes, 0);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

/* What remote_region_pack() makes: addr, rkey, size, each big-endian. */
#define REMOTE_REGION_WIRE_SIZE 16

/*
 * The 16 bytes that the server has packed, the other way round. They have come
 * over the network, from a program that may be another one than we think, so
 * they are looked at before they are used.
 *
 * Returns 0, or -1 after having reported, when what came cannot be a region:
 * no address, no size, or an end past the end of the address space.
 */
static int remote_region_unpack(struct remote_region *region,
				const uint8_t *wire)
{
	uint64_t addr;
	uint32_t rkey, size;

	memcpy(&addr, wire, 8);
	memcpy(&rkey, wire + 8, 4);
	memcpy(&size, wire + 12, 4);
	region->addr = be64toh(addr);
	region->rkey = be32toh(rkey);
	region->size = be32toh(size);
	if (region->addr && region->size &&
	    region->addr + region->size > region->addr)
		return 0;
	fprintf(stderr,
		"the peer's private data is no memory region (address 0x%llx, "
		"size %u): is it the server of this lesson?\n",
		(unsigned long long)region->addr, region->size);
	return -1;
}

/* The server's private data came with ESTABLISHED. */
static int read_region(struct client *c)
{
	if (c->ep.private_data_len < REMOTE_REGION_WIRE_SIZE) {
		fprintf(stderr,
			"the server sent %zu bytes of private data, and a "
			"region is %d: is it the server of this lesson?\n",
			c->ep.private_data_len, REMOTE_REGION_WIRE_SIZE);
		return -1;
	}
	if (remote_region_unpack(&c->region, c->ep.private_data))
		return -1;
	printf("the server's memory: %u bytes at 0x%llx, rkey 0x%x\n",
	       c->region.size, (unsigned long long)c->region.addr,
	       c->region.rkey);
	if (c->size > c->region.size) {
		fprintf(stderr,
			"we have %zu bytes to write, and the server's memory "
			"has room for %u: write fewer with -s\n",
			c->size, c->region.size);
		return -1;
	}
	return 0;
}

/*
 * The RDMA WRITE: from where (the SGE, with our lkey), and to where (rdma, with
 * the server's rkey). Our card checks the one, the server's card the other.
 */
static int post_write(struct client *c, enum wrong wrong)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)c->memory,
		.length = c->size,
		.lkey = c->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_WRITE, 0),
		.sg_list = &sge,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {
			.remote_addr = c->region.addr,
			.rkey = c->region.rkey,
		},
	};

	switch (wrong) {
	case RKEY:
		wr.wr.rdma.rkey++;
		break;
	case END:
		wr.wr.rdma.remote_addr += c->region.size - 1;
		sge.length = 2;
		break;
	case LKEY:
		sge.lkey++;
		break;
	case LOCAL_END:
		sge.length = c->mr->length + 1;
		break;
	case NOTHING:
		break;
	}
	wr.num_sge = sge.length ? 1 : 0;
	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	printf("RDMA WRITE of %u bytes to 0x%llx\n", sge.length,
	       (unsigned long long)wr.wr.rdma.remote_addr);
	return 0;
}

/* The completion of the WRITE is all that there is to wait for. */
static int wait_written(struct client *c)
{
	struct ibv_wc wc;
	int ret = endpoint_wait_wc(&c->ep, &wc);

	if (ret > 0)
		fprintf(stderr, "the peer disconnected before the completion "
				"came\n");
	if (ret || check_wc(&wc))
		return -1;
	printf("completed: %s\n", ibv_wc_status_str(wc.status));
	return 0;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.size = 4096,
	};
	struct client client = { 0 };
	struct endpoint *ep = &client.ep;
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.common.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	client.size = opt.size;
	if (endpoint_open(ep, &opt.common) ||
	    endpoint_resolve(ep, &opt.common) || endpoint_create_qp(ep, 1, 1) ||
	    register_memory(&client) || endpoint_connect(ep, &param) ||
	    read_region(&client) || post_write(&client, opt.wrong) ||
	    wait_written(&client))
		goto out;
	status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	free(client.memory);
	endpoint_destroy(ep);
	return status;
}
