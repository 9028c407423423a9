/* SPDX-License-Identifier: MIT */
/*
 * rdma_common.h - the shared helper header of the course
 *
 * It holds only what a lesson has already shown in full. Each part names the
 * lesson that takes it apart; common/README.md lists helper and lesson. LESSON is
 * the number of the lesson that is being built (lesson.mk sets it), and a part
 * is there from the lesson after the one that shows it: what a lesson teaches,
 * it writes out itself.
 *
 * One idiom for errors: a function that can fail reports what went wrong on
 * stderr, once, where it is found, and returns -1; its caller only tears down
 * and returns. Nothing here exits the program.
 */
#ifndef RDMA_COMMON_H
#define RDMA_COMMON_H

#ifndef LESSON
#define LESSON 99
#endif

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* What every program of the course returns to its shell. */
enum {
	EXIT_DONE = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
};

/*
 * Part 1: error reporting (lesson 01)
 *
 * An error line has three parts: the call, what the kernel said, and the
 * likely cause with its fix. The kernel's part comes from strerror(3),
 * ibv_wc_status_str(3) or rdma_event_str(3); the cause is what we have seen
 * behind it, and stands in the tables below.
 */

struct advice {
	const char *call; /* NULL: whatever the call */
	int err;
	const char *text;
};

/*
 * report_advice - the likely cause and its fix for CALL failing with ERR
 *
 * Returns a text without a newline, or NULL where there is nothing to add to
 * what strerror(3) says.
 */
static inline const char *report_advice(const char *call, int err)
{
	static const struct advice table[] = {
		{ "ibv_open_device", ENOENT,
		  "its file /dev/infiniband/uverbs* cannot be opened: see ls "
		  "-l for who may" },
		{ "rdma_create_event_channel", ENOENT,
		  "/dev/infiniband/rdma_cm cannot be opened: run modprobe "
		  "rdma_ucm; if it is there, see ls -l for who may" },
		{ "rdma_resolve_addr", ENODEV,
		  "the card with our address has no RDMA device: `rdma link` "
		  "names the cards that have one" },
		{ "rdma_resolve_addr", EINVAL,
		  "the two addresses do not fit together: both have to be "
		  "IPv4 or both IPv6, and our own not 127.0.0.1" },
		{ "rdma_resolve_addr", EADDRNOTAVAIL,
		  "our own address (-a) is not one of this machine's: see "
		  "`ip address`" },
		{ "rdma_resolve_addr", ENETUNREACH,
		  "there is no route to that address: see `ip route get`" },
		{ "rdma_resolve_addr", EHOSTUNREACH,
		  "there is no route to that address: see `ip route get`" },
		{ "rdma_resolve_route", ENODEV,
		  "the address belongs to no RDMA device: 127.0.0.1 and ::1 "
		  "never do; use the address of the card, which "
		  "`rdma link` and `ip address` show" },
		{ "rdma_bind_addr", ENODEV,
		  "no RDMA device that we may open has that address: "
		  "127.0.0.1 and ::1 never are one's; leave -a out to listen "
		  "on all of them" },
		{ "rdma_bind_addr", EADDRNOTAVAIL,
		  "it is not one of this machine's addresses (see `ip "
		  "address`), or an RDMA program listens on that port already "
		  "(see `rdma resource show cm_id`; -p takes another port)" },
		{ "rdma_bind_addr", EADDRINUSE,
		  "an RDMA program listens there already: `rdma resource show "
		  "cm_id` names it; -p takes another port" },
		{ "rdma_bind_addr", EACCES,
		  "ports below 1024 are for root: -p takes another port" },
		{ "rdma_create_qp", EINVAL,
		  "the peer has left already, or the device has not as much "
		  "as we ask for" },
		{ "rdma_accept", EINVAL, "the peer has left already" },
		{ "rdma_connect", EINVAL,
		  "more READs at a time than the device can do (ibv_query_device, "
		  "max_qp_init_rd_atom), or more private data than 56 bytes" },
		{ "rdma_get_cm_event", EAGAIN,
		  "an event came that could not be used: may we open "
		  "/dev/infiniband/uverbs*? See ls -l" },
		{ "ibv_reg_mr", ENOMEM,
		  "more memory than RLIMIT_MEMLOCK lets us pin: see ulimit "
		  "-l, raise it in /etc/security/limits.conf" },
		{ "ibv_reg_mr", EPERM,
		  "RLIMIT_MEMLOCK lets us pin no memory at all: see ulimit "
		  "-l, raise it in /etc/security/limits.conf" },
		{ "ibv_reg_mr", EINVAL,
		  "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE beside "
		  "them, and a region has one byte at least" },
		{ "ibv_reg_mr", EFAULT,
		  "the range is not mapped, or not writable" },
		{ "ibv_post_send", ENOMEM,
		  "the send queue is full: reap completions first" },
		{ "ibv_post_send", EINVAL,
		  "the QP is not connected, or an atomic is for an address that 8 "
		  "does not divide" },
		{ "ibv_post_recv", ENOMEM,
		  "the receive queue is full: post fewer, or ask for a "
		  "deeper one" },
		{ NULL, ENODEV,
		  "this machine has no RDMA device, or none that can be "
		  "opened: run make softroce, or use LAB=vm" },
	};
	size_t i;

	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].err == err &&
		    (!table[i].call || !strcmp(table[i].call, call)))
			return table[i].text;
	return NULL;
}

/*
 * address_text - "10.10.10.2:40000" or "[fd10::2]:40000" into TEXT
 */
#define ADDRESS_TEXT (NI_MAXHOST + NI_MAXSERV)

