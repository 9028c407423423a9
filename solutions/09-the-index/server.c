/* SPDX-License-Identifier: MIT */
/*
 * The server of exercise 09, as it is: it offers an index and what the index
 * points to, and waits for the sums. It never knows of a READ.
 */
#include <rdma_common.h>

#include "index.h"

#define RECORDS 12
#define REGION_SIZE 65536

struct server {
	struct endpoint ep;
	uint8_t *memory;
	uint32_t sums[RECORDS];
	struct ibv_mr *mr;
	uint8_t message[4 * MAX_RECORDS];
	struct ibv_mr *message_mr;
	long grant;
	bool lie; /* the last record goes past the end of the region */
	bool big; /* the last record is longer than there may be */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-g N] [-l | -b]\n"
		"Offer an index and its records to one client, and check its sums.\n"
		"  -g, --grant N          grant so many READs at a time at the most (default: 4)\n"
		"  -l, --lie              the last record goes past the end of the region\n"
		"  -b, --big              the last record is longer than it may be\n" SERVER_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "grant", required_argument, NULL, 'g' },
		{ "lie", no_argument, NULL, 'l' },
		{ "big", no_argument, NULL, 'b' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	s->grant = 4;
	while ((c = getopt_long(argc, argv, COMMON_FLAGS "g:lb", longs,
				NULL)) != -1) {
		switch (c) {
		case 'g':
			s->grant = parse_number(optarg, 0, 16);
			if (s->grant >= 0)
				break;
			fprintf(stderr, "server: -g takes 0 to 16\n");
			return -1;
		case 'l':
			s->lie = true;
			break;
		case 'b':
			s->big = true;
			break;
		default:
			if (common_option(c, opt))
				return -1;
		}
	}
	return server_operand(argc, argv, opt);
}

static void put_u32(uint8_t *wire, uint32_t value)
{
	value = htobe32(value);
	memcpy(wire, &value, 4);
}

/* The records stand in the region from back to front. */
static int make_index(struct server *s)
{
	uint32_t offset = REGION_SIZE, length, i;

	s->memory = calloc(1, REGION_SIZE);
	if (!s->memory) {
		report("calloc", errno);
		return -1;
	}
	put_u32(s->memory, INDEX_MAGIC);
	put_u32(s->memory + 4, RECORDS);
	for (i = 0; i < RECORDS; i++) {
		length = 1 + i * 911 % MAX_RECORD;
		if (s->big && i == RECORDS - 1)
			length = MAX_RECORD + 1000;
		offset -= length + 100;
		pattern_fill(s->memory + offset, length, i + 1);
		s->sums[i] = sum_of(s->memory + offset, length);
		if (s->lie && i == RECORDS - 1)
			offset = REGION_SIZE - length + 1;
		put_u32(s->memory + 8 + i * ENTRY_SIZE, offset);
		put_u32(s->memory + 12 + i * ENTRY_SIZE, length);
	}
	return 0;
}

static int register_memory(struct server *s)
{
	s->mr = ibv_reg_mr(s->ep.pd, s->memory, REGION_SIZE,
			   IBV_ACCESS_REMOTE_READ);
	s->message_mr = ibv_reg_mr(s->ep.pd, s->message, sizeof(s->message),
				   IBV_ACCESS_LOCAL_WRITE);
	if (s->mr && s->message_mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

static int post_receive(struct server *s)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)s->message,
		.length = sizeof(s->message),
		.lkey = s->message_mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, 0),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&s->ep, &wr);
}

static int accept_client(struct server *s)
{
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint8_t asked = s->ep.responder_resources;

	remote_region_pack(wire, s->mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	param.responder_resources = asked < s->grant ? asked : s->grant;
	if (endpoint_accept(&s->ep, &param))
		return -1;
	printf("connected; it asked for %u READs at a time and has got %u\n",
	       asked, param.responder_resources);
	return 0;
}

/* Wait for the sums, compare them, and wait until the client leaves. */
static int check_sums(struct server *s)
{
	uint32_t sum, right = 0, i;
	struct ibv_wc wc;
	int ret = endpoint_wait_wc(&s->ep, &wc);

	if (ret > 0) {
		printf("the client left without its sums\n");
		return -1;
	}
	if (ret || check_wc(&wc))
		return -1;
	if (wc.byte_len != 4 * RECORDS) {
		printf("a message of %u bytes came, %d sums are %d\n",
		       wc.byte_len, RECORDS, 4 * RECORDS);
		return -1;
	}
	for (i = 0; i < RECORDS; i++) {
		memcpy(&sum, s->message + 4 * i, 4);
		if (be32toh(sum) == s->sums[i])
			right++;
	}
	printf("%u of %d sums are right\n", right, RECORDS);
	if (!s->ep.disconnected &&
	    endpoint_wait_event(&s->ep, RDMA_CM_EVENT_DISCONNECTED))
		return -1;
	return right == RECORDS ? 0 : -1;
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
	if (make_index(&server) || endpoint_open(ep, &opt) ||
	    endpoint_listen(ep, &opt) || endpoint_get_request(ep) ||
	    endpoint_create_qp(ep, 1, 1) || register_memory(&server) ||
	    post_receive(&server) || accept_client(&server))
		goto out;
	if (check_sums(&server) == 0)
		status = EXIT_DONE;
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (server.mr && ibv_dereg_mr(server.mr))
		report("ibv_dereg_mr", errno);
	if (server.message_mr && ibv_dereg_mr(server.message_mr))
		report("ibv_dereg_mr", errno);
	free(server.memory);
	endpoint_destroy(ep);
	return status;
}
