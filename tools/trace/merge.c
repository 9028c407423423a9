/* SPDX-License-Identifier: MIT */
/*
 * The calls of a client, the calls of its server and the packets between them,
 * on one time line. Its order never contradicts cause and effect: causes are
 * found first (cause.c), then the clocks are put together (clocks.c), and of
 * what may come next the earliest does.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "merge.h"

static const char *const side_names[] = { "client", "server", "wire" };

struct options {
	const char *files[SIDES + 1];
	const char *sources[SIDES]; /* where each call stands in the source */
	const char *json;
	const char *title;
	bool all;
	int width;
};

static void usage(FILE *out)
{
	fprintf(out,
		"usage: merge [--all] [--width N] [--json FILE] [--title TEXT]\n"
		"             [--client-sources FILE] [--server-sources FILE]\n"
		"             CLIENT.jsonl SERVER.jsonl WIRE.jsonl\n"
		"Put two recorded programs and the packets between them on one time line.\n"
		"  --all        show what the libraries call, too\n"
		"  --width N    columns of the terminal, 80 to 400 (default: 120)\n"
		"  --json FILE  write the time line as JSON lines\n"
		"  --title T    what it is of, for the JSON\n"
		"  --..-sources FILE  lines of ADDRESS, tab, FILE:LINE for that program\n"
		"  --help       this text\n"
		"The files' format: tools/README.md.\n");
}

static _Noreturn void give_up(const char *what)
{
	perror(what);
	exit(1);
}

/* ---- reading -------------------------------------------------------------- */

/* Calls that tell what has come; they stand where they returned. */
static bool call_tells(const struct event *event)
{
	static const char *const names[] = {
		"rdma_get_cm_event",
		"ibv_get_cq_event",
		"ibv_get_async_event",
		"rdma_get_request",
	};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (is_call(event, names[i]))
			return true;
	return json_get(event->json, "wcs");
}

static void add_line(struct run *run, enum side side, const char *line)
{
	struct event *event = calloc(1, sizeof(*event));
	char *copy = strdup(line);

	if (!event || !copy)
		give_up("malloc");
	event->json = json_parse(copy);
	/* Half a line, where the program was killed, is none. */
	if (!event->json || !run->head[side]) {
		if (event->json)
			run->head[side] = event->json;
		free(event);
		return;
	}
	event->raw = strdup(line);
	event->side = side;
	event->begin = json_number(event->json, "t0", 0);
	event->end = side == WIRE ? event->begin :
				    json_number(event->json, "t1", -1);
	event->tells = side != WIRE && call_tells(event);
	if (side == WIRE || json_get(event->json, "at"))
		events_add(&run->all[side], event);
	else
		free(event);
}

static void read_file(struct run *run, enum side side, const char *path)
{
	FILE *file = fopen(path, "r");
	char *line = NULL;
	size_t size = 0;
	ssize_t len;

	if (!file)
		give_up(path);
	while ((len = getline(&line, &size, file)) > 0) {
		while (len && (line[len - 1] == '\n' || line[len - 1] == ' '))
			line[--len] = '\0';
		if (len)
			add_line(run, side, line);
	}
	free(line);
	fclose(file);
}

/* ---- one order ------------------------------------------------------------ */

static bool comes_first(const struct event *a, const struct event *b)
{
	if (a->time != b->time)
		return a->time < b->time;
	return a->side > b->side;
}

