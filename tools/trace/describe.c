/* SPDX-License-Identifier: MIT */
/*
 * An event in a few words, for the terminal.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "merge.h"

struct out {
	char *text;
	size_t size, len;
};

__attribute__((format(printf, 2, 3))) static void put(struct out *out,
						      const char *format, ...)
{
	va_list list;
	int n;

	va_start(list, format);
	n = vsnprintf(out->text + out->len, out->size - out->len, format, list);
	va_end(list);
	if (n > 0)
		out->len += n;
	if (out->len >= out->size)
		out->len = out->size - 1;
}

static int64_t total_length(const struct json *wr)
{
	struct json *sges = json_get(wr, "sges"), *each;
	int64_t sum = 0;

	for (each = sges ? sges->first : NULL; each; each = each->next)
		sum += json_number(each, "length", 0);
	return sum;
}

static void bytes(struct out *out, int64_t count)
{
	put(out, "%lld byte%s", (long long)count, count == 1 ? "" : "s");
}

/* RDMA_WRITE as the rest of the course writes it: RDMA WRITE */
static void spaced(struct out *out, const char *name)
{
	for (; name && *name; name++)
		put(out, "%c", *name == '_' ? ' ' : *name);
}

static void posted(struct out *out, const struct json *json, bool receives)
{
	struct json *wrs = json_get(json, "wrs"), *wr;
	int count = 0;

	for (wr = wrs ? wrs->first : NULL; wr; wr = wr->next) {
		if (++count > 4)
			continue;
		put(out, count == 1 ? ": " : "; ");
		if (!receives) {
			spaced(out, json_text(wr, "opcode"));
			put(out, " ");
		}
		bytes(out, total_length(wr));
		if (json_text(wr, "remote_addr"))
			put(out, " at %s rkey %s", json_text(wr, "remote_addr"),
			    json_text(wr, "rkey"));
		put(out, ", wr_id %s", json_text(wr, "wr_id"));
	}
	if (count > 4)
		put(out, "; and %d more", count - 4);
}

static void completed(struct out *out, const struct json *json)
{
	struct json *wcs = json_get(json, "wcs"), *wc;
	int count = 0;

	for (wc = wcs ? wcs->first : NULL; wc; wc = wc->next) {
		if (++count > 4)
			continue;
		put(out, count == 1 ? ": " : "; ");
		put(out, "wr_id %s ", json_text(wc, "wr_id"));
		spaced(out, json_text(wc, "opcode"));
		put(out, "%s%s", json_text(wc, "opcode") ? " " : "",
		    json_text(wc, "status_name"));
		if (json_is(wc, "opcode", "RECV")) {
			put(out, ", ");
			bytes(out, json_number(wc, "byte_len", 0));
		}
		if (json_get(wc, "changed"))
			put(out, ", BUFFER CHANGED TOO EARLY");
	}
	if (count > 4)
		put(out, "; and %d more", count - 4);
}

static void polled(struct out *out, const struct json *json)
{
	int64_t calls = json_number(json, "calls", 0);

	if (json_get(json, "wcs")) {
		completed(out, json);
		return;
	}
	put(out, ": nothing");
	if (calls > 1)
		put(out, " (%lld times)", (long long)calls);
}

/* What of the arguments is worth showing, for each call that has some. */
static void arguments(struct out *out, const struct event *event)
{
	const struct json *json = event->json;

	if (is_call(event, "ibv_post_send") ||
	    is_call(event, "ibv_wr_complete")) {
		posted(out, json, false);
	} else if (is_call(event, "ibv_post_recv") ||
		   is_call(event, "ibv_post_srq_recv")) {
		posted(out, json, true);
	} else if (is_call(event, "ibv_poll_cq") ||
		   is_call(event, "ibv_start_poll") ||
		   is_call(event, "ibv_next_poll")) {
		polled(out, json);
	} else if (json_text(json, "event")) {
		put(out, ": %s", json_text(json, "event"));
		if (json_number(json, "status", 0))
			put(out, ", status %lld",
			    (long long)json_number(json, "status", 0));
	} else if (is_call(event, "rdma_getaddrinfo")) {
		put(out, ": %s",
		    json_text(json, "node") ? json_text(json, "node") :
					      "any address");
	} else if (json_text(json, "dst")) {
		put(out, ": %s", json_text(json, "dst"));
	} else if (json_text(json, "addr") &&
		   is_call(event, "rdma_bind_addr")) {
		put(out, ": %s", json_text(json, "addr"));
	} else if (is_call(event, "ibv_reg_mr") ||
		   is_call(event, "ibv_reg_mr_iova2")) {
		put(out, ": ");
		bytes(out, json_number(json, "length", 0));
		put(out, " at %s, rkey %s", json_text(json, "addr"),
		    json_text(json, "rkey") ? json_text(json, "rkey") : "none");
	} else if (is_call(event, "ibv_modify_qp") &&
		   json_text(json, "state")) {
		put(out, ": QP %lld to %s",
		    (long long)json_number(json, "qp_num", 0),
		    json_text(json, "state"));
	} else if (json_get(json, "qp_num") &&
		   strstr(json_text(json, "call"), "_qp")) {
		put(out, ": QP %lld",
		    (long long)json_number(json, "qp_num", 0));
	}
}

static void describe_call(struct out *out, const struct event *event)
{
	const struct json *json = event->json;

	put(out, "%s", json_text(json, "call"));
	arguments(out, event);
	if (event->end < 0)
		put(out, " HAS NOT RETURNED");
	else if (json_text(json, "error"))
		put(out, " = %s", json_text(json, "error"));
}

static void describe_packet(struct out *out, const struct json *json)
{
	const char *name = json_text(json, "name");

	if (json_is(json, "kind", "CM"))
		put(out, "CM ");
	put(out, "%s", name);
	if (json_number(json, "length", 0))
		put(out, " %lld", (long long)json_number(json, "length", 0));
	if (name && !strncmp(name, "NAK", 3) && json_text(json, "also"))
		put(out, ": %s", json_text(json, "also"));
	if (json_number(json, "again", 0))
		put(out, " (again)");
}

void describe(const struct event *event, char *text, size_t size)
{
	struct out out = { text, size, 0 };

	text[0] = '\0';
	if (event->side == WIRE)
		describe_packet(&out, event->json);
	else
		describe_call(&out, event);
}
