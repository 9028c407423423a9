/* SPDX-License-Identifier: MIT */
/*
 * The server of exercise 12, as it is. It takes letters, and makes trouble: on
 * each connection the next one of a list.
 */
#include <rdma_common.h>

#include "letter.h"

#define RECEIVES 16
#define MAX_TROUBLES 16

enum trouble {
	GOOD,
	BUSY, /* refused: try again */
	CLOSED, /* refused for good */
	RNR, /* only three receives, and nobody may try again */
	LEAVE, /* disconnects after three letters */
	SILENT, /* stops answering after three letters */
	SMALL, /* receives that are too small */
	STRANGE, /* a welcome that is none */
};

static const char *const trouble_names[] = {
	[GOOD] = "good",   [BUSY] = "busy",	  [CLOSED] = "closed",
	[RNR] = "rnr",	   [LEAVE] = "leave",	  [SILENT] = "silent",
	[SMALL] = "small", [STRANGE] = "strange",
};

struct server {
	struct endpoint ep;
	enum trouble troubles[MAX_TROUBLES];
	int count; /* of them; the last one stays */
	long idle; /* ms without a client, and it is over */
	bool endless; /* it does stay; otherwise all is good afterwards */
	int connections; /* how often somebody knocked */
	uint32_t next; /* the letter that is wanted next */
	uint32_t wrong; /* letters that were not it */
	uint32_t taken; /* letters of this connection */
	struct letter letters[RECEIVES];
	struct ibv_mr *mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-m TROUBLE]... [-e]\n"
		"              [-i MS]\n"
		"Take letters until nobody comes any more.\n"
		"  -m, --make TROUBLE     good, busy, closed, rnr, leave, silent, small or strange;\n"
		"                         up to 16 times, one for each connection, then all is\n"
		"                         good\n"
		"  -e, --endless          the last trouble comes again and again\n"
		"  -i, --idle MS          end when nobody has come for so long, 1 to 60000 (default:\n"
		"                         2000)\n" SERVER_USAGE_LINES);
}

static int add_trouble(struct server *s, const char *name)
{
	int i;

	for (i = GOOD; i <= STRANGE; i++)
		if (!strcmp(name, trouble_names[i]) &&
		    s->count < MAX_TROUBLES) {
			s->troubles[s->count++] = i;
			return 0;
		}
	fprintf(stderr, "server: -m takes a trouble, 16 times at most\n");
	return -1;
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "make", required_argument, NULL, 'm' },
		{ "endless", no_argument, NULL, 'e' },
		{ "idle", required_argument, NULL, 'i' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "m:ei:", longs,
				NULL)) != -1) {
		if (c == 'e')
			s->endless = true;
		else if (c == 'i' &&
			 (s->idle = parse_number(optarg, 1, 60000)) > 0)
			continue;
		else if (c == 'm' ? add_trouble(s, optarg) :
				    common_option(c, opt))
			return -1;
	}
	return server_operand(argc, argv, opt);
}

static enum trouble trouble_now(const struct server *s)
{
	if (s->connections <= s->count)
		return s->troubles[s->connections - 1];
	return s->endless && s->count ? s->troubles[s->count - 1] : GOOD;
}

static int post_receive(struct server *s, uint32_t slot, enum trouble trouble)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&s->letters[slot],
		.length = trouble == SMALL ? 8 : sizeof(s->letters[slot]),
		.lkey = s->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&s->ep, &wr);
}

