/* SPDX-License-Identifier: MIT */
/*
 * Part 3 of rdma_common.h, as far as it goes without a device. The rest is
 * tested by the lessons on the nodes.
 */
#include "unit.h"

static void tear_down_takes_what_was_never_built(void **state)
{
	static const struct endpoint zeros;
	struct endpoint ep = { 0 };

	(void)state;
	assert_int_equal(endpoint_disconnect(&ep), 0);
	endpoint_destroy(&ep);
	assert_memory_equal(&ep, &zeros, sizeof(ep));
	endpoint_destroy(&ep);
}

static void open_says_what_is_missing_or_opens(void **state)
{
	struct options opt = OPTIONS_DEFAULT;
	struct endpoint ep = { 0 };
	struct capture capture;
	const char *text;
	int ret;

	(void)state;
	capture_begin(&capture, stderr);
	ret = endpoint_open(&ep, &opt);
	text = capture_end(&capture);
	if (ret) {
		/* The usual machine: no RDMA device. */
		assert_int_equal(ret, -1);
		assert_one_line(text);
		assert_contains(text, "rdma_create_event_channel: ");
		assert_null(ep.channel);
	} else {
		assert_string_equal(text, "");
		assert_non_null(ep.channel);
	}
	assert_true(ep.stop_fd > 0);
	endpoint_destroy(&ep);
	assert_int_equal(ep.stop_fd, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tear_down_takes_what_was_never_built),
		cmocka_unit_test(open_says_what_is_missing_or_opens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
