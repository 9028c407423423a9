/* SPDX-License-Identifier: MIT */
/*
 * One call that is not on the data path: its line is in the file from before
 * the real call, with "t1":null, and is completed when the call has returned.
 * So a program that was killed in a call, or crashed in it, shows which one.
 */
#include <link.h>
#include <pthread.h>

#include "trace.h"

__thread const char *inside;
__thread unsigned int thread;
__thread struct empty_run runs[MAX_RUNS];
__thread int n_runs;

/* ---- who called ----------------------------------------------------------- */

/* The code of the program and of its libraries, as far as we have looked. */
#define MAX_CODES 128
static struct code {
	uintptr_t begin, end, base;
	const char *name; /* NULL: the program itself */
} codes[MAX_CODES];
static _Atomic int n_codes;
static pthread_mutex_t codes_lock = PTHREAD_MUTEX_INITIALIZER;

static int note_code(struct dl_phdr_info *info, size_t size, void *data)
{
	int count = atomic_load(&n_codes), i, j;
	const char *slash = strrchr(info->dlpi_name, '/');

	(void)size;
	(void)data;
	for (i = 0; i < info->dlpi_phnum && count < MAX_CODES; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		struct code code = {
			.begin = info->dlpi_addr + part->p_vaddr,
			.base = info->dlpi_addr,
			.name = slash ? slash + 1 : info->dlpi_name,
		};

		if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
			continue;
		code.end = code.begin + part->p_memsz;
		for (j = 0; j < count; j++)
			if (codes[j].begin == code.begin)
				break;
		if (j < count)
			continue;
		/* The first that the dynamic linker shows is the program. */
		if (count == 0)
			code.name = NULL;
		codes[count++] = code;
		atomic_store(&n_codes, count);
	}
	return 0;
}

static const struct code *find_code(uintptr_t at)
{
	int count = atomic_load_explicit(&n_codes, memory_order_acquire);
	int i;

	for (i = 0; i < count; i++)
		if (at >= codes[i].begin && at < codes[i].end)
			return &codes[i];
	return NULL;
}

/* A call that comes from here was made by the function that we called: its last
 * act was to call another one, which returns to us. */
static const char *code_name(const struct code *code)
{
	if (!code)
		return "?";
	if (code == find_code((uintptr_t)code_name))
		return !inside || inside[0] == 'i' ? "libibverbs.so.1" :
						     "librdmacm.so.1";
	return code->name;
}

static void look_at_codes(void)
{
	pthread_mutex_lock(&codes_lock);
	dl_iterate_phdr(note_code, NULL);
	pthread_mutex_unlock(&codes_lock);
}

__attribute__((constructor)) static void call_init(void)
{
	look_at_codes();
}

/* ---- lines ---------------------------------------------------------------- */

unsigned int thread_number(void)
{
	static _Atomic unsigned int last;

	if (!thread)
		thread = atomic_fetch_add(&last, 1) + 1;
	return thread;
}

/*
 * AT is where the call returns to; the byte before it is of the call itself,
 * which is what addr2line(1) has to be asked for.
 */
char *line_begin(char *p, const char *name, const void *at, uint64_t t0)
{
	uintptr_t address = (uintptr_t)at - 1;
	const struct code *code = find_code(address);

	p = LIT(p, "{\"call\":\"");
	p = text_copy(p, name);
	p = LIT(p, "\",\"thread\":");
	p = text_dec(p, likely(thread) ? thread : thread_number());
	if (unlikely(inside)) {
		p = LIT(p, ",\"in\":\"");
		p = text_copy(p, inside);
		*p++ = '"';
	}
	if (unlikely(!code || code->name)) {
		p = LIT(p, ",\"lib\":\"");
		p = text_string(p, code_name(code), 64);
		*p++ = '"';
	}
	p = LIT(p, ",\"at\":\"");
	p = text_hex(p, code ? address - code->base : address);
	p = LIT(p, "\",\"t0\":");
	return text_dec(p, t0);
}

void call_begin(struct call *c, const char *name, const void *at)
{
	c->err = errno;
	c->name = name;
	c->on = trace_on();
	c->back = false;
	c->place = NULL;
	c->p = c->line;
	c->t0 = 0;
	n_runs = 0;
	if (c->on) {
		if (unlikely(!find_code((uintptr_t)at - 1)))
			look_at_codes();
		c->t0 = trace_now();
		c->p = line_begin(c->p, name, at, c->t0);
	}
}

/* The arguments are there, the real call comes next. ROOM: so many bytes are
 * expected of its results. */
