/* SPDX-License-Identifier: MIT */
/*
 * The file. It is mapped into the program and written as memory, so that what
 * has been recorded stays whatever becomes of the program: the pages are the
 * kernel's. A writer takes its place in the file by one atomic addition, copies
 * its line there and writes the first byte, the '{', last. A line that does not
 * begin with '{' is none: its writer was killed half way.
 *
 * The file grows in steps. What lies behind its end is mapped from the start,
 * and may be touched only once the file is that long.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trace.h"

#define STEP (1 << 20) /* the file grows by so much, zeros to begin with */
#define TAIL 256 /* at the end of the file: room to say that it is full */

struct trace_settings settings;
_Atomic int trace_state = TRACE_UNOPENED;
uint64_t trace_base;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char path[PATH_MAX];
static char *map;
static size_t cap; /* the file gets no longer than this */
static size_t size; /* how long it is now */
static int fd = -1;
static dev_t dev;
static ino_t ino;
static bool forked;
static char *full; /* the line that says so */
static _Atomic size_t used; /* taken by lines, and more when it is full */
static _Atomic size_t usable; /* what lies before this can be written */
static _Atomic uint64_t lost;

/* ---- the file ------------------------------------------------------------- */

static void complain(const char *what, int err)
{
	char text[PATH_MAX + 128];
	int len = snprintf(text, sizeof(text),
			   "verbstrace: %s: %s: %s: calls are not recorded\n",
			   path, what, strerror(err));

	if (write(STDERR_FILENO, text, len) < 0)
		return;
}

/*
 * The program may have closed the descriptor, with all that it does not know,
 * and have opened something else under the same number.
 */
static bool fd_is_ours(void)
{
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && st.st_dev == dev &&
	       st.st_ino == ino;
}

static int own_fd(void)
{
	if (!fd_is_ours()) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (!fd_is_ours()) {
			if (fd >= 0)
				close(fd);
			fd = -1;
		}
	}
	return fd;
}

/* Make the file longer. Returns 0 or an errno. */
static int extend(size_t wanted)
{
	struct rlimit limit;
	int err;

	/* Past this limit, growing is a signal that kills the program. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && wanted > limit.rlim_cur)
		return EFBIG;
	if (own_fd() < 0)
		return EBADF;
	/* Reserved on the disk: a full one must not be found out by writing
	 * to memory. */
	err = posix_fallocate(fd, size, wanted - size);
	if (err)
		return err;
#ifdef MADV_POPULATE_WRITE
	/* The pages now, all at once, and not each when it is written to. */
	madvise(map + size, wanted - size, MADV_POPULATE_WRITE);
#endif
	size = wanted;
	return 0;
}

/* Nothing in here may be interrupted: not by a signal handler that makes calls
 * of its own, not by pthread_cancel(). */
struct guard {
	sigset_t signals;
	int cancel;
	int err;
};

static void guard_begin(struct guard *g)
{
	sigset_t all;

	g->err = errno;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &g->signals);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &g->cancel);
	pthread_mutex_lock(&lock);
}

static void guard_end(struct guard *g)
{
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(g->cancel, &g->cancel);
	pthread_sigmask(SIG_SETMASK, &g->signals, NULL);
	errno = g->err;
}

/* One more call that is not in the file. Its last line says how many. */
static void count_lost(void)
{
	static const char lost_key[] = ",\"lost\":";
	uint64_t n = atomic_fetch_add(&lost, 1) + 1;
	char line[128], *p = line;

	if (!full && size < TAIL)
		return;
	if (!full) {
		p = LIT(p, "{\"call\":\"trace_full\",\"thread\":0,\"t0\":");
		p = text_dec(p, trace_now());
		p = LIT(p, lost_key);
		full = map + size - TAIL + (p - line);
		text_number(p, n);
		p += FIELD;
		p = LIT(p, "}\n");
		trace_commit(map + size - TAIL, line, p - line);
	}
	text_number(full, n);
}

/* The way of trace_reserve() when the file has to grow. */
static char *reserve_slowly(size_t offset, size_t len)
{
	struct guard g;
	char *place = NULL;

	guard_begin(&g);
	while (!full && offset + len + TAIL > size && size < cap)
		if (extend(size + STEP < cap ? size + STEP : cap))
			break;
	if (!full && offset + len + TAIL <= size) {
		atomic_store(&usable, size - TAIL);
		place = map + offset;
	} else {
		/* Who comes later must not find room that we did not. */
		atomic_store(&usable, 0);
		count_lost();
	}
	guard_end(&g);
	return place;
}

