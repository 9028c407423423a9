/* SPDX-License-Identifier: MIT */
/*
 * What make doctor asks through libibverbs and librdmacm. The script doctor
 * beside it runs this, puts its own findings before these, and prints them all.
 */
#include "doctor.h"

#include <arpa/inet.h>
#include <glob.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/resource.h>
#include <sys/stat.h>

/*
 * What one program of a lesson registers at the most, without a flag: the pool
 * of lesson 05's server, 8 slots of 1 MiB.
 */
#define NEEDED (8 << 20)

/* The vendor number of those who have none: SoftRoCE's. */
#define NO_VENDOR 0xffffff

/* "crw------- root root" of a file, for findings about who may open it. */
static const char *owner_of(const char *path)
{
	static char text[64];
	struct stat info;

	if (stat(path, &info))
		return "it is not there";
	snprintf(text, sizeof(text), "its mode is %04o, its owner user %u",
		 info.st_mode & 07777, info.st_uid);
	return text;
}

/* The library has no device. What has the kernel? */
static void explain_no_device(void)
{
	glob_t devices = { 0 }, files = { 0 };
	const char *name;

	if (glob("/sys/class/infiniband/*", 0, NULL, &devices)) {
		finding(FAIL, "device",
			"make softroce (as root) puts SoftRoCE on a network card; make run works without, on two virtual machines",
			"no RDMA device");
		return;
	}
	name = strrchr(devices.gl_pathv[0], '/') + 1;
	if (glob("/dev/infiniband/uverbs*", 0, NULL, &files))
		finding(FAIL, "device",
			"sudo modprobe ib_uverbs; a container has to be given the files: --device /dev/infiniband",
			"the kernel has %s, and there is no /dev/infiniband/uverbs* to reach it by",
			name);
	else
		finding(FAIL, "device", "sudo apt install ibverbs-providers",
			"the kernel has %s, and the library has no driver for it",
			name);
	globfree(&files);
	globfree(&devices);
}

/* The card that a port is on: as its GIDs say; "" for InfiniBand. */
static void card_of(const struct ibv_gid_entry *gids, ssize_t count,
		    uint32_t port, char *card)
{
	ssize_t i;

	card[0] = '\0';
	for (i = 0; i < count && !card[0]; i++)
		if (gids[i].port_num == port &&
		    !if_indextoname(gids[i].ndev_ifindex, card))
			card[0] = '\0';
}

/*
 * The card, where the port has no GID to tell it: SoftRoCE names it in a file of
 * its own.
 */
static void card_by_parent(const char *device, char *card)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/parent", device);
	file = fopen(path, "re");
	if (!file)
		return;
	if (fscanf(file, "%15s", card) != 1)
		card[0] = '\0';
	fclose(file);
}

static int card_mtu(const char *card)
{
	char path[64];
	int mtu = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/class/net/%s/mtu", card);
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%d", &mtu) != 1)
		mtu = 0;
	fclose(file);
	return mtu;
}

/* Is there a GID of RoCE v2 for this address, on that port? Its index, or -1 */
static int gid_of(const struct sockaddr *address,
		  const struct ibv_gid_entry *gids, ssize_t count,
		  uint32_t port)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;
	uint8_t wanted[16] = { [10] = 0xff, [11] = 0xff };
	ssize_t i;

	if (address->sa_family == AF_INET6)
		memcpy(wanted, &six->sin6_addr, 16);
	else
		memcpy(wanted + 12, &four->sin_addr, 4);
	for (i = 0; i < count; i++)
		if (gids[i].port_num == port &&
		    gids[i].gid_type == IBV_GID_TYPE_ROCE_V2 &&
		    !memcmp(gids[i].gid.raw, wanted, 16))
			return gids[i].gid_index;
	return -1;
}

/* An address by which others can mean this machine. */
static bool is_global(const struct sockaddr *address)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;

	return address && (address->sa_family == AF_INET ||
			   (address->sa_family == AF_INET6 &&
			    !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)));
}

/*
 * The addresses of the card, and the GIDs that they should have made. One that
 * can be used is copied to OWN.
 */
