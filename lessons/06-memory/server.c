/* SPDX-License-Identifier: MIT */
/*
 * Lesson 06: memory. The server registers memory with and without each right
 * and prints what comes of it. Then it registers one region for good, tells the
 * client where that is, and looks at what the client's card has written there.
 */
#include <rdma_common.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define MAX_SIZE (64 << 20) /* enough for ENOMEM: see the README */

/* The number that the bytes are made of: the client writes the same pattern. */
#define SEED 6

/* What can be left out, to see what happens. */
enum missing {
	NOTHING,
	LOCAL_WRITE,
	REMOTE_WRITE,
	QP_RIGHT,
	SAME_PD,
	REGION,
	RKEY,
};

static const char *const missing_names[] = {
	[NOTHING] = "nothing",
	[LOCAL_WRITE] = "local-write",
	[REMOTE_WRITE] = "remote-write",
	[QP_RIGHT] = "qp-right",
	[SAME_PD] = "same-pd",
	[REGION] = "region",
	[RKEY] = "rkey",
};

struct server_options {
	struct options common;
	long size; /* bytes of the region */
	enum missing missing;
};

struct server {
	struct endpoint ep;
	size_t size;
	uint8_t *memory;
	struct ibv_mr *mr;
	struct ibv_pd *other_pd; /* for --missing same-pd */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-s BYTES] [--missing WHAT]\n"
		"Show what memory can be registered, offer some to one client, and say what the\n"
		"client has written there when it has disconnected.\n"
		"  -s, --size BYTES       how much to offer, 1 to 67108864 (default: 1048576)\n"
		"  --missing WHAT         leave something out (default: nothing):\n"
		"                         local-write   the region has no LOCAL_WRITE\n"
		"                         remote-write  it has REMOTE_READ, and no REMOTE_WRITE\n"
		"                         qp-right      the QP allows nobody to write\n"
		"                         same-pd       the region is in another PD than the QP\n"
		"                         region        it is deregistered when the client comes\n"
		"                         rkey          the client gets the lkey in its place\n" SERVER_USAGE_LINES
		"Man pages: ibv_reg_mr(3), rdma_accept(3), rdma_init_qp_attr(3), getrlimit(2).\n");
}

static int parse_missing(const char *text, enum missing *missing)
{
	int i;

	for (i = NOTHING; i <= RKEY; i++) {
		if (!strcmp(text, missing_names[i])) {
			*missing = i;
			return 0;
		}
	}
	fprintf(stderr, "server: --missing %s: what is that?\n", text);
	return -1;
}

enum {
	MISSING = 256
};

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "size", required_argument, NULL, 's' },
		{ "missing", required_argument, NULL, MISSING },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "s:", longs, NULL)) !=
	       -1) {
		switch (c) {
		case 's':
			opt->size = parse_number(optarg, 1, MAX_SIZE);
			if (opt->size > 0)
				break;
			fprintf(stderr, "server: -s takes 1 to %d bytes\n",
				MAX_SIZE);
			return -1;
		case MISSING:
			if (parse_missing(optarg, &opt->missing))
				return -1;
			break;
		default:
			if (common_option(c, &opt->common))
				return -1;
		}
	}
	return server_operand(argc, argv, &opt->common);
}

/* Register, print the keys or what the kernel said, and deregister. */
static void try_registration(struct ibv_pd *pd, const char *what, void *addr,
			     size_t length, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, addr, length, access);

	if (!mr) {
		printf("  %-32s %s\n", what, strerror(errno));
		return;
	}
	printf("  %-32s lkey 0x%x, rkey 0x%x\n", what, mr->lkey, mr->rkey);
	if (ibv_dereg_mr(mr))
		report("ibv_dereg_mr", errno);
}

