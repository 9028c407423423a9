/* SPDX-License-Identifier: MIT */
/*
 * agent - runs programs that may do anything, on a node, within limits
 *
 * `make check` starts one on each node and speaks to it over its stdin and
 * stdout. It takes, a line each:
 *
 *	file NAME SIZE		and SIZE bytes: a file for the program
 *	env NAME=VALUE		for the next program
 *	arg WORD		the next program and its arguments, one by one
 *	run MILLISECONDS	start it; it is killed when the time is over
 *	stop			kill it now
 *	quit			that was all
 *
 * and says:
 *
 *	ready FOLDER		where the files are
 *	listening		the program has printed `listening on `
 *	ended HOW NUMBER MS FLAGS	HOW is exit, signal, time or stop; FLAGS
 *				are `flood` and `orphans`, or `-`
 *	file NAME SIZE		and SIZE bytes: stdout, stderr, and what the
 *				program has left in its folder as `trace`
 *	done
 *
 * Where it runs as root it has its own mounts, so that a program finds a small
 * file system to fill and no other that it may write to, and each program runs
 * as nobody in a PID namespace of its own: when its first process ends or is
 * killed, all that it has forked dies with it. Elsewhere the limits are those
 * of setrlimit(2), and what has been forked is looked for and killed.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOBODY 65534
#define MAX_WORDS 64
#define MAX_LINE 4096
/* What a program may print on each of stdout and stderr before it is killed. */
#define MAX_OUTPUT (128 * 1024)
/* The largest file it may write; its trace is the one that it has to. */
#define MAX_FILE (8 * 1024 * 1024)
#define MAX_PROCESSES 32

static char folder[64]; /* the programs */
static char work[80]; /* where they run, and the only place they may write */
static bool isolated; /* own mounts, and PID namespaces for the programs */

struct stream {
	const char *name;
	int fd; /* -1 at its end */
	char *data;
	size_t size;
	bool flooded;
};

/* What the first process of a program's namespace tells us of its end. */
struct end {
	int status; /* as from waitpid(2) */
	int orphans; /* other processes were still there */
};

