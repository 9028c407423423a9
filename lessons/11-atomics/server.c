/* SPDX-License-Identifier: MIT */
/*
 * Lesson 11: the server has three numbers of 64 bits in its memory: a counter, a
 * lock, and a sum that the lock guards. Its clients work on them with their
 * cards. When all have left it says what has come of the numbers.
 */
#include <stdatomic.h>

#include <rdma_common.h>

#define MAX_CLIENTS 8

/*
 * A client's private data: these letters, how often it will count, and how many
 * clients there are of its kind (u32, big-endian).
 */
#define MAGIC "LESSON11"
#define REQUEST_SIZE 16

/*
 * What the clients share. Atomics are done on 8 bytes at an address that 8
 * divides, and by the card as numbers of this machine: counter and lock are in
 * our own byte order. The sum is only read and written, so it is in the order
 * that we agree upon, big-endian.
 */
struct shared {
	_Atomic uint64_t counter;
	_Atomic uint64_t lock; /* 0: free; otherwise the number of its holder */
	_Atomic uint64_t sum;
};

struct server_options {
	struct options common;
	long clients;
	bool no_atomic; /* the region lacks the right */
};

/* A client from its request until it has left. */
struct connection {
	struct rdma_cm_id *id; /* NULL: a free place */
};

struct server {
	struct endpoint ep; /* what listens, and the PD and the CQ for all */
	struct connection connections[MAX_CLIENTS];
	struct shared *shared;
	struct ibv_mr *mr;
	uint8_t depth; /* atomics and READs at a time, for each client */
	long clients; /* that are to come; 0: nobody has said yet */
	long come, connected, gone;
	uint64_t expected; /* what the counter and the sum have to be */
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: server [-a BIND_ADDRESS] [-p PORT] [-t SECONDS] [-c CLIENTS] [--missing WHAT]\n"
		"Let clients count in a number and in a sum that a lock guards, and compare both\n"
		"with what they said that they would do.\n"
		"  -c, --clients CLIENTS  how many are to come, 1 to 8 (default: as many as the first\n"
		"                         one says)\n"
		"  --missing WHAT         leave something out (default: nothing):\n"
		"                         remote-atomic  the region may be read and written, and\n"
		"                                        atomics are not allowed\n" SERVER_USAGE_LINES
		"Man pages: ibv_reg_mr(3), ibv_query_device(3), rdma_accept(3).\n");
}

enum {
	MISSING = 256
};

static int parse_flag(int c, struct server_options *opt)
{
	switch (c) {
	case 'c':
		opt->clients = parse_number(optarg, 1, MAX_CLIENTS);
		if (opt->clients > 0)
			return 0;
		fprintf(stderr, "server: -c takes 1 to %d clients\n",
			MAX_CLIENTS);
		return -1;
	case MISSING:
		opt->no_atomic = !strcmp(optarg, "remote-atomic");
		if (opt->no_atomic || !strcmp(optarg, "nothing"))
			return 0;
		fprintf(stderr, "server: --missing %s: what is that?\n",
			optarg);
		return -1;
	default:
		return common_option(c, &opt->common);
	}
}

static int parse_options(int argc, char **argv, struct server_options *opt)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ "clients", required_argument, NULL, 'c' },
		{ "missing", required_argument, NULL, MISSING },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, COMMON_FLAGS "c:", longs, NULL)) !=
	       -1)
		if (parse_flag(c, opt))
			return -1;
	return server_operand(argc, argv, &opt->common);
}

/*
 * Can the device do atomics at all, and atomic against what? HCA: against the
 * other requests that this device carries out. GLOB: against the CPU's, too.
 */