static inline void address_text(const struct sockaddr *address, char *text,
				size_t size)
{
	char host[NI_MAXHOST], port[NI_MAXSERV];
	socklen_t len = address->sa_family == AF_INET6 ?
				sizeof(struct sockaddr_in6) :
				sizeof(struct sockaddr_in);

	if (getnameinfo(address, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(text, size, "?");
	else
		snprintf(text, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s",
			 host, port);
}

/*
 * report - say on stderr that CALL failed with the errno value ERR
 *
 * Mind where ERR comes from. The rdma_*() calls return -1 and set errno (see
 * rdma_cm(7)); ibv_post_send(3) and its like return the errno value and leave
 * errno alone; ibv_reg_mr(3) and its like return NULL and set errno. The ones
 * that destroy, ibv_dereg_mr(3) and its like, return it; rdma-core sets errno too.
 */
static inline void report(const char *call, int err)
{
	const char *advice = report_advice(call, err);

	fprintf(stderr, "%s: %s%s%s\n", call, strerror(err), advice ? ": " : "",
		advice ? advice : "");
}

/*
 * report_address - the same, of a call that failed on ADDRESS
 */
static inline void report_address(const char *call,
				  const struct sockaddr *address, int err)
{
	const char *advice = report_advice(call, err);
	char text[ADDRESS_TEXT];

	address_text(address, text, sizeof(text));
	fprintf(stderr, "%s: %s: %s%s%s\n", call, text, strerror(err),
		advice ? ": " : "", advice ? advice : "");
}

/*
 * report_getaddrinfo - say on stderr that rdma_getaddrinfo returned RET
 *
 * rdma_getaddrinfo(3) promises -1 and errno. It also hands on what
 * getaddrinfo(3) returned, which is one of the EAI_ numbers; the two are told
 * apart by their value.
 */
static inline void report_getaddrinfo(const char *host, int ret)
{
	if (ret == -1)
		report("rdma_getaddrinfo", errno);
	else
		fprintf(stderr,
			"rdma_getaddrinfo: %s: %s: is the name or address "
			"right?\n",
			host ? host : "*", gai_strerror(ret));
}

/*
 * check_zone - does ADDRESS say all that has to be known?
 *
 * A link-local address (fe80::) exists on every card, and only its zone says
 * which card is meant. Without it the kernel may well take another one, and
 * finds nobody there. Returns 0, or -1 after having reported.
 */
static inline int check_zone(const struct sockaddr *address)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
	char text[ADDRESS_TEXT];

	if (address->sa_family != AF_INET6 || six->sin6_scope_id ||
	    !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
		return 0;
	address_text(address, text, sizeof(text));
	fprintf(stderr,
		"%s: a link-local address needs its zone, the card that it is "
		"on, as in fe80::1%%eth0: see `ip -6 address`\n",
		text);
	return -1;
}

/*
 * reject_reason - what the status of a REJECTED event means
 *
 * The numbers are the InfiniBand specification's ("REJ reason codes" in the
 * chapter on communication management).
 */
static inline const char *reject_reason(int status)
{
	switch (status) {
	case 1:
		return "no QP left: the peer is out of resources";
	case 3:
		return "no resources: the peer is out of memory or queues";
	case 4:
		return "timeout: the peer gave up waiting for us";
	case 5:
		return "unsupported request: the peer cannot do what we ask";
	case 8:
		return "invalid service ID: nobody listens on that port; "
		       "start the server first, and compare the two -p";
	case 10:
		return "stale connection: the peer still holds our QP number "
		       "from before; try again";
	case 28:
		return "consumer reject: a server is there and refused "
		       "(rdma_reject), or it ended in the middle of the "
		       "handshake";
	default:
		return "see the REJ reason codes of the specification";
	}
}

/* addr_error_reason - what the status of an ADDR_ERROR event means */
static inline const char *addr_error_reason(int status)
{
	switch (status) {
	case -1: /* not an errno value: librdmacm could not open the device */
		return "our device cannot be opened: see ls -l "
		       "/dev/infiniband for who may, and ulimit -n";
	case -ENODEV:
		return "the way to that address leads through a card without "
		       "an RDMA device: see `ip route get`";
	default:
		return "nobody answers for that address: try ping";
	}
}

/*
 * report_event - say on stderr that EVENT is not what was hoped for
 *
 * Of a REJECTED event the status is a reason code of the specification; of
 * all others it is a negative errno value, or 0 (rdma_get_cm_event(3)), or -1
 * where librdmacm itself failed on what the kernel had brought.
 */
static inline void report_event(const struct rdma_cm_event *event)
{
	const char *name = rdma_event_str(event->event);
	const char *why;

	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		fprintf(stderr, "%s, status %d: %s\n", name, event->status,
			reject_reason(event->status));
		return;
	case RDMA_CM_EVENT_ADDR_ERROR:
		why = addr_error_reason(event->status);
		break;
	case RDMA_CM_EVENT_ROUTE_ERROR:
		why = "the address is known, the way to it is not: is the "
		      "device's port up?";
		break;
	case RDMA_CM_EVENT_UNREACHABLE:
		why = "the machine answers ARP and not RDMA: has it a device, "
		      "and does its firewall let UDP port 4791 in?";
		break;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		why = "the handshake broke off half way: did the peer die, or "
		      "do the two sides' queue settings not fit?";
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		why = "the peer closed the connection or died";
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		why = "the RDMA device was taken away: rdma link shows what "
		      "is left";
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		why = "the old connection's number is free again; harmless";
		break;
	default:
		why = "not an event that belongs here";
		break;
	}
	fprintf(stderr, "%s, status %d%s%s: %s\n", name, event->status,
		event->status < -1 ? " " : "",
		event->status < -1 ? strerror(-event->status) : "", why);
}

/*
 * expect_event - is EVENT the one that this step waits for?
 *
 * Returns 0 if so. Otherwise it reports the event and what was waited for,
 * and returns -1. It does not acknowledge: that is the caller's, either way.
 */
static inline int expect_event(const struct rdma_cm_event *event,
			       enum rdma_cm_event_type wanted)
{
	if (event->event == wanted && event->status == 0)
		return 0;
	fprintf(stderr, "rdma_get_cm_event: waited for %s, got ",
		rdma_event_str(wanted));
	report_event(event);
	return -1;
}

/*
 * wc_advice - the likely causes of a completion's STATUS, the first to check
 * first
 */
static inline const char *wc_advice(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_LEN_ERR:
		return "the message is longer than the port or the receive "
		       "allows";
	case IBV_WC_LOC_QP_OP_ERR:
		return "an lkey is wrong, the device cannot do what was asked, "
		       "or, on SoftRoCE, a receive was too small";
	case IBV_WC_LOC_PROT_ERR:
		return "the local buffer is not inside its memory region, the "
		       "lkey is none of ours, or the region lacks LOCAL_WRITE";
	case IBV_WC_WR_FLUSH_ERR:
		return "the connection was already down: look for the first "
		       "error, this one only follows it";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the peer does not take this kind of request, or its "
		       "receive is too small for the message";
	case IBV_WC_REM_ACCESS_ERR:
		return "the peer's keys refuse it: wrong rkey, past the end "
		       "of the region, or a right that was not given";
	case IBV_WC_REM_OP_ERR:
		return "the peer could not take it: its receive is too small, "
		       "or points to memory that it may not write";
	case IBV_WC_RETRY_EXC_ERR:
		return "no answer from the peer: is it dead or frozen, is UDP "
		       "port 4791 open, is the MTU the same on both sides?";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer has no receive posted: it must post before "
		       "we send";
	default:
		return "see docs/error-gallery.md";
	}
}

/*
 * report_wc - say on stderr that the work completion WC failed
 *
 * REQUEST names what was asked for ("SEND", "receive"). It has to come from
 * the caller, who knows it from wr_id: in a failed completion only wr_id,
 * status, qp_num and vendor_err are valid (ibv_poll_cq(3)), opcode is not.
 */
static inline void report_wc(const struct ibv_wc *wc, const char *request)
{
	fprintf(stderr,
		"completion of the %s (wr_id %llu): %s, status %d, vendor "
		"syndrome 0x%x: %s\n",
		request, (unsigned long long)wc->wr_id,
		ibv_wc_status_str(wc->status), wc->status, wc->vendor_err,
		wc_advice(wc->status));
}

#if LESSON > 2
/*
 * Part 2: the command line, the clock, signals and bounded waits (lessons 01
 * and 02)
 */

/* What the flags that every program has come to. */
struct options {
	const char *server; /* client only: the server's name or address */
	const char *address; /* our own address; NULL: any */
	const char *port;
	int timeout; /* seconds, for any one wait */
	bool help;
};

#define OPTIONS_DEFAULT                        \
	{                                      \
		.port = "10121", .timeout = 10 \
	}

/* For getopt_long(3): the common flags, before a lesson's own. */
#define COMMON_FLAGS "a:p:t:h"
#define COMMON_LONG_FLAGS                                    \
	{ "address", required_argument, NULL, 'a' },         \
		{ "port", required_argument, NULL, 'p' },    \
		{ "timeout", required_argument, NULL, 't' }, \
	{                                                    \
		"help", no_argument, NULL, 'h'               \
	}

/* The lines of the common flags in a program's usage. */
#define CLIENT_USAGE_LINES                                                               \
	"  -a, --address ADDRESS  our own address, IPv4, IPv6 or a name; it picks the\n" \
	"                         device (default: from the route to the server)\n"      \
	"  -p, --port PORT        the server's port, 1 to 65535 (default: 10121)\n"      \
	"  -t, --timeout SECONDS  the longest wait for any one event or completion,\n"   \
	"                         1 to 3600 (default: 10)\n"                             \
	"  -h, --help             this text\n"                                           \
	"Exit status: 0 done, 1 failed, 2 usage.\n"
