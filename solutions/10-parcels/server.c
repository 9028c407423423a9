/* SPDX-License-Identifier: MIT */
/*
 * Exercise 10: a server that takes parcels. README.md has the task, parcels.h
 * what is on the wire.
 */
#include <rdma_common.h>

#include "parcels.h"

struct server {
	struct endpoint ep;
	uint8_t slots[SLOTS][SLOT_SIZE]; /* the client writes here */
	struct ibv_mr *mr;
	uint32_t parcels; /* so many have come */
	uint32_t sum; /* of all their bytes */
	bool closed; /* CLOSE has come, and was answered */
	/* What has come and waits for room in the send queue, which answers hold. */
	struct ibv_wc waiting[SLOTS + 1];
	unsigned int first, count, answering;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS]\n"
		"Take parcels from one client, answer each, and say the sum at the end.\n" SERVER_USAGE_LINES
		"Man pages: ibv_poll_cq(3), ibv_post_recv(3), ibv_post_send(3).\n");
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
	s->mr = ibv_reg_mr(s->ep.pd, s->slots, sizeof(s->slots),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (s->mr)
		return 0;
	report("ibv_reg_mr", errno);
	return -1;
}

/* A receive has no memory: the bytes go to the slots. */
static int post_receive(struct server *s)
{
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, 0) };

	return endpoint_post_recv(&s->ep, &wr);
}

static int accept_client(struct server *s)
{
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;

	/* One retry of an RNR is enough to be sure that there is no receive. */
	param.rnr_retry_count = 1;
	remote_region_pack(wire, s->mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	return endpoint_accept(&s->ep, &param);
}

#ifdef SOLUTION
/* The header of a notice. Returns 0, or -1 when it is none. */
static int read_header(const struct ibv_wc *wc, uint32_t *header)
{
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM &&
	    wc->wc_flags & IBV_WC_WITH_IMM) {
		*header = be32toh(wc->imm_data);
		return 0;
	}
	fprintf(stderr, "a message came that is no WRITE with immediate\n");
	return -1;
}

/*
 * A header is the client's word. Is there such a slot, has it room for so much,
 * and has the card counted as many bytes?
 */
static int take_parcel(struct server *s, uint32_t header, uint32_t written)
{
	uint32_t slot = header_slot(header), length = header_length(header);

	if (slot >= SLOTS || length > SLOT_SIZE || length != written) {
		fprintf(stderr,
			"a parcel of %u bytes in slot %u, and %u were written\n",
			length, slot, written);
		return -1;
	}
	s->sum += sum_of(s->slots[slot], length);
	s->parcels++;
	return 0;
}

/* The receive is posted first: the answer invites the next parcel. */
static int answer(struct server *s, uint32_t imm)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, 0),
		.opcode = IBV_WR_SEND_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htobe32(imm),
	};

	if (post_receive(s))
		return -1;
	return endpoint_post_send(&s->ep, &wr);
}
#else
/*
 * TODO 1: the header that came with this completion, as a number of ours. What
 * has to be looked at before imm_data may be? Return -1 where it is no notice.
 * Read ibv_poll_cq(3).
 */
static int read_header(const struct ibv_wc *wc, uint32_t *header)
{
	(void)wc;
	*header = 0;
	return 0;
}

/*
 * TODO 2: add the bytes of the parcel to s->sum, and 1 to s->parcels. The header
 * is a stranger's word; what does it say that cannot be, or that the card has
 * counted otherwise (WRITTEN)? Return -1 then.
 */
static int take_parcel(struct server *s, uint32_t header, uint32_t written)
{
	(void)s;
	(void)header;
	(void)written;
	return 0;
}

/*
 * TODO 3: answer with IMM, in a SEND of no bytes. The client has SLOTS parcels
 * under way and sends the next as soon as it has the answer: what does that
 * parcel need on our side, and when? serve() counts the answers in the send queue:
 * how does it hear that one has left it?
 */
static int answer(struct server *s, uint32_t imm)
{
	(void)s;
	(void)imm;
	return 0;
}
#endif

static int take_notice(struct server *s, const struct ibv_wc *wc)
{
	uint32_t header;

	if (read_header(wc, &header))
		return -1;
	switch (header_kind(header)) {
	case PARCEL:
		if (take_parcel(s, header, wc->byte_len))
			return -1;
		return answer(s, header);
	case CLOSE:
		if (s->closed || header_length(header) != s->parcels) {
			fprintf(stderr, "closed after %u parcels, not %u\n",
				s->parcels, header_length(header));
			return -1;
		}
		s->closed = true;
		return answer(s, s->sum);
	default:
		fprintf(stderr, "what is 0x%08x?\n", header);
		return -1;
	}
}

/* What has come, as long as there is room in the send queue for its answer. */
static int take_waiting(struct server *s)
{
	while (s->count && s->answering < SLOTS + 1) {
		if (take_notice(s, &s->waiting[s->first]))
			return -1;
		s->answering++;
		s->first = (s->first + 1) % (SLOTS + 1);
		s->count--;
	}
	return 0;
}

/*
 * Until the client leaves. An answer that the client has seen may still hold its
 * place in our send queue: the next parcel can be here before the acknowledgement.
 */
static int serve(struct server *s)
{
	struct ibv_wc wc;
	int ret;

	while (!(ret = endpoint_wait_wc(&s->ep, &wc))) {
		if (check_wc(&wc))
			return -1;
		if (wr_id_op(wc.wr_id) == WR_SEND)
			s->answering--;
		else
			s->waiting[(s->first + s->count++) % (SLOTS + 1)] = wc;
		if (take_waiting(s))
			return -1;
	}
	if (ret > 0 && !s->closed)
		fprintf(stderr, "the client left without closing\n");
	return ret > 0 && s->closed ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	int status = EXIT_FAILED, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	/* Room for the answers, and for one more, to CLOSE. */
	if (endpoint_open(ep, &opt) || endpoint_listen(ep, &opt) ||
	    endpoint_get_request(ep) ||
	    endpoint_create_qp(ep, SLOTS + 1, SLOTS + 1) ||
	    register_memory(&server))
		goto out;
	for (i = 0; i < SLOTS; i++)
		if (post_receive(&server))
			goto out;
	if (accept_client(&server))
		goto out;
	printf("connected\n");
	if (serve(&server) == 0)
		status = EXIT_DONE;
	printf("%u parcels, sum %u\n", server.parcels, server.sum);
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (server.mr && ibv_dereg_mr(server.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(ep);
	return status;
}