/* A heap of those that nothing keeps back any more. */
static void push(struct events *heap, struct event *event)
{
	int i = heap->count;

	events_add(heap, event);
	while (i && comes_first(event, heap->list[(i - 1) / 2])) {
		heap->list[i] = heap->list[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap->list[i] = event;
}

static struct event *pop(struct events *heap)
{
	struct event *top = heap->list[0], *last = heap->list[--heap->count];
	int i = 0, child;

	while ((child = 2 * i + 1) < heap->count) {
		if (child + 1 < heap->count &&
		    comes_first(heap->list[child + 1], heap->list[child]))
			child++;
		if (!comes_first(heap->list[child], last))
			break;
		heap->list[i] = heap->list[child];
		i = child;
	}
	if (heap->count)
		heap->list[i] = last;
	return top;
}

static struct events put_in_order(struct run *run, int *moved)
{
	struct events result = { 0 }, heap = { 0 };
	int64_t latest = INT64_MIN;
	int side, i;

	*moved = 0;
	for (side = CLIENT; side <= WIRE; side++)
		for (i = 0; i < run->all[side].count; i++) {
			struct event *event = run->all[side].list[i];

			event->waiting = event->n_after;
			if (!event->waiting)
				push(&heap, event);
		}
	while (heap.count) {
		struct event *event = pop(&heap);

		/* Its cause was shown later than its own clock says. */
		if (event->time < latest) {
			event->moved = latest - event->time > 1000;
			*moved += event->moved;
			event->time = latest;
		}
		latest = event->time;
		event->number = result.count;
		events_add(&result, event);
		for (i = 0; i < event->n_before; i++)
			if (!--event->before[i]->waiting)
				push(&heap, event->before[i]);
	}
	free(heap.list);
	return result;
}

/* ---- the terminal --------------------------------------------------------- */

struct columns {
	int call; /* width of each of the two outer ones */
	int wire;
};

/* How much of TEXT fits into WIDTH: to a space where there is one. */
static int cut(const char *text, int width)
{
	int len = strlen(text), i;

	if (len <= width)
		return len;
	for (i = width; i > width / 2; i--)
		if (text[i] == ' ')
			return i;
	return width;
}

/* The text of a column, over as many lines as it needs. */
static void print_row(double ms, const char *client, const char *wire,
		      const char *server, struct columns columns)
{
	char row[1024];
	size_t end;
	bool first = true;

	do {
		int a = cut(client, columns.call), b = cut(wire, columns.wire);
		int c = cut(server, columns.call);

		if (first)
			printf("%10.3f ms  ", ms);
		else
			printf("%15s", "");
		snprintf(row, sizeof(row), "%-*.*s  %-*.*s  %.*s", columns.call,
			 a, client, columns.wire, b, wire, c, server);
		for (end = strlen(row); end && row[end - 1] == ' ';)
			row[--end] = '\0';
		puts(row);
		client += a;
		wire += b;
		server += c;
		/* What goes on is set in. */
		first = false;
	} while (*client || *wire || *server);
}

static void arrow(const struct event *event, const char *text, int width,
		  char *out, size_t size)
{
	static const char dashes[] =
		"--------------------------------------------------"
		"--------------------------------------------------";
	int len = strlen(text), rest = width - len - 5;

	if (rest < 1)
		rest = 1;
	if (rest > 100)
		rest = 100;
	if (json_is(event->json, "from", "server"))
		snprintf(out, size, "<%.*s %s --", rest, dashes, text);
	else
		snprintf(out, size, "-- %s %.*s>", text, rest, dashes);
}

static void print_event(const struct event *event, int64_t zero,
			struct columns columns)
{
	char text[1024], wire[1200] = "";
	double ms = (event->time - zero) / 1e6;
	int64_t thread = json_number(event->json, "thread", 1);
	int len = 0;

	if (json_text(event->json, "in"))
		len = snprintf(text, sizeof(text), "  ");
	if (thread > 1)
		len += snprintf(text + len, sizeof(text) - len, "[%lld] ",
				(long long)thread);
	describe(event, text + len, sizeof(text) - len);
	if (event->side == WIRE)
		arrow(event, text, columns.wire, wire, sizeof(wire));
	print_row(ms, event->side == CLIENT ? text : "", wire,
		  event->side == SERVER ? text : "", columns);
}

static void print_all(const struct events *order, const struct options *opt)
{
	struct columns columns = { (opt->width - 15 - 4) * 34 / 100, 0 };
	int64_t zero = order->count ? order->list[0]->time : 0;
	int i;

	columns.wire = opt->width - 15 - 4 - 2 * columns.call;
	printf("%13s  %-*s  %-*s  %s\n", "", columns.call, "client",
	       columns.wire, "wire", "server");
	for (i = 0; i < order->count; i++)
		if (opt->all || is_own(order->list[i]))
			print_event(order->list[i], zero, columns);
}

/* ---- about the clocks ----------------------------------------------------- */

/* How far this machine's calendar is ahead of the common clock. */
static double ahead(const struct run *run, const struct clock_fit *fit,
		    enum side side)
{
	return (double)(json_number(run->head[side], "realtime", 0) -
			json_number(run->head[side], "t0", 0)) -
	       fit->offset;
}

static void about_clocks(const struct run *run, const struct clock_fit *fits,
			 int moved, FILE *out)
{
	double difference = ahead(run, &fits[CLIENT], CLIENT) -
			    ahead(run, &fits[SERVER], SERVER);
	double doubt = fits[CLIENT].doubt + fits[SERVER].doubt;
	int side;

	if (!fits[CLIENT].known || !fits[SERVER].known) {
		fprintf(out, "clocks: too few packets to compare them by; the "
			     "machines' calendars were believed\n");
	} else {
		fprintf(out, "clocks: the client's is %.3f ms %s the server's",
			fabs(difference) / 1e6,
			difference < 0 ? "behind" : "ahead of");
		if (isfinite(doubt))
			fprintf(out, ", give or take %.3f ms", doubt / 1e6);
		fprintf(out, " (from %d calls and their packets)\n",
			fits[CLIENT].pairs + fits[SERVER].pairs);
	}
	for (side = CLIENT; side < SIDES; side++)
		if (fits[side].rate != 1)
			fprintf(out,
				"clocks: the %s's runs %.0f parts in a million "
				"%s than the capture's\n",
				side_names[side],
				fabs(fits[side].rate - 1) * 1e6,
				fits[side].rate > 1 ? "slower" : "faster");
	if (moved)
		fprintf(out,
			"clocks: %d line%s stand%s later than its clock says, "
			"after the cause\n",
			moved, moved == 1 ? "" : "s", moved == 1 ? "s" : "");
	if (run->doubts)
		fprintf(out, "packets: some are not of the requests that were "
			     "posted; they are shown by their time alone\n");
}

/* ---- JSON ----------------------------------------------------------------- */

/* FILE:LINE of an address, from lines of both. Inlined functions have several
 * lines, the innermost first. */
struct source {
	uint64_t address;
	char *place;
};

struct sources {
	struct source *list;
	int count;
};

static struct sources read_sources(const char *path)
{
	struct sources sources = { 0 };
	char *line = NULL, *tab;
	size_t size = 0;
	FILE *file = path ? fopen(path, "r") : NULL;

	while (file && getline(&line, &size, file) > 0) {
		tab = strchr(line, '\t');
		if (!tab)
			continue;
		tab[strcspn(tab, "\n")] = '\0';
		sources.list =
			realloc(sources.list,
				(sources.count + 1) * sizeof(*sources.list));
		if (!sources.list)
			give_up("realloc");
		sources.list[sources.count].address = strtoull(line, NULL, 0);
		sources.list[sources.count++].place = strdup(tab + 1);
	}
	if (file)
		fclose(file);
	free(line);
	return sources;
}

static void write_text(FILE *out, const char *text)
{
	fputc('"', out);
	for (; text && *text; text++) {
		if (*text == '"' || *text == '\\')
			fputc('\\', out);
		if ((unsigned char)*text >= ' ')
			fputc(*text, out);
	}
	fputc('"', out);
}

static void write_source(FILE *out, const struct event *event,
			 const struct sources *sources)
{
	uint64_t address = json_number(event->json, "at", 0);
	bool any = false;
	int i;

	if (!is_own(event))
		return;
	for (i = 0; i < sources->count; i++) {
		if (sources->list[i].address != address)
			continue;
		fputs(any ? "," : ",\"source\":[", out);
		write_text(out, sources->list[i].place);
		any = true;
	}
	if (any)
		fputc(']', out);
}

static void write_json(const struct run *run, const struct events *order,
		       const struct clock_fit *fits, const struct options *opt)
{
	int64_t zero = order->count ? order->list[0]->time : 0;
	struct sources sources[SIDES] = { read_sources(opt->sources[CLIENT]),
					  read_sources(opt->sources[SERVER]) };
	FILE *out = fopen(opt->json, "w");
	char text[1024];
	int i, j;

	if (!out)
		give_up(opt->json);
	fprintf(out, "{\"timeline\":1,\"title\":");
	write_text(out, opt->title ? opt->title : "");
	for (i = CLIENT; i < SIDES; i++) {
		fprintf(out, ",\"%s\":{\"program\":", side_names[i]);
		write_text(out, json_text(run->head[i], "program"));
		fprintf(out, ",\"host\":");
		write_text(out, json_text(run->head[i], "host"));
		fprintf(out,
			",\"clock_known\":%s,\"offset\":%.0f,\"rate\":%.9f,"
			"\"doubt\":%.0f}",
			fits[i].known ? "true" : "false", fits[i].offset - zero,
			fits[i].rate,
			isfinite(fits[i].doubt) ? fits[i].doubt : -1);
	}
	fprintf(out, "}\n");
	for (i = 0; i < order->count; i++) {
		const struct event *event = order->list[i];

		fprintf(out,
			"{\"n\":%d,\"side\":\"%s\",\"time\":%lld,"
			"\"until\":%lld,\"after\":[",
			i, side_names[event->side],
			(long long)(event->time - zero),
			(long long)(event->until - zero));
		for (j = 0; j < event->n_after; j++)
			fprintf(out, j ? ",%d" : "%d", event->after[j]->number);
		fprintf(out, "],\"moved\":%s,\"words\":",
			event->moved ? "true" : "false");
		describe(event, text, sizeof(text));
		write_text(out, text);
		if (event->side != WIRE)
			write_source(out, event, &sources[event->side]);
		/* And all that was recorded of it. */
		fprintf(out, ",%s\n", event->raw + 1);
	}
	if (fclose(out))
		give_up(opt->json);
}

/* ---- main ----------------------------------------------------------------- */

static int parse_options(int argc, char **argv, struct options *opt)
{
	static const struct option longs[] = {
		{ "all", no_argument, NULL, 'a' },
		{ "width", required_argument, NULL, 'w' },
		{ "json", required_argument, NULL, 'j' },
		{ "title", required_argument, NULL, 't' },
		{ "client-sources", required_argument, NULL, 'c' },
		{ "server-sources", required_argument, NULL, 's' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	int c, i;

	opt->width = 120;
	while ((c = getopt_long(argc, argv, "aw:j:t:h", longs, NULL)) != -1) {
		switch (c) {
		case 'a':
			opt->all = true;
			break;
		case 'w':
			opt->width = atoi(optarg);
			break;
		case 'j':
			opt->json = optarg;
			break;
		case 't':
			opt->title = optarg;
			break;
		case 'c':
			opt->sources[CLIENT] = optarg;
			break;
		case 's':
			opt->sources[SERVER] = optarg;
			break;
		case 'h':
			usage(stdout);
			exit(0);
		default:
			return -1;
		}
	}
	if (opt->width < 80 || opt->width > 400) {
		fprintf(stderr, "merge: --width takes 80 to 400\n");
		return -1;
	}
	if (argc - optind != 3) {
		fprintf(stderr, "merge: three files, please\n");
		return -1;
	}
	for (i = 0; i < 3; i++)
		opt->files[i] = argv[optind + i];
	return 0;
}

int main(int argc, char **argv)
{
	struct options opt = { 0 };
	struct clock_fit fits[SIDES] = { 0 };
	struct run run = { 0 };
	struct events order;
	int i, moved;

	if (parse_options(argc, argv, &opt)) {
		usage(stderr);
		return 2;
	}
	for (i = CLIENT; i <= WIRE; i++)
		read_file(&run, i, opt.files[i]);
	find_causes(&run);
	fit_clocks(&run, fits);
	order = put_in_order(&run, &moved);
	print_all(&order, &opt);
	about_clocks(&run, fits, moved, stdout);
	if (opt.json)
		write_json(&run, &order, fits, &opt);
	return 0;
}