#define SERVER_USAGE_LINES                                                                \
	"  -a, --address ADDRESS  listen on this address only, IPv4, IPv6 or a name\n"    \
	"                         (default: every address, IPv4 and IPv6)\n"              \
	"  -p, --port PORT        listen on this port, 1 to 65535 (default: 10121)\n"     \
	"  -t, --timeout SECONDS  the longest wait for any one event or completion,\n"    \
	"                         the first client among them, 1 to 3600 (default: 10)\n" \
	"  -h, --help             this text\n"                                            \
	"Exit status: 0 done, 1 failed, 2 usage.\n"

/*
 * parse_number - a whole decimal number from MIN to MAX, or -1 (MIN is 0 or
 * more)
 */
static inline long parse_number(const char *text, long min, long max)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < min || value > max)
		return -1;
	return value;
}

/*
 * common_option - take flag C (with getopt's optarg) into OPT
 *
 * Returns 0, or -1 when C is no common flag or its value is wrong, which is
 * then named on stderr.
 */
static inline int common_option(int c, struct options *opt)
{
	const char *name = program_invocation_short_name;

	switch (c) {
	case 'a':
		opt->address = optarg;
		return 0;
	case 'p':
		opt->port = optarg;
		if (parse_number(optarg, 1, 65535) > 0)
			return 0;
		fprintf(stderr, "%s: -p takes a port from 1 to 65535\n", name);
		return -1;
	case 't':
		opt->timeout = parse_number(optarg, 1, 3600);
		if (opt->timeout > 0)
			return 0;
		fprintf(stderr, "%s: -t takes 1 to 3600 seconds\n", name);
		return -1;
	case 'h':
		opt->help = true;
		return 0;
	default:
		return -1; /* getopt_long has named it */
	}
}

/*
 * client_operand, server_operand - what stands behind the flags: for a client
 * one server, for a server nothing. Return 0 or -1 like common_option().
 */
static inline int client_operand(int argc, char **argv, struct options *opt)
{
	if (opt->help)
		return 0;
	if (optind != argc - 1) {
		fprintf(stderr, "%s: which server? one SERVER_ADDRESS\n",
			program_invocation_short_name);
		return -1;
	}
	opt->server = argv[optind];
	return 0;
}

static inline int server_operand(int argc, char **argv,
				 const struct options *opt)
{
	if (opt->help || optind == argc)
		return 0;
	fprintf(stderr, "%s: what is %s? it takes no arguments\n",
		program_invocation_short_name, argv[optind]);
	return -1;
}

/* now_us, now_ms - micro- and milliseconds on a clock that nobody sets */
static inline long long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static inline long long now_ms(void)
{
	return now_us() / 1000;
}

/*
 * open_stop_fd - make Ctrl-C and SIGTERM readable on a file descriptor
 *
 * The two signals are blocked from here on (signalfd(2)). Returns the
 * descriptor, or -1 after having reported.
 */
static inline int open_stop_fd(void)
{
	sigset_t signals;
	int fd;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	fd = signalfd(-1, &signals, SFD_CLOEXEC);
	if (fd < 0)
		report("signalfd", errno);
	return fd;
}

/*
 * wait_either - wait until FD or OTHER can be read, TIMEOUT_MS milliseconds at
 * most
 *
 * Either may be -1, which never can. Returns the sum of 1 for FD and 2 for
 * OTHER, 0 when the time is over, -1 after Ctrl-C, SIGTERM or a fault, which
 * it reports.
 */
static inline int wait_either(int fd, int other, int stop_fd, int timeout_ms)
{
	struct pollfd fds[] = { { .fd = fd, .events = POLLIN },
				{ .fd = other, .events = POLLIN },
				{ .fd = stop_fd, .events = POLLIN } };
	struct signalfd_siginfo info;

	if (poll(fds, 3, timeout_ms) < 0) {
		report("poll", errno);
		return -1;
	}
	if (fds[2].revents) {
		if (read(stop_fd, &info, sizeof(info)) == sizeof(info))
			fprintf(stderr, "stopped by %s\n",
				strsignal(info.ssi_signo));
		return -1;
	}
	return (fds[0].revents ? 1 : 0) + (fds[1].revents ? 2 : 0);
}

/* wait_readable - the same for one descriptor: 1, 0 or -1 */
static inline int wait_readable(int fd, int stop_fd, int timeout_ms)
{
	return wait_either(fd, -1, stop_fd, timeout_ms);
}

/* is_wildcard - is ADDRESS 0.0.0.0 or ::, which stand for every address? */
static inline bool is_wildcard(const struct sockaddr *address)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)address;
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;

	return address->sa_family == AF_INET6 ?
		       IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr) :
		       four->sin_addr.s_addr == htonl(INADDR_ANY);
}

/* print_address - "10.10.10.2:40000" or "[fd10::2]:40000" on stdout */
static inline void print_address(const struct sockaddr *address)
{
	char text[ADDRESS_TEXT];

	address_text(address, text, sizeof(text));
	printf("%s", text);
}

#endif /* LESSON > 2 */

#if LESSON > 3
/*
 * Part 3: the endpoint of a connection (lesson 03)
 *
 * Lessons 01 and 02 made into functions, in the order in which they are
 * called:
 *
 *	client				server
 *	endpoint_open			endpoint_open
 *	endpoint_resolve		endpoint_listen
 *					endpoint_get_request
 *	endpoint_create_qp		endpoint_create_qp
 *	  (register, post receives)	  (register, post receives)
 *	endpoint_connect		endpoint_accept
 *	  ...				  ...
 *	endpoint_disconnect		endpoint_disconnect
 *	  (deregister)			  (deregister)
 *	endpoint_destroy		endpoint_destroy
 *
 * Each returns 0, or -1 after having reported. The last two take whatever
 * there is, a half-built endpoint as well; a struct endpoint starts as zeros.
 */
struct endpoint {
	int timeout; /* seconds, for any one wait */
	int stop_fd; /* Ctrl-C and SIGTERM, see open_stop_fd() */
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener; /* server only */
	int backlog; /* server: requests that may wait (lesson 15); 0: one */
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *comp_channel;
	struct ibv_cq *cq;
	int outstanding; /* posted, and its completion not yet seen */
	bool connected; /* ESTABLISHED has come */
	bool disconnected; /* DISCONNECTED has come */
	enum rdma_cm_event_type event; /* the last one that was taken */
	/*
	 * What the last event brought from the peer. It is padded with zeros
	 * to the largest size there is, so the length says nothing about what
	 * the peer sent: a protocol has a fixed layout and checks it. (The CM
	 * has a uint8_t for it, so it is 255 at most.)
	 */
	uint8_t private_data[256];
	size_t private_data_len;
	/*
	 * How many READs and atomics at a time, from our own point of view: we
	 * answer so many of the peer's, and make so many ourselves. The last event
	 * has brought the peer's word on that (lesson 09).
	 */
	uint8_t responder_resources;
	uint8_t initiator_depth;
};

/*
 * ACK_TIMEOUT - how long the card waits for an acknowledgement before it sends
 * again: 4.096 us x 2^15 = 134 ms (ibv_modify_qp(3), timeout)
 *
 * The CM's own choice is 19 or 17 on SoftRoCE, as the kernel goes: 2.1 s or
 * 0.5 s. With 19 a lost packet costs seconds, and a dead peer is noticed after
 * our deadline and not before.
 */
#define ACK_TIMEOUT 15

