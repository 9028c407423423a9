/* SPDX-License-Identifier: MIT */
/*
 * Lesson 14: the sender of a stream of messages of any length. It RDMA WRITEs
 * them into a ring in the server's memory and then the ring's new tail. The
 * server WRITEs back how far it has read, the head, and so we know what is
 * free.
 */
#include "ring.h"

struct client_options {
	struct options common;
	struct stream stream;
	long batch;
};

struct client {
	struct endpoint ep;
	struct stream st;
	uint32_t batch; /* messages before we flush */
	struct remote_region ring, tail_word; /* the server's */
	uint8_t *mirror; /* the ring as we build it; what is sent is taken here */
	struct ibv_mr *mirror_mr;
	_Atomic uint64_t head_word; /* the server writes here */
	struct ibv_mr *head_mr;

	/* Positions, all from the beginning of time: done <= sent <= built. */
	uint64_t built; /* messages are in the mirror up to here */
	uint64_t sent; /* and were posted up to here */
	uint64_t done; /* and our card is done with them up to here */
	uint64_t head; /* the server has read up to here */
	uint64_t flushed_to[FLUSHES]; /* where each flush on its way ends */
	uint32_t flushes, flushes_done; /* so many, ever */
	uint32_t stalls; /* how often there was no room */
	struct watch watch;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-n COUNT] [-m BYTES]\n"
		"              [-r BYTES] [--batch N] [--op ring|send] SERVER_ADDRESS\n"
		"Send messages of random lengths through a ring in the server's memory.\n"
		"  -n, --count COUNT      messages, 1 to 100000000 (default: 1000)\n"
		"  -m, --max BYTES        the longest, 0 to 65536 bytes (default: 256)\n"
		"  -r, --ring BYTES       the size of the ring, 256 to 16777216 bytes, a multiple\n"
		"                         of 16, and room for two of the longest messages\n"
		"                         (default: 16384)\n"
		"  --batch N              messages that go out together, 1 to 1000 (default: 16)\n"
		"  --op OP                ring: through the ring; send: each message by a SEND, with\n"
		"                         as much memory on the server's side (default: ring)\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), ibv_reg_mr(3).\n");
}

enum {
	BATCH = 256,
	OP,
};

static int flag_number(const char *flag, long min, long max, uint32_t *value)
{
	long number = parse_number(optarg, min, max);

	if (number < 0) {
		fprintf(stderr, "client: --%s takes %ld to %ld\n", flag, min,
			max);
		return -1;
	}
	*value = number;
	return 0;
}

static int parse_flag(int c, struct client_options *opt)
{
	struct stream *st = &opt->stream;
	uint32_t batch;

	switch (c) {
	case 'n':
		return flag_number("count", 1, MAX_COUNT, &st->count);
	case 'm':
		return flag_number("max", 0, MAX_LENGTH, &st->max);
	case 'r':
		return flag_number("ring", MIN_RING, MAX_RING, &st->size);
	case BATCH:
		if (flag_number("batch", 1, 1000, &batch))
			return -1;
		opt->batch = batch;
		return 0;
	case OP:
		st->by_send = !strcmp(optarg, "send");
		if (st->by_send || !strcmp(optarg, "ring"))
			return 0;
		fprintf(stderr, "client: --op takes ring or send\n");
		return -1;
	default:
		return common_option(c, &opt->common);
	}
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "count", required_argument, NULL, 'n' },
		{ "max", required_argument, NULL, 'm' },
		{ "ring", required_argument, NULL, 'r' },
		{ "batch", required_argument, NULL, BATCH },
		{ "op", required_argument, NULL, OP },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "n:m:r:", longs,
				NULL)) != -1)
		if (parse_flag(c, opt))
			return -1;
	if (!opt->common.help && !stream_fits(&opt->stream)) {
		fprintf(stderr,
			"client: a ring of %u bytes is not a multiple of 16, or "
			"has no room for two messages of %u bytes\n",
			opt->stream.size, opt->stream.max);
		return -1;
	}
	return client_operand(argc, argv, &opt->common);
}