static void fatal(const char *what)
{
	fprintf(stderr, "agent: %s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* ---- our input: lines, and bytes between them ---------------------------- */

static char input[8192];
static size_t input_used, input_read;

/* Take what has come. Exits when whoever speaks to us has gone. */
static void fill_input(void)
{
	ssize_t n;

	if (input_read) {
		memmove(input, input + input_read, input_used - input_read);
		input_used -= input_read;
		input_read = 0;
	}
	n = read(0, input + input_used, sizeof(input) - input_used);
	if (n <= 0)
		exit(EXIT_SUCCESS);
	input_used += n;
}

/* The line that is there already, without its end; or NULL. */
static char *line_there(void)
{
	char *start = input + input_read, *end;

	end = memchr(start, '\n', input_used - input_read);
	if (!end) {
		if (input_used - input_read >= MAX_LINE) {
			errno = EMSGSIZE;
			fatal("line");
		}
		return NULL;
	}
	*end = '\0';
	input_read = end + 1 - input;
	return start;
}

/* Has `stop` come? What else has is left for later, and *MORE says so. */
static bool stop_there(bool *more)
{
	static const char stop[] = "stop\n";
	size_t n = input_used - input_read;

	if (n < sizeof(stop) - 1)
		return false;
	if (memcmp(input + input_read, stop, sizeof(stop) - 1)) {
		*more = true;
		return false;
	}
	input_read += sizeof(stop) - 1;
	return true;
}

static char *next_line(void)
{
	char *line;

	while (!(line = line_there()))
		fill_input();
	return line;
}

/* ---- the place where programs run ---------------------------------------- */

static int remove_one(const char *path, const struct stat *st, int flag,
		      struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void remove_all(const char *path)
{
	nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void remove_folder(void)
{
	if (folder[0])
		remove_all(folder);
}

static void small_mount(const char *where, const char *options)
{
	if (mount("tmpfs", where, "tmpfs", MS_NOSUID | MS_NODEV, options) &&
	    errno != ENOENT)
		fatal(where);
}

/* Root: mounts that only we and our programs see. */
static void isolate(void)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS))
		return;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		fatal("mount /");
	small_mount("/tmp", "size=40m,mode=1777");
	small_mount("/var/tmp", "size=1m,mode=1777");
	small_mount("/dev/shm", "size=4m,mode=1777");
	isolated = true;
}

static void make_work(void)
{
	if (mkdir(work, 0755))
		fatal(work);
	if (geteuid() == 0 && chown(work, NOBODY, NOBODY))
		fatal(work);
	/* Not all of /tmp: our own files have to find room as well. */
	if (isolated)
		small_mount(work, "size=16m,mode=0777");
}

static void drop_work(void)
{
	if (isolated)
		umount2(work, MNT_DETACH);
	remove_all(work);
}

static void make_folder(void)
{
	const char *tmp = isolated ? NULL : getenv("TMPDIR");

	if (!tmp || strlen(tmp) > 40)
		tmp = "/tmp";
	snprintf(folder, sizeof(folder), "%s/exercise-XXXXXX", tmp);
	if (!mkdtemp(folder)) {
		folder[0] = '\0';
		fatal("mkdtemp");
	}
	atexit(remove_folder);
	if (chmod(folder, 0755))
		fatal(folder);
	snprintf(work, sizeof(work), "%s/work", folder);
}

/* The command `file NAME SIZE`. */
static void take_file(const char *words)
{
	char name[64], path[160];
	size_t size, n;
	FILE *out;

	if (sscanf(words, "%63s %zu", name, &size) != 2 || strchr(name, '/')) {
		errno = EINVAL;
		fatal("file");
	}
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	unlink(path);
	out = fopen(path, "w");
	if (!out)
		fatal(path);
	while (size) {
		if (input_read == input_used)
			fill_input();
		n = input_used - input_read;
		if (n > size)
			n = size;
		if (fwrite(input + input_read, 1, n, out) != n)
			fatal(path);
		input_read += n;
		size -= n;
	}
	if (fchmod(fileno(out), 0755) || fclose(out))
		fatal(path);
}

/* ---- the program itself -------------------------------------------------- */

static void limit(int what, rlim_t most)
{
	struct rlimit value = { most, most };

	setrlimit(what, &value);
}

/* How many processes and threads our user has already: RLIMIT_NPROC counts
 * them all. */
static int own_tasks(void)
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	char path[300], line[256];
	int count = 0, threads;
	unsigned int uid;
	bool ours;
	FILE *status;

	while (proc && (entry = readdir(proc))) {
		snprintf(path, sizeof(path), "/proc/%s/status", entry->d_name);
		status = strspn(entry->d_name, "0123456789") ?
				 fopen(path, "r") :
				 NULL;
		if (!status)
			continue;
		ours = false;
		while (fgets(line, sizeof(line), status)) {
			if (sscanf(line, "Uid: %u", &uid) == 1)
				ours = uid == getuid();
			else if (ours &&
				 sscanf(line, "Threads: %d", &threads) == 1)
				count += threads;
		}
		fclose(status);
	}
	if (proc)
		closedir(proc);
	return count;
}