static inline int endpoint_open(struct endpoint *ep, const struct options *opt)
{
	ep->timeout = opt->timeout;
	ep->stop_fd = open_stop_fd();
	if (ep->stop_fd < 0)
		return -1;
	ep->channel = rdma_create_event_channel();
	if (!ep->channel) {
		report("rdma_create_event_channel", errno);
		return -1;
	}
	if (fcntl(ep->channel->fd, F_SETFL, O_NONBLOCK)) {
		report("fcntl", errno);
		return -1;
	}
	return 0;
}

/*
 * endpoint_take_event - take the CM's next event, which must be WANTED
 *
 * The channel is readable when this is called. What the event carries is
 * copied before it is acknowledged, since it dies with it: the peer's private
 * data, and with a CONNECT_REQUEST the new id. A client that is one too many is
 * turned away and is no failure; ep->event is CONNECT_REQUEST then. Nor is what
 * lesson 03 may ignore: ADDR_CHANGE and TIMEWAIT_EXIT.
 */
static inline int endpoint_take_event(struct endpoint *ep,
				      enum rdma_cm_event_type wanted)
{
	static const char busy[] = "busy with another client";
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	int ret;

	if (rdma_get_cm_event(ep->channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	ep->event = event->event;
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && ep->id) {
		id = event->id;
		rdma_ack_cm_event(event);
		rdma_reject(id, busy, sizeof(busy));
		rdma_destroy_id(id);
		return 0;
	}
	if (event->event == RDMA_CM_EVENT_ADDR_CHANGE ||
	    event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
		rdma_ack_cm_event(event);
		return 0;
	}
	ep->private_data_len = 0;
	if (event->param.conn.private_data) {
		ep->private_data_len = event->param.conn.private_data_len;
		memcpy(ep->private_data, event->param.conn.private_data,
		       ep->private_data_len);
	}
	ep->responder_resources = event->param.conn.responder_resources;
	ep->initiator_depth = event->param.conn.initiator_depth;
	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		ep->id = event->id;
	if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		ep->connected = false; /* no goodbye is possible */
	if (event->event == RDMA_CM_EVENT_DISCONNECTED)
		ep->disconnected = true;
	ret = expect_event(event, wanted);
	rdma_ack_cm_event(event);
	return ret;
}

/* endpoint_wait_event - wait for the CM's next event, which must be WANTED */
static inline int endpoint_wait_event(struct endpoint *ep,
				      enum rdma_cm_event_type wanted)
{
	long long deadline = now_ms() + ep->timeout * 1000LL;
	long long left;
	int ready;

	do {
		left = deadline - now_ms();
		ready = wait_readable(ep->channel->fd, ep->stop_fd,
				      left > 0 ? left : 0);
		if (ready < 0)
			return -1;
		if (ready == 0) {
			fprintf(stderr,
				"waited %d s for %s and nothing came: is the "
				"peer alive and answering? (-t waits longer)\n",
				ep->timeout, rdma_event_str(wanted));
			return -1;
		}
		if (endpoint_take_event(ep, wanted))
			return -1;
	} while (ep->event != wanted);
	return 0;
}

/* Lower the acknowledgement timeout; it has to be done before the handshake. */
static inline int endpoint_set_ack_timeout(struct endpoint *ep)
{
	uint8_t timeout = ACK_TIMEOUT;

	if (rdma_set_option(ep->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			    &timeout, sizeof(timeout))) {
		report("rdma_set_option", errno);
		return -1;
	}
	return 0;
}

/*
 * endpoint_resolve - client: from the server's name to the device that leads
 * there (lesson 01, steps 1 to 10 without 7)
 */
static inline int endpoint_resolve(struct endpoint *ep,
				   const struct options *opt)
{
	struct rdma_addrinfo hints = { .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL, *source = NULL;
	int err, ret = -1;

	err = rdma_getaddrinfo(opt->server, opt->port, &hints, &info);
	if (err) {
		report_getaddrinfo(opt->server, err);
		goto out;
	}
	if (opt->address) {
		hints.ai_flags = RAI_PASSIVE;
		err = rdma_getaddrinfo(opt->address, NULL, &hints, &source);
		if (err) {
			report_getaddrinfo(opt->address, err);
			goto out;
		}
	}
	if (check_zone(info->ai_dst_addr) ||
	    (source && check_zone(source->ai_src_addr)))
		goto out;
	if (rdma_create_id(ep->channel, &ep->id, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		goto out;
	}
	if (rdma_resolve_addr(ep->id, source ? source->ai_src_addr : NULL,
			      info->ai_dst_addr, ep->timeout * 500)) {
		report_address("rdma_resolve_addr", info->ai_dst_addr, errno);
		goto out;
	}
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_ADDR_RESOLVED))
		goto out;
	if (rdma_resolve_route(ep->id, ep->timeout * 500)) {
		report("rdma_resolve_route", errno);
		goto out;
	}
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_ROUTE_RESOLVED))
		goto out;
	ret = endpoint_set_ack_timeout(ep);
out:
	if (source)
		rdma_freeaddrinfo(source);
	if (info)
		rdma_freeaddrinfo(info);
	return ret;
}

/*
 * endpoint_listen - server: listen, and say `listening on ADDRESS:PORT`
 * (lesson 02, steps 1 to 5)
 */
static inline int endpoint_listen(struct endpoint *ep,
				  const struct options *opt)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE,
				       .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *info = NULL;
	int err, ret = -1;

	err = rdma_getaddrinfo(opt->address ? opt->address : "::", opt->port,
			       &hints, &info);
	if (err) {
		report_getaddrinfo(opt->address, err);
		goto out;
	}
	if (check_zone(info->ai_src_addr))
		goto out;
	if (rdma_create_id(ep->channel, &ep->listener, NULL, RDMA_PS_TCP)) {
		report("rdma_create_id", errno);
		goto out;
	}
	if (rdma_bind_addr(ep->listener, info->ai_src_addr)) {
		report_address("rdma_bind_addr", info->ai_src_addr, errno);
		goto out;
	}
	if (!ep->listener->verbs && !is_wildcard(info->ai_src_addr)) {
		report_address("rdma_bind_addr", info->ai_src_addr, ENODEV);
		goto out;
	}
	if (rdma_listen(ep->listener, ep->backlog ? ep->backlog : 1)) {
		report("rdma_listen", errno);
		goto out;
	}
	printf("listening on ");
	print_address(rdma_get_local_addr(ep->listener));
	printf("\n");
	ret = 0;
out:
	if (info)
		rdma_freeaddrinfo(info);
	return ret;
}

/*
 * endpoint_get_request - server: wait for a client and take its id (lesson 02,
 * steps 6 and 7). The client's private data is in ep->private_data.
 */
static inline int endpoint_get_request(struct endpoint *ep)
{
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_CONNECT_REQUEST))
		return -1;
	return endpoint_set_ack_timeout(ep);
}

/* The retry counts of lesson 01, with their reasons there. */
#define CONN_PARAM_DEFAULT                             \
	{                                              \
		.retry_count = 6, .rnr_retry_count = 3 \
	}

/*
 * endpoint_connect - client: connect and wait until it is established (lesson
 * 01, steps 11 to 13). The server's private data is in ep->private_data.
 */
static inline int endpoint_connect(struct endpoint *ep,
				   struct rdma_conn_param *param)
{
	if (rdma_connect(ep->id, param)) {
		report("rdma_connect", errno);
		return -1;
	}
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	ep->connected = true;
	return 0;
}

/*
 * endpoint_accept - server: accept and wait until it is established (lesson
 * 02, steps 13 to 15). Receives have to be posted before.
 */
