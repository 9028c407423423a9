/* SPDX-License-Identifier: MIT */
/* Lesson 03's client: the reason that a server gives when it refuses. */
#include "fuzz.h"

#include "../../lessons/03-event-loop/client.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct client client = { .state = CONNECTING };
	struct event_copy event = { .event = RDMA_CM_EVENT_REJECTED };

	fuzz_take(&data, &size, &event.status, sizeof(event.status));
	event.private_data_len = size < sizeof(event.private_data) ?
					 size :
					 sizeof(event.private_data);
	memcpy(event.private_data, data, event.private_data_len);
	on_rejected(&client, &event);
	return 0;
}