static void check_gids(const char *device, const char *card,
		       const struct ibv_gid_entry *gids, ssize_t count,
		       uint32_t port, struct sockaddr_storage *own)
{
	char text[ADDRESS_TEXT], first[ADDRESS_TEXT] = "", fix[200];
	int addresses = 0, without = 0, index, first_index = -1;
	struct ifaddrs *list, *entry;
	size_t size;

	if (getifaddrs(&list)) {
		report("getifaddrs", errno);
		return;
	}
	for (entry = list; entry; entry = entry->ifa_next) {
		if (strcmp(entry->ifa_name, card) ||
		    !is_global(entry->ifa_addr))
			continue;
		addresses++;
		size = entry->ifa_addr->sa_family == AF_INET ?
			       sizeof(struct sockaddr_in) :
			       sizeof(struct sockaddr_in6);
		getnameinfo(entry->ifa_addr, size, text, sizeof(text), NULL, 0,
			    NI_NUMERICHOST);
		index = gid_of(entry->ifa_addr, gids, count, port);
		if (index < 0 && without++ == 0)
			snprintf(first, sizeof(first), "%s", text);
		if (index >= 0 && first_index < 0) {
			first_index = index;
			memcpy(own, entry->ifa_addr, size);
			if (!without)
				snprintf(first, sizeof(first), "%s", text);
		}
	}
	freeifaddrs(list);
	if (!addresses) {
		snprintf(
			fix, sizeof(fix),
			"sudo ip address add ADDRESS/24 dev %s, with an address of your network; where a bridge has it, see ip -brief address",
			card);
		finding(WARN, "gid", fix,
			"%s: link-local only: %s has no IPv4 or global IPv6 address",
			device, card);
	} else if (without) {
		snprintf(
			fix, sizeof(fix),
			"see rdma link and ip address show dev %s; an address that is deleted and added again gets its GID",
			card);
		finding(FAIL, "gid", fix,
			"%s: no RoCE v2 GID for %s, an address of %s (%d such of %d)",
			device, first, card, without, addresses);
	} else {
		finding(OK, "gid", NULL,
			"%s: each address of %s has its RoCE v2 GID: %s is GID %d",
			device, card, first, first_index);
	}
}

/* Does the kernel let us pin what a lesson registers? */
static void check_memory(struct ibv_context *verbs)
{
	const char *name = ibv_get_device_name(verbs->device);
	struct ibv_pd *pd = ibv_alloc_pd(verbs);
	void *memory = aligned_alloc(4096, NEEDED);
	int err = pd ? 0 : errno;
	char limit[32] = "unlimited";
	struct ibv_mr *mr = NULL;
	struct rlimit memlock;

	if (!getrlimit(RLIMIT_MEMLOCK, &memlock) &&
	    memlock.rlim_cur != RLIM_INFINITY)
		snprintf(limit, sizeof(limit), "%llu KiB",
			 (unsigned long long)memlock.rlim_cur / 1024);
	if (memory) {
		memset(memory, 0, NEEDED);
		mr = pd ? ibv_reg_mr(pd, memory, NEEDED, 0) : NULL;
		err = pd && !mr ? errno : err;
	}
	if (mr)
		finding(OK, "memory", NULL,
			"%s: %d KiB were registered, which is what a lesson needs; ulimit -l says %s",
			name, NEEDED / 1024, limit);
	else
		finding(FAIL, "memory",
			fix_of(err,
			       "put the lines `* soft memlock unlimited` and `* hard memlock unlimited` into /etc/security/limits.conf and log in again; a container: --ulimit memlock=-1"),
			"%s: ibv_reg_mr of %d KiB: %s; ulimit -l says %s", name,
			NEEDED / 1024, strerror(err), limit);
	if (mr)
		ibv_dereg_mr(mr);
	free(memory);
	if (pd)
		ibv_dealloc_pd(pd);
}

/* Each port; an address that RDMA can use goes to OWN. */
static void check_port(struct ibv_context *verbs, uint32_t port,
		       const struct ibv_gid_entry *gids, ssize_t count,
		       struct sockaddr_storage *own)
{
	const char *name = ibv_get_device_name(verbs->device);
	char card[IF_NAMESIZE];
	struct ibv_port_attr attr;
	int err;

	err = ibv_query_port(verbs, port, &attr);
	if (err) {
		finding(FAIL, "port", "see dmesg", "%s: ibv_query_port: %s",
			name, strerror(err));
		return;
	}
	card_of(gids, count, port, card);
	if (!card[0])
		card_by_parent(name, card);
	if (!judge_port(name, port, card, &attr))
		return;
	check_gids(name, card, gids, count, port, own);
	judge_mtu(name, card, card_mtu(card), &attr);
}