static inline int endpoint_accept(struct endpoint *ep,
				  struct rdma_conn_param *param)
{
	uint8_t private_data[sizeof(ep->private_data)];
	size_t len = ep->private_data_len;

	memcpy(private_data, ep->private_data, len);
	if (rdma_accept(ep->id, param)) {
		report("rdma_accept", errno);
		return -1;
	}
	if (endpoint_wait_event(ep, RDMA_CM_EVENT_ESTABLISHED))
		return -1;
	memcpy(ep->private_data, private_data, len); /* the client's, still */
	ep->private_data_len = len;
	ep->connected = true;
	return 0;
}

/*
 * endpoint_post_send, endpoint_post_recv - post one request and count it
 *
 * A request without IBV_SEND_SIGNALED is not counted: it completes with the
 * next one that has it. (Only when all goes well: one that is flushed has a
 * completion of its own. The count may come out too low then, and it is the end
 * of the QP that takes the buffers back: endpoint_disconnect().)
 */
static inline int endpoint_post_send(struct endpoint *ep,
				     struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err = ibv_post_send(ep->id->qp, wr, &bad);

	if (err) {
		report("ibv_post_send", err);
		return -1;
	}
	if (wr->send_flags & IBV_SEND_SIGNALED)
		ep->outstanding++;
	return 0;
}

static inline int endpoint_post_recv(struct endpoint *ep,
				     struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;
	int err = ibv_post_recv(ep->id->qp, wr, &bad);

	if (err) {
		report("ibv_post_recv", err);
		return -1;
	}
	ep->outstanding++;
	return 0;
}

/*
 * endpoint_poll - look for one completion, without waiting
 *
 * Returns 1 with the completion in WC, 0 when there is none, -1 after having
 * reported.
 */
static inline int endpoint_poll(struct endpoint *ep, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(ep->cq, 1, wc);

	if (n < 0)
		report("ibv_poll_cq", EIO);
	else
		ep->outstanding -= n;
	return n;
}

/*
 * endpoint_goodbye - say goodbye, wait for the peer's, and see every request
 * come back from the card (lesson 01, steps 15 to 17a)
 *
 * rdma_disconnect(3) moves our QP to the error state, and what is still posted
 * is flushed to the CQ.
 */
static inline int endpoint_goodbye(struct endpoint *ep)
{
	long long deadline;
	struct ibv_wc wc;
	int ret = 0;

	ep->connected = false;
	if (rdma_disconnect(ep->id)) {
		report("rdma_disconnect", errno);
		ret = -1;
	}
	if (!ep->disconnected &&
	    endpoint_wait_event(ep, RDMA_CM_EVENT_DISCONNECTED))
		ret = -1;
	deadline = now_ms() + ep->timeout * 1000LL;
	while (ep->outstanding > 0 && endpoint_poll(ep, &wc) >= 0) {
		if (now_ms() > deadline) {
			fprintf(stderr, "%d requests were never flushed\n",
				ep->outstanding);
			return -1;
		}
	}
	return ret;
}

/*
 * endpoint_disconnect - end the connection, if there is one, and the QP (lesson
 * 01, steps 15 to 18)
 *
 * Then the memory may be freed, whatever has failed: without a QP the card has no
 * buffer of ours any more.
 */
static inline int endpoint_disconnect(struct endpoint *ep)
{
	int ret = ep->connected ? endpoint_goodbye(ep) : 0;

	if (ep->id && ep->id->qp)
		rdma_destroy_qp(ep->id);
	return ret;
}

/*
 * endpoint_destroy - take down whatever there is, in the reverse order of its
 * making (lesson 01, steps 18 to 20)
 */
static inline void endpoint_destroy(struct endpoint *ep)
{
	if (ep->id && ep->id->qp)
		rdma_destroy_qp(ep->id);
	if (ep->cq && ibv_destroy_cq(ep->cq))
		report("ibv_destroy_cq", errno);
	if (ep->comp_channel && ibv_destroy_comp_channel(ep->comp_channel))
		report("ibv_destroy_comp_channel", errno);
	if (ep->pd && ibv_dealloc_pd(ep->pd))
		report("ibv_dealloc_pd", errno);
	if (ep->id)
		rdma_destroy_id(ep->id);
	if (ep->listener)
		rdma_destroy_id(ep->listener);
	if (ep->channel)
		rdma_destroy_event_channel(ep->channel);
	if (ep->stop_fd > 0)
		close(ep->stop_fd);
	memset(ep, 0, sizeof(*ep));
}

#endif /* LESSON > 3 */

#if LESSON > 4
/*
 * Part 4: the CQ, and waiting for a completion (lesson 04)
 */

/*
 * endpoint_create_qp - the protection domain, a CQ with a completion channel,
 * and an RC QP for SENDS requests and RECVS receives at a time, one SGE each
 * (lesson 01, step 7; lesson 02, steps 8 to 11; the channel is from lesson 04)
 */
static inline int endpoint_create_qp(struct endpoint *ep, uint32_t sends,
				     uint32_t recvs)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = sends,
			.max_recv_wr = recvs,
			.max_send_sge = 1,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
	};

	ep->pd = ibv_alloc_pd(ep->id->verbs);
	if (!ep->pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	ep->comp_channel = ibv_create_comp_channel(ep->id->verbs);
	if (!ep->comp_channel) {
		report("ibv_create_comp_channel", errno);
		return -1;
	}
	/* Room for everything that can be outstanding: a CQ must not overflow. */
	ep->cq = ibv_create_cq(ep->id->verbs, sends + recvs, NULL,
			       ep->comp_channel, 0);
	if (!ep->cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	attr.send_cq = ep->cq;
	attr.recv_cq = ep->cq;
	if (rdma_create_qp(ep->id, ep->pd, &attr)) {
		report("rdma_create_qp", errno);
		return -1;
	}
	return 0;
}

/*
 * endpoint_take_notice - take one event from the completion channel
 *
 * Each event taken has to be acknowledged: ibv_destroy_cq() waits, for ever,
 * until all of them are (ibv_get_cq_event(3)).
 */
static inline int endpoint_take_notice(struct endpoint *ep)
{
	struct ibv_cq *cq;
	void *context;

	if (ibv_get_cq_event(ep->comp_channel, &cq, &context)) {
		report("ibv_get_cq_event", errno);
		return -1;
	}
	ibv_ack_cq_events(cq, 1);
	return 0;
}

/*
 * endpoint_wait_wc - sleep until a completion comes, and take it
 *
 * Poll, arm, poll again, and only then sleep: a completion that came before
 * the arming raises no event. While it sleeps it listens to the CM and to
 * Ctrl-C as well. Returns 0 with the completion in WC, be it good or bad; 1
 * when the peer has disconnected and no completion is left; -1 after a
 * deadline, Ctrl-C or a fault, which it reports.
 */
static inline int endpoint_wait_wc(struct endpoint *ep, struct ibv_wc *wc)
{
	long long deadline = now_ms() + ep->timeout * 1000LL;
	long long left;
	int ready, n, err;

	for (;;) {
		n = endpoint_poll(ep, wc);
		if (n)
			return n < 0 ? -1 : 0;
		err = ibv_req_notify_cq(ep->cq, 0);
		if (err) {
			report("ibv_req_notify_cq", err);
			return -1;
		}
		n = endpoint_poll(ep, wc);
		if (n)
			return n < 0 ? -1 : 0;
		if (ep->disconnected)
			return 1;
		left = deadline - now_ms();
		ready = left > 0 ? wait_either(ep->comp_channel->fd,
					       ep->channel->fd, ep->stop_fd,
					       left) :
				   0;
		if (ready < 0)
			return -1;
		if (ready == 0) {
			fprintf(stderr,
				"waited %d s for a completion and none came: "
				"is the peer frozen, or UDP port 4791 shut?\n",
				ep->timeout);
			return -1;
		}
		if ((ready & 1) && endpoint_take_notice(ep))
			return -1;
		if ((ready & 2) &&
		    endpoint_take_event(ep, RDMA_CM_EVENT_DISCONNECTED))
			return -1;
	}
}

#endif /* LESSON > 4 */

#if LESSON > 5
/*
 * Part 5: many requests at a time (lesson 05)
 */

/* What a request was, as its wr_id says. */
enum wr_op {
	WR_SEND = 1,
	WR_RECV,
	WR_WRITE,
	WR_READ,
	WR_ATOMIC
};

/*
 * wr_id_of - a wr_id that says which operation it was, and on which slot
 *
 * The card hands wr_id back as it was, in a failed completion too, where
 * opcode cannot be trusted (ibv_poll_cq(3)).
 */
static inline uint64_t wr_id_of(enum wr_op op, uint32_t slot)
{
	return (uint64_t)op << 32 | slot;
}

static inline enum wr_op wr_id_op(uint64_t wr_id)
{
	return wr_id >> 32;
}

static inline uint32_t wr_id_slot(uint64_t wr_id)
{
	return wr_id;
}

static inline const char *wr_op_str(enum wr_op op)
{
	switch (op) {
	case WR_SEND:
		return "SEND";
	case WR_RECV:
		return "receive";
	case WR_WRITE:
		return "RDMA WRITE";
	case WR_READ:
		return "RDMA READ";
	case WR_ATOMIC:
		return "atomic";
	default:
		return "unknown request";
	}
}

/* check_wc - 0 for a good completion; otherwise report it and return -1 */
static inline int check_wc(const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_SUCCESS)
		return 0;
	report_wc(wc, wr_op_str(wr_id_op(wc->wr_id)));
	return -1;
}

