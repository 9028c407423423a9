/* SPDX-License-Identifier: MIT */
/* Parts 5 and 6 of rdma_common.h: requests, patterns, regions of a peer. */
#include "unit.h"

static void wr_id_keeps_operation_and_slot(void **state)
{
	static const uint32_t slots[] = { 0,	      1,	  4095,
					  0x7fffffff, 0x80000000, 0xffffffff };
	enum wr_op op;
	size_t i;

	(void)state;
	for (op = WR_SEND; op <= WR_ATOMIC; op++)
		for (i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
			uint64_t wr_id = wr_id_of(op, slots[i]);

			assert_int_equal(wr_id_op(wr_id), op);
			assert_int_equal(wr_id_slot(wr_id), slots[i]);
		}
	/* A wr_id that nobody made has a name too. */
	assert_true(strlen(wr_op_str(wr_id_op(0))) > 0);
}

static void a_bad_completion_is_reported_once(void **state)
{
	struct ibv_wc wc = { .wr_id = wr_id_of(WR_WRITE, 3) };
	struct capture capture;
	const char *text;

	(void)state;
	capture_begin(&capture, stderr);
	assert_int_equal(check_wc(&wc), 0);
	assert_string_equal(capture_end(&capture), "");
	wc.status = IBV_WC_REM_ACCESS_ERR;
	capture_begin(&capture, stderr);
	assert_int_equal(check_wc(&wc), -1);
	text = capture_end(&capture);
	assert_one_line(text);
	assert_contains(text, wr_op_str(WR_WRITE));
}

static void a_pattern_knows_its_seed_and_each_place(void **state)
{
	uint8_t bytes[1025];
	size_t i;

	(void)state;
	pattern_fill(bytes, sizeof(bytes), 7);
	assert_int_equal(pattern_check(bytes, sizeof(bytes), 7), -1);
	assert_int_equal(pattern_check(bytes, 0, 8), -1);
	for (i = 0; i < sizeof(bytes); i++) {
		bytes[i] ^= 1;
		assert_int_equal(pattern_check(bytes, sizeof(bytes), 7), i);
		bytes[i] ^= 1;
		assert_int_equal(pattern_byte(7, i), bytes[i]);
	}
	/* The bytes of another message, and shifted ones, are not taken. */
	for (i = 0; i < 1000; i++)
		if (i != 7)
			assert_true(pattern_check(bytes, sizeof(bytes), i) >=
				    0);
	for (i = 1; i < 64; i++)
		assert_true(pattern_check(bytes + i, sizeof(bytes) - i, 7) >=
			    0);
}

static void a_region_has_a_fixed_layout(void **state)
{
	static const uint8_t wanted[REMOTE_REGION_WIRE_SIZE] = {
		0x00, 0x00, 0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, /* addr */
		0xde, 0xad, 0xbe, 0xef, /* rkey */
		0x00, 0x01, 0x00, 0x02, /* size */
	};
	struct ibv_mr mr = {
		.addr = (void *)0x123456789abcULL,
		.length = 0x10002,
		.lkey = 0x11111111,
		.rkey = 0xdeadbeef,
	};
	uint8_t wire[REMOTE_REGION_WIRE_SIZE];
	struct remote_region region;

	(void)state;
	remote_region_pack(wire, &mr);
	assert_memory_equal(wire, wanted, sizeof(wanted));
	assert_int_equal(remote_region_unpack(&region, wire), 0);
	assert_int_equal(region.addr, 0x123456789abcULL);
	assert_int_equal(region.rkey, 0xdeadbeef);
	assert_int_equal(region.size, 0x10002);
}

static void what_is_no_region_is_refused(void **state)
{
	static const uint8_t wires[][REMOTE_REGION_WIRE_SIZE] = {
		{ 0 }, /* nothing was sent */
		{ 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 1, 0 },
		{ 0, 0, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0 },
		/* past the end of the address space */
		{ 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4, 0,
		  0, 0, 2 },
	};
	struct remote_region region;
	struct capture capture;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(wires) / sizeof(wires[0]); i++) {
		capture_begin(&capture, stderr);
		assert_int_equal(remote_region_unpack(&region, wires[i]), -1);
		assert_one_line(capture_end(&capture));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wr_id_keeps_operation_and_slot),
		cmocka_unit_test(a_bad_completion_is_reported_once),
		cmocka_unit_test(a_pattern_knows_its_seed_and_each_place),
		cmocka_unit_test(a_region_has_a_fixed_layout),
		cmocka_unit_test(what_is_no_region_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
