/* SPDX-License-Identifier: MIT */
/* What the two harnesses of lesson 17 share: a peer at the other end of a socket. */
#ifndef FUZZ_EXCHANGE_H
#define FUZZ_EXCHANGE_H

/* What the peer sends: a record and the byte of the barrier, and then changes. */
static inline size_t fuzz_record(uint8_t *wire, const uint8_t **data,
				 size_t *size)
{
	struct record right = { .qpn = 17, .psn = 0x123456, .mtu = 1024 };
	struct ibv_mr buffer = { .addr = (void *)4096, .length = 128 };
	struct ibv_mr doorbell = { .addr = (void *)64, .length = 8 };
	size_t length = RECORD_WIRE_SIZE + 1;
	uint8_t how;

	remote_region_pack(right.buffer, &buffer);
	remote_region_pack(right.doorbell, &doorbell);
	record_pack(wire, &right);
	wire[RECORD_WIRE_SIZE] = 'r';
	fuzz_take(data, size, &how, 1);
	if (how & 1)
		fuzz_change(data, size, wire, 16);
	if (how & 2)
		fuzz_change(data, size, wire + 32, 32);
	if (how & 4)
		fuzz_change(data, size, &length, 1);
	return length < RECORD_WIRE_SIZE + 1 ? length : RECORD_WIRE_SIZE + 1;
}

/* The peer has sent that, and has closed its end. Ours stays, for the caller. */
static inline int fuzz_exchange(struct side *s, const uint8_t **data,
				size_t *size)
{
	uint8_t wire[RECORD_WIRE_SIZE + 1];
	size_t length = fuzz_record(wire, data, size);
	int fds[2], ret;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) ||
	    write(fds[1], wire, length) != (ssize_t)length ||
	    shutdown(fds[1], SHUT_WR))
		abort();
	s->tcp.timeout = 1;
	s->tcp.stop_fd = -1;
	s->tcp.fd = fds[0];
	ret = exchange(s);
	if (!ret && (length < RECORD_WIRE_SIZE || s->theirs.qpn > 0xffffff ||
		     s->theirs.psn > 0xffffff || s->theirs.mtu < 256 ||
		     s->theirs.mtu > 4096))
		abort();
	if (!ret && barrier(s) != (length > RECORD_WIRE_SIZE ? 0 : -1))
		abort();
	close(fds[1]);
	return ret;
}

#endif
