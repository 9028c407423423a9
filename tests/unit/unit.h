/* SPDX-License-Identifier: MIT */
/*
 * What the unit tests share: cmocka, and reading back what a function printed.
 */
#ifndef UNIT_H
#define UNIT_H

#include <rdma_common.h>

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <cmocka.h>

struct capture {
	FILE *stream;
	int saved; /* the stream's own descriptor */
	int memory; /* what stands in for it */
	char text[4096];
};

/* From here to capture_end(), what is printed on STREAM goes to memory. */
static inline void capture_begin(struct capture *capture, FILE *stream)
{
	fflush(stream);
	capture->stream = stream;
	capture->saved = dup(fileno(stream));
	capture->memory = memfd_create("capture", 0);
	assert_true(capture->saved >= 0 && capture->memory >= 0);
	assert_true(dup2(capture->memory, fileno(stream)) >= 0);
}

/* Returns what was printed; it lives as long as CAPTURE. */
static inline const char *capture_end(struct capture *capture)
{
	ssize_t n;

	fflush(capture->stream);
	dup2(capture->saved, fileno(capture->stream));
	close(capture->saved);
	n = pread(capture->memory, capture->text, sizeof(capture->text) - 1, 0);
	close(capture->memory);
	assert_true(n >= 0);
	capture->text[n] = '\0';
	return capture->text;
}

/* PART must be in TEXT. */
static inline void assert_contains(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_msg("'%s' is not in '%s'", part, text);
}

/* An error is one line. */
static inline void assert_one_line(const char *text)
{
	const char *newline = strchr(text, '\n');

	if (!newline || newline == text || newline[1])
		fail_msg("not one line: '%s'", text);
}

#endif
