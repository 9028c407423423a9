/* SPDX-License-Identifier: MIT */
/*
 * Prints what the functions of rdma_common.h say, for every value that they
 * know: tests/house/troubleshooting.bats compares the messages that the
 * documentation quotes with it.
 */
#include <rdma_common.h>

#include <arpa/inet.h>

static const char *const calls[] = {
	"ibv_open_device",   "rdma_create_event_channel",
	"rdma_resolve_addr", "rdma_resolve_route",
	"rdma_bind_addr",    "rdma_create_qp",
	"rdma_accept",	     "rdma_get_cm_event",
	"ibv_reg_mr",	     "ibv_post_send",
	"ibv_post_recv",
};

static const enum rdma_cm_event_type events[] = {
	RDMA_CM_EVENT_ADDR_RESOLVED,   RDMA_CM_EVENT_ADDR_ERROR,
	RDMA_CM_EVENT_ROUTE_RESOLVED,  RDMA_CM_EVENT_ROUTE_ERROR,
	RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_ERROR,
	RDMA_CM_EVENT_UNREACHABLE,     RDMA_CM_EVENT_REJECTED,
	RDMA_CM_EVENT_ESTABLISHED,     RDMA_CM_EVENT_DISCONNECTED,
	RDMA_CM_EVENT_DEVICE_REMOVAL,  RDMA_CM_EVENT_TIMEWAIT_EXIT,
};

static const int statuses[] = { 0, -1, -ENODEV, -ETIMEDOUT, -EHOSTUNREACH };

/* One call with every errno value of which something is known. */
static void show_call(const char *call)
{
	static const char *const texts[] = { "10.10.10.1", "127.0.0.1" };
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(10121) };
	size_t i;
	int err;

	for (err = 1; err < 134; err++) {
		if (!report_advice(call, err))
			continue;
		report(call, err);
		for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
			inet_pton(AF_INET, texts[i], &address.sin_addr);
			report_address(call, (struct sockaddr *)&address, err);
		}
	}
}

/* EVENT with each of its statuses, while WANTED is waited for. */
static void show_event(enum rdma_cm_event_type wanted,
		       enum rdma_cm_event_type event)
{
	struct rdma_cm_event got = { .event = event };
	size_t i;

	if (event == RDMA_CM_EVENT_REJECTED) {
		for (got.status = 1; got.status < 34; got.status++)
			expect_event(&got, wanted);
		return;
	}
	for (i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
		got.status = statuses[i];
		expect_event(&got, wanted);
	}
}

int main(void)
{
	static const enum wr_op ops[] = { WR_SEND, WR_RECV, WR_WRITE, WR_READ,
					  WR_ATOMIC };
	struct ibv_wc wc = { 0 };
	size_t i, j;

	dup2(STDOUT_FILENO, STDERR_FILENO);
	for (i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		show_call(calls[i]);
	for (i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		for (j = 0; j < sizeof(events) / sizeof(events[0]); j++)
			show_event(events[i], events[j]);
	for (i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
		for (wc.status = 1; wc.status <= IBV_WC_GENERAL_ERR;
		     wc.status++) {
			wc.wr_id = wr_id_of(ops[i], 0);
			check_wc(&wc);
		}
	return 0;
}
