/* SPDX-License-Identifier: MIT */
/*
 * linear - is a history of concurrent requests to a store linearizable, key by
 * key?
 *
 *	linear FILE...
 *
 * Each line of the files is one request: CLIENT WHAT KEY VALUE BEGIN END, with
 * begin and end on one clock. WHAT is `put` (of VALUE), `get` (which found VALUE,
 * or - for nothing), or `delete` (`found`, or - when there was nothing).
 *
 * A history is linearizable when each request can be given one moment between its
 * begin and its end, such that all of them, carried out one after the other at
 * these moments, give the results that were seen. Keys do not depend on each other,
 * so each is looked at by itself.
 *
 * The search is Wing and Gong's ("Testing and Verifying Concurrent Objects", 1993)
 * with Lowe's remedy against trying the same again: which requests have been
 * carried out, and the value then, are remembered.
 *
 * Exit status: 0 it is, 1 it is not, 2 the input is wrong.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORD 64

enum what {
	PUT,
	GET,
	DELETE
};

struct op {
	char client[16], key[40], name[40];
	enum what what;
	int value; /* number of the name among all names; 0: nothing */
	long long begin, end;
};

/* A begin or an end, in the list of those that are still to be explained. */
struct event {
	struct op *op;
	int index; /* of the op, among those of its key */
	bool is_end;
	long long time;
	struct event *prev, *next;
	struct event *partner; /* of a begin: its end */
};

struct memo {
	struct memo *next;
	int value;
	uint64_t done[];
};

#define BUCKETS (1 << 16)

static struct op *ops;
static size_t count, room;

static void *need(void *memory)
{
	if (memory)
		return memory;
	fprintf(stderr, "linear: out of memory\n");
	exit(2);
}

static int take_line(const char *file, int number, const char *line)
{
	char what[16];
	struct op *op;

	if (count == room) {
		room = room ? 2 * room : 1024;
		ops = need(realloc(ops, room * sizeof(*ops)));
	}
	op = &ops[count];
	memset(op, 0, sizeof(*op));
	if (sscanf(line, "%15s %15s %39s %39s %lld %lld", op->client, what,
		   op->key, op->name, &op->begin, &op->end) != 6 ||
	    op->end < op->begin)
		goto bad;
	if (!strcmp(what, "put"))
		op->what = PUT;
	else if (!strcmp(what, "get"))
		op->what = GET;
	else if (!strcmp(what, "delete"))
		op->what = DELETE;
	else
		goto bad;
	count++;
	return 0;
bad:
	fprintf(stderr, "linear: %s:%d: what is this? %s", file, number, line);
	return -1;
}

static int read_file(const char *name)
{
	FILE *file = fopen(name, "r");
	char line[256];
	int number = 0, ret = 0;

	if (!file) {
		perror(name);
		return -1;
	}
	while (!ret && fgets(line, sizeof(line), file))
		ret = take_line(name, ++number, line);
	fclose(file);
	return ret;
}

static int by_key_and_name(const void *a, const void *b)
{
	const struct op *one = a, *two = b;
	int order = strcmp(one->key, two->key);

	return order ? order : strcmp(one->name, two->name);
}

/* Within a key, each name gets a number; "-" is 0. */
static void number_values(void)
{
	int next = 1;
	size_t i;

	qsort(ops, count, sizeof(*ops), by_key_and_name);
	for (i = 0; i < count; i++) {
		if (!strcmp(ops[i].name, "-"))
			ops[i].value = 0;
		else if (i && !strcmp(ops[i].key, ops[i - 1].key) &&
			 !strcmp(ops[i].name, ops[i - 1].name))
			ops[i].value = ops[i - 1].value;
		else
			ops[i].value = next++;
	}
}

/* At the same moment: the begin first, so that the two are concurrent. */
static int by_time(const void *a, const void *b)
{
	const struct event *one = a, *two = b;

	if (one->time != two->time)
		return one->time < two->time ? -1 : 1;
	return one->is_end - two->is_end;
}

/* Carry out OP on *VALUE. False when its result would have been another. */
static bool carry_out(const struct op *op, int *value)
{
	switch (op->what) {
	case PUT:
		*value = op->value;
		return true;
	case GET:
		return *value == op->value;
	default:
		if ((op->value != 0) != (*value != 0))
			return false;
		*value = 0;
		return true;
	}
}

static void unlink_event(struct event *event)
{
	event->prev->next = event->next;
	if (event->next)
		event->next->prev = event->prev;
}

static void relink_event(struct event *event)
{
	event->prev->next = event;
	if (event->next)
		event->next->prev = event;
}

