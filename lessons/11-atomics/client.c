/* SPDX-License-Identifier: MIT */
/*
 * Lesson 11: several processes, each with a connection of its own, count in the
 * server's memory: in a counter by fetch-and-add, and in a sum that is read and
 * written under a lock, which is taken by compare-and-swap.
 */
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <rdma_common.h>

#define MAX_CLIENTS 8
#define MAX_COUNT 100000

/*
 * Our private data: these letters, how often we will count, and how many
 * processes we are (u32, big-endian).
 */
#define MAGIC "LESSON11"
#define REQUEST_SIZE 16

/* Where the three numbers are in the server's region. */
enum place {
	COUNTER = 0,
	LOCK = 8,
	SUM = 16,
	PLACES_END = 24,
};

/* What can be wrong, to see what happens. */
enum wrong {
	NOTHING,
	ALIGN,
	NO_LOCK,
	KEEP,
};

static const char *const wrong_names[] = {
	[NOTHING] = "nothing",
	[ALIGN] = "align",
	[NO_LOCK] = "no-lock",
	[KEEP] = "keep",
};

struct client_options {
	struct options common;
	long clients; /* processes */
	long count; /* how often each counts, in either way */
	enum wrong wrong;
};

struct client {
	struct endpoint ep;
	struct remote_region region; /* the three numbers */
	uint64_t number; /* which of the processes we are, from 1 on */
	uint64_t result; /* our card writes here what it found there */
	struct ibv_mr *mr;
	long tries; /* for the lock, until we had it */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: client [-a SOURCE_ADDRESS] [-p PORT] [-t SECONDS] [-c CLIENTS] [-n COUNT]\n"
		"              [--wrong WHAT] SERVER_ADDRESS\n"
		"Count in the server's memory from several processes at a time.\n"
		"  -c, --clients CLIENTS  how many processes, 1 to 8 (default: 4)\n"
		"  -n, --count COUNT      how often each counts, 1 to 100000 (default: 10)\n"
		"  --wrong WHAT           what is wrong (default: nothing):\n"
		"                         align    the counter's address, plus 4\n"
		"                         no-lock  the sum is read and written without the lock\n"
		"                         keep     the last process keeps the lock when it leaves\n" CLIENT_USAGE_LINES
		"Man pages: ibv_post_send(3), fork(2).\n");
}

static int parse_wrong(const char *text, enum wrong *wrong)
{
	int i;

	for (i = NOTHING; i <= KEEP; i++) {
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

static int parse_flag(int c, struct client_options *opt)
{
	switch (c) {
	case 'c':
		opt->clients = parse_number(optarg, 1, MAX_CLIENTS);
		if (opt->clients > 0)
			return 0;
		fprintf(stderr, "client: -c takes 1 to %d processes\n",
			MAX_CLIENTS);
		return -1;
	case 'n':
		opt->count = parse_number(optarg, 1, MAX_COUNT);
		if (opt->count > 0)
			return 0;
		fprintf(stderr, "client: -n takes 1 to %d\n", MAX_COUNT);
		return -1;
	case WRONG:
		return parse_wrong(optarg, &opt->wrong);
	default:
		return common_option(c, &opt->common);
	}
}

static int parse_options(int argc, char **argv, struct client_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "clients", required_argument, NULL, 'c' },
		{ "count", required_argument, NULL, 'n' },
		{ "wrong", required_argument, NULL, WRONG },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "c:n:", longs,
				NULL)) != -1)
		if (parse_flag(c, opt))
			return -1;
	return client_operand(argc, argv, &opt->common);
}

/* What an atomic finds is brought back to us, as by a READ: LOCAL_WRITE. */
static int register_memory(struct client *c)
{
	c->mr = ibv_reg_mr(c->ep.pd, &c->result, sizeof(c->result),
			   IBV_ACCESS_LOCAL_WRITE);
	if (!c->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	return 0;
}

/* Where the three numbers are, and may we work on them? */
static int read_region(struct client *c)
{
	if (remote_region_unpack(&c->region, c->ep.private_data))
		return -1;
	if (c->region.size >= PLACES_END && c->ep.initiator_depth >= 1)
		return 0;
	fprintf(stderr,
		"the server offers %u bytes, and %u atomics at a time: is it "
		"the server of this lesson?\n",
		c->region.size, c->ep.initiator_depth);
	return -1;
}

/* Say how often we will count, and ask for one atomic or READ at a time. */
static int connect_server(struct client *c, const struct client_options *opt)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint8_t wire[REQUEST_SIZE];
	uint32_t times = htobe32(opt->count), clients = htobe32(opt->clients);

	memcpy(wire, MAGIC, 8);
	memcpy(wire + 8, &times, 4);
	memcpy(wire + 12, &clients, 4);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	param.initiator_depth = 1;
	return endpoint_connect(&c->ep, &param) || read_region(c) ? -1 : 0;
}