char *trace_reserve(size_t len)
{
	size_t offset = atomic_fetch_add(&used, len);

	/* In this order: trace_end() sets the one before it reads the other. */
	if (likely(offset + len <= atomic_load(&usable)))
		return map + offset;
	return reserve_slowly(offset, len);
}

void trace_commit(char *place, const char *line, size_t len)
{
	memcpy(place + 1, line + 1, len - 1);
	__atomic_store_n(place, *line, __ATOMIC_RELEASE);
}

/* ---- opening -------------------------------------------------------------- */

static char *text_args(char *p, char *end)
{
	char args[1024], *arg;
	ssize_t len = 0;
	int from = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);

	if (from >= 0) {
		len = read(from, args, sizeof(args) - 1);
		close(from);
	}
	if (len < 0)
		len = 0;
	args[len] = '\0';
	for (arg = args; arg < args + len && p + 1100 < end;
	     arg += strlen(arg) + 1) {
		*p++ = arg == args ? '[' : ',';
		*p++ = '"';
		p = text_string(p, arg, 160);
		*p++ = '"';
	}
	if (arg == args)
		*p++ = '[';
	*p++ = ']';
	return p;
}

/* The first line: what this is a trace of, and how its clock stands to others. */
static void first_line(void)
{
	static char line[16384];
	struct timespec real;
	char host[HOST_NAME_MAX + 1] = "", exe[PATH_MAX] = "", *p = line;
	ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	exe[len > 0 ? len : 0] = '\0';
	gethostname(host, sizeof(host) - 1);
	clock_gettime(CLOCK_REALTIME, &real);
	p = LIT(p,
		"{\"call\":\"trace_start\",\"format\":1,\"thread\":0,\"t0\":");
	p = text_dec(p, trace_now());
	p = LIT(p, ",\"host\":\"");
	p = text_string(p, host, sizeof(host));
	p = LIT(p, "\",\"pid\":");
	p = text_dec(p, getpid());
	p = LIT(p, ",\"program\":\"");
	p = text_string(p, exe, 512);
	p = LIT(p, "\",\"args\":");
	p = text_args(p, line + sizeof(line) - 512);
	p = LIT(p, ",\"monotonic\":\"");
	p = text_dec(p, trace_base);
	p = LIT(p, "\",\"realtime\":\"");
	p = text_dec(p, real.tv_sec * 1000000000ULL + real.tv_nsec);
	p = LIT(p, "\",\"data\":");
	p = text_dec(p, settings.data);
	p = LIT(p, ",\"lkey_mask\":\"");
	p = text_hex(p, settings.lkey_mask);
	p = LIT(p, "\"}\n");

	char *place = trace_reserve(p - line);

	if (place)
		trace_commit(place, line, p - line);
}

/* VERBS_TRACE with the process number for %p. */
static int make_path(const char *from)
{
	char *p = path, *end = path + sizeof(path) - 40;

	for (; *from; from++) {
		if (p >= end)
			return -1;
		if (from[0] == '%' && from[1] == 'p') {
			p = text_dec(p, getpid());
			from++;
		} else {
			*p++ = *from;
		}
	}
	if (forked) {
		*p++ = '.';
		p = text_dec(p, getpid());
	}
	*p = '\0';
	return 0;
}

/* A high number: the program's own descriptors stay what they would be. */
static int move_high(int low)
{
	struct rlimit limit;
	int high;

	if (low < 0 || getrlimit(RLIMIT_NOFILE, &limit))
		return low;
	if (limit.rlim_cur > 1024)
		limit.rlim_cur = 1024;
	high = fcntl(low, F_DUPFD_CLOEXEC, (int)limit.rlim_cur - 8);
	if (high < 0)
		return low;
	close(low);
	return high;
}

/* Returns 0, or -1 with WHAT failed and errno. */
static int open_file(const char **what)
{
	struct stat st;
	int err;

	*what = "open";
	fd = move_high(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666));
	if (fd < 0)
		return -1;
	/* Somebody else's trace: another process with our environment. */
	if (flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
		close(fd);
		fd = -1;
		errno = EWOULDBLOCK;
		return -1;
	}
	if (fstat(fd, &st) || ftruncate(fd, 0))
		return -1;
	dev = st.st_dev;
	ino = st.st_ino;
	size = 0;
	*what = "mmap";
	map = mmap(NULL, cap, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (map == MAP_FAILED)
		return -1;
	*what = "growing the file";
	err = extend(STEP < cap ? STEP : cap);
	if (err) {
		munmap(map, cap);
		errno = err;
		return -1;
	}
	return 0;
}