/* Was it so before? If not, remember it. */
static bool seen(struct memo **memo, const uint64_t *done, size_t words,
		 int value)
{
	uint64_t hash = value * 0x9e3779b97f4a7c15;
	struct memo *m;
	size_t i;

	for (i = 0; i < words; i++)
		hash = (hash ^ done[i]) * 0x100000001b3;
	hash = (hash ^ hash >> 32) % BUCKETS;
	for (m = memo[hash]; m; m = m->next)
		if (m->value == value && !memcmp(m->done, done, words * 8))
			return true;
	m = need(malloc(sizeof(*m) + words * 8));
	m->value = value;
	memcpy(m->done, done, words * 8);
	m->next = memo[hash];
	memo[hash] = m;
	return false;
}

static void forget(struct memo **memo)
{
	struct memo *m;
	int i;

	for (i = 0; i < BUCKETS; i++)
		while ((m = memo[i])) {
			memo[i] = m->next;
			free(m);
		}
	free(memo);
}

/* The events of N requests, begins and ends, in the order of time. */
static struct event *make_events(struct op *of, size_t n, struct event *head,
				 int *most)
{
	struct event *events = need(calloc(2 * n, sizeof(*events)));
	struct event **begins = need(calloc(n, sizeof(*begins)));
	int now = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		events[2 * i] = (struct event){ .op = &of[i],
						.index = i,
						.time = of[i].begin };
		events[2 * i + 1] = (struct event){ .op = &of[i],
						    .index = i,
						    .is_end = true,
						    .time = of[i].end };
	}
	qsort(events, 2 * n, sizeof(*events), by_time);
	for (i = 0; i < 2 * n; i++) {
		events[i].prev = i ? &events[i - 1] : head;
		events[i].next = i + 1 < 2 * n ? &events[i + 1] : NULL;
		if (events[i].is_end) {
			begins[events[i].index]->partner = &events[i];
			now--;
		} else {
			begins[events[i].index] = &events[i];
			if (++now > *most)
				*most = now;
		}
	}
	head->next = events;
	free(begins);
	return events;
}

/*
 * All requests of one key. Walk along the list: a begin whose request can be
 * carried out now is taken out together with its end, and we start again at the
 * front. When we come to an end whose request is still there, it would have had
 * to be carried out by now: take back the last one, and try another in its place.
 */
static bool check_key(struct op *of, size_t n, int *most)
{
	size_t words = (n + WORD - 1) / WORD, depth = 0, deepest = 0;
	struct {
		struct event *event;
		int value;
	} *stack = need(calloc(n, sizeof(*stack)));
	struct memo **memo = need(calloc(BUCKETS, sizeof(*memo)));
	uint64_t *done = need(calloc(words, 8));
	struct event head = { 0 }, *events = make_events(of, n, &head, most);
	struct event *event = head.next;
	struct op *stuck = NULL;
	int value = 0, after;

	while (head.next) {
		if (!event->is_end) {
			after = value;
			done[event->index / WORD] |= 1ULL
						     << event->index % WORD;
			if (carry_out(event->op, &after) &&
			    !seen(memo, done, words, after)) {
				stack[depth].event = event;
				stack[depth++].value = value;
				value = after;
				unlink_event(event);
				unlink_event(event->partner);
				event = head.next;
				continue;
			}
			done[event->index / WORD] &=
				~(1ULL << event->index % WORD);
			event = event->next;
			continue;
		}
		if (!stuck || depth > deepest) {
			stuck = event->op;
			deepest = depth;
		}
		if (depth == 0)
			break;
		event = stack[--depth].event;
		value = stack[depth].value;
		done[event->index / WORD] &= ~(1ULL << event->index % WORD);
		relink_event(event->partner);
		relink_event(event);
		event = event->next;
	}
	if (head.next)
		printf("%s: not linearizable: nothing explains `%s %s %s` of "
		       "client %s, from %lld to %lld\n",
		       stuck->key,
		       stuck->what == PUT ? "put" :
		       stuck->what == GET ? "get" :
					    "delete",
		       stuck->key, stuck->name, stuck->client, stuck->begin,
		       stuck->end);
	forget(memo);
	free(done);
	free(stack);
	free(events);
	return !head.next;
}

int main(int argc, char **argv)
{
	size_t i, first = 0;
	int keys = 0, bad = 0, most = 0;

	for (i = 1; i < (size_t)argc; i++)
		if (read_file(argv[i]))
			return 2;
	if (count == 0) {
		fprintf(stderr, "usage: linear FILE...: no requests\n");
		return 2;
	}
	number_values();
	for (i = 1; i <= count; i++) {
		if (i < count && !strcmp(ops[i].key, ops[first].key))
			continue;
		keys++;
		if (!check_key(&ops[first], i - first, &most))
			bad++;
		first = i;
	}
	if (!bad)
		printf("linearizable: %zu requests on %d keys, up to %d at the "
		       "same time on one\n",
		       count, keys, most);
	free(ops);
	return bad ? 1 : 0;
}
