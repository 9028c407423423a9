/* SPDX-License-Identifier: MIT */
/* What the parts of the doctor's C program share. */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <rdma_common.h>

enum level {
	OK,
	WARN,
	FAIL
};

/*
 * finding - one line for the script: LEVEL, CHECK, what was seen, and what
 * mends it (NULL: nothing to mend), with tabs between
 */
void finding(enum level level, const char *check, const char *fix,
	     const char *seen, ...) __attribute__((format(printf, 4, 5)));

/*
 * fix_of - what mends a call that failed with ERR
 *
 * A control group can limit how many devices and objects its programs may have:
 * every verb that makes one fails with EAGAIN then. Otherwise it is USUAL.
 */
const char *fix_of(int err, const char *usual);

/*
 * judge_port - is that port up? The finding, and whether it is one of RoCE that
 * more can be asked of. CARD may be "": nobody knows it.
 */
bool judge_port(const char *device, uint32_t port, const char *card,
		const struct ibv_port_attr *attr);

/*
 * judge_mtu - do the port's active_mtu and the card's MTU, in bytes, fit? The
 * finding.
 */
void judge_mtu(const char *device, const char *card, int mtu,
	       const struct ibv_port_attr *attr);

/* The port on which a doctor waits for another (--serve). */
#define DOCTOR_PORT "10120"

/* The longest wait for any one answer, in seconds. */
#define ANSWER_TIMEOUT 10

/* What connect_to() has come to. */
enum answer {
	ANSWERED, /* it is there: accepted, or rejected by its CM */
	UNRESOLVED, /* no device or no neighbour: nothing was sent */
	SILENT /* the connection request had no answer */
};

/*
 * connect_to - a connection request to ADDRESS, and what comes back
 *
 * What was seen is put into SEEN, and into FIX where it is not as it should
 * be. With EP->connected it is accepted, and the caller disconnects; in any
 * case the caller destroys EP.
 */
struct text {
	char seen[400];
	char fix[400];
};
enum answer connect_to(struct endpoint *ep, const struct sockaddr *address,
		       struct text *text);

void check_peer(const char *name, const char *port);
void serve(const char *port, int seconds);

#endif
