/* SPDX-License-Identifier: MIT */
/*
 * Lesson 17: the server of lesson 08 without the CM.
 */
#include <stdatomic.h>

#include "by_hand.h"

#define SIZE (1 << 20)

struct server {
	struct side side;
	char *buffer; /* the client writes its text here */
	struct ibv_mr *buffer_mr;
	_Atomic uint64_t doorbell; /* and rings here */
	struct ibv_mr *doorbell_mr;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [--wrong WHAT]\n"
		"Connect a queue pair by hand with one client, and print what it writes.\n"
		"  --wrong WHAT           do one thing wrongly: psn (the number of the client's\n"
		"                         first packet), access (allow no REMOTE_WRITE)\n" SERVER_USAGE_LINES
		"PORT is a TCP port here.\n"
		"Man pages: ibv_modify_qp(3), ibv_query_gid_table(3).\n");
}

static int parse_options(int argc, char **argv, struct options *opt,
			 enum wrong *wrong)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "wrong", required_argument, NULL, 'w' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) != -1) {
		if (c != 'w') {
			if (common_option(c, opt))
				return -1;
		} else if (!strcmp(optarg, "psn")) {
			*wrong = WRONG_PSN;
		} else if (!strcmp(optarg, "access")) {
			*wrong = WRONG_NO_ACCESS;
		} else {
			fprintf(stderr,
				"server: --wrong takes psn or access\n");
			return -1;
		}
	}
	return server_operand(argc, argv, opt);
}

/* As in lesson 08; the two regions go into the record. */
static int register_memory(struct server *s)
{
	const int remote = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	s->buffer = calloc(1, SIZE);
	if (!s->buffer) {
		report("calloc", errno);
		return -1;
	}
	s->buffer_mr = ibv_reg_mr(s->side.pd, s->buffer, SIZE, remote);
	s->doorbell_mr = ibv_reg_mr(s->side.pd, &s->doorbell,
				    sizeof(s->doorbell), remote);
	if (!s->buffer_mr || !s->doorbell_mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	remote_region_pack(s->side.mine.buffer, s->buffer_mr);
	remote_region_pack(s->side.mine.doorbell, s->doorbell_mr);
	return 0;
}

static void deregister_memory(struct server *s)
{
	if (s->doorbell_mr && ibv_dereg_mr(s->doorbell_mr))
		report("ibv_dereg_mr", errno);
	if (s->buffer_mr && ibv_dereg_mr(s->buffer_mr))
		report("ibv_dereg_mr", errno);
	free(s->buffer);
}

static bool doorbell_rung(struct server *s)
{
	return atomic_load_explicit(&s->doorbell, memory_order_acquire) != 0;
}

/*
 * Look at the doorbell once a millisecond, and at the TCP connection: its end is
 * all that tells us that the client has gone. The RC connection would not say
 * so, ever.
 */
static int wait_for_doorbell(struct server *s)
{
	long long deadline = now_ms() + s->side.tcp.timeout * 1000LL;
	int ready;

	while (!doorbell_rung(s)) {
		if (now_ms() >= deadline) {
			fprintf(stderr,
				"waited %d s for the doorbell and it did not "
				"ring: is the client alive?\n",
				s->side.tcp.timeout);
			return -1;
		}
		ready = wait_readable(s->side.tcp.fd, s->side.tcp.stop_fd, 1);
		if (ready < 0)
			return -1;
		if (ready == 0)
			continue;
		if (doorbell_rung(s)) /* rung, and gone */
			break;
		fprintf(stderr, "the client has gone, and the doorbell has not "
				"rung\n");
		return -1;
	}
	printf("the doorbell has the value %llu\n",
	       (unsigned long long)be64toh(s->doorbell));
	printf("buffer: %.*s\n", (int)strnlen(s->buffer, SIZE), s->buffer);
	return 0;
}

/*
 * The client leaves when both its WRITEs are acknowledged. Until then our queue
 * pair has to be there: where an acknowledgement is lost it is asked for again.
 */
static int wait_for_goodbye(struct server *s)
{
	return tcp_wait(&s->side.tcp, s->side.tcp.fd, "the client's goodbye");
}

static int run(struct server *s, const struct options *opt)
{
	struct side *side = &s->side;

	if (side_open(side, opt) || tcp_listen(&side->tcp, opt) ||
	    tcp_accept(&side->tcp) || find_gid(side) || make_qp(side, 1, 1) ||
	    to_init(side) || register_memory(s) || exchange(side) ||
	    to_rtr(side) || to_rts(side) || barrier(side))
		return -1;
	return wait_for_doorbell(s) || wait_for_goodbye(s) ? -1 : 0;
}

int main(int argc, char **argv)
{
	struct options opt = OPTIONS_DEFAULT;
	struct server server = { .side.tcp = { .fd = -1, .listen_fd = -1 } };
	int status = EXIT_FAILED;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt, &server.side.wrong)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	if (run(&server, &opt) == 0)
		status = EXIT_DONE;
	side_destroy_qp(&server.side);
	deregister_memory(&server);
	side_destroy(&server.side);
	return status;
}
