/* SPDX-License-Identifier: MIT */
/*
 * Exercise 17: the sockets over which the two sides tell each other what the CM
 * would have told them. There is nothing of RDMA in it.
 */
#ifndef TCP_H
#define TCP_H

#include <sys/socket.h>

#include <rdma_common.h>

/* The part of a side that TCP is about. */
struct tcp {
	int timeout; /* seconds, for any one wait */
	int stop_fd;
	int listen_fd; /* server only */
	int fd; /* the connection; -1: there is none yet */
};

/* 0, or -1 after the time is over, Ctrl-C or a fault */
static inline int tcp_wait(struct tcp *t, int fd, const char *for_what)
{
	int ready = wait_readable(fd, t->stop_fd, t->timeout * 1000);

	if (ready == 0)
		fprintf(stderr, "waited %d s for %s and nothing came\n",
			t->timeout, for_what);
	return ready > 0 ? 0 : -1;
}

/* CALL has failed, or (errno 0) found the end; always -1 */
static inline int tcp_lost(const char *call)
{
	if (errno && errno != EPIPE && errno != ECONNRESET)
		report(call, errno);
	else
		fprintf(stderr, "the peer has closed the TCP connection in the "
				"middle of the exchange\n");
	return -1;
}

static inline int tcp_send(struct tcp *t, const void *data, size_t size)
{
	if (send(t->fd, data, size, MSG_NOSIGNAL) == (ssize_t)size)
		return 0;
	return tcp_lost("send");
}

static inline int tcp_receive(struct tcp *t, void *data, size_t size)
{
	size_t got = 0;
	ssize_t n;

	while (got < size) {
		if (tcp_wait(t, t->fd, "the peer's part of the exchange"))
			return -1;
		errno = 0;
		n = recv(t->fd, (char *)data + got, size - got, 0);
		if (n <= 0)
			return tcp_lost("recv");
		got += n;
	}
	return 0;
}

static inline struct addrinfo *tcp_address(const char *host, const char *port,
					   int flags)
{
	struct addrinfo hints = { .ai_flags = flags,
				  .ai_socktype = SOCK_STREAM };
	struct addrinfo *info;
	int err = getaddrinfo(host, port, &hints, &info);

	if (!err)
		return info;
	fprintf(stderr, "getaddrinfo: %s: %s: is the name or address right?\n",
		host ? host : "*", gai_strerror(err));
	return NULL;
}

static inline int tcp_connect(struct tcp *t, const struct options *opt)
{
	struct addrinfo *info = tcp_address(opt->server, opt->port, 0);
	struct addrinfo *own = NULL;
	struct pollfd fds[2];
	int err = 0, ret = -1;
	socklen_t size = sizeof(err);

	if (!info ||
	    (opt->address && !(own = tcp_address(opt->address, NULL, 0))))
		goto out;
	t->fd = socket(info->ai_family,
		       SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (t->fd < 0 || (own && bind(t->fd, own->ai_addr, own->ai_addrlen))) {
		report("bind", errno);
		goto out;
	}
	if (connect(t->fd, info->ai_addr, info->ai_addrlen) &&
	    errno != EINPROGRESS) {
		report_address("connect", info->ai_addr, errno);
		goto out;
	}
	fds[0] = (struct pollfd){ .fd = t->fd, .events = POLLOUT };
	fds[1] = (struct pollfd){ .fd = t->stop_fd, .events = POLLIN };
	if (poll(fds, 2, t->timeout * 1000) <= 0)
		err = ETIMEDOUT;
	else if (fds[1].revents)
		err = EINTR;
	else
		getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &err, &size);
	if (err)
		report_address("connect", info->ai_addr, err);
	else
		ret = fcntl(t->fd, F_SETFL, 0);
out:
	if (own)
		freeaddrinfo(own);
	if (info)
		freeaddrinfo(info);
	return ret;
}

static inline int tcp_listen(struct tcp *t, const struct options *opt)
{
	struct addrinfo *info = tcp_address(
		opt->address ? opt->address : "::", opt->port, AI_PASSIVE);
	int one = 1, ret = -1;

	if (!info)
		return -1;
	t->listen_fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (t->listen_fd < 0 ||
	    setsockopt(t->listen_fd, SOL_SOCKET, SO_REUSEADDR, &one,
		       sizeof(one)) ||
	    bind(t->listen_fd, info->ai_addr, info->ai_addrlen) ||
	    listen(t->listen_fd, 1)) {
		report_address("bind", info->ai_addr, errno);
	} else {
		printf("listening on ");
		print_address(info->ai_addr);
		printf(", by TCP\n");
		ret = 0;
	}
	freeaddrinfo(info);
	return ret;
}

static inline int tcp_accept(struct tcp *t)
{
	if (tcp_wait(t, t->listen_fd, "a client"))
		return -1;
	t->fd = accept4(t->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	if (t->fd >= 0)
		return 0;
	report("accept", errno);
	return -1;
}

#endif
