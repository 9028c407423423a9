/* SPDX-License-Identifier: MIT */
/*
 * Lesson 14: the receiver of a stream. Its ring is written by the client's
 * card. It watches the tail, takes what is there, looks at every byte, and
 * WRITEs back how far it has read.
 */
#include "ring.h"

struct server {
	struct endpoint ep;
	struct stream st;
	struct remote_region head_word; /* the client's: our head goes there */
	uint8_t *ring;
	struct ibv_mr *ring_mr;
	_Atomic uint64_t tail_word; /* the client writes here */
	struct ibv_mr *tail_mr;

	uint64_t head; /* read up to here: bytes, or messages by SEND */
	uint64_t told; /* and the client was told of so much */
	uint32_t heads; /* WRITEs of the head on their way */
	uint32_t heads_written; /* so many, ever */
	uint32_t seq; /* of the last message */
	uint64_t bytes; /* in all messages */
	struct watch watch;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS]\n"
		"Lend a ring to one client, and check every message that comes through it.\n" SERVER_USAGE_LINES
		"Man pages: ibv_reg_mr(3), ibv_post_send(3).\n");
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
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	int err = posix_memalign((void **)&s->ring, sysconf(_SC_PAGESIZE),
				 s->st.size);

	if (err) {
		report("posix_memalign", err);
		return -1;
	}
	memset(s->ring, 0, s->st.size);
	s->ring_mr = ibv_reg_mr(s->ep.pd, s->ring, s->st.size, remote);
	s->tail_mr = ibv_reg_mr(s->ep.pd, &s->tail_word, sizeof(s->tail_word),
				remote);
	if (!s->ring_mr || !s->tail_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

static void deregister_memory(struct server *s)
{
	if (s->tail_mr && ibv_dereg_mr(s->tail_mr))
		report("ibv_dereg_mr", errno);
	if (s->ring_mr && ibv_dereg_mr(s->ring_mr))
		report("ibv_dereg_mr", errno);
	free(s->ring);
}

/* By SEND the same memory is cut into slots of the longest message. */
static int post_receive(struct server *s, uint32_t slot)
{
	uint32_t space = space_of(s->st.max);
	struct ibv_sge sge = {
		.addr = (uintptr_t)(s->ring + (size_t)slot * space),
		.length = space,
		.lkey = s->ring_mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = wr_id_of(WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = 1,
	};

	return endpoint_post_recv(&s->ep, &wr);
}

static int accept_client(struct server *s)
{
	uint8_t wire[2 * REMOTE_REGION_WIRE_SIZE];
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint32_t recvs = s->st.by_send ? slots_of(&s->st) : 1, slot;

	if (create_qp(&s->ep, HEADS, recvs) || register_memory(s))
		return -1;
	for (slot = 0; s->st.by_send && slot < recvs; slot++)
		if (post_receive(s, slot))
			return -1;
	remote_region_pack(wire, s->ring_mr);
	remote_region_pack(wire + REMOTE_REGION_WIRE_SIZE, s->tail_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (endpoint_accept(&s->ep, &param))
		return -1;
	printf("lending a %s of %u bytes for messages of up to %u\n",
	       s->st.by_send ? "pool" : "ring", s->st.size, s->st.max);
	return 0;
}

/* ---- the way back ---------------------------------------------------------- */

/*
 * Tell the client how far we have read: not for every message, but when a
 * quarter of the ring is free that it does not know of, or when we have read
 * all there is and would wait. A client that waits for room waits for this.
 */
static int tell_head(struct server *s, bool idle)
{
	uint64_t all = s->st.by_send ? slots_of(&s->st) : s->st.size;
	struct word_write head;

	if (s->head == s->told || s->heads == HEADS)
		return 0;
	if (!idle && s->head - s->told < all / 4)
		return 0;
	word_write(&head, s->head, &s->head_word, 0);
	if (endpoint_post_send(&s->ep, &head.wr))
		return -1;
	s->heads++;
	s->heads_written++;
	s->told = s->head;
	return 0;
}

/* ---- out of the ring ------------------------------------------------------- */

/* LENGTH bytes of the ring from POSITION on, over its end where they go on. */
static void copy_out(const struct server *s, uint64_t position, void *to,
		     uint32_t length)
{
	uint32_t place = position % s->st.size;
	uint32_t first = s->st.size - place;

	if (first > length)
		first = length;
	memcpy(to, s->ring + place, first);
	memcpy((uint8_t *)to + first, s->ring, length - first);
}

/* Is this the message that was due, and is each of its bytes right? */
static int check_message(struct server *s, const struct header *header,
			 const uint8_t *text)
{
	uint32_t seq = be32toh(header->seq), i;
	uint32_t length = be32toh(header->length);

	if (seq != s->seq + 1 || length != length_of(&s->st, seq)) {
		fprintf(stderr,
			"message %u was due, of %u bytes, and number %u of %u "
			"bytes came\n",
			s->seq + 1, length_of(&s->st, s->seq + 1), seq, length);
		return -1;
	}
	for (i = 0; i < length; i++)
		if (text[i] != (uint8_t)(first_byte(seq) + i)) {
			fprintf(stderr, "message %u: byte %u is wrong\n", seq,
				i);
			return -1;
		}
	s->seq = seq;
	s->bytes += length;
	return 0;
}

/*
 * Take one message from the head of the ring; TAIL is where what is there ends.
 * Nothing of what the client has written is believed before it was looked at:
 * a length that leads past the tail would have us read what is not written yet.
 */
static int take(struct server *s, uint64_t tail)
{
	uint8_t text[MAX_LENGTH];
	struct header header;
	uint32_t length;

	copy_out(s, s->head, &header, sizeof(header));
	length = be32toh(header.length);
	if (length > s->st.max || space_of(length) > tail - s->head) {
		fprintf(stderr,
			"a message of %u bytes does not fit in the %llu bytes "
			"that are there\n",
			length, (unsigned long long)(tail - s->head));
		return -1;
	}
	copy_out(s, s->head + sizeof(header), text, length);
	if (check_message(s, &header, text))
		return -1;
	s->head += space_of(length);
	return 0;
}

/* What there is, up to the tail. */
static int take_all(struct server *s)
{
	uint64_t tail = word_read(&s->tail_word);

	if (tail < s->head || tail - s->head > s->st.size || tail % 16 != 0) {
		fprintf(stderr,
			"the tail says %llu, and we have read up to %llu in a "
			"ring of %u\n",
			(unsigned long long)tail, (unsigned long long)s->head,
			s->st.size);
		return -1;
	}
	if (tail != s->head)
		watch_progress(&s->watch);
	while (s->head != tail)
		if (take(s, tail) || tell_head(s, false))
			return -1;
	return 0;
}

/* By SEND: take the message that has come into SLOT, of BYTES with its header. */
static int take_slot(struct server *s, uint32_t slot, uint32_t bytes)
{
	const uint8_t *place = s->ring + (size_t)slot * space_of(s->st.max);
	struct header header;

	memcpy(&header, place, sizeof(header));
	if (bytes < sizeof(header) ||
	    bytes - sizeof(header) != be32toh(header.length)) {
		fprintf(stderr, "a SEND of %u bytes is no message\n", bytes);
		return -1;
	}
	if (check_message(s, &header, place + sizeof(header)))
		return -1;
	s->head++;
	return 0;
}

/* A completion: of a WRITE of our head, or, by SEND, of a receive. */
static int take_completion(struct server *s, const struct ibv_wc *wc)
{
	uint32_t slot = wr_id_slot(wc->wr_id);

	if (check_wc(wc))
		return -1;
	if (wr_id_op(wc->wr_id) == WR_WRITE) {
		s->heads--;
		return 0;
	}
	if (take_slot(s, slot, wc->byte_len) || post_receive(s, slot))
		return -1;
	watch_progress(&s->watch);
	return tell_head(s, false);
}

/* Nothing came: say why we do not wait any longer. */
static int nothing_came(const struct server *s, int why)
{
	if (why == 1)
		fprintf(stderr, "the client disconnected");
	else
		fprintf(stderr, "waited %d s and nothing came", s->ep.timeout);
	fprintf(stderr, ": %u of %u messages are here\n", s->seq, s->st.count);
	return -1;
}

static int receive_stream(struct server *s)
{
	struct ibv_wc wc;
	int n, ret;

	while (s->seq < s->st.count) {
		while ((n = endpoint_poll(&s->ep, &wc)) > 0)
			if (take_completion(s, &wc))
				return -1;
		if (n < 0 || (!s->st.by_send && take_all(s)) ||
		    tell_head(s, true))
			return -1;
		ret = watch_look(&s->watch, &s->ep);
		if (ret < 0)
			return -1;
		if (ret > 0)
			return nothing_came(s, ret);
	}
	return 0;
}

/*
 * The client leaves when it knows that all was read: the last head must go out. It
 * may have arrived, the client be gone, and nobody be there to acknowledge it: that
 * WRITE fails, what is posted behind it comes back, and the goodbye is still to come.
 */
static int say_all_read(struct server *s)
{
	struct ibv_wc wc;
	int n, ret;

	while (!s->ep.disconnected) {
		while ((n = endpoint_poll(&s->ep, &wc)) > 0) {
			if (wc.status == IBV_WC_RETRY_EXC_ERR ||
			    wc.status == IBV_WC_WR_FLUSH_ERR)
				continue;
			if (take_completion(s, &wc))
				return -1;
		}
		if (n < 0 || tell_head(s, true))
			return -1;
		ret = watch_look(&s->watch, &s->ep);
		if (ret < 0)
			return -1;
		if (ret == 2)
			return nothing_came(s, ret);
	}
	return 0;
}

static int run(struct server *s, const struct options *opt)
{
	if (endpoint_open(&s->ep, opt) || endpoint_listen(&s->ep, opt) ||
	    endpoint_get_request(&s->ep) ||
	    stream_unpack(&s->st, &s->head_word, s->ep.private_data,
			  s->ep.private_data_len) ||
	    accept_client(s) || receive_stream(s) || say_all_read(s))
		return -1;
	printf("%u messages, %llu bytes, every one right and in its turn; the "
	       "head was written back %u times\n",
	       s->seq, (unsigned long long)s->bytes, s->heads_written);
	return 0;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (run(&server, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&server.ep))
		status = EXIT_FAILED;
	deregister_memory(&server);
	endpoint_destroy(&server.ep);
	return status;
}