static int accept_client(struct server *s, enum trouble trouble)
{
	struct welcome welcome = { .magic = htobe32(LETTER_MAGIC),
				   .next = htobe32(s->next) };
	/* Nobody is to hide a missing receive: no second try. */
	struct rdma_conn_param param = { .retry_count = 6 };
	uint32_t i, receives = trouble == RNR ? 3 : RECEIVES;

	if (endpoint_create_qp(&s->ep, 1, RECEIVES))
		return -1;
	s->mr = ibv_reg_mr(s->ep.pd, s->letters, sizeof(s->letters),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!s->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	for (i = 0; i < receives; i++)
		if (post_receive(s, i, trouble))
			return -1;
	if (trouble == STRANGE)
		memset(&welcome, 0xa5, sizeof(welcome));
	param.private_data = &welcome;
	param.private_data_len = sizeof(welcome);
	return endpoint_accept(&s->ep, &param);
}

static void take_letter(struct server *s, uint32_t slot)
{
	uint32_t number = be32toh(s->letters[slot].number);

	s->taken++;
	if (number == s->next) {
		s->next++;
		return;
	}
	s->wrong++;
	printf("letter %u came, and %u was next\n", number, s->next);
}

/* Until the client leaves, or our trouble begins. */
static int take_letters(struct server *s, enum trouble trouble)
{
	struct ibv_qp_attr error = { .qp_state = IBV_QPS_RESET };
	struct ibv_wc wc;
	int ret;

	while ((ret = endpoint_wait_wc(&s->ep, &wc)) == 0) {
		if (wc.status != IBV_WC_SUCCESS)
			continue; /* our own doing, or the client's goodbye */
		take_letter(s, wr_id_slot(wc.wr_id));
		if (trouble == LEAVE && s->taken == 3)
			return 0;
		if (trouble == SILENT && s->taken == 3)
			ibv_modify_qp(s->ep.id->qp, &error, IBV_QP_STATE);
		if (trouble == SILENT && s->taken >= 3) {
			/* Gone with the reset; but some had come before it. */
			s->ep.outstanding = 0;
			continue;
		}
		if (trouble != RNR &&
		    post_receive(s, wr_id_slot(wc.wr_id), trouble))
			return -1;
	}
	return ret < 0 ? -1 : 0;
}

static void refuse(struct server *s, enum why why)
{
	struct refusal refusal = { .magic = htobe32(LETTER_MAGIC),
				   .why = htobe32(why) };

	rdma_reject(s->ep.id, &refusal, sizeof(refusal));
}

static void forget_client(struct server *s)
{
	struct endpoint *ep = &s->ep;

	endpoint_disconnect(ep);
	if (s->mr)
		ibv_dereg_mr(s->mr);
	if (ep->cq)
		ibv_destroy_cq(ep->cq);
	if (ep->comp_channel)
		ibv_destroy_comp_channel(ep->comp_channel);
	if (ep->pd)
		ibv_dealloc_pd(ep->pd);
	if (ep->id)
		rdma_destroy_id(ep->id);
	s->mr = NULL;
	ep->cq = NULL;
	ep->comp_channel = NULL;
	ep->pd = NULL;
	ep->id = NULL;
	ep->outstanding = 0;
	ep->disconnected = false;
}

static int serve(struct server *s)
{
	enum trouble trouble;

	s->connections++;
	s->taken = 0;
	trouble = trouble_now(s);
	printf("connection %d: %s\n", s->connections, trouble_names[trouble]);
	if (trouble == BUSY || trouble == CLOSED) {
		refuse(s, trouble == BUSY ? WHY_BUSY : WHY_CLOSED);
		return 0;
	}
	if (accept_client(s, trouble))
		return -1;
	return take_letters(s, trouble);
}

static int run(struct server *s, const struct options *opt)
{
	int ready;

	if (endpoint_open(&s->ep, opt) || endpoint_listen(&s->ep, opt))
		return -1;
	s->next = 1;
	if (endpoint_get_request(&s->ep))
		return -1;
	do {
		if (serve(s))
			printf("this connection came to a bad end\n");
		forget_client(s);
		ready = wait_readable(s->ep.channel->fd, s->ep.stop_fd,
				      s->idle);
	} while (ready > 0 && !endpoint_get_request(&s->ep));
	printf("%d connections, letters 1 to %u, %u out of turn\n",
	       s->connections, s->next - 1, s->wrong);
	return ready < 0 || s->wrong ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { .idle = 2000 };
	int ret;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &server)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	ret = run(&server, &opt);
	forget_client(&server);
	endpoint_destroy(&server.ep);
	return ret ? EXIT_FAILED : EXIT_DONE;
}