static int show_device(struct server *s, struct ibv_context *verbs)
{
	struct ibv_device_attr device;
	int err = ibv_query_device(verbs, &device);

	if (err) {
		report("ibv_query_device", err);
		return -1;
	}
	printf("atomic_cap of %s: %s\n", ibv_get_device_name(verbs->device),
	       device.atomic_cap == IBV_ATOMIC_HCA ?
		       "HCA, atomic among this device's requests" :
	       device.atomic_cap == IBV_ATOMIC_GLOB ?
		       "GLOB, atomic for the CPU as well" :
		       "NONE");
	/* Our clients ask for one. A few more are no harm, all are too many. */
	s->depth = device.max_qp_rd_atom < 4 ? device.max_qp_rd_atom : 4;
	if (device.atomic_cap != IBV_ATOMIC_NONE)
		return 0;
	fprintf(stderr, "this device has no atomics\n");
	return -1;
}

/*
 * What all clients share: made when the first one comes, for it is its request
 * that says which device it came in by. The CQ stays empty: nothing is posted.
 */
static int make_shared(struct server *s, struct rdma_cm_id *id, bool no_atomic)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

	if (s->mr)
		return 0;
	if (no_atomic)
		access &= ~IBV_ACCESS_REMOTE_ATOMIC;
	if (show_device(s, id->verbs))
		return -1;
	s->ep.pd = ibv_alloc_pd(id->verbs);
	if (!s->ep.pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	s->ep.cq = ibv_create_cq(id->verbs, 1, NULL, NULL, 0);
	if (!s->ep.cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	s->mr = ibv_reg_mr(s->ep.pd, s->shared, sizeof(*s->shared), access);
	if (!s->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	printf("three numbers at %p, rkey 0x%x\n", (void *)s->shared,
	       s->mr->rkey);
	return 0;
}

/* A QP in the common PD, and the answer with the region and the depth. */
static int accept_client(struct server *s, struct rdma_cm_id *id, uint8_t asked)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = 1,
			 .max_recv_wr = 1,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.send_cq = s->ep.cq,
		.recv_cq = s->ep.cq,
	};
	struct rdma_conn_param param = CONN_PARAM_DEFAULT;
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];

	if (rdma_create_qp(id, s->ep.pd, &attr)) {
		report("rdma_create_qp", errno);
		return -1;
	}
	remote_region_pack(wire, s->mr);
	param.private_data = wire;
	param.private_data_len = sizeof(wire);
	/* Atomics take the same places as READs (lesson 09). */
	param.responder_resources = asked < s->depth ? asked : s->depth;
	if (rdma_accept(id, &param)) {
		report("rdma_accept", errno);
		return -1;
	}
	return 0;
}

static void drop(struct rdma_cm_id *id)
{
	if (id->qp)
		rdma_destroy_qp(id);
	rdma_destroy_id(id);
}

/* What a client says in its private data; -1 when it is not for us, or too many. */
static int read_request(const struct server *s, const uint8_t *request,
			uint32_t *count, uint32_t *clients)
{
	memcpy(count, request + 8, 4);
	memcpy(clients, request + 12, 4);
	*count = be32toh(*count);
	*clients = be32toh(*clients);
	if (memcmp(request, MAGIC, 8) || *clients < 1 ||
	    *clients > MAX_CLIENTS || (s->clients && s->come == s->clients))
		return -1;
	return 0;
}

/*
 * A client that asks to come in. It has said how often it will count; where it
 * has not, it is no client of this lesson, and where all have come already it
 * is one too many. Both are turned away.
 */
static int take_request(struct server *s, const struct server_options *opt,
			struct rdma_cm_id *id, const uint8_t *request,
			uint8_t asked)
{
	uint32_t count, clients;

	if (read_request(s, request, &count, &clients)) {
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return 0;
	}
	if (make_shared(s, id, opt->no_atomic)) {
		drop(id);
		return -1;
	}
	/* It may have left already. The others stay. */
	if (accept_client(s, id, asked)) {
		drop(id);
		return 0;
	}
	if (s->clients == 0)
		s->clients = clients;
	s->connections[s->come++].id = id;
	s->expected += count;
	return 0;
}