static int register_memory(struct client *c)
{
	int err = posix_memalign((void **)&c->mirror, sysconf(_SC_PAGESIZE),
				 c->st.size);

	if (err) {
		report("posix_memalign", err);
		return -1;
	}
	memset(c->mirror, 0, c->st.size);
	c->mirror_mr = ibv_reg_mr(c->ep.pd, c->mirror, c->st.size, 0);
	c->head_mr =
		ibv_reg_mr(c->ep.pd, &c->head_word, sizeof(c->head_word),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!c->mirror_mr || !c->head_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

static void deregister_memory(struct client *c)
{
	if (c->head_mr && ibv_dereg_mr(c->head_mr))
		report("ibv_dereg_mr", errno);
	if (c->mirror_mr && ibv_dereg_mr(c->mirror_mr))
		report("ibv_dereg_mr", errno);
	free(c->mirror);
}

/* What the server lends: its ring, and the word for our tail. */
static int read_regions(struct client *c)
{
	if (remote_region_unpack(&c->ring, c->ep.private_data) ||
	    remote_region_unpack(&c->tail_word,
				 c->ep.private_data + REMOTE_REGION_WIRE_SIZE))
		return -1;
	if (c->ring.size == c->st.size && c->tail_word.size == sizeof(uint64_t))
		return 0;
	fprintf(stderr,
		"the server lends a ring of %u bytes and a tail of %u: "
		"is it the server of this lesson?\n",
		c->ring.size, c->tail_word.size);
	return -1;
}

static int connect_server(struct client *c)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint8_t wire[STREAM_WIRE_SIZE];

	stream_pack(wire, &c->st, c->head_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (endpoint_connect(&c->ep, &param) || read_regions(c))
		return -1;
	printf("connected\n");
	return 0;
}

/* ---- what is free ---------------------------------------------------------- */

/* Take the completions of our flushes: our card is done with so much. */
static int take_completions(struct client *c)
{
	struct ibv_wc wc;
	int n;

	while ((n = endpoint_poll(&c->ep, &wc)) > 0) {
		if (check_wc(&wc))
			return -1;
		c->done = c->flushed_to[wr_id_slot(wc.wr_id)];
		c->flushes_done++;
	}
	return n;
}

/*
 * Read the head that the server has written. It may say again what it said, or
 * more; but not less, and not more than we have sent.
 */
static int read_head(struct client *c)
{
	uint64_t head = word_read(&c->head_word);

	if (head < c->head || head > c->sent || head % 16 != 0) {
		fprintf(stderr,
			"the server says that it has read up to %llu, and it "
			"was at %llu of %llu\n",
			(unsigned long long)head, (unsigned long long)c->head,
			(unsigned long long)c->sent);
		return -1;
	}
	if (head != c->head)
		watch_progress(&c->watch);
	c->head = head;
	return 0;
}

/*
 * How many bytes may be built? What lies between the head and BUILT is the
 * server's to read. And of what it has read, that which our card may still have
 * to send again is not ours either: the mirror and the ring are one place.
 */
static uint64_t room(const struct client *c)
{
	uint64_t oldest = c->head < c->done ? c->head : c->done;

	return c->st.size - (c->built - oldest);
}

/* Look once for what makes room, and around. */
static int look(struct client *c)
{
	int ret;

	if (take_completions(c) || read_head(c))
		return -1;
	ret = watch_look(&c->watch, &c->ep);
	if (ret > 0)
		fprintf(stderr, "%s: it has read %llu of %llu bytes\n",
			ret == 1 ? "the server disconnected" :
				   "the server does not go on reading",
			(unsigned long long)c->head,
			(unsigned long long)c->sent);
	return ret ? -1 : 0;
}

/* ---- into the ring --------------------------------------------------------- */

/* One request: LENGTH bytes of the mirror from POSITION on, to the same place. */
static void fill_request(const struct client *c, uint64_t position,
			 uint32_t length, struct ibv_sge *sge,
			 struct ibv_send_wr *wr)
{
	uint32_t place = position % c->st.size;

	sge->addr = (uintptr_t)(c->mirror + place);
	sge->length = length;
	sge->lkey = c->mirror_mr->lkey;
	memset(wr, 0, sizeof(*wr));
	wr->wr_id = wr_id_of(WR_WRITE, FLUSHES); /* heard of only if it fails */
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->wr.rdma.remote_addr = c->ring.addr + place;
	wr->wr.rdma.rkey = c->ring.rkey;
}

/*
 * Send what is built and not sent: one WRITE, or two where it goes over the end
 * of the ring, and behind them the tail. All in one list. The tail comes last,
 * so whoever sees it finds everything before it.
 */
static int flush(struct client *c)
{
	uint32_t slot = c->flushes % FLUSHES;
	uint64_t length = c->built - c->sent;
	uint64_t to_end = c->st.size - c->sent % c->st.size;
	struct ibv_send_wr wrs[2];
	struct ibv_sge sges[2];
	struct word_write tail;

	if (length == 0)
		return 0;
	while (c->flushes - c->flushes_done == FLUSHES)
		if (look(c))
			return -1;
	word_write(&tail, c->built, &c->tail_word, slot);
	fill_request(c, c->sent, length < to_end ? length : to_end, &sges[0],
		     &wrs[0]);
	wrs[0].next = &tail.wr;
	if (length > to_end) {
		fill_request(c, c->sent + to_end, length - to_end, &sges[1],
			     &wrs[1]);
		wrs[0].next = &wrs[1];
		wrs[1].next = &tail.wr;
	}
	if (endpoint_post_send(&c->ep, &wrs[0]))
		return -1;
	c->ep.outstanding++; /* the last of the list, which is signalled */
	c->flushed_to[slot] = c->built;
	c->flushes++;
	c->sent = c->built;
	return 0;
}

/* Bytes into the mirror, over its end where they have to. */
static void build(struct client *c, const void *bytes, uint32_t length)
{
	uint32_t place = c->built % c->st.size;
	uint32_t first = c->st.size - place;

	if (first > length)
		first = length;
	memcpy(c->mirror + place, bytes, first);
	memcpy(c->mirror, (const uint8_t *)bytes + first, length - first);
	c->built += length;
}

/* Message SEQ, when there is room for it. */
static int put(struct client *c, uint32_t seq)
{
	static const uint8_t padding[16];
	uint32_t length = length_of(&c->st, seq), i;
	uint8_t text[MAX_LENGTH];
	struct header header = { .length = htobe32(length),
				 .seq = htobe32(seq) };

	if (room(c) < space_of(length)) {
		/* What we have is what the server has to read to make room. */
		if (flush(c))
			return -1;
		c->stalls++;
		while (room(c) < space_of(length))
			if (look(c))
				return -1;
	}
	for (i = 0; i < length; i++)
		text[i] = first_byte(seq) + i;
	build(c, &header, sizeof(header));
	build(c, text, length);
	build(c, padding, space_of(length) - sizeof(header) - length);
	return 0;
}

static int stream_by_ring(struct client *c)
{
	uint32_t seq;

	for (seq = 1; seq <= c->st.count; seq++) {
		if (put(c, seq))
			return -1;
		if ((seq % c->batch == 0 || seq == c->st.count) && flush(c))
			return -1;
	}
	/* All is delivered when all is read. */
	while (c->head != c->built || c->done != c->built)
		if (look(c))
			return -1;
	return 0;
}

/* ---- beside it: the same stream by SEND ------------------------------------ */

/*
 * Message SEQ is built in slot SEQ of the mirror, as large as the longest, and
 * sent from there. The head counts messages here: one receive for each that the
 * server has read.
 */
static int send_one(struct client *c, uint32_t seq)
{
	uint32_t slots = slots_of(&c->st);
	uint32_t length = length_of(&c->st, seq), i;
	uint8_t *place =
		c->mirror + (size_t)(seq % slots) * space_of(c->st.max);
	struct header header = { .length = htobe32(length),
				 .seq = htobe32(seq) };
	struct ibv_sge sge = {
		.addr = (uintptr_t)place,
		.length = sizeof(header) + length,
		.lkey = c->mirror_mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_SEND, seq),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
	};

	memcpy(place, &header, sizeof(header));
	for (i = 0; i < length; i++)
		place[sizeof(header) + i] = first_byte(seq) + i;
	if (seq % c->batch == 0 || seq == c->st.count)
		wr.send_flags = IBV_SEND_SIGNALED;
	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	c->sent = seq;
	return 0;
}

/* The same head by SEND, in messages. */
static int read_credit(struct client *c)
{
	uint64_t head = word_read(&c->head_word);

	if (head < c->head || head > c->sent) {
		fprintf(stderr,
			"the server says that it has read %llu messages, and it "
			"was at %llu of %llu\n",
			(unsigned long long)head, (unsigned long long)c->head,
			(unsigned long long)c->sent);
		return -1;
	}
	if (head != c->head)
		watch_progress(&c->watch);
	c->head = head;
	return 0;
}

/* The same of SENDs: their completions, and the head in messages. */
static int look_for_credit(struct client *c)
{
	struct ibv_wc wc;
	int n, ret;

	while ((n = endpoint_poll(&c->ep, &wc)) > 0) {
		if (check_wc(&wc))
			return -1;
		c->done = wr_id_slot(wc.wr_id);
	}
	if (n < 0 || read_credit(c))
		return -1;
	ret = watch_look(&c->watch, &c->ep);
	if (ret > 0)
		fprintf(stderr, "%s: it has read %llu of %llu messages\n",
			ret == 1 ? "the server disconnected" :
				   "the server does not go on reading",
			(unsigned long long)c->head,
			(unsigned long long)c->sent);
	return ret ? -1 : 0;
}

static int stream_by_send(struct client *c)
{
	uint32_t slots = slots_of(&c->st), seq;

	for (seq = 1; seq <= c->st.count; seq++) {
		if (seq - c->head > slots || seq - c->done > slots)
			c->stalls++;
		while (seq - c->head > slots || seq - c->done > slots)
			if (look_for_credit(c))
				return -1;
		if (send_one(c, seq))
			return -1;
	}
	while (c->head != c->st.count || c->done != c->st.count)
		if (look_for_credit(c))
			return -1;
	return 0;
}

/* ---- the whole ------------------------------------------------------------- */

static int run(struct client *c, const struct client_options *opt)
{
	uint32_t sends;
	long long start;
	double seconds;

	c->st = opt->stream;
	c->batch = opt->batch;
	/* By SEND a signal every BATCH; more than the slots would be for ever. */
	if (c->st.by_send && c->batch > (slots_of(&c->st) + 1) / 2)
		c->batch = (slots_of(&c->st) + 1) / 2;
	sends = c->st.by_send ? slots_of(&c->st) : 3 * FLUSHES;
	if (endpoint_open(&c->ep, &opt->common) ||
	    endpoint_resolve(&c->ep, &opt->common) ||
	    create_qp(&c->ep, sends, 1) || register_memory(c) ||
	    connect_server(c))
		return -1;
	start = now_us();
	if (c->st.by_send ? stream_by_send(c) : stream_by_ring(c))
		return -1;
	seconds = (now_us() - start) / 1e6;
	printf("%u messages of 0 to %u bytes through %u bytes, %s: %.0f "
	       "messages/s, %u times full\n",
	       c->st.count, c->st.max, c->st.size,
	       c->st.by_send ? "by SEND" : "as a ring", c->st.count / seconds,
	       c->stalls);
	return 0;
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.stream = { .count = 1000, .max = 256, .size = 16384 },
		.batch = 16,
	};
	struct client client = { 0 };
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
	if (run(&client, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&client.ep))
		status = EXIT_FAILED;
	deregister_memory(&client);
	endpoint_destroy(&client.ep);
	return status;
}
