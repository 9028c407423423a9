/* SPDX-License-Identifier: MIT */
/* Part 1 of rdma_common.h: error reporting. */
#include "unit.h"

static void report_names_call_error_and_cause(void **state)
{
	struct capture capture;
	const char *text;

	(void)state;
	capture_begin(&capture, stderr);
	report("rdma_create_event_channel", ENODEV);
	text = capture_end(&capture);
	assert_one_line(text);
	assert_ptr_equal(text,
			 strstr(text,
				"rdma_create_event_channel: No such device: "));
	assert_contains(text,
			report_advice("rdma_create_event_channel", ENODEV));
}

static void report_without_advice_ends_with_the_error(void **state)
{
	struct capture capture;

	(void)state;
	assert_null(report_advice("some_call", EDOM));
	capture_begin(&capture, stderr);
	report("some_call", EDOM);
	assert_string_equal(capture_end(&capture),
			    "some_call: Numerical argument out of domain\n");
}

static void advice_of_the_call_comes_before_the_general_one(void **state)
{
	const char *general = report_advice("rdma_create_id", ENODEV);
	const char *special = report_advice("rdma_bind_addr", ENODEV);

	(void)state;
	assert_non_null(general);
	assert_non_null(special);
	assert_string_not_equal(general, special);
	/* One call's advice is not another's. */
	assert_non_null(report_advice("ibv_reg_mr", ENOMEM));
	assert_string_not_equal(report_advice("rdma_connect", EINVAL),
				report_advice("ibv_post_send", EINVAL));
	assert_null(report_advice("ibv_dereg_mr", EINVAL));
}

static void getaddrinfo_has_two_kinds_of_errors(void **state)
{
	struct capture capture;
	const char *text;

	(void)state;
	capture_begin(&capture, stderr);
	report_getaddrinfo("nowhere.example", EAI_NONAME);
	text = capture_end(&capture);
	assert_one_line(text);
	assert_contains(text, "nowhere.example");
	assert_contains(text, gai_strerror(EAI_NONAME));

	capture_begin(&capture, stderr);
	errno = ENOMEM;
	report_getaddrinfo("nowhere.example", -1);
	text = capture_end(&capture);
	assert_one_line(text);
	assert_contains(text, strerror(ENOMEM));

	capture_begin(&capture, stderr);
	report_getaddrinfo(NULL, EAI_SERVICE);
	assert_one_line(capture_end(&capture));
}

static void every_reject_reason_has_words(void **state)
{
	int i;

	(void)state;
	for (i = -1; i < 40; i++)
		assert_true(strlen(reject_reason(i)) > 10);
	assert_contains(reject_reason(8), "nobody listens");
	assert_contains(reject_reason(28), "rdma_reject");
	assert_contains(reject_reason(10), "stale");
}

static const char *event_text(struct capture *capture,
			      enum rdma_cm_event_type type, int status)
{
	struct rdma_cm_event event = { .event = type, .status = status };

	capture_begin(capture, stderr);
	report_event(&event);
	return capture_end(capture);
}

static void every_event_is_named_with_its_status(void **state)
{
	struct capture capture;
	int type;

	(void)state;
	for (type = RDMA_CM_EVENT_ADDR_RESOLVED;
	     type <= RDMA_CM_EVENT_TIMEWAIT_EXIT; type++) {
		const char *text = event_text(&capture, type, -ETIMEDOUT);

		assert_one_line(text);
		assert_contains(text, rdma_event_str(type));
		assert_contains(text, "-110");
		/* Only of REJECTED is the status no errno value. */
		if (type != RDMA_CM_EVENT_REJECTED)
			assert_contains(text, strerror(ETIMEDOUT));
	}
	assert_contains(event_text(&capture, RDMA_CM_EVENT_REJECTED, 8),
			reject_reason(8));
	/* Without a status there is no "Success" in the middle of an error. */
	assert_null(strstr(event_text(&capture, RDMA_CM_EVENT_DISCONNECTED, 0),
			   strerror(0)));
}

static void expect_event_takes_only_what_was_hoped_for(void **state)
{
	struct rdma_cm_event event = { .event = RDMA_CM_EVENT_ESTABLISHED };
	struct capture capture;
	const char *text;

	(void)state;
	capture_begin(&capture, stderr);
	assert_int_equal(expect_event(&event, RDMA_CM_EVENT_ESTABLISHED), 0);
	assert_string_equal(capture_end(&capture), "");

	capture_begin(&capture, stderr);
	assert_int_equal(expect_event(&event, RDMA_CM_EVENT_DISCONNECTED), -1);
	text = capture_end(&capture);
	assert_one_line(text);
	assert_contains(text, "RDMA_CM_EVENT_ESTABLISHED");
	assert_contains(text, "RDMA_CM_EVENT_DISCONNECTED");

	/* The right event with a failure in it is a failure. */
	event.status = -ECONNRESET;
	capture_begin(&capture, stderr);
	assert_int_equal(expect_event(&event, RDMA_CM_EVENT_ESTABLISHED), -1);
	assert_contains(capture_end(&capture), strerror(ECONNRESET));
}

static void completion_is_told_in_full(void **state)
{
	struct capture capture;
	struct ibv_wc wc = { .wr_id = 1234567890123 };
	const char *text;
	int i;

	(void)state;
	for (i = IBV_WC_LOC_LEN_ERR; i <= IBV_WC_GENERAL_ERR; i++) {
		wc.status = i;
		wc.vendor_err = 0xabc;
		capture_begin(&capture, stderr);
		report_wc(&wc, "SEND");
		text = capture_end(&capture);
		assert_one_line(text);
		assert_contains(text, "SEND");
		assert_contains(text, "1234567890123");
		assert_contains(text, ibv_wc_status_str(i));
		assert_contains(text, "0xabc");
		assert_contains(text, wc_advice(i));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(report_names_call_error_and_cause),
		cmocka_unit_test(report_without_advice_ends_with_the_error),
		cmocka_unit_test(
			advice_of_the_call_comes_before_the_general_one),
		cmocka_unit_test(getaddrinfo_has_two_kinds_of_errors),
		cmocka_unit_test(every_reject_reason_has_words),
		cmocka_unit_test(every_event_is_named_with_its_status),
		cmocka_unit_test(expect_event_takes_only_what_was_hoped_for),
		cmocka_unit_test(completion_is_told_in_full),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
