/* SPDX-License-Identifier: MIT */
/* What the doctor makes of what it was told, and how it says that. */
#include "doctor.h"

#include <stdarg.h>

/*
 * The bytes of a packet that are not payload: at least, IPv4, UDP, BTH, RETH and
 * checksum; at most, as the kernel reckons (iboe_get_mtu() in ib_addr.h).
 */
#define LEAST_HEADERS (20 + 8 + 12 + 16 + 4)
#define MOST_HEADERS (40 + 8 + 12 + 4 + 28 + 4)

void finding(enum level level, const char *check, const char *fix,
	     const char *seen, ...)
{
	static const char *const names[] = { "OK", "WARN", "FAIL" };
	va_list args;

	printf("%s\t%s\t", names[level], check);
	va_start(args, seen);
	vprintf(seen, args);
	va_end(args);
	printf("\t%s\n", fix ? fix : "");
}

const char *fix_of(int err, const char *usual)
{
	if (err != EAGAIN)
		return usual;
	return "the limit of a control group: raise rdma.max of the one in /proc/self/cgroup, under /sys/fs/cgroup (echo DEVICE hca_handle=max hca_object=max >rdma.max)";
}

bool judge_port(const char *device, uint32_t port, const char *card,
		const struct ibv_port_attr *attr)
{
	const char *state = ibv_port_state_str(attr->state);
	bool active = attr->state == IBV_PORT_ACTIVE;
	char fix[128] =
		"is the cable in, and does a subnet manager run (opensm)?";

	if (attr->link_layer != IBV_LINK_LAYER_ETHERNET) {
		finding(active ? OK : FAIL, "port", active ? NULL : fix,
			"%s port %u: InfiniBand, %s", device, port, state);
		return false;
	}
	snprintf(fix, sizeof(fix), "sudo ip link set %s up",
		 card[0] ? card : "CARD");
	finding(active ? OK : FAIL, "port", active ? NULL : fix,
		"%s port %u, on %s: %s", device, port,
		card[0] ? card : "no card", active ? "active" : state);
	return active;
}

void judge_mtu(const char *device, const char *card, int mtu,
	       const struct ibv_port_attr *attr)
{
	int active = 128 << attr->active_mtu, max = 128 << attr->max_mtu;
	char fix[128];

	if (mtu < active + LEAST_HEADERS) {
		snprintf(fix, sizeof(fix), "sudo ip link set %s mtu 1500",
			 card);
		finding(FAIL, "mtu", fix,
			"%s: active_mtu %d makes packets of %d bytes, and the MTU of %s is %d",
			device, active, active + LEAST_HEADERS, card, mtu);
	} else if (2 * active <= max && mtu >= 2 * active + MOST_HEADERS) {
		snprintf(fix, sizeof(fix),
			 "sudo ip link set %s mtu 1500, then mtu %d again",
			 card, mtu);
		finding(WARN, "mtu", fix,
			"%s: active_mtu %d, though the MTU of %s, %d, has room for more",
			device, active, card, mtu);
	} else {
		finding(OK, "mtu", NULL, "%s: active_mtu %d, MTU of %s %d",
			device, active, card, mtu);
	}
}