/* The program's own process: give up what we have, and become it. */
static void become_program(char **argv, char **envp, int out, int err)
{
	int null = open("/dev/null", O_RDONLY);
	sigset_t none;
	FILE *score;

	setsid();
	dup2(null, 0);
	dup2(out, 1);
	dup2(err, 2);
	/* Where memory runs out, this is the one to go. */
	score = fopen("/proc/self/oom_score_adj", "w");
	if (score) {
		fputs("1000", score);
		fclose(score);
	}
	if (syscall(SYS_close_range, 3, ~0u, 0)) {
		int fd;

		for (fd = 3; fd < 1024; fd++)
			close(fd);
	}
	if (chdir(work))
		_exit(126);
	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_FSIZE, MAX_FILE);
	limit(RLIMIT_NOFILE, 256);
	if (geteuid() == 0) {
		limit(RLIMIT_MEMLOCK, RLIM_INFINITY);
		limit(RLIMIT_NPROC, MAX_PROCESSES);
		if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY))
			_exit(126);
	} else {
		limit(RLIMIT_NPROC, MAX_PROCESSES + own_tasks());
	}
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execve(argv[0], argv, envp);
	dprintf(2, "agent: %s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

/*
 * The first process of the program's namespace. Signals do not reach a first
 * process in the usual way, so the program must not be it.
 */
static void first_process(char **argv, char **envp, int out, int err, int tell)
{
	struct end end = { 0 };
	pid_t program, pid;
	int status;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* LeakSanitizer looks its threads up in /proc. */
	if (isolated)
		mount("proc", "/proc", "proc", 0, NULL);
	program = fork();
	if (program == 0)
		become_program(argv, envp, out, err);
	close(out);
	close(err);
	if (program < 0)
		_exit(1);
	do {
		pid = waitpid(-1, &status, 0);
	} while (pid != program && !(pid < 0 && errno == ECHILD));
	end.status = status;
	end.orphans = waitpid(-1, &status, WNOHANG) != -1;
	if (write(tell, &end, sizeof(end)) != sizeof(end))
		_exit(1);
	/* Without a namespace of our own the orphans are still to be killed. */
	if (!isolated)
		pause();
	_exit(0);
}

/* Kill the children of PID, and theirs. Returns how many there were. */
static int kill_children(pid_t pid)
{
	char path[64];
	int count = 0, child;
	FILE *list;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
	list = fopen(path, "r");
	while (list && fscanf(list, "%d", &child) == 1) {
		count += 1 + kill_children(child);
		kill(child, SIGKILL);
	}
	if (list)
		fclose(list);
	return count;
}

static void kill_all(pid_t first)
{
	int tries = 1000;

	if (!isolated)
		while (kill_children(first) && tries--)
			usleep(1000);
	kill(first, SIGKILL);
	waitpid(first, NULL, 0);
}

/* Take what a stream has. Returns whether there was anything. */
static bool take_output(struct stream *s)
{
	char chunk[16384];
	ssize_t n = read(s->fd, chunk, sizeof(chunk));
	size_t room = MAX_OUTPUT - s->size;

	if (n <= 0) {
		if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
			close(s->fd);
			s->fd = -1;
		}
		return false;
	}
	if ((size_t)n > room) {
		s->flooded = true;
		n = room;
	}
	memcpy(s->data + s->size, chunk, n);
	s->size += n;
	return true;
}

/* Has a line that begins with `listening on ` come to its end? */
static bool listens(const struct stream *s)
{
	static const char text[] = "listening on ";
	const char *at = s->data, *end = s->data + s->size, *eol;

	while (at < end && (eol = memchr(at, '\n', end - at))) {
		if ((size_t)(eol - at) >= sizeof(text) - 1 &&
		    !memcmp(at, text, sizeof(text) - 1))
			return true;
		at = eol + 1;
	}
	return false;
}

static void give_file(const char *name, const char *data, size_t size)
{
	printf("file %s %zu\n", name, size);
	fwrite(data, 1, size, stdout);
}

static void give_trace(void)
{
	static char data[MAX_FILE];
	char path[100];
	ssize_t n = 0;
	int fd;

	snprintf(path, sizeof(path), "%s/trace", work);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	for (size_t size = 0;; size += n) {
		n = read(fd, data + size, sizeof(data) - size);
		if (n <= 0) {
			/* The file is longer than what was recorded. */
			while (size && !data[size - 1])
				size--;
			give_file("trace", data, size);
			break;
		}
	}
	close(fd);
}