/* Post WR, all of which concerns our 8 bytes, and wait until it is done. */
static int carry_out(struct client *c, struct ibv_send_wr wr)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)&c->result,
		.length = sizeof(c->result),
		.lkey = c->mr->lkey,
	};
	struct ibv_wc wc;
	int ret;

	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	if (endpoint_post_send(&c->ep, &wr))
		return -1;
	ret = endpoint_wait_wc(&c->ep, &wc);
	if (ret > 0)
		fprintf(stderr, "the server has left\n");
	return ret ? -1 : check_wc(&wc);
}

/*
 * The two atomics. Both bring back into c->result what was there before, as a
 * number of this machine, whatever the byte order of either: the cards see to
 * that. So there is no be64toh() here.
 */
static int fetch_and_add(struct client *c, uint64_t place, uint64_t add)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_ATOMIC, place),
		.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
		.wr.atomic = {
			.remote_addr = c->region.addr + place,
			.rkey = c->region.rkey,
			.compare_add = add,
		},
	};

	return carry_out(c, wr);
}

/* If EXPECTED is there, SWAP takes its place; otherwise nothing changes. */
static int compare_and_swap(struct client *c, uint64_t place, uint64_t expected,
			    uint64_t swap)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(WR_ATOMIC, place),
		.opcode = IBV_WR_ATOMIC_CMP_AND_SWP,
		.wr.atomic = {
			.remote_addr = c->region.addr + place,
			.rkey = c->region.rkey,
			.compare_add = expected,
			.swap = swap,
		},
	};

	return carry_out(c, wr);
}

/* A READ or a WRITE of 8 bytes, which are bytes and no number. */
static int transfer(struct client *c, enum ibv_wr_opcode opcode, uint64_t place)
{
	struct ibv_send_wr wr = {
		.wr_id = wr_id_of(opcode == IBV_WR_RDMA_READ ? WR_READ :
							       WR_WRITE,
				  place),
		.opcode = opcode,
		.wr.rdma = {
			.remote_addr = c->region.addr + place,
			.rkey = c->region.rkey,
		},
	};

	return carry_out(c, wr);
}

/* The tickets: each number is drawn by one client and by no other. */
static int draw_tickets(struct client *c, const struct client_options *opt,
			uint64_t *tickets)
{
	uint64_t place = opt->wrong == ALIGN ? COUNTER + 4 : COUNTER;
	long i;

	for (i = 0; i < opt->count; i++) {
		if (fetch_and_add(c, place, 1))
			return -1;
		tickets[i] = c->result;
	}
	return 0;
}

/*
 * Try until the lock was free, that is 0, and is now ours. Each try that finds it
 * taken costs its holder time, since it goes through the same card; so we rest
 * for a millisecond before the next.
 */
static int lock(struct client *c)
{
	long long deadline = now_ms() + c->ep.timeout * 1000LL;

	for (;;) {
		if (compare_and_swap(c, LOCK, 0, c->number))
			return -1;
		c->tries++;
		if (c->result == 0)
			return 0;
		if (now_ms() > deadline) {
			fprintf(stderr,
				"waited %d s for the lock, and client %llu "
				"holds it: has it died?\n",
				c->ep.timeout, (unsigned long long)c->result);
			return -1;
		}
		if (wait_readable(-1, c->ep.stop_fd, 1) < 0)
			return -1;
	}
}

/* From our number to 0. If it is not our number that is there, all is lost. */
static int unlock(struct client *c)
{
	if (compare_and_swap(c, LOCK, c->number, 0))
		return -1;
	if (c->result == c->number)
		return 0;
	fprintf(stderr, "the lock was ours, and now client %llu has it\n",
		(unsigned long long)c->result);
	return -1;
}

/*
 * Read, add, write. It is right because nobody else does it at the same time.
 * The WRITE has completed before the lock is given back.
 */
