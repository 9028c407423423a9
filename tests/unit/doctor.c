/* SPDX-License-Identifier: MIT */
/*
 * What the doctor says of a port that no node has: InfiniBand's, and one whose
 * active_mtu did not follow its card. What a node can have is tested on one
 * (tests/tools/doctor.bats).
 */
#include "unit.h"
#include "../../tools/doctor/judge.c"

/* The finding of judge_port(); MORE is whether it asks for more. */
static const char *of_port(struct capture *capture, struct ibv_port_attr attr,
			   bool more)
{
	bool goes_on;

	capture_begin(capture, stdout);
	goes_on = judge_port("mlx5_0", 2, "", &attr);
	capture_end(capture);
	assert_one_line(capture->text);
	assert_int_equal(goes_on, more);
	return capture->text;
}

static const char *of_mtu(struct capture *capture, enum ibv_mtu active, int mtu)
{
	struct ibv_port_attr attr = { .active_mtu = active,
				      .max_mtu = IBV_MTU_4096 };

	capture_begin(capture, stdout);
	judge_mtu("mlx5_0", "eth1", mtu, &attr);
	capture_end(capture);
	assert_one_line(capture->text);
	return capture->text;
}

static void a_port_of_infiniband_is_not_asked_for_an_address(void **state)
{
	struct ibv_port_attr attr = { .state = IBV_PORT_ACTIVE,
				      .link_layer = IBV_LINK_LAYER_INFINIBAND };
	struct capture capture;

	(void)state;
	assert_string_equal(of_port(&capture, attr, false),
			    "OK\tport\tmlx5_0 port 2: InfiniBand, active\t\n");
	attr.state = IBV_PORT_INIT;
	assert_string_equal(
		of_port(&capture, attr, false),
		"FAIL\tport\tmlx5_0 port 2: InfiniBand, init\tis the cable in, and does a subnet manager run (opensm)?\n");
}

static void a_port_that_is_down_without_a_card(void **state)
{
	struct ibv_port_attr attr = { .state = IBV_PORT_DOWN,
				      .link_layer = IBV_LINK_LAYER_ETHERNET };
	struct capture capture;

	(void)state;
	assert_string_equal(
		of_port(&capture, attr, false),
		"FAIL\tport\tmlx5_0 port 2, on no card: down\tsudo ip link set CARD up\n");
	attr.state = IBV_PORT_ACTIVE;
	assert_string_equal(of_port(&capture, attr, true),
			    "OK\tport\tmlx5_0 port 2, on no card: active\t\n");
}

/* A packet of 1024 bytes has 60 bytes of headers at the least, and the kernel
 * wants room for 96 before it goes to the next size. */
static void an_mtu_too_small_enough_and_with_room_for_more(void **state)
{
	struct capture capture;

	(void)state;
	assert_string_equal(
		of_mtu(&capture, IBV_MTU_1024, 1083),
		"FAIL\tmtu\tmlx5_0: active_mtu 1024 makes packets of 1084 bytes, and the MTU of eth1 is 1083\tsudo ip link set eth1 mtu 1500\n");
	assert_contains(of_mtu(&capture, IBV_MTU_1024, 1084), "OK\tmtu\t");
	assert_contains(of_mtu(&capture, IBV_MTU_1024, 2143), "OK\tmtu\t");
	assert_string_equal(
		of_mtu(&capture, IBV_MTU_1024, 2144),
		"WARN\tmtu\tmlx5_0: active_mtu 1024, though the MTU of eth1, 2144, has room for more\tsudo ip link set eth1 mtu 1500, then mtu 2144 again\n");
	/* There is nothing above the port's own most. */
	assert_contains(of_mtu(&capture, IBV_MTU_4096, 9000), "OK\tmtu\t");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_port_of_infiniband_is_not_asked_for_an_address),
		cmocka_unit_test(a_port_that_is_down_without_a_card),
		cmocka_unit_test(
			an_mtu_too_small_enough_and_with_room_for_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
