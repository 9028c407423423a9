/* SPDX-License-Identifier: MIT */
/*
 * What the parts of merge share: the events of one run, and which of them
 * cannot have been before which.
 */
#ifndef MERGE_H
#define MERGE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "json.h"

enum side {
	CLIENT,
	SERVER,
	SIDES,
	WIRE = SIDES
};

struct event {
	enum side side;
	struct json *json;
	const char *raw; /* the line as it was read */
	int64_t begin,
		end; /* by the clock of its side; end -1: never returned */
	/* A call that tells what has come stands where it returned, one that
	 * asks for something where it began. */
	bool tells;
	int64_t time; /* on the common clock, where it stands */
	int64_t until; /* and where it ended */
	bool moved; /* the clocks said otherwise than cause and effect */
	int number; /* in the order of the result */
	struct event **after; /* events that this one cannot be before */
	int n_after, waiting;
	struct event **before; /* the other way round */
	int n_before;
};

struct events {
	struct event **list;
	int count;
};

struct run {
	struct events all[SIDES + 1];
	struct json *head[SIDES + 1]; /* the first line of each file */
	int doubts; /* packets and calls that should match and do not */
};

/* Add EVENT to the list. */
void events_add(struct events *events, struct event *event);

/* FIRST is a cause of SECOND, if both are known. */
void cause(struct event *first, struct event *second);

static inline enum side other(enum side side)
{
	return side == CLIENT ? SERVER : CLIENT;
}

static inline enum side sender(const struct event *packet)
{
	return json_is(packet->json, "from", "server") ? SERVER : CLIENT;
}

static inline bool starts(const char *text, const char *with)
{
	return text && !strncmp(text, with, strlen(with));
}

/* A list of COUNT elements, with room for one more. */
void *grow(void *list, int count, size_t size);

/* cause.c: find the causes of everything. */
void find_causes(struct run *run);

/* requests.c: those of work requests, their packets and completions. */
void find_request_causes(struct run *run);

/* clocks.c: put the three clocks together. */
struct clock_fit {
	bool known; /* otherwise the clocks are taken as the machines have them */
	double rate; /* common = offset + rate * own */
	double offset;
	double doubt; /* nanoseconds, to either side */
	int pairs;
};

void fit_clocks(struct run *run, struct clock_fit fits[SIDES]);

/* describe.c: an event in a few words. */
void describe(const struct event *event, char *text, size_t size);

static inline bool is_call(const struct event *event, const char *name)
{
	return json_is(event->json, "call", name);
}

/* A call that the program itself made, not one of the libraries for it. */
static inline bool is_own(const struct event *event)
{
	return event->side == WIRE || !json_get(event->json, "lib");
}

#endif
