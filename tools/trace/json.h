/* SPDX-License-Identifier: MIT */
/*
 * Reading the JSON that the recorder and the dissector write: one object a
 * line, no deeper than a few levels. Nothing is given back.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_type {
	JSON_NULL,
	JSON_BOOL,
	JSON_NUMBER,
	JSON_TEXT,
	JSON_LIST,
	JSON_OBJECT
};

struct json {
	enum json_type type;
	const char *key; /* in an object */
	const char *text; /* of JSON_TEXT; numbers as they were written */
	int64_t number; /* of JSON_NUMBER and JSON_BOOL */
	struct json *first; /* of what is in it */
	struct json *next; /* beside it */
};

/* NULL where TEXT is no JSON object. TEXT is changed and has to stay. */
struct json *json_parse(char *text);

/* What OBJECT has under KEY; NULL where it has nothing, or null. */
struct json *json_get(const struct json *object, const char *key);

/* The same as a number (a text is read as one, with 0x as hexadecimal). */
int64_t json_number(const struct json *object, const char *key,
		    int64_t otherwise);
const char *json_text(const struct json *object, const char *key);
bool json_is(const struct json *object, const char *key, const char *value);

#endif
