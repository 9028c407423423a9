/* SPDX-License-Identifier: MIT */
/*
 * The server of exercise 16, as it is: it has a board of notices, which one client
 * may READ, and knows what was ever on it. With --busy it changes the notices all the
 * time, with a pause in the middle of each.
 */
#include <rdma_common.h>

#include "board.h"

#define RECEIVES 8

struct server {
	struct endpoint ep;
	struct notice board[NOTICES];
	uint32_t versions[NOTICES]; /* of what is on the board, or coming */
	uint32_t reported[NOTICES]; /* the latest that was reported */
	struct ibv_mr *board_mr;
	struct report reports[RECEIVES];
	struct ibv_mr *reports_mr;
	bool busy, gone;
	long right, mixed, old, wrong;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-b]\n"
		"Let one client read a board of notices, and check what it reports.\n"
		"  -b, --busy             change the notices all the time\n" SERVER_USAGE_LINES);
}

static int parse_options(int argc, char **argv, struct options *opt,
			 struct server *s)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "busy", no_argument, NULL, 'b' },
		{ NULL, 0, NULL, 0 },
	};
	int flag;

	while ((flag = getopt_long(argc, argv, COMMON_FLAGS "b", longs,
				   NULL)) != -1) {
		if (flag == 'b')
			s->busy = true;
		else if (common_option(flag, opt))
			return -1;
	}
	return server_operand(argc, argv, opt);
}

/* The text of a line of a notice, as it is in a version. */
static uint8_t letter(uint32_t number, uint32_t version, int line, int i)
{
	return 'a' +
	       pattern_byte(version * NOTICES + number, line * LINE_TEXT + i) %
		       26;
}

static void write_line(struct server *s, uint32_t number, int line)
{
	uint32_t version = s->versions[number];
	int i;

	/*
	 * A READ may come in the middle. The version of the first line to be
	 * changed goes before its text, that of the others behind theirs: until
	 * the last line is whole, two versions differ.
	 */
	if (line == 0)
		s->board[number].lines[line].version = htobe32(version);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (i = 0; i < LINE_TEXT; i++)
		s->board[number].lines[line].text[i] =
			letter(number, version, line, i);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	s->board[number].lines[line].version = htobe32(version);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static bool is_text(const struct report *report, uint32_t number,
		    uint32_t version, int line)
{
	int i;

	for (i = 0; i < LINE_TEXT; i++)
		if (report->text[line * LINE_TEXT + i] !=
		    letter(number, version, line, i))
			return false;
	return true;
}

static void check_report(struct server *s, const struct report *report,
			 uint32_t length)
{
	uint32_t number = be32toh(report->number);
	uint32_t version = be32toh(report->version);
	int line, good = 0, near = 0;

	if (length != sizeof(*report) || number >= NOTICES || version == 0 ||
	    version > s->versions[number]) {
		s->wrong++;
		return;
	}
	for (line = 0; line < LINES; line++) {
		if (is_text(report, number, version, line))
			good++;
		else if (is_text(report, number, version - 1, line) ||
			 is_text(report, number, version + 1, line))
			near++;
	}
	if (good == LINES && version < s->reported[number])
		s->old++;
	else if (good == LINES)
		s->right++;
	else if (good + near == LINES)
		s->mixed++;
	else
		s->wrong++;
	if (good == LINES)
		s->reported[number] = version;
}

static int post_receive(struct server *s, uint32_t slot)
{
	struct ibv_sge sge = { .addr = (uintptr_t)&s->reports[slot],
			       .length = sizeof(struct report),
			       .lkey = s->reports_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = wr_id_of(WR_RECV, slot),
				  .sg_list = &sge,
				  .num_sge = 1 };

	return endpoint_post_recv(&s->ep, &wr);
}

/* Look after the reports for so many milliseconds. */
static int pause_for(struct server *s, int ms)
{
	long long end = now_ms() + ms;
	struct ibv_wc wc;
	int n, ready;

	do {
		while ((n = endpoint_poll(&s->ep, &wc)) > 0) {
			if (check_wc(&wc))
				return -1;
			check_report(s, &s->reports[wr_id_slot(wc.wr_id)],
				     wc.byte_len);
			if (post_receive(s, wr_id_slot(wc.wr_id)))
				return -1;
		}
		if (n < 0)
			return -1;
		if (s->gone)
			return 0;
		ready = wait_readable(s->ep.channel->fd, s->ep.stop_fd, 1);
		if (ready < 0 ||
		    (ready &&
		     endpoint_take_event(&s->ep, RDMA_CM_EVENT_DISCONNECTED)))
			return -1;
		s->gone = s->ep.disconnected;
	} while (now_ms() < end || s->gone);
	return 0;
}

/*
 * The outer lines of all notices, a pause, the inner lines: neither end tells of the
 * middle. All at once, so that whichever is read is now and then of two pieces.
 */
static int change(struct server *s)
{
	uint32_t number;

	for (number = 0; number < NOTICES; number++) {
		s->versions[number]++;
		write_line(s, number, 0);
		write_line(s, number, LINES - 1);
	}
	if (pause_for(s, 4))
		return -1;
	for (number = 0; number < NOTICES; number++) {
		write_line(s, number, 1);
		write_line(s, number, 2);
	}
	return pause_for(s, 2);
}

static int serve(struct server *s, const struct options *opt)
{
	long long deadline = now_ms() + 60 * 1000LL;

	(void)opt;
	while (!s->gone) {
		if (now_ms() > deadline) {
			fprintf(stderr, "the client stays for ever\n");
			return -1;
		}
		if (s->busy ? change(s) : pause_for(s, 5))
			return -1;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = { .rnr_retry_count = 6,
					 .responder_resources = 4 };
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { 0 };
	struct endpoint *ep = &server.ep;
	uint8_t wire[8 + REMOTE_REGION_WIRE_SIZE];
	int status = EXIT_FAILED, i, line;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &server)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	for (i = 0; i < NOTICES; i++) {
		server.versions[i] = 1;
		for (line = 0; line < LINES; line++)
			write_line(&server, i, line);
	}
	if (endpoint_open(ep, &opt) || endpoint_listen(ep, &opt) ||
	    endpoint_get_request(ep) || endpoint_create_qp(ep, 1, RECEIVES))
		goto out;
	server.board_mr = ibv_reg_mr(ep->pd, server.board, sizeof(server.board),
				     IBV_ACCESS_REMOTE_READ);
	server.reports_mr = ibv_reg_mr(ep->pd, server.reports,
				       sizeof(server.reports),
				       IBV_ACCESS_LOCAL_WRITE);
	if (!server.board_mr || !server.reports_mr) {
		report("ibv_reg_mr", errno);
		goto out;
	}
	for (i = 0; i < RECEIVES; i++)
		if (post_receive(&server, i))
			goto out;
	memcpy(wire, MAGIC, 8);
	remote_region_pack(wire + 8, server.board_mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	if (endpoint_accept(ep, &param))
		goto out;
	printf("connected\n");
	if (serve(&server, &opt) == 0)
		status = EXIT_DONE;
	printf("%ld reports right, %ld of two pieces, %ld older than the one "
	       "before, %ld wrong\n",
	       server.right, server.mixed, server.old, server.wrong);
out:
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (server.board_mr && ibv_dereg_mr(server.board_mr))
		report("ibv_dereg_mr", errno);
	if (server.reports_mr && ibv_dereg_mr(server.reports_mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(ep);
	return status;
}