static int add_to_sum(struct client *c, const struct client_options *opt)
{
	if (opt->wrong != NO_LOCK && lock(c))
		return -1;
	if (transfer(c, IBV_WR_RDMA_READ, SUM))
		return -1;
	c->result = htobe64(be64toh(c->result) + 1);
	if (transfer(c, IBV_WR_RDMA_WRITE, SUM))
		return -1;
	return opt->wrong != NO_LOCK ? unlock(c) : 0;
}

static int count(struct client *c, const struct client_options *opt,
		 uint64_t *tickets)
{
	long i;

	if (draw_tickets(c, opt, tickets))
		return -1;
	for (i = 0; i < opt->count; i++)
		if (add_to_sum(c, opt))
			return -1;
	printf("client %llu: drew %ld tickets, the first %llu, the last %llu; ",
	       (unsigned long long)c->number, opt->count,
	       (unsigned long long)tickets[0],
	       (unsigned long long)tickets[opt->count - 1]);
	if (opt->wrong == NO_LOCK)
		printf("took no lock\n");
	else
		printf("took the lock %ld times, with %ld tries\n", opt->count,
		       c->tries);
	if (opt->wrong == KEEP && c->number == (uint64_t)opt->clients)
		return lock(c);
	return 0;
}

/* One process: a connection from its beginning to its end. */
static int run(const struct client_options *opt, long number, uint64_t *tickets)
{
	struct client client = { .number = number };
	struct endpoint *ep = &client.ep;
	int status = EXIT_FAILED;

	if (!endpoint_open(ep, &opt->common) &&
	    !endpoint_resolve(ep, &opt->common) &&
	    !endpoint_create_qp(ep, 1, 1) && !register_memory(&client) &&
	    !connect_server(&client, opt) && !count(&client, opt, tickets))
		status = EXIT_DONE;
	if (endpoint_disconnect(ep))
		status = EXIT_FAILED;
	if (client.mr && ibv_dereg_mr(client.mr))
		report("ibv_dereg_mr", errno);
	endpoint_destroy(ep);
	return status;
}

/*
 * Start the processes, before anything of verbs exists: a child of fork(2) may
 * not use its parent's. Each holds the pipe's other end until it ends, so the
 * pipe can be read when all have.
 */
static int run_all(const struct client_options *opt, uint64_t *tickets)
{
	int stop_fd = open_stop_fd(), fds[2], status, failed = 0;
	pid_t children[MAX_CLIENTS];
	long i, started;

	if (stop_fd < 0)
		return -1;
	if (pipe(fds)) {
		report("pipe", errno);
		return -1;
	}
	for (started = 0; started < opt->clients; started++) {
		children[started] = fork();
		if (children[started] < 0) {
			report("fork", errno);
			break;
		}
		if (children[started] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGTERM);
			exit(run(opt, started + 1,
				 tickets + started * opt->count));
		}
	}
	close(fds[1]);
	if (started < opt->clients || wait_readable(fds[0], stop_fd, -1) < 0)
		for (i = 0; i < started; i++)
			kill(children[i], SIGTERM);
	for (i = 0; i < started; i++)
		if (waitpid(children[i], &status, 0) < 0 || status)
			failed++;
	close(fds[0]);
	close(stop_fd);
	failed += opt->clients - started;
	if (failed)
		fprintf(stderr, "%d of %ld clients failed\n", failed,
			opt->clients);
	return failed ? -1 : 0;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* No ticket may have been drawn twice, by whomever. */
static int check_tickets(uint64_t *tickets, long n)
{
	long i;

	qsort(tickets, n, sizeof(*tickets), compare);
	for (i = 1; i < n; i++) {
		if (tickets[i] != tickets[i - 1])
			continue;
		fprintf(stderr, "ticket %llu was drawn twice\n",
			(unsigned long long)tickets[i]);
		return -1;
	}
	printf("%ld tickets were drawn, none of them twice\n", n);
	return 0;
}

int main(int argc, char **argv)
{
	struct client_options opt = {
		.common = OPTIONS_DEFAULT,
		.clients = 4,
		.count = 10,
	};
	int status = EXIT_FAILED;
	uint64_t *tickets;
	size_t bytes;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (opt.common.help) {
		usage(stdout);
		return EXIT_DONE;
	}
	/* Memory that the children write and the parent reads. */
	bytes = opt.clients * opt.count * sizeof(*tickets);
	tickets = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (tickets == MAP_FAILED) {
		report("mmap", errno);
		return EXIT_FAILED;
	}
	if (!run_all(&opt, tickets) &&
	    !check_tickets(tickets, opt.clients * opt.count))
		status = EXIT_DONE;
	munmap(tickets, bytes);
	return status;
}