/* What can be registered, and with which rights: see the README. */
static int show_registrations(struct ibv_pd *pd)
{
	static const struct {
		const char *name;
		int access;
	} rights[] = {
		{ "no right", 0 },
		{ "LOCAL_WRITE", IBV_ACCESS_LOCAL_WRITE },
		{ "REMOTE_READ", IBV_ACCESS_REMOTE_READ },
		{ "REMOTE_WRITE", IBV_ACCESS_REMOTE_WRITE },
		{ "LOCAL_WRITE, REMOTE_WRITE",
		  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE },
		{ "REMOTE_ATOMIC", IBV_ACCESS_REMOTE_ATOMIC },
		{ "LOCAL_WRITE, REMOTE_ATOMIC",
		  IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC },
	};
	size_t page = sysconf(_SC_PAGESIZE);
	uint8_t *memory = mmap(NULL, page, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t i;

	if (memory == MAP_FAILED) {
		report("mmap", errno);
		return -1;
	}
	printf("ibv_reg_mr with each right:\n");
	for (i = 0; i < sizeof(rights) / sizeof(rights[0]); i++)
		try_registration(pd, rights[i].name, memory, page,
				 rights[i].access);
	printf("ibv_reg_mr of each kind of memory:\n");
	try_registration(pd, "no bytes at all", memory, 0, 0);
	mprotect(memory, page, PROT_READ);
	try_registration(pd, "read-only, no right", memory, page, 0);
	try_registration(pd, "read-only, LOCAL_WRITE", memory, page,
			 IBV_ACCESS_LOCAL_WRITE);
	munmap(memory, page);
	try_registration(pd, "not mapped", memory, page, 0);
	return 0;
}

/* The memory that this process has pinned, in kB, as the kernel counts it. */
static long pinned_kb(void)
{
	FILE *status = fopen("/proc/self/status", "r");
	char line[128];
	long kb = -1;

	if (!status)
		return -1;
	while (kb < 0 && fgets(line, sizeof(line), status))
		sscanf(line, "VmPin: %ld", &kb);
	fclose(status);
	return kb;
}

/* What the kernel answers depends on how much may be pinned, so say it. */
static void print_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		report("getrlimit", errno);
	else if (limit.rlim_cur == RLIM_INFINITY)
		printf("RLIMIT_MEMLOCK: none\n");
	else
		printf("RLIMIT_MEMLOCK: %llu kB%s\n",
		       (unsigned long long)limit.rlim_cur / 1024,
		       geteuid() ? "" : ", but not for root");
}

/*
 * What byte I is before it is written: never what the client writes there, so
 * that each byte can be told from the other.
 */
static uint8_t untouched_byte(size_t i)
{
	return pattern_byte(SEED, i) ^ 0xff;
}

static int make_memory(struct server *s)
{
	size_t i;
	int err;

	/* What is pinned is whole pages: let the memory begin with one. */
	err = posix_memalign((void **)&s->memory, sysconf(_SC_PAGESIZE),
			     s->size);
	if (err) {
		report("posix_memalign", err);
		return -1;
	}
	for (i = 0; i < s->size; i++)
		s->memory[i] = untouched_byte(i);
	return 0;
}

/*
 * The region that the client gets. A peer's WRITE is carried out by our own
 * card, which therefore needs its LOCAL_WRITE as well.
 */
static int register_region(struct server *s, enum missing missing)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct ibv_pd *pd = s->ep.pd;

	if (missing == LOCAL_WRITE)
		access = IBV_ACCESS_REMOTE_WRITE;
	if (missing == REMOTE_WRITE)
		access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	if (missing == SAME_PD) {
		pd = s->other_pd = ibv_alloc_pd(s->ep.id->verbs);
		if (!pd) {
			report("ibv_alloc_pd", errno);
			return -1;
		}
	}
	s->mr = ibv_reg_mr(pd, s->memory, s->size, access);
	if (!s->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	printf("our memory: %zu bytes at %p, lkey 0x%x, rkey 0x%x\n", s->size,
	       (void *)s->memory, s->mr->lkey, s->mr->rkey);
	printf("pinned: %ld kB\n", pinned_kb());
	return 0;
}

static void deregister_region(struct server *s)
{
	if (s->mr && ibv_dereg_mr(s->mr))
		report("ibv_dereg_mr", errno);
	s->mr = NULL;
	if (s->other_pd && ibv_dealloc_pd(s->other_pd))
		report("ibv_dealloc_pd", errno);
	s->other_pd = NULL;
}

/* What remote_region_pack() makes: addr, rkey, size, each big-endian. */
#define REMOTE_REGION_WIRE_SIZE 16

/*
 * What the client has to know of our region, as 16 bytes: where it is, with
 * which key, and how large. Each number stands at a fixed place and begins with
 * its highest byte, so that it does not matter which compiler and which CPU
 * are on the other side. A struct that is copied as it is would matter.
 */
static void remote_region_pack(uint8_t *wire, const struct ibv_mr *mr)
{
	uint64_t addr = htobe64((uintptr_t)mr->addr);
	uint32_t rkey = htobe32(mr->rkey);
	uint32_t size = htobe32(mr->length);

	memcpy(wire, &addr, 8);
	memcpy(wire + 8, &rkey, 4);
	memcpy(wire + 12, &size, 4);
}

/*
 * The QP has rights too, and both have to allow it: those of the region and
 * those of the QP. rdma_accept() brings the QP up, with REMOTE_WRITE set, and then
 * answers the client, so we see nothing of them. Here we bring it up ourselves,
 * state by state (lesson 17 explains them), without that right. Where id has no QP
 * rdma_accept() only answers, with the number that it is given.
 */
