/* SPDX-License-Identifier: MIT */
/*
 * Unit tests of tools/trace/text.c and json.c: what is written is read back.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../../tools/trace/json.h"
#include "../../tools/trace/trace.h"

static const uint64_t numbers[] = {
	0,
	1,
	9,
	10,
	99,
	100,
	101,
	999,
	1000,
	65535,
	65536,
	123456789,
	UINT32_MAX,
	UINT32_MAX + 1ULL,
	0x1234567890,
	INT64_MAX,
	UINT64_MAX - 1,
	UINT64_MAX,
};
#define COUNT (sizeof(numbers) / sizeof(numbers[0]))

static void numbers_as_printf_has_them(void **state)
{
	char ours[64], theirs[64];
	size_t i;

	(void)state;
	for (i = 0; i < COUNT; i++) {
		*text_dec(ours, numbers[i]) = '\0';
		sprintf(theirs, "%llu", (unsigned long long)numbers[i]);
		assert_string_equal(ours, theirs);
		*text_hex(ours, numbers[i]) = '\0';
		sprintf(theirs, "%#llx", (unsigned long long)numbers[i]);
		assert_string_equal(ours, numbers[i] ? theirs : "0x0");
		if (numbers[i] > 99999999999999)
			continue;
		memset(ours, 'x', sizeof(ours));
		text_number(ours, -(int64_t)numbers[i]);
		sprintf(theirs, "%16lld", -(long long)numbers[i]);
		assert_memory_equal(ours, theirs, FIELD);
		assert_int_equal(ours[FIELD], 'x');
	}
}

static void too_wide_is_left_alone(void **state)
{
	char text[] = "sixteen bytes no";

	(void)state;
	text_number(text, 12345678901234567);
	text_number(text, -1234567890123456);
	text_field(text, "\"ENOTRECOVERABLE\"", 17);
	assert_string_equal(text, "sixteen bytes no");
	text_number(text, 1234567890123456);
	assert_string_equal(text, "1234567890123456");
	text_field(text, "\"EINVAL\"", 8);
	assert_string_equal(text, "        \"EINVAL\"");
}

static void wr_ids_that_are_packed_are_hexadecimal(void **state)
{
	char text[32];

	(void)state;
	*text_wr_id(text, 14) = '\0';
	assert_string_equal(text, "14");
	*text_wr_id(text, 0x300000001) = '\0';
	assert_string_equal(text, "0x300000001");
}

static void bytes_in_hexadecimal(void **state)
{
	char text[32];

	(void)state;
	*text_bytes(text, "\0\x7f\xff", 3) = '\0';
	assert_string_equal(text, "007fff");
	assert_ptr_equal(text_bytes(text, "", 0), text);
}

/* A text with all that has to be escaped comes back from the reader as it was. */
static void strings_come_back(void **state)
{
	const char odd[] = "a\"b\\c\n\t\x01\x7f end";
	char line[256], *p = line;
	struct json *json;

	(void)state;
	p = LIT(p, "{\"key\":\"");
	p = text_string(p, odd, sizeof(odd));
	p = LIT(p, "\",\"n\":-5,\"list\":[1,{\"x\":null}]}");
	*p = '\0';
	json = json_parse(line);
	assert_non_null(json);
	assert_string_equal(json_text(json, "key"), odd);
	assert_int_equal(json_number(json, "n", 0), -5);
	assert_null(json_get(json_get(json, "list")->first->next, "x"));
}

static void strings_are_cut_off(void **state)
{
	char text[32];

	(void)state;
	*text_string(text, "abcdef", 3) = '\0';
	assert_string_equal(text, "abc");
}

/* Half a line, as a program that is killed may leave it. */
static void what_is_no_object_is_refused(void **state)
{
	static const char *const bad[] = {
		"",	   "x",		 "{",	       "{\"a\"",
		"{\"a\":", "{\"a\":1",	 "{\"a\":1,",  "{\"a\":\"b",
		"[1]",	   "{\"a\":[1}", "{\"a\":1}x", "{\"a\":tru}",
		"{,}",
	};
	char line[64];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		strcpy(line, bad[i]);
		assert_null(json_parse(line));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(numbers_as_printf_has_them),
		cmocka_unit_test(too_wide_is_left_alone),
		cmocka_unit_test(wr_ids_that_are_packed_are_hexadecimal),
		cmocka_unit_test(bytes_in_hexadecimal),
		cmocka_unit_test(strings_come_back),
		cmocka_unit_test(strings_are_cut_off),
		cmocka_unit_test(what_is_no_object_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
