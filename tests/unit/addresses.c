/* SPDX-License-Identifier: MIT */
/* Parts 1 and 2 of rdma_common.h: what concerns addresses. */
#include "unit.h"

#include <arpa/inet.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static union address address_of(const char *text, int port, int zone)
{
	union address address = { 0 };

	if (strchr(text, ':')) {
		address.v6.sin6_family = AF_INET6;
		address.v6.sin6_port = htons(port);
		address.v6.sin6_scope_id = zone;
		assert_int_equal(
			inet_pton(AF_INET6, text, &address.v6.sin6_addr), 1);
	} else {
		address.v4.sin_family = AF_INET;
		address.v4.sin_port = htons(port);
		assert_int_equal(inet_pton(AF_INET, text, &address.v4.sin_addr),
				 1);
	}
	return address;
}

static void addresses_are_written_with_their_port(void **state)
{
	union address v4 = address_of("10.10.10.1", 10121, 0);
	union address v6 = address_of("fd10::1", 65535, 0);
	char text[ADDRESS_TEXT];
	struct capture capture;

	(void)state;
	address_text(&v4.any, text, sizeof(text));
	assert_string_equal(text, "10.10.10.1:10121");
	address_text(&v6.any, text, sizeof(text));
	assert_string_equal(text, "[fd10::1]:65535");

	capture_begin(&capture, stdout);
	print_address(&v6.any);
	assert_string_equal(capture_end(&capture), "[fd10::1]:65535");

	/* What is no address must not end the program. */
	v4.any.sa_family = 200;
	address_text(&v4.any, text, sizeof(text));
	assert_string_equal(text, "?");
	/* Nor must too little room. */
	address_text(&v6.any, text, 5);
	assert_string_equal(text, "[fd1");
}

static void an_error_names_the_address(void **state)
{
	union address v4 = address_of("10.10.10.1", 10121, 0);
	struct capture capture;
	const char *text;

	(void)state;
	capture_begin(&capture, stderr);
	report_address("rdma_bind_addr", &v4.any, EADDRINUSE);
	text = capture_end(&capture);
	assert_one_line(text);
	assert_contains(text, "rdma_bind_addr: 10.10.10.1:10121: ");
	assert_contains(text, strerror(EADDRINUSE));
	assert_contains(text, report_advice("rdma_bind_addr", EADDRINUSE));
}

static void only_a_link_local_address_needs_a_zone(void **state)
{
	union address without = address_of("fe80::1", 10121, 0);
	union address with = address_of("fe80::1", 10121, 1);
	union address global = address_of("fd10::1", 10121, 0);
	union address v4 = address_of("169.254.0.1", 10121, 0);
	struct capture capture;
	const char *text;

	(void)state;
	capture_begin(&capture, stderr);
	assert_int_equal(check_zone(&with.any), 0);
	assert_int_equal(check_zone(&global.any), 0);
	assert_int_equal(check_zone(&v4.any), 0);
	assert_string_equal(capture_end(&capture), "");

	capture_begin(&capture, stderr);
	assert_int_equal(check_zone(&without.any), -1);
	text = capture_end(&capture);
	assert_one_line(text);
	assert_contains(text, "fe80::1");
}

static void a_wildcard_stands_for_every_address(void **state)
{
	static const struct {
		const char *text;
		bool wildcard;
	} cases[] = {
		{ "0.0.0.0", true },   { "::", true },
		{ "0.0.0.1", false },  { "::1", false },
		{ "10.0.0.0", false },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		union address address = address_of(cases[i].text, 10121, 0);

		assert_int_equal(is_wildcard(&address.any), cases[i].wildcard);
	}
}

static void every_address_error_has_words(void **state)
{
	static const int statuses[] = { -1, -ENODEV, -ETIMEDOUT, -EHOSTUNREACH,
					0 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++)
		assert_true(strlen(addr_error_reason(statuses[i])) > 10);
	/* -1 comes from the library and is no errno value. */
	assert_string_not_equal(addr_error_reason(-1),
				addr_error_reason(-ENODEV));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_are_written_with_their_port),
		cmocka_unit_test(an_error_names_the_address),
		cmocka_unit_test(only_a_link_local_address_needs_a_zone),
		cmocka_unit_test(a_wildcard_stands_for_every_address),
		cmocka_unit_test(every_address_error_has_words),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