static void check_device(struct ibv_device *device,
			 struct sockaddr_storage *own)
{
	const char *name = ibv_get_device_name(device);
	struct ibv_gid_entry *gids = NULL;
	struct ibv_context *verbs;
	struct ibv_device_attr attr;
	char path[96], fix[128];
	size_t room = 0;
	ssize_t count;
	uint32_t port;
	struct ibv_port_attr port_attr;
	int err;

	verbs = ibv_open_device(device);
	if (!verbs) {
		snprintf(path, sizeof(path), "/dev/infiniband/%s",
			 device->dev_name);
		/* Of another reason the library says ENOENT, whatever it is. */
		err = errno;
		snprintf(fix, sizeof(fix), "sudo chmod 666 %s", path);
		finding(FAIL, "open", fix_of(err, fix),
			"%s: %s cannot be opened: %s", name, path,
			err == EAGAIN ? strerror(err) : owner_of(path));
		return;
	}
	if (ibv_query_device(verbs, &attr)) {
		finding(FAIL, "open", "see dmesg", "%s does not answer", name);
		goto out;
	}
	finding(OK, "device", NULL, "%s: %s", name,
		attr.vendor_id == NO_VENDOR ? "SoftRoCE" : "a card");
	for (port = 1; port <= attr.phys_port_cnt; port++)
		if (!ibv_query_port(verbs, port, &port_attr))
			room += port_attr.gid_tbl_len;
	gids = calloc(room ? room : 1, sizeof(*gids));
	count = gids ? ibv_query_gid_table(verbs, gids, room, 0) : 0;
	for (port = 1; port <= attr.phys_port_cnt; port++)
		check_port(verbs, port, gids, count, own);
	check_memory(verbs);
out:
	free(gids);
	ibv_close_device(verbs);
}

/* The connection manager: may it be opened, and does it answer itself? */
static void check_cm(const struct sockaddr_storage *own)
{
	static const char file[] = "/dev/infiniband/rdma_cm";
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct endpoint ep = { 0 };
	char host[NI_MAXHOST];
	struct text text;
	enum answer answer;

	if (!channel && errno == ENODEV)
		return; /* no device: that was said already */
	if (!channel && access(file, F_OK)) {
		finding(FAIL, "cm",
			"sudo modprobe rdma_ucm; a container has to be given the file: --device /dev/infiniband",
			"there is no %s", file);
		return;
	}
	if (!channel) {
		finding(FAIL, "cm", "sudo chmod 666 /dev/infiniband/rdma_cm",
			"%s cannot be opened: %s", file, owner_of(file));
		return;
	}
	rdma_destroy_event_channel(channel);
	if (own->ss_family == AF_UNSPEC)
		return; /* no address to try it with */
	getnameinfo((const struct sockaddr *)own, sizeof(*own), host,
		    sizeof(host), NULL, 0, NI_NUMERICHOST);
	answer = connect_to(&ep, (const struct sockaddr *)own, &text);
	endpoint_disconnect(&ep);
	endpoint_destroy(&ep);
	if (answer == ANSWERED)
		finding(OK, "cm", NULL,
			"the connection manager of this machine answers at %s",
			host);
	else
		finding(FAIL, "cm", text.fix,
			"a connection to ourselves, at %s: %s", host,
			text.seen);
}

static void check_machine(void)
{
	struct sockaddr_storage own = { .ss_family = AF_UNSPEC };
	struct ibv_device **list;
	int count = 0, i;

	list = ibv_get_device_list(&count);
	if (count == 0)
		explain_no_device();
	for (i = 0; i < count; i++)
		check_device(list[i], &own);
	if (count)
		check_cm(&own);
	if (list)
		ibv_free_device_list(list);
}

static int usage(FILE *out)
{
	fprintf(out, "usage: verbs [peer ADDRESS PORT | serve PORT SECONDS]\n"
		     "tools/doctor/doctor runs this.\n");
	return out == stdout ? EXIT_DONE : EXIT_USAGE;
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 1)
		check_machine();
	else if (argc == 4 && !strcmp(argv[1], "peer"))
		check_peer(argv[2], argv[3]);
	else if (argc == 4 && !strcmp(argv[1], "serve"))
		serve(argv[2], atoi(argv[3]));
	else
		return usage(argc == 2 && !strcmp(argv[1], "--help") ? stdout :
								       stderr);
	return EXIT_DONE;
}