static int nonblocking_pipe(int ends[2])
{
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	return fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

/* The command `run`. */
static void run(char **argv, char **envp, int milliseconds)
{
	static char data[2][MAX_OUTPUT];
	struct stream out = { .name = "stdout", .data = data[0] };
	struct stream err = { .name = "stderr", .data = data[1] };
	int out_pipe[2], err_pipe[2], tell[2];
	long long start = now_ms(), left, ran;
	struct end end = { 0 };
	const char *how = NULL;
	bool listening = false, more = false;
	pid_t first;
	int number = 0;

	make_work();
	if (nonblocking_pipe(out_pipe) || nonblocking_pipe(err_pipe) ||
	    nonblocking_pipe(tell))
		fatal("pipe");
	fflush(stdout);
	/* fork(2), into new namespaces where we may. */
	first = syscall(SYS_clone,
			SIGCHLD | (isolated ? CLONE_NEWPID | CLONE_NEWNS : 0),
			NULL, NULL, NULL, NULL);
	if (first < 0)
		fatal("clone");
	if (first == 0)
		first_process(argv, envp, out_pipe[1], err_pipe[1], tell[1]);
	close(out_pipe[1]);
	close(err_pipe[1]);
	close(tell[1]);
	out.fd = out_pipe[0];
	err.fd = err_pipe[0];

	while (!how) {
		struct pollfd fds[] = { { .fd = out.fd, .events = POLLIN },
					{ .fd = err.fd, .events = POLLIN },
					{ .fd = tell[0], .events = POLLIN },
					{ .fd = more ? -1 : 0,
					  .events = POLLIN } };

		left = start + milliseconds - now_ms();
		if (left <= 0) {
			how = "time";
			break;
		}
		if (poll(fds, 4, left) < 0 && errno != EINTR)
			fatal("poll");
		if (fds[0].revents)
			take_output(&out);
		if (fds[1].revents)
			take_output(&err);
		if (!listening && listens(&out)) {
			listening = true;
			printf("listening\n");
			fflush(stdout);
		}
		if (out.flooded || err.flooded)
			how = "stop";
		else if (fds[2].revents &&
			 read(tell[0], &end, sizeof(end)) != sizeof(end))
			how = "stop"; /* the namespace itself was killed */
		else if (fds[2].revents && WIFEXITED(end.status))
			how = "exit", number = WEXITSTATUS(end.status);
		else if (fds[2].revents)
			how = "signal", number = WTERMSIG(end.status);
		if (fds[3].revents)
			fill_input();
		if (stop_there(&more) && !how)
			how = "stop";
	}
	ran = now_ms() - start;
	kill_all(first);
	/* Whatever was still in the pipes: all writers are dead. */
	while (out.fd >= 0 && !out.flooded && take_output(&out))
		;
	while (err.fd >= 0 && !err.flooded && take_output(&err))
		;
	printf("ended %s %d %lld %s%s%s\n", how, number, ran,
	       out.flooded || err.flooded ? "flood" : "",
	       end.orphans ? "orphans" : "",
	       out.flooded || err.flooded || end.orphans ? "" : "-");
	give_file(out.name, out.data, out.size);
	give_file(err.name, err.data, err.size);
	give_trace();
	printf("done\n");
	fflush(stdout);
	if (out.fd >= 0)
		close(out.fd);
	if (err.fd >= 0)
		close(err.fd);
	close(tell[0]);
	drop_work();
}

static void add_word(char **words, int *count, const char *word)
{
	if (*count == MAX_WORDS - 1) {
		errno = E2BIG;
		fatal("words");
	}
	words[*count] = strdup(word);
	words[++*count] = NULL;
}

static void clear_words(char **words, int *count)
{
	while (*count)
		free(words[--*count]);
	words[0] = NULL;
}

int main(void)
{
	char *argv[MAX_WORDS] = { NULL }, *envp[MAX_WORDS] = { NULL };
	char path[PATH_MAX], *line;
	int argc = 0, envc = 0;

	signal(SIGPIPE, SIG_IGN);
	isolate();
	make_folder();
	printf("ready %s\n", folder);
	fflush(stdout);
	for (;;) {
		line = next_line();
		if (!strncmp(line, "file ", 5)) {
			take_file(line + 5);
		} else if (!strncmp(line, "env ", 4)) {
			add_word(envp, &envc, line + 4);
		} else if (!strncmp(line, "arg ", 4)) {
			/* The program is one of our files. */
			snprintf(path, sizeof(path), "%s/%s", folder, line + 4);
			add_word(argv, &argc, argc ? line + 4 : path);
		} else if (!strncmp(line, "run ", 4) && argc) {
			run(argv, envp, atoi(line + 4));
			clear_words(argv, &argc);
			clear_words(envp, &envc);
		} else if (!strcmp(line, "quit")) {
			return EXIT_SUCCESS;
		} else if (strcmp(line, "stop")) {
			/* A stop that came too late is no mistake. */
			errno = EINVAL;
			fatal(line);
		}
	}
}
