/* SPDX-License-Identifier: MIT */
/* Part 2 of rdma_common.h: the clock, signals, bounded waits. */
#include "unit.h"

static void clock_goes_forward(void **state)
{
	long long us = now_us();
	long long ms = now_ms();

	(void)state;
	assert_true(us > 0);
	assert_true(ms >= us / 1000 && ms < us / 1000 + 1000);
	assert_true(now_us() >= us);
}

static void a_readable_descriptor_ends_the_wait(void **state)
{
	int pipes[2], others[2];
	int stop_fd = open_stop_fd();

	(void)state;
	assert_true(stop_fd >= 0);
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(pipe(others), 0);
	assert_int_equal(wait_readable(pipes[0], stop_fd, 0), 0);
	assert_int_equal(write(pipes[1], "x", 1), 1);
	assert_int_equal(wait_readable(pipes[0], stop_fd, 10000), 1);
	assert_int_equal(wait_either(pipes[0], others[0], stop_fd, 10000), 1);
	assert_int_equal(wait_either(others[0], pipes[0], stop_fd, 10000), 2);
	assert_int_equal(write(others[1], "x", 1), 1);
	assert_int_equal(wait_either(pipes[0], others[0], stop_fd, 10000), 3);
	close(pipes[0]);
	close(pipes[1]);
	close(others[0]);
	close(others[1]);
	close(stop_fd);
}

static void a_wait_ends_with_its_time(void **state)
{
	int stop_fd = open_stop_fd();
	long long start = now_ms();

	(void)state;
	assert_int_equal(wait_readable(-1, stop_fd, 50), 0);
	assert_true(now_ms() - start >= 49);
	assert_int_equal(wait_either(-1, -1, stop_fd, 0), 0);
	close(stop_fd);
}

static void a_signal_ends_the_wait_and_not_the_program(void **state)
{
	static const int signals[] = { SIGINT, SIGTERM };
	struct capture capture;
	const char *text;
	int stop_fd = open_stop_fd();
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		kill(getpid(), signals[i]);
		capture_begin(&capture, stderr);
		assert_int_equal(wait_readable(-1, stop_fd, 10000), -1);
		text = capture_end(&capture);
		assert_one_line(text);
		assert_contains(text, strsignal(signals[i]));
		/* It has been read, and does not end the next wait. */
		assert_int_equal(wait_readable(-1, stop_fd, 0), 0);
	}
	close(stop_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(clock_goes_forward),
		cmocka_unit_test(a_readable_descriptor_ends_the_wait),
		cmocka_unit_test(a_wait_ends_with_its_time),
		cmocka_unit_test(a_signal_ends_the_wait_and_not_the_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