/* A client has left, or died, or was never quite there. */
static void forget(struct server *s, struct rdma_cm_id *id)
{
	int i;

	for (i = 0; i < MAX_CLIENTS && s->connections[i].id != id; i++)
		;
	if (i == MAX_CLIENTS)
		return;
	rdma_disconnect(id); /* our half of the goodbye */
	drop(id);
	s->connections[i].id = NULL;
	s->gone++;
}

/* The next event, of whichever client. */
static int take_event(struct server *s, const struct server_options *opt)
{
	uint8_t request[REQUEST_SIZE] = { 0 };
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	uint8_t asked;

	if (rdma_get_cm_event(s->ep.channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	type = event->event;
	id = event->id;
	asked = event->param.conn.responder_resources;
	if (event->param.conn.private_data_len >= sizeof(request))
		memcpy(request, event->param.conn.private_data,
		       sizeof(request));
	if (type != RDMA_CM_EVENT_CONNECT_REQUEST &&
	    type != RDMA_CM_EVENT_ESTABLISHED &&
	    type != RDMA_CM_EVENT_DISCONNECTED &&
	    type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
		report_event(event);
	rdma_ack_cm_event(event);

	switch (type) {
	case RDMA_CM_EVENT_CONNECT_REQUEST:
		return take_request(s, opt, id, request, asked);
	case RDMA_CM_EVENT_ESTABLISHED:
		s->connected++;
		printf("%ld of %ld clients are connected, or have been\n",
		       s->connected, s->clients);
		return 0;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		return 0;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return -1;
	default:
		forget(s, id);
		return 0;
	}
}

/* Until all have come and gone. What they do meanwhile, we do not see. */
static int serve(struct server *s, const struct server_options *opt)
{
	int ready;

	while (s->clients == 0 || s->gone < s->clients) {
		ready = wait_readable(s->ep.channel->fd, s->ep.stop_fd,
				      s->ep.timeout * 1000);
		if (ready == 0)
			fprintf(stderr,
				"waited %d s: %ld clients have come, %ld have "
				"left\n",
				s->ep.timeout, s->come, s->gone);
		if (ready <= 0 || take_event(s, opt))
			return -1;
	}
	return 0;
}

/* Nobody is connected any more, so nobody counts while we read. */
static int check_shared(struct server *s)
{
	uint64_t counter = s->shared->counter;
	uint64_t lock = s->shared->lock;
	uint64_t sum = be64toh(s->shared->sum);

	printf("the counter is %llu, the sum %llu, the lock %llu\n",
	       (unsigned long long)counter, (unsigned long long)sum,
	       (unsigned long long)lock);
	if (counter == s->expected && sum == s->expected && lock == 0) {
		printf("exactly what %ld clients have counted\n", s->clients);
		return 0;
	}
	fprintf(stderr,
		"the clients wanted to count to %llu, and leave the lock at 0\n",
		(unsigned long long)s->expected);
	return -1;
}

static void tear_down(struct server *s)
{
	int i;

	for (i = 0; i < MAX_CLIENTS; i++)
		if (s->connections[i].id)
			forget(s, s->connections[i].id);
	if (s->mr && ibv_dereg_mr(s->mr))
		report("ibv_dereg_mr", errno);
	free(s->shared);
	endpoint_destroy(&s->ep);
}

int main(int argc, char **argv)
{
	struct server_options opt = {
		.common = OPTIONS_DEFAULT,
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
	server.clients = opt.clients;
	server.ep.backlog = MAX_CLIENTS; /* they may all come at once */
	server.shared = calloc(1, sizeof(*server.shared));
	if (!server.shared)
		report("calloc", errno);
	else if (!endpoint_open(&server.ep, &opt.common) &&
		 !endpoint_listen(&server.ep, &opt.common) &&
		 !serve(&server, &opt) && !check_shared(&server))
		status = EXIT_DONE;
	tear_down(&server);
	return status;
}