static int accept_without_right(struct rdma_cm_id *id,
				struct rdma_conn_param *param)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_qp *qp = id->qp;
	int mask, err;

	for (; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++) {
		if (rdma_init_qp_attr(id, &attr, &mask))
			return -1;
		attr.qp_access_flags = 0;
		errno = ibv_modify_qp(qp, &attr, mask);
		if (errno)
			return -1;
	}
	param->qp_num = qp->qp_num;
	id->qp = NULL;
	err = rdma_accept(id, param);
	id->qp = qp;
	return err;
}

/*
 * endpoint_accept(), with the region as our private data: it rides in the
 * answer to the ConnectRequest, so that the client has it when it is connected.
 */
static int accept_client(struct server *s, enum missing missing)
{
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	struct ibv_mr handed_over = *s->mr;
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
	int err;

	if (missing == RKEY)
		handed_over.rkey = s->mr->lkey;
	remote_region_pack(wire, &handed_over);
	if (missing == REGION)
		deregister_region(s);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	err = missing == QP_RIGHT ? accept_without_right(s->ep.id, &param) :
				    rdma_accept(s->ep.id, &param);
	if (err) {
		report("rdma_accept", errno);
		return -1;
	}
	if (endpoint_wait_event(&s->ep, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	s->ep.connected = true;
	return 0;
}

/*
 * What do we see of it all? No completion tells us of a WRITE, of a refused
 * one neither. The state of our QP shows that something was refused. A card may
 * answer the client first and change the state after, so RTS is what it says only
 * if it still says so a moment later. The moment is counted in looks and not by
 * the clock: where the whole machine stands still for a while, so does the card.
 */
static int print_qp_state(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;
	int err, looks = 10;

	do {
		err = ibv_query_qp(qp, &attr, IBV_QP_STATE, &init);
	} while (!err && attr.qp_state == IBV_QPS_RTS && looks-- > 0 &&
		 poll(NULL, 0, 5) == 0);
	if (err) {
		report("ibv_query_qp", err);
		return -1;
	}
	printf("the client has disconnected; our QP is %s\n",
	       attr.qp_state == IBV_QPS_RTS ? "in RTS, as it should be" :
	       attr.qp_state == IBV_QPS_ERR ? "in ERR: something was refused" :
					      "in a state that we do not know");
	return 0;
}

/*
 * Each byte is what the client writes, or what was there before, or wrong. A
 * WRITE goes from the first byte to the last, so what is written has no holes.
 */
static int check_memory(const struct server *s)
{
	ssize_t written = pattern_check(s->memory, s->size, SEED);
	size_t i;

	if (written < 0)
		written = s->size;
	for (i = written; i < s->size; i++) {
		if (s->memory[i] != untouched_byte(i)) {
			fprintf(stderr,
				"byte %zu is 0x%02x, and nobody should have "
				"written that: is the peer the client of this "
				"lesson?\n",
				i, s->memory[i]);
			return -1;
		}
	}
	if (written)
		printf("%zd bytes were written, every one right; %zu were not touched\n",
		       written, s->size - written);
	else
		printf("nothing was written\n");
	return 0;
}

static int run(struct server *s, const struct server_options *opt)
{
	struct endpoint *ep = &s->ep;

	s->size = opt->size;
	/* We send nothing and receive nothing: a QP with the smallest queues. */
	if (endpoint_open(ep, &opt->common) ||
	    endpoint_listen(ep, &opt->common) || endpoint_get_request(ep) ||
	    endpoint_create_qp(ep, 1, 1))
		return -1;
	if (show_registrations(ep->pd))
		return -1;
	print_limit();
	if (make_memory(s) || register_region(s, opt->missing) ||
	    accept_client(s, opt->missing))
		return -1;
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_DISCONNECTED) ||
	    print_qp_state(ep->id->qp))
		return -1;
	/* With our own goodbye the QP is shut: nobody writes any more. */
	if (endpoint_disconnect(ep))
		return -1;
	return check_memory(s);
}

int main(int argc, char **argv)
{
	struct server_options opt = {
		.common = OPTIONS_DEFAULT,
		.size = 1 << 20,
	};
	struct server server = { 0 };
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
	if (run(&server, &opt) == 0)
		status = EXIT_DONE;
	if (endpoint_disconnect(&server.ep))
		status = EXIT_FAILED;
	deregister_region(&server);
	free(server.memory);
	endpoint_destroy(&server.ep);
	return status;
}