/*
 * pattern_fill, pattern_check - SIZE bytes that depend on SEED and on their
 * place
 *
 * pattern_check returns -1 when they are right, or the place of the first byte
 * that is not.
 */
static inline uint8_t pattern_byte(uint32_t seed, size_t i)
{
	uint32_t x = seed * 2654435761u + (uint32_t)i * 40503u;

	return x >> 13 ^ x >> 3;
}

static inline void pattern_fill(void *buf, size_t size, uint32_t seed)
{
	uint8_t *bytes = buf;
	size_t i;

	for (i = 0; i < size; i++)
		bytes[i] = pattern_byte(seed, i);
}

static inline ssize_t pattern_check(const void *buf, size_t size, uint32_t seed)
{
	const uint8_t *bytes = buf;
	size_t i;

	for (i = 0; i < size; i++)
		if (bytes[i] != pattern_byte(seed, i))
			return i;
	return -1;
}

#endif /* LESSON > 5 */

#if LESSON > 6
/*
 * Part 6: memory of the peer (lesson 06)
 */

/* A memory region as its owner tells a peer of it. */
struct remote_region {
	uint64_t addr; /* in the owner's address space */
	uint32_t rkey;
	uint32_t size; /* bytes */
};

/* What remote_region_pack() makes: addr, rkey, size, each big-endian. */
#define REMOTE_REGION_WIRE_SIZE 16

/* remote_region_pack - MR as 16 bytes, to be sent to a peer */
static inline void remote_region_pack(uint8_t *wire, const struct ibv_mr *mr)
{
	uint64_t addr = htobe64((uintptr_t)mr->addr);
	uint32_t rkey = htobe32(mr->rkey);
	uint32_t size = htobe32(mr->length);

	memcpy(wire, &addr, 8);
	memcpy(wire + 8, &rkey, 4);
	memcpy(wire + 12, &size, 4);
}

/*
 * remote_region_unpack - 16 bytes from a peer, checked
 *
 * Returns 0, or -1 after having reported, when what came cannot be a region:
 * no address, no size, or an end past the end of the address space.
 */
static inline int remote_region_unpack(struct remote_region *region,
				       const uint8_t *wire)
{
	uint64_t addr;
	uint32_t rkey, size;

	memcpy(&addr, wire, 8);
	memcpy(&rkey, wire + 8, 4);
	memcpy(&size, wire + 12, 4);
	region->addr = be64toh(addr);
	region->rkey = be32toh(rkey);
	region->size = be32toh(size);
	if (region->addr && region->size &&
	    region->addr + region->size > region->addr)
		return 0;
	fprintf(stderr,
		"the peer's private data is no memory region (address 0x%llx, "
		"size %u): is it the server of this lesson?\n",
		(unsigned long long)region->addr, region->size);
	return -1;
}

/*
 * endpoint_accept_without_right - rdma_accept(3), but the QP allows its peer nothing
 *
 * For those who want to see what is refused then. Returns 0, or -1 with errno.
 */
static inline int endpoint_accept_without_right(struct endpoint *ep,
						struct rdma_conn_param *param)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT };
	struct ibv_qp *qp = ep->id->qp;
	int mask, err;

	for (; attr.qp_state <= IBV_QPS_RTS; attr.qp_state++) {
		if (rdma_init_qp_attr(ep->id, &attr, &mask))
			return -1;
		attr.qp_access_flags = 0;
		attr.max_dest_rd_atomic = param->responder_resources;
		errno = ibv_modify_qp(qp, &attr, mask);
		if (errno)
			return -1;
	}
	param->qp_num = qp->qp_num;
	ep->id->qp = NULL;
	err = rdma_accept(ep->id, param);
	ep->id->qp = qp;
	return err;
}

#endif /* LESSON > 6 */

#if LESSON > 15
/*
 * Part 15: a server of many clients (lesson 15)
 *
 * The loop of lesson 15, for a server that answers each message with one. It
 * calls on_client when one wants in, on_message for each message, and on_gone
 * before a client is forgotten; the first and the last may be NULL.
 */

/* How patient a card is when many share it (lesson 15). */
#define HUB_PATIENCE 19

#define HUB_BUCKETS 256
#define HUB_BATCH 16 /* completions, before the other descriptors' turn */
#define HUB_LEEWAY 16 /* unacknowledged answers beyond the window */
#define HUB_LOOK_MS 250 /* how often the clients are looked over */
#define HUB_GOODBYE_MS 1000 /* how long a goodbye may take */

struct hub_client {
	struct rdma_cm_id *id;
	struct hub_client *next; /* in the same bucket */
	uint32_t qp_num;
	enum {
		HUB_ACCEPTING,
		HUB_SERVING,
		HUB_CLOSING
	} state;
	bool disconnected; /* its goodbye, or the answer to ours, has come */
	uint32_t answers; /* posted and not yet acknowledged */
	long long since; /* ms: last heard of; HUB_CLOSING: since when */
	void *own; /* the server's, for this client */
};

struct hub {
	struct endpoint ep; /* what all share; its id stays NULL */
	int epoll;
	struct ibv_srq *srq;
	uint8_t *memory;
	struct ibv_mr *mr;
	struct hub_client **sending; /* to whom a slot is being sent */
	struct hub_client *by_qp[HUB_BUCKETS];
	uint32_t slots, slot_size, window; /* to be set before hub_open() */
	uint32_t count, closing; /* clients, and those that are about to go */
	uint64_t came, dropped, messages, answered;
	bool once; /* end when the last client has left */
	bool draining, now; /* SIGTERM has come, and a second one */
	long long next_look;
	/* Prepare for CLIENT, and say in PARAM what the accept is to carry. */
	int (*on_client)(struct hub *hub, struct hub_client *client,
			 struct rdma_conn_param *param);
	/*
	 * A message of LENGTH bytes has come into TEXT. Leave the answer there
	 * and return its length; 0 drops the client.
	 */
	uint32_t (*on_message)(struct hub *hub, struct hub_client *client,
			       uint8_t *text, uint32_t length);
	void (*on_gone)(struct hub *hub, struct hub_client *client);
};

