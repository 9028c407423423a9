/* SPDX-License-Identifier: MIT */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

static char *at; /* in the text that is being read */

static struct json *new_json(enum json_type type)
{
	struct json *json = calloc(1, sizeof(*json));

	if (!json) {
		perror("calloc");
		exit(1);
	}
	json->type = type;
	return json;
}

static void skip_space(void)
{
	while (*at == ' ' || *at == '\t')
		at++;
}

/* Cuts the string out of the text, its escapes undone. */
static char *read_string(void)
{
	char *start = ++at, *to = at;
	char hex[5] = "";

	for (; *at && *at != '"'; at++) {
		if (*at != '\\') {
			*to++ = *at;
			continue;
		}
		at++;
		if (*at == 'u' && strlen(at) > 4) {
			memcpy(hex, at + 1, 4);
			*to++ = strtol(hex, NULL, 16);
			at += 4;
		} else if (*at) {
			*to++ = *at == 'n' ? '\n' : *at == 't' ? '\t' : *at;
		}
	}
	if (!*at)
		return NULL;
	at++;
	*to = '\0';
	return start;
}

static struct json *read_value(int depth);

static struct json *read_many(enum json_type type, char end, int depth)
{
	struct json *json = new_json(type), **last = &json->first;
	char *key = NULL;

	at++;
	for (skip_space(); *at != end; skip_space()) {
		if (json->first && *at++ != ',')
			return NULL;
		skip_space();
		if (type == JSON_OBJECT) {
			if (*at != '"' || !(key = read_string()))
				return NULL;
			skip_space();
			if (*at++ != ':')
				return NULL;
		}
		*last = read_value(depth + 1);
		if (!*last)
			return NULL;
		(*last)->key = key;
		last = &(*last)->next;
	}
	at++;
	return json;
}

static struct json *read_word(void)
{
	static const struct {
		const char *word;
		enum json_type type;
		int number;
	} words[] = { { "null", JSON_NULL, 0 },
		      { "true", JSON_BOOL, 1 },
		      { "false", JSON_BOOL, 0 } };
	struct json *json;
	size_t i;

	for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strncmp(at, words[i].word, strlen(words[i].word)))
			continue;
		at += strlen(words[i].word);
		json = new_json(words[i].type);
		json->number = words[i].number;
		return json;
	}
	return NULL;
}

static struct json *read_value(int depth)
{
	struct json *json;
	char *end;

	skip_space();
	if (depth > 16)
		return NULL;
	if (*at == '{')
		return read_many(JSON_OBJECT, '}', depth);
	if (*at == '[')
		return read_many(JSON_LIST, ']', depth);
	if (*at == '"') {
		json = new_json(JSON_TEXT);
		json->text = read_string();
		return json->text ? json : NULL;
	}
	if (*at != '-' && !isdigit((unsigned char)*at))
		return read_word();
	json = new_json(JSON_NUMBER);
	json->number = strtoll(at, &end, 10);
	/* A fraction is of no interest here. */
	while (isdigit((unsigned char)*end) || (*end && strchr(".eE+-", *end)))
		end++;
	at = end;
	return json;
}

struct json *json_parse(char *text)
{
	struct json *json;

	at = text;
	skip_space();
	if (*at != '{')
		return NULL;
	json = read_value(0);
	skip_space();
	return json && (*at == '\0' || *at == '\n') ? json : NULL;
}

struct json *json_get(const struct json *object, const char *key)
{
	struct json *each;

	if (!object || object->type != JSON_OBJECT)
		return NULL;
	for (each = object->first; each; each = each->next)
		if (!strcmp(each->key, key))
			return each->type == JSON_NULL ? NULL : each;
	return NULL;
}

int64_t json_number(const struct json *object, const char *key,
		    int64_t otherwise)
{
	struct json *json = json_get(object, key);

	if (!json)
		return otherwise;
	if (json->type == JSON_TEXT)
		return strtoull(json->text, NULL, 0);
	return json->number;
}

const char *json_text(const struct json *object, const char *key)
{
	struct json *json = json_get(object, key);

	return json && json->type == JSON_TEXT ? json->text : NULL;
}

bool json_is(const struct json *object, const char *key, const char *value)
{
	const char *text = json_text(object, key);

	return text && !strcmp(text, value);
}
