/* SPDX-License-Identifier: MIT */
/*
 * The command line of any program: PROGRAM is its source, ARGS how many arguments
 * its parse_options() has, TEXT that the last is a text with a default. The input is
 * the words, a line for each.
 */
#include <setjmp.h>

#include "fuzz.h"

/* Some end the program where they have printed their usage. */
static jmp_buf fuzz_leave;
#define exit(status) longjmp(fuzz_leave, 1 + (status))

#include PROGRAM

#define MAX_WORDS 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Room for whatever parse_options() fills. */
	static _Alignas(64) char first[1 << 16], second[1 << 16];
	char *const text = malloc(size + 1);
	char *rest = text, *word;
	static char name[] = "program";
	char *argv[MAX_WORDS + 2] = { name };
	int argc = 1;

	if (!text)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	while (argc <= MAX_WORDS && (word = strsep(&rest, "\n")))
		argv[argc++] = word;
	optind = 0; /* glibc's getopt begins anew */
	memset(first, 0, sizeof(first));
	memset(second, 0, sizeof(second));
#ifdef TEXT
	memcpy(second, &(const char *){ "default" }, sizeof(char *));
#endif
	if (!setjmp(fuzz_leave)) {
#if ARGS == 3
		parse_options(argc, argv, (void *)first);
#else
		parse_options(argc, argv, (void *)first, (void *)second);
#endif
	}
	free(text);
	return 0;
}
