/* SPDX-License-Identifier: MIT */
/*
 * Lesson 00: what RDMA devices are here, what can they do, and which of this
 * machine's addresses lead to one?
 *
 * The first half asks the devices, through libibverbs. The second half asks
 * the connection manager, through librdmacm, about each address. The two
 * libraries are all that the course stands on.
 */
#include <getopt.h>
#include <glob.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <rdma_common.h>

/* More GIDs than this on one device are not shown. */
#define MAX_GIDS 256

static void usage(FILE *out)
{
	fprintf(out,
		"usage: devices [-t SECONDS]\n"
		"Show the RDMA devices of this machine, and which of its addresses lead to one.\n"
		"  -t, --timeout SECONDS  the longest wait for any one answer, 1 to 3600\n"
		"                         (default: 10)\n"
		"  -h, --help             this text\n"
		"Exit status: 0 done, 1 failed (no device among the reasons), 2 usage.\n"
		"Man pages: ibv_get_device_list(3), ibv_query_device(3), ibv_query_port(3),\n"
		"ibv_query_gid_table(3), rdma_resolve_addr(3).\n");
}

/* Returns 0, or -1 after the fault was named. */
static int parse_options(int argc, char **argv, int *timeout)
{
	static const struct option longs[] = {
		{ "timeout", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	char *end;
	int c;

	*timeout = 10;
	while ((c = getopt_long(argc, argv, "t:h", longs, NULL)) != -1) {
		switch (c) {
		case 't':
			errno = 0;
			*timeout = strtol(optarg, &end, 10);
			if (!errno && end != optarg && !*end && *timeout >= 1 &&
			    *timeout <= 3600)
				break;
			fprintf(stderr,
				"devices: -t takes 1 to 3600 seconds\n");
			return -1;
		case 'h':
			usage(stdout);
			exit(EXIT_DONE);
		default:
			return -1;
		}
	}
	if (optind == argc)
		return 0;
	fprintf(stderr, "devices: what is %s? it takes no arguments\n",
		argv[optind]);
	return -1;
}

/* The first line of a file into TEXT; empty when there is no such file. */
static void read_line(const char *path, char *text, size_t size)
{
	FILE *file = fopen(path, "re");

	text[0] = '\0';
	if (!file)
		return;
	if (fgets(text, size, file))
		text[strcspn(text, "\n")] = '\0';
	fclose(file);
}

/*
 * Why does the library see no device? The kernel shows its RDMA devices in
 * /sys/class/infiniband, whether a program can use them or not.
 */
static void explain_no_device(void)
{
	const char *why = "put SoftRoCE on a network card with make softroce, "
			  "or use LAB=vm";
	const char *name = NULL;
	glob_t devices = { 0 }, files = { 0 };

	if (!glob("/sys/class/infiniband/*", 0, NULL, &devices)) {
		name = strrchr(devices.gl_pathv[0], '/') + 1;
		why = "the library has no driver for it; install "
		      "ibverbs-providers";
		if (glob("/dev/infiniband/uverbs*", 0, NULL, &files))
			why = "there is no /dev/infiniband/uverbs* for it; a "
			      "container has to be given them (--device "
			      "/dev/infiniband)";
	}
	fprintf(stderr, "ibv_get_device_list: no RDMA device%s%s: %s\n",
		name ? ", though the kernel has " : "", name ? name : "", why);
	globfree(&files);
	globfree(&devices);
}

/*
 * Gb/s of a port: the speed of one lane times the number of lanes. Both come as
 * codes of one bit each (ibv_query_port(3)). 0 for codes that are newer.
 */
static double rate_of(uint8_t speed, uint8_t width)
{
	static const double speeds[] = { 2.5, 5, 10, 10, 14, 25, 50, 100 };
	static const int widths[] = { 1, 4, 8, 12, 2 };
	size_t s = ffs(speed) - 1, w = ffs(width) - 1;

	if (s >= sizeof(speeds) / sizeof(speeds[0]) ||
	    w >= sizeof(widths) / sizeof(widths[0]))
		return 0;
	return speeds[s] * widths[w];
}

/* IBV_MTU_1024 is 3, and so on: the codes count from 256 in powers of two. */
static int mtu_bytes(enum ibv_mtu mtu)
{
	return 128 << mtu;
}

static const char *gid_type_str(uint32_t type)
{
	static const char *const names[] = {
		[IBV_GID_TYPE_IB] = "InfiniBand",
		[IBV_GID_TYPE_ROCE_V1] = "RoCE v1",
		[IBV_GID_TYPE_ROCE_V2] = "RoCE v2",
	};

	return type < sizeof(names) / sizeof(names[0]) ? names[type] : "?";
}

/*
 * A GID is the RDMA address: 16 bytes, written as an IPv6 address. In RoCE v2
 * it is the IPv6 address of the card, or the IPv4 address as ::ffff:a.b.c.d.
 */
static void show_gid(const struct ibv_gid_entry *entry)
{
	char text[INET6_ADDRSTRLEN], card[IF_NAMESIZE];
	const struct in6_addr *gid = (const struct in6_addr *)entry->gid.raw;

	inet_ntop(AF_INET6, gid, text, sizeof(text));
	printf("    GID %u: %s, %s", entry->gid_index,
	       gid_type_str(entry->gid_type), text);
	if (IN6_IS_ADDR_V4MAPPED(gid))
		printf(" (IPv4 %s)", inet_ntop(AF_INET, &gid->s6_addr[12], text,
					       sizeof(text)));
	if (if_indextoname(entry->ndev_ifindex, card))
		printf(", on %s", card);
	printf("\n");
}

/* The network card that a port is on, from its GIDs; "" for InfiniBand. */
static void card_of(const struct ibv_gid_entry *gids, int count, uint32_t port,
		    char *card)
{
	int i;

	card[0] = '\0';
	for (i = 0; i < count && !card[0]; i++)
		if (gids[i].port_num == port &&
		    !if_indextoname(gids[i].ndev_ifindex, card))
			card[0] = '\0';
}

static int show_port(struct ibv_context *verbs, uint32_t port, bool software,
		     const struct ibv_gid_entry *gids, int count)
{
	struct ibv_port_attr attr;
	char card[IF_NAMESIZE], path[64], mtu[16];
	int err, i;

	err = ibv_query_port(verbs, port, &attr);
	if (err) {
		report("ibv_query_port", err);
		return -1;
	}
	card_of(gids, count, port, card);
	printf("  port %u: %s, link layer %s%s%s\n", port,
	       ibv_port_state_str(attr.state),
	       attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" :
							    "InfiniBand",
	       card[0] ? ", network card " : "", card);

	if (attr.state != IBV_PORT_ACTIVE)
		printf("    nothing goes through it like this; try: ip link "
		       "set %s up\n",
		       card[0] ? card : "CARD");
	printf("    active_mtu %d, max_mtu %d", mtu_bytes(attr.active_mtu),
	       mtu_bytes(attr.max_mtu));
	if (card[0]) {
		snprintf(path, sizeof(path), "/sys/class/net/%s/mtu", card);
		read_line(path, mtu, sizeof(mtu));
		printf("; the card's own MTU is %s", mtu);
	}
	printf("\n    rate %g Gb/s%s\n",
	       rate_of(attr.active_speed, attr.active_width),
	       software ? ", which SoftRoCE makes up" : "");
	for (i = 0; i < count; i++)
		if (gids[i].port_num == port)
			show_gid(&gids[i]);
	return 0;
}

/*
 * No attribute says how many bytes a request may carry inline. So ask for a
 * QP that can do it, and see: the largest number that is granted.
 */
static int max_inline(struct ibv_context *verbs)
{
	struct ibv_pd *pd = ibv_alloc_pd(verbs);
	struct ibv_cq *cq = ibv_create_cq(verbs, 2, NULL, NULL, 0);
	int yes = -1, no = 65536; /* the largest seen to work, and not to */
	int size = 0;
	struct ibv_qp *qp;

	while (pd && cq && no - yes > 1) {
		struct ibv_qp_init_attr attr = {
			.send_cq = cq,
			.recv_cq = cq,
			.cap = {
				.max_send_wr = 1,
				.max_recv_wr = 1,
				.max_send_sge = 1,
				.max_recv_sge = 1,
				.max_inline_data = size,
			},
			.qp_type = IBV_QPT_RC,
		};

		qp = ibv_create_qp(pd, &attr);
		if (qp) {
			yes = size;
			ibv_destroy_qp(qp);
		} else {
			no = size;
		}
		size = (yes + no) / 2;
	}
	if (cq)
		ibv_destroy_cq(cq);
	if (pd)
		ibv_dealloc_pd(pd);
	return yes;
}

static const char *atomic_str(enum ibv_atomic_cap cap)
{
	switch (cap) {
	case IBV_ATOMIC_NONE:
		return "none";
	case IBV_ATOMIC_HCA:
		return "among requests to this device only";
	case IBV_ATOMIC_GLOB:
		return "with the CPU's too";
	default:
		return "unknown";
	}
}

static void show_limits(struct ibv_context *verbs,
			const struct ibv_device_attr *attr)
{
	printf("  limits\n"
	       "    max_qp_wr %d: requests in one queue of a QP\n"
	       "    max_sge %d: pieces of memory in one request\n"
	       "    max_inline_data %d: bytes that can travel inside a request (tried out)\n"
	       "    max_cqe %d: entries of one completion queue\n"
	       "    max_qp %d, max_cq %d, max_mr %d, max_pd %d: of each at a time\n"
	       "    max_mr_size %" PRIu64 ": bytes of one memory region\n"
	       "    max_qp_rd_atom %d: READs and atomics that a QP answers at a time\n"
	       "    atomics: %s\n",
	       attr->max_qp_wr, attr->max_sge, max_inline(verbs), attr->max_cqe,
	       attr->max_qp, attr->max_cq, attr->max_mr, attr->max_pd,
	       attr->max_mr_size, attr->max_qp_rd_atom,
	       atomic_str(attr->atomic_cap));
}

static int show_device(struct ibv_device *device)
{
	struct ibv_context *verbs;
	struct ibv_device_attr attr;
	struct ibv_gid_entry gids[MAX_GIDS];
	int count, err, ret = -1;
	bool software;
	uint32_t port;

	printf("device %s\n", ibv_get_device_name(device));
	verbs = ibv_open_device(device);
	if (!verbs) {
		report("ibv_open_device", errno);
		return -1;
	}
	err = ibv_query_device(verbs, &attr);
	if (err) {
		report("ibv_query_device", err);
		goto out;
	}
	count = ibv_query_gid_table(verbs, gids, MAX_GIDS, 0);
	if (count < 0) {
		report("ibv_query_gid_table", -count);
		goto out;
	}
	/* The vendor number of those who have none: SoftRoCE's. */
	software = attr.vendor_id == 0xffffff;
	printf("  node GUID %016" PRIx64 ", %d port%s%s\n",
	       be64toh(attr.node_guid), attr.phys_port_cnt,
	       attr.phys_port_cnt == 1 ? "" : "s",
	       software ? ", SoftRoCE: no hardware" : "");
	for (port = 1; port <= attr.phys_port_cnt; port++)
		if (show_port(verbs, port, software, gids, count))
			goto out;
	show_limits(verbs, &attr);
	ret = 0;
out:
	ibv_close_device(verbs);
	return ret;
}

/* Returns 0, or -1 after having reported: also when there is no device. */
static int show_devices(void)
{
	struct ibv_device **list;
	int count, i, ret = 0;

	list = ibv_get_device_list(&count);
	if (!list) {
		report("ibv_get_device_list", errno);
		return -1;
	}
	if (!count) {
		explain_no_device();
		ret = -1;
	}
	for (i = 0; i < count; i++)
		if (show_device(list[i]))
			ret = -1;
	ibv_free_device_list(list);
	return ret;
}

/* Which GID has the connection manager chosen for this id? */
static void show_choice(const struct rdma_cm_id *id)
{
	struct ibv_gid_entry gids[MAX_GIDS];
	const union ibv_gid *mine = &id->route.addr.addr.ibaddr.sgid;
	int count = ibv_query_gid_table(id->verbs, gids, MAX_GIDS, 0);
	int i, best = -1;

	/*
	 * Cards that speak both list the GID twice. The connection manager
	 * prefers RoCE v2, whose number is the higher one.
	 */
	for (i = 0; i < count; i++)
		if (gids[i].port_num == id->port_num &&
		    !memcmp(&gids[i].gid, mine, sizeof(*mine)) &&
		    (best < 0 || gids[i].gid_type > gids[best].gid_type))
			best = i;
	printf("yes: %s port %d", ibv_get_device_name(id->verbs->device),
	       id->port_num);
	if (best >= 0)
		printf(", GID %u", gids[best].gid_index);
	printf("\n");
}

/*
 * Can RDMA reach this address of our own, from itself? The first steps of a
 * client (lesson 01, steps 3 to 10) tell. An id that is made without an event
 * channel makes the calls wait for their answer, and return it: all that we
 * want here, and nothing for a program that has more than one thing to do.
 */
static int try_address(struct sockaddr *address, int timeout)
{
	struct rdma_cm_id *id;

	if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		return -1;
	}
	if (rdma_resolve_addr(id, address, address, timeout * 1000))
		printf("no: rdma_resolve_addr: %s\n", strerror(errno));
	else if (rdma_resolve_route(id, timeout * 1000))
		printf("no: rdma_resolve_route: %s\n", strerror(errno));
	else
		show_choice(id);
	rdma_destroy_id(id);
	return 0;
}

/* Every address of this machine, and whether RDMA can use it. */
static int show_addresses(int timeout)
{
	struct rdma_event_channel *channel;
	char host[NI_MAXHOST];
	struct ifaddrs *list, *entry;
	socklen_t size;
	int family, ret = 0;

	/*
	 * Is the connection manager there? rdma_create_id() would ask as well,
	 * and say ENOMEM whatever the reason.
	 */
	channel = rdma_create_event_channel();
	if (!channel) {
		report("rdma_create_event_channel", errno);
		return -1;
	}
	rdma_destroy_event_channel(channel);
	if (getifaddrs(&list)) {
		report("getifaddrs", errno);
		return -1;
	}
	printf("addresses of this machine: does RDMA reach them?\n");
	for (entry = list; entry && !ret; entry = entry->ifa_next) {
		family = entry->ifa_addr ? entry->ifa_addr->sa_family :
					   AF_UNSPEC;
		if (family != AF_INET && family != AF_INET6)
			continue;
		size = family == AF_INET ? sizeof(struct sockaddr_in) :
					   sizeof(struct sockaddr_in6);
		if (getnameinfo(entry->ifa_addr, size, host, sizeof(host), NULL,
				0, NI_NUMERICHOST))
			continue;
		printf("  %s, on %s: ", host, entry->ifa_name);
		ret = try_address(entry->ifa_addr, timeout);
	}
	freeifaddrs(list);
	return ret;
}

int main(int argc, char **argv)
{
	int timeout;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (parse_options(argc, argv, &timeout)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (show_devices() || show_addresses(timeout))
		return EXIT_FAILED;
	return EXIT_DONE;
}