void call_go(struct call *c, size_t room)
{
	char *args_end = c->p;
	size_t len;

	c->outer = inside;
	inside = c->name;
	if (c->on) {
		c->p = LIT(c->p, ",\"t1\":null,\"ret\":null");
		len = c->p - c->line;
		c->room = len + room + 72;
		c->place = trace_reserve(c->room);
		if (c->place) {
			memset(c->place + len, ' ', c->room - len);
			c->place[len] = '}';
			c->place[c->room - 1] = '\n';
			trace_commit(c->place, c->line, len);
		}
		c->p = args_end;
	}
	errno = c->err;
}

/* The real call has returned: what time is it, and what does errno say? */
void call_back(struct call *c)
{
	if (c->back)
		return;
	c->err = errno;
	c->back = true;
	inside = c->outer;
	if (c->on) {
		c->t1 = trace_now();
		c->p = LIT(c->p, ",\"t1\":");
		c->p = text_dec(c->p, c->t1);
	}
}

static void finish(struct call *c)
{
	size_t len;
	char *place = c->place;

	call_back(c);
	if (place) {
		c->p = LIT(c->p, "}\n");
		len = c->p - c->line;
		/* While it is rewritten the line is none. */
		__atomic_store_n(place, ' ', __ATOMIC_RELEASE);
		atomic_thread_fence(memory_order_release);
		if (len <= c->room) {
			memset(place + len - 1, ' ', c->room - len);
			place[c->room - 1] = '\n';
			trace_commit(place, c->line, len - 1);
		} else {
			memset(place, '\n', c->room);
			place = trace_reserve(len);
			if (place)
				trace_commit(place, c->line, len);
		}
	}
	errno = c->err;
}

static void put_error(struct call *c, int err)
{
	const char *name = strerrorname_np(err);

	if (name)
		put_text(c, "error", name);
	else
		put_int(c, "error", err);
}

void call_void(struct call *c)
{
	finish(c);
}

int call_int(struct call *c, int ret)
{
	call_back(c);
	put_int(c, "ret", ret);
	if (ret == -1)
		put_error(c, c->err);
	finish(c);
	return ret;
}

int call_errno(struct call *c, int ret)
{
	call_back(c);
	put_int(c, "ret", ret);
	if (ret)
		put_error(c, ret > 0 ? ret : c->err);
	finish(c);
	return ret;
}

void *call_ptr(struct call *c, void *ret)
{
	call_back(c);
	if (ret) {
		put_ptr(c, "ret", ret);
	} else {
		put_raw(c, "ret", "null");
		put_error(c, c->err);
	}
	finish(c);
	return ret;
}

/* ---- values --------------------------------------------------------------- */

/* Nothing is written past the line's end; what is too long is left out. */
static bool put_key(struct call *c, const char *key, size_t len)
{
	char *end = c->line + sizeof(c->line);

	if (!c->on || c->p + strlen(key) + len + 160 > end)
		return false;
	c->p = LIT(c->p, ",\"");
	c->p = text_copy(c->p, key);
	c->p = LIT(c->p, "\":");
	return true;
}

void put_int(struct call *c, const char *key, int64_t value)
{
	if (!put_key(c, key, 20))
		return;
	if (value < 0)
		*c->p++ = '-';
	c->p = text_dec(c->p,
			value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void put_dec(struct call *c, const char *key, uint64_t value)
{
	if (put_key(c, key, 20))
		c->p = text_dec(c->p, value);
}

void put_hex(struct call *c, const char *key, uint64_t value)
{
	if (!put_key(c, key, 20))
		return;
	*c->p++ = '"';
	c->p = text_hex(c->p, value);
	*c->p++ = '"';
}

void put_ptr(struct call *c, const char *key, const void *value)
{
	if (value)
		put_hex(c, key, (uintptr_t)value);
	else
		put_raw(c, key, "null");
}

void put_text(struct call *c, const char *key, const char *value)
{
	if (!value) {
		put_raw(c, key, "null");
		return;
	}
	if (!put_key(c, key, 128 * 6))
		return;
	*c->p++ = '"';
	c->p = text_string(c->p, value, 128);
	*c->p++ = '"';
}

void put_bytes(struct call *c, const char *key, const void *data, size_t len)
{
	if (!data) {
		put_raw(c, key, "null");
		return;
	}
	if (!put_key(c, key, 2 * len))
		return;
	*c->p++ = '"';
	c->p = text_bytes(c->p, data, len);
	*c->p++ = '"';
}

void put_raw(struct call *c, const char *key, const char *json)
{
	if (put_key(c, key, strlen(json)))
		c->p = text_copy(c->p, json);
}