static void start(const char *name)
{
	const char *mib = getenv("VERBS_TRACE_MAX");
	const char *what = "name";
	struct timespec now;

	cap = (size_t)(mib ? strtoul(mib, NULL, 10) : 64) << 20;
	if (cap < STEP)
		cap = STEP;
	errno = ENAMETOOLONG;
	if (make_path(name)) {
		complain(what, errno);
		return;
	}
	if (open_file(&what)) {
		if (errno == EWOULDBLOCK && !forked) {
			forked = true;
			start(name);
			return;
		}
		complain(what, errno);
		if (fd >= 0)
			close(fd);
		fd = -1;
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	trace_base = now.tv_sec * 1000000000ULL + now.tv_nsec;
	full = NULL;
	atomic_store(&lost, 0);
	atomic_store(&used, 0);
	atomic_store(&usable, size - TAIL);
	first_line();
	atomic_store(&trace_state, TRACE_ON);
}

/*
 * At the first call, so that a shell on the way to the program leaves no trace.
 */
int trace_open(void)
{
	const char *name = getenv("VERBS_TRACE");
	struct guard g;

	guard_begin(&g);
	if (atomic_load(&trace_state) == TRACE_UNOPENED) {
		if (name && *name)
			start(name);
		if (atomic_load(&trace_state) == TRACE_UNOPENED)
			atomic_store(&trace_state, TRACE_OFF);
	}
	guard_end(&g);
	return atomic_load(&trace_state);
}

/* A child records into a file of its own, once it makes a call. */
static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
	thread = 0;
	n_runs = 0;
	inside = NULL;
	if (atomic_load(&trace_state) == TRACE_OFF)
		return;
	if (atomic_load(&trace_state) == TRACE_ON) {
		munmap(map, cap);
		if (fd_is_ours())
			close(fd);
		fd = -1;
	}
	forked = true;
	atomic_store(&trace_state, TRACE_UNOPENED);
}

__attribute__((constructor)) static void trace_init(void)
{
	const char *data = getenv("VERBS_TRACE_DATA");
	const char *lkey = getenv("VERBS_TRACE_LKEY");

	if (data)
		settings.data = strtoul(data, NULL, 10);
	if (settings.data > 64)
		settings.data = 64;
	/* The upper byte is part of the region's number: no other region has
	 * the number that comes out of it. */
	if (lkey && *lkey && strcmp(lkey, "0"))
		settings.lkey_mask = 0x55000000;
	pthread_atfork(NULL, NULL, in_child);
}

/* The program leaves by exit(): say so, and cut off what was not used. */
__attribute__((destructor)) static void trace_end(void)
{
	struct guard g;
	char line[128], *p = line, *place;
	size_t end;

	if (atomic_load(&trace_state) != TRACE_ON)
		return;
	p = LIT(p, "{\"call\":\"trace_end\",\"thread\":0,\"t0\":");
	p = text_dec(p, trace_now());
	p = LIT(p, "}\n");
	place = trace_reserve(p - line);
	if (place)
		trace_commit(place, line, p - line);
	guard_begin(&g);
	/* Whoever comes from here on has to take the lock; who came before is
	 * in what we read as used. */
	atomic_store(&usable, 0);
	end = atomic_load(&used);
	if (!full && end < size && own_fd() >= 0 && !ftruncate(fd, end))
		size = end;
	guard_end(&g);
}

/* ---- other things that all files here need -------------------------------- */

void *trace_alloc(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

/*
 * The function behind ours. A version is needed: libibverbs has two of many.
 * A program that opened the library for itself is not seen by RTLD_NEXT.
 */
void *trace_real(const char *name, const char *version)
{
	const char *library = name[0] == 'r' ? "librdmacm.so.1" :
					       "libibverbs.so.1";
	void *real = dlvsym(RTLD_NEXT, name, version);
	void *handle;
	char text[160];
	int len;

	if (!real) {
		handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
		if (handle)
			real = dlvsym(handle, name, version);
	}
	if (!real) {
		len = snprintf(text, sizeof(text),
			       "verbstrace: no %s (%s) in %s\n", name, version,
			       library);
		if (write(STDERR_FILENO, text, len) >= 0)
			abort();
		abort();
	}
	return real;
}
