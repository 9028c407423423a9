/* SPDX-License-Identifier: MIT */
/*
 * Three clocks: each machine's, and that of the capture, which all is put on.
 *
 * A call that sends began before its packet was seen, and a call that tells of a
 * packet ended after it. Each such pair says that a clock is at most, or at
 * least, so much behind; of all together a small gap is left, and its middle is
 * taken. Where the gap is none, one of the clocks runs faster than the other,
 * and the speed is looked for that leaves the widest gap.
 */
#include <math.h>
#include <stdlib.h>

#include "merge.h"

struct gap {
	double low, high;
	int lows, highs;
};

static struct gap gap_at(const struct events *events, double rate)
{
	struct gap gap = { -INFINITY, INFINITY, 0, 0 };
	int i, j;

	for (i = 0; i < events->count; i++) {
		const struct event *event = events->list[i];

		for (j = 0; j < event->n_before; j++) {
			if (event->before[j]->side != WIRE || event->tells)
				continue;
			gap.high = fmin(gap.high, event->before[j]->begin -
							  rate * event->begin);
			gap.highs++;
		}
		for (j = 0; j < event->n_after; j++) {
			if (event->after[j]->side != WIRE || event->end < 0)
				continue;
			gap.low = fmax(gap.low, event->after[j]->begin -
							rate * event->end);
			gap.lows++;
		}
	}
	return gap;
}

static double width(struct gap gap)
{
	return gap.high - gap.low;
}

/* The widest gap lies between two speeds; the width rises to it and falls. */
static double best_rate(const struct events *events)
{
	double from = 0.98, to = 1.02;
	int i;

	for (i = 0; i < 60; i++) {
		double a = from + (to - from) / 3, b = to - (to - from) / 3;

		if (width(gap_at(events, a)) < width(gap_at(events, b)))
			from = a;
		else
			to = b;
	}
	return (from + to) / 2;
}

static void fit(const struct events *events, struct clock_fit *fit)
{
	struct gap gap = gap_at(events, 1);

	fit->rate = 1;
	fit->pairs = gap.lows + gap.highs;
	if (gap.lows && gap.highs && width(gap) < 0) {
		fit->rate = best_rate(events);
		gap = gap_at(events, fit->rate);
	}
	fit->known = gap.lows || gap.highs;
	if (gap.lows && gap.highs) {
		fit->offset = (gap.low + gap.high) / 2;
		fit->doubt = fabs(width(gap)) / 2;
	} else if (fit->known) {
		fit->offset = gap.lows ? gap.low : gap.high;
		fit->doubt = INFINITY;
	}
}

/* When this clock showed zero, by the machine's own calendar. */
static int64_t calendar(const struct run *run, enum side side)
{
	return json_number(run->head[side], "realtime", 0) -
	       (side == WIRE ? 0 : json_number(run->head[side], "t0", 0));
}

void fit_clocks(struct run *run, struct clock_fit fits[SIDES])
{
	enum side side, zero = run->all[WIRE].count ? WIRE : CLIENT;
	int i;

	for (side = CLIENT; side < SIDES; side++)
		fit(&run->all[side], &fits[side]);
	for (side = CLIENT; side < SIDES; side++) {
		struct events *events = &run->all[side];
		enum side peer = other(side);

		/* Nothing to go by: trust the calendars. */
		if (!fits[side].known && fits[peer].known)
			fits[side].offset = fits[peer].offset +
					    calendar(run, side) -
					    calendar(run, peer);
		else if (!fits[side].known)
			fits[side].offset =
				calendar(run, side) - calendar(run, zero);
		for (i = 0; i < events->count; i++) {
			struct event *event = events->list[i];
			int64_t end = event->end < 0 ? event->begin :
						       event->end;

			event->time = llround(
				fits[side].offset +
				fits[side].rate *
					(event->tells ? end : event->begin));
			event->until = llround(fits[side].offset +
					       fits[side].rate * end);
		}
	}
	for (i = 0; i < run->all[WIRE].count; i++)
		run->all[WIRE].list[i]->time = run->all[WIRE].list[i]->until =
			run->all[WIRE].list[i]->begin;
}
