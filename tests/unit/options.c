/* SPDX-License-Identifier: MIT */
/* Part 2 of rdma_common.h: the command line. */
#include "unit.h"

static void numbers_are_whole_and_in_range(void **state)
{
	(void)state;
	assert_int_equal(parse_number("1", 1, 65535), 1);
	assert_int_equal(parse_number("65535", 1, 65535), 65535);
	assert_int_equal(parse_number("0", 0, 0), 0);
	assert_int_equal(parse_number("0010", 1, 65535), 10);
	assert_int_equal(parse_number("0", 1, 65535), -1);
	assert_int_equal(parse_number("65536", 1, 65535), -1);
	assert_int_equal(parse_number("-1", 0, 65535), -1);
	assert_int_equal(parse_number("", 0, 9), -1);
	assert_int_equal(parse_number("1x", 0, 9), -1);
	assert_int_equal(parse_number("1 ", 0, 9), -1);
	assert_int_equal(parse_number("0x5", 0, 9), -1);
	assert_int_equal(parse_number("1.5", 0, 9), -1);
	assert_int_equal(parse_number("99999999999999999999", 0, 9), -1);
	assert_int_equal(parse_number("99999999999999999999", 0, LONG_MAX), -1);
}

#define MAX_ARGS 8

/*
 * Parse a command line as the programs do. Returns what they would return,
 * with what was said on stderr in CAPTURE.
 */
static int parse(struct capture *capture, struct options *opt, bool client,
		 const char *line)
{
	static const struct option longs[] = {
		COMMON_LONG_FLAGS,
		{ NULL, 0, NULL, 0 },
	};
	struct options defaults = OPTIONS_DEFAULT;
	static char copy[256];
	char *argv[MAX_ARGS + 1] = { "program" };
	int argc = 1;
	int c, ret = 0;
	char *word;

	snprintf(copy, sizeof(copy), "%s", line);
	for (word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	*opt = defaults;
	optind = 0; /* start anew: getopt(3) */
	capture_begin(capture, stderr);
	while (!ret &&
	       (c = getopt_long(argc, argv, COMMON_FLAGS, longs, NULL)) != -1)
		ret = common_option(c, opt);
	if (!ret)
		ret = client ? client_operand(argc, argv, opt) :
			       server_operand(argc, argv, opt);
	capture_end(capture);
	return ret;
}

static void defaults_are_the_course_s(void **state)
{
	struct capture capture;
	struct options opt;

	(void)state;
	assert_int_equal(parse(&capture, &opt, false, ""), 0);
	assert_null(opt.address);
	assert_string_equal(opt.port, "10121");
	assert_int_equal(opt.timeout, 10);
	assert_false(opt.help);
	assert_string_equal(capture.text, "");
}

static void short_and_long_flags_are_the_same(void **state)
{
	static const char *const lines[] = {
		"-a 10.0.0.1 -p 4711 -t 3 peer",
		"--address 10.0.0.1 --port 4711 --timeout 3 peer",
		"--address=10.0.0.1 peer --port=4711 --timeout=3",
	};
	struct capture capture;
	struct options opt;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_int_equal(parse(&capture, &opt, true, lines[i]), 0);
		assert_string_equal(opt.address, "10.0.0.1");
		assert_string_equal(opt.port, "4711");
		assert_int_equal(opt.timeout, 3);
		assert_string_equal(opt.server, "peer");
	}
}

static void wrong_values_are_named(void **state)
{
	static const char *const lines[] = {
		"-p 0 peer",
		"-p 65536 peer",
		"-p -1 peer",
		"-p ten peer",
		"-t 0 peer",
		"-t 3601 peer",
		"-t 1s peer",
		"-x peer",
		"--nonsense p",
		"-p",
		"",
		"one two",
		"--timeout= peer",
	};
	struct capture capture;
	struct options opt;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		assert_int_equal(parse(&capture, &opt, true, lines[i]), -1);
		assert_one_line(capture.text);
	}
	assert_int_equal(parse(&capture, &opt, false, "peer"), -1);
	assert_contains(capture.text, "peer");
}

static void help_needs_nothing_else(void **state)
{
	struct capture capture;
	struct options opt;

	(void)state;
	assert_int_equal(parse(&capture, &opt, true, "-h"), 0);
	assert_true(opt.help);
	assert_int_equal(parse(&capture, &opt, false, "--help"), 0);
	assert_true(opt.help);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_are_whole_and_in_range),
		cmocka_unit_test(defaults_are_the_course_s),
		cmocka_unit_test(short_and_long_flags_are_the_same),
		cmocka_unit_test(wrong_values_are_named),
		cmocka_unit_test(help_needs_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