/* Give the card SLOT to receive into, whoever sends. */
static inline int hub_post_slot(struct hub *hub, uint32_t slot)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(hub->memory + slot * hub->slot_size),
		.length = hub->slot_size,
		.lkey = hub->mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = {
		.wr_id = wr_id_of(WR_RECV, slot),
		.sg_list = &sge,
		.num_sge = 1,
	};
	int err = ibv_post_srq_recv(hub->srq, &wr, &bad);

	if (!err)
		return 0;
	report("ibv_post_srq_recv", err);
	return -1;
}

/* Send LENGTH bytes out of SLOT; it is posted again when that has completed. */
static inline int hub_post_answer(struct hub *hub, struct hub_client *client,
				  uint32_t slot, uint32_t length)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)(hub->memory + slot * hub->slot_size),
		.length = length,
		.lkey = hub->mr->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id_of(WR_SEND, slot),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	int err = ibv_post_send(client->id->qp, &wr, &bad);

	if (err) {
		report("ibv_post_send", err);
		return -1;
	}
	hub->sending[slot] = client;
	client->answers++;
	return 0;
}

static inline int hub_watch(struct hub *hub, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (!epoll_ctl(hub->epoll, EPOLL_CTL_ADD, fd, &event))
		return 0;
	report("epoll_ctl", errno);
	return -1;
}

/* What all clients share, on the device VERBS. */
static inline int hub_make_shared(struct hub *hub, struct ibv_context *verbs)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = hub->slots, .max_sge = 1 },
	};
	uint32_t slot;
	int err;

	hub->ep.pd = ibv_alloc_pd(verbs);
	if (!hub->ep.pd) {
		report("ibv_alloc_pd", errno);
		return -1;
	}
	hub->sending = calloc(hub->slots, sizeof(*hub->sending));
	hub->memory = calloc(hub->slots, hub->slot_size);
	if (!hub->sending || !hub->memory) {
		report("calloc", errno);
		return -1;
	}
	hub->mr = ibv_reg_mr(hub->ep.pd, hub->memory,
			     (size_t)hub->slots * hub->slot_size,
			     IBV_ACCESS_LOCAL_WRITE);
	if (!hub->mr) {
		report("ibv_reg_mr", errno);
		return -1;
	}
	hub->srq = ibv_create_srq(hub->ep.pd, &attr);
	if (!hub->srq) {
		report("ibv_create_srq", errno);
		return -1;
	}
	for (slot = 0; slot < hub->slots; slot++)
		if (hub_post_slot(hub, slot))
			return -1;
	hub->ep.comp_channel = ibv_create_comp_channel(verbs);
	if (!hub->ep.comp_channel) {
		report("ibv_create_comp_channel", errno);
		return -1;
	}
	hub->ep.cq =
		ibv_create_cq(verbs, hub->slots, NULL, hub->ep.comp_channel, 0);
	if (!hub->ep.cq) {
		report("ibv_create_cq", errno);
		return -1;
	}
	err = ibv_req_notify_cq(hub->ep.cq, 0);
	if (err) {
		report("ibv_req_notify_cq", err);
		return -1;
	}
	return hub_watch(hub, hub->ep.comp_channel->fd);
}

static inline struct hub_client *hub_find(struct hub *hub, uint32_t qp_num)
{
	struct hub_client *client = hub->by_qp[qp_num % HUB_BUCKETS];

	while (client && client->qp_num != qp_num)
		client = client->next;
	return client;
}

static inline void hub_destroy_client(struct hub *hub,
				      struct hub_client *client)
{
	struct hub_client **at = &hub->by_qp[client->qp_num % HUB_BUCKETS];

	while (*at && *at != client)
		at = &(*at)->next;
	if (*at) {
		*at = client->next;
		hub->count--;
	}
	if (client->state == HUB_CLOSING)
		hub->closing--;
	rdma_destroy_qp(client->id);
	if (hub->on_gone)
		hub->on_gone(hub, client);
	rdma_destroy_id(client->id);
	free(client);
}

static inline struct hub_client *hub_create_client(struct hub *hub,
						   struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = hub->window + HUB_LEEWAY,
			 .max_send_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.send_cq = hub->ep.cq,
		.recv_cq = hub->ep.cq,
		.srq = hub->srq,
	};
	uint8_t timeout = HUB_PATIENCE;
	struct hub_client *client = calloc(1, sizeof(*client));

	if (!client) {
		report("calloc", errno);
		return NULL;
	}
	if (rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
			    &timeout, sizeof(timeout))) {
		report("rdma_set_option", errno);
		free(client);
		return NULL;
	}
	if (rdma_create_qp(id, hub->ep.pd, &attr)) {
		report("rdma_create_qp", errno);
		free(client);
		return NULL;
	}
	client->id = id;
	id->context = client;
	client->since = now_ms();
	client->qp_num = id->qp->qp_num;
	client->next = hub->by_qp[client->qp_num % HUB_BUCKETS];
	hub->by_qp[client->qp_num % HUB_BUCKETS] = client;
	hub->count++;
	return client;
}

static inline int hub_accept(struct hub *hub, struct hub_client *client)
{
	struct rdma_conn_param param = { .rnr_retry_count = 7 };
	struct ibv_qp_attr attr = { .min_rnr_timer = 20 }; /* 10 ms */
	int err;

	if (hub->on_client && hub->on_client(hub, client, &param))
		return -1;
	if (rdma_accept(client->id, &param)) {
		report("rdma_accept", errno);
		return -1;
	}
	/* EINVAL: the QP is in the error state already; a completion says why. */
	err = ibv_modify_qp(client->id->qp, &attr, IBV_QP_MIN_RNR_TIMER);
	if (err && err != EINVAL) {
		report("ibv_modify_qp", err);
		return -1;
	}
	return 0;
}

/* Begin to be rid of CLIENT; hub_look_after() ends it. Nothing waits. */
static inline void hub_close_client(struct hub *hub, struct hub_client *client)
{
	if (client->state == HUB_CLOSING)
		return;
	if (rdma_disconnect(client->id) && client->state == HUB_SERVING &&
	    errno != EINVAL)
		report("rdma_disconnect", errno);
	if (client->state == HUB_ACCEPTING)
		client->disconnected = true; /* nobody to wait for */
	client->state = HUB_CLOSING;
	client->since = now_ms();
	hub->closing++;
}

static inline void hub_drop(struct hub *hub, struct hub_client *client,
			    const char *why)
{
	char name[ADDRESS_TEXT];

	if (client->state == HUB_CLOSING)
		return;
	address_text(rdma_get_peer_addr(client->id), name, sizeof(name));
	fprintf(stderr, "dropped %s: %s\n", name, why);
	hub->dropped++;
	hub_close_client(hub, client);
}

static inline void hub_refuse(struct rdma_cm_id *id, const char *why)
{
	rdma_reject(id, why, strlen(why) + 1);
	rdma_destroy_id(id);
}

static inline int hub_on_request(struct hub *hub, struct rdma_cm_id *id)
{
	struct hub_client *client;

	if (!hub->ep.pd && hub_make_shared(hub, id->verbs)) {
		hub_refuse(id, "out of resources");
		return -1;
	}
	if (hub->draining || id->verbs != hub->ep.pd->context) {
		hub_refuse(id,
			   hub->draining ? "going down" : "on another device");
		return 0;
	}
	client = hub_create_client(hub, id);
	if (!client)
		hub_refuse(id, "out of resources");
	else if (hub_accept(hub, client))
		hub_destroy_client(hub, client);
	return 0;
}

static inline int hub_take_event(struct hub *hub)
{
	struct rdma_cm_event *event;
	enum rdma_cm_event_type type;
	struct hub_client *client;
	struct rdma_cm_id *id;

	if (rdma_get_cm_event(hub->ep.channel, &event)) {
		report("rdma_get_cm_event", errno);
		return -1;
	}
	type = event->event;
	id = event->id;
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_CONNECT_REQUEST)
		return hub_on_request(hub, id);
	client = id->context;
	switch (type) {
	case RDMA_CM_EVENT_ESTABLISHED:
		if (client->state == HUB_ACCEPTING) {
			client->state = HUB_SERVING;
			client->since = now_ms();
			hub->came++;
		}
		return 0;
	case RDMA_CM_EVENT_DISCONNECTED:
		if (client->state == HUB_ACCEPTING)
			hub->came++; /* and its ReadyToUse was lost */
		client->disconnected = true;
		hub_close_client(hub, client);
		return 0;
	case RDMA_CM_EVENT_REJECTED:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		hub_drop(hub, client, "the handshake broke off half way");
		return 0;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		fprintf(stderr, "the device was taken away\n");
		return -1;
	default:
		return 0;
	}
}

/* Returns whether an answer goes out of SLOT. */
static inline bool hub_on_message(struct hub *hub, struct hub_client *client,
				  uint32_t slot, uint32_t length)
{
	if (client->state == HUB_CLOSING)
		return false;
	client->since = now_ms();
	hub->messages++;
	if (client->answers == hub->window + HUB_LEEWAY) {
		hub_drop(hub, client,
			 "it has more requests under way than it may");
		return false;
	}
	length = hub->on_message(hub, client,
				 hub->memory + slot * hub->slot_size, length);
	if (!length) {
		hub_drop(hub, client, "what it sent is no request");
		return false;
	}
	if (hub_post_answer(hub, client, slot, length)) {
		hub_drop(hub, client, "it could not be answered");
		return false;
	}
	return true;
}

/* Every way ends with the slot in the queue, or on its way out. */
static inline int hub_on_completion(struct hub *hub, const struct ibv_wc *wc)
{
	bool send = wr_id_op(wc->wr_id) == WR_SEND;
	uint32_t slot = wr_id_slot(wc->wr_id);
	struct hub_client *client = send ? hub->sending[slot] :
					   hub_find(hub, wc->qp_num);
	char why[256];

	if (send)
		client->answers--;
	if (wc->status != IBV_WC_SUCCESS) {
		snprintf(why, sizeof(why), "%s: %s, status %d",
			 send ? "its answer did not arrive" :
				"its message could not be received",
			 ibv_wc_status_str(wc->status), wc->status);
		if (client)
			hub_drop(hub, client, why);
	} else if (send) {
		if (client->state != HUB_CLOSING)
			client->since = now_ms();
		hub->answered++;
	} else if (client && hub_on_message(hub, client, slot, wc->byte_len)) {
		return 0;
	}
	return hub_post_slot(hub, slot);
}

static inline int hub_take_completions(struct hub *hub)
{
	struct ibv_wc wc[HUB_BATCH];
	int i, n = ibv_poll_cq(hub->ep.cq, HUB_BATCH, wc);

	if (n < 0)
		report("ibv_poll_cq", EIO);
	for (i = 0; i < n; i++)
		if (hub_on_completion(hub, &wc[i]))
			return -1;
	return n;
}

static inline int hub_take_notice(struct hub *hub)
{
	int err;

	if (endpoint_take_notice(&hub->ep))
		return -1;
	err = ibv_req_notify_cq(hub->ep.cq, 0);
	if (err) {
		report("ibv_req_notify_cq", err);
		return -1;
	}
	return 0;
}

static inline int hub_take_signal(struct hub *hub)
{
	struct signalfd_siginfo info;

	if (read(hub->ep.stop_fd, &info, sizeof(info)) != sizeof(info)) {
		report("read", errno);
		return -1;
	}
	hub->now = hub->draining;
	hub->draining = true;
	printf("%s: %u clients to say goodbye to\n", strsignal(info.ssi_signo),
	       hub->count);
	return 0;
}

static inline void hub_look_at(struct hub *hub, struct hub_client *client,
			       long long now)
{
	long long silent = now - client->since;
	char why[64];

	if (client->state == HUB_CLOSING) {
		if (client->answers == 0 &&
		    (client->disconnected || silent > HUB_GOODBYE_MS))
			hub_destroy_client(hub, client);
	} else if (silent > hub->ep.timeout * 1000LL) {
		snprintf(why, sizeof(why), "nothing heard of it for %d s",
			 hub->ep.timeout);
		hub_drop(hub, client, why);
	} else if (hub->draining && client->answers == 0) {
		hub_close_client(hub, client);
	}
}

static inline void hub_look_after(struct hub *hub)
{
	struct hub_client *client, *next;
	long long now = now_ms();
	int i;

	if (now < hub->next_look && !hub->closing && !hub->draining)
		return;
	hub->next_look = now + HUB_LOOK_MS;
	for (i = 0; i < HUB_BUCKETS; i++)
		for (client = hub->by_qp[i]; client; client = next) {
			next = client->next;
			hub_look_at(hub, client, now);
		}
}

static inline int hub_open(struct hub *hub, const struct options *opt)
{
	hub->ep.backlog = 128;
	if (endpoint_open(&hub->ep, opt))
		return -1;
	hub->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (hub->epoll < 0) {
		report("epoll_create1", errno);
		return -1;
	}
	if (hub_watch(hub, hub->ep.stop_fd) ||
	    hub_watch(hub, hub->ep.channel->fd) ||
	    endpoint_listen(&hub->ep, opt))
		return -1;
	return 0;
}

/* hub_serve - until SIGTERM and a goodbye to everybody; 0, or -1 on a fault */
static inline int hub_serve(struct hub *hub)
{
	struct epoll_event events[3];
	bool more = false;
	int i, n, fd;

	while (!hub->now &&
	       (hub->count || !(hub->draining || (hub->once && hub->came)))) {
		n = epoll_wait(hub->epoll, events, 3, more ? 0 : HUB_LOOK_MS);
		if (n < 0 && errno != EINTR) {
			report("epoll_wait", errno);
			return -1;
		}
		for (i = 0; i < n; i++) {
			fd = events[i].data.fd;
			if (fd == hub->ep.stop_fd     ? hub_take_signal(hub) :
			    fd == hub->ep.channel->fd ? hub_take_event(hub) :
							hub_take_notice(hub))
				return -1;
		}
		if (hub->ep.cq) {
			n = hub_take_completions(hub);
			if (n < 0)
				return -1;
			more = n == HUB_BATCH;
		}
		if (!more)
			hub_look_after(hub);
	}
	return 0;
}

/* hub_close - take everything down, but for the PD and what is below it */
static inline void hub_close(struct hub *hub)
{
	int i;

	for (i = 0; i < HUB_BUCKETS; i++)
		while (hub->by_qp[i])
			hub_destroy_client(hub, hub->by_qp[i]);
	if (hub->srq && ibv_destroy_srq(hub->srq))
		report("ibv_destroy_srq", errno);
	if (hub->mr && ibv_dereg_mr(hub->mr))
		report("ibv_dereg_mr", errno);
	free(hub->memory);
	free(hub->sending);
	if (hub->epoll > 0)
		close(hub->epoll);
}

#endif /* LESSON > 15 */

#endif
