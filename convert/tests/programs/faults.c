// Makes one operation of a program on files fail, or ends the program before it. Loaded with LD_PRELOAD.
//
// FAULT_DIR      operations on files below this directory count, from 1
// FAULT_AT       the operation with this number is the one; without it, nothing fails
// FAULT_KIND     an error number; the letter S and the number of a signal, which is sent to the program before the operation;
//                the letter F: every operation from that one on fails that needs space, as on a full disk
// FAULT_COUNT    this file gets a byte for each operation, so that its size is their number

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long done;
static long fault_at;
static const char *directory, *kind;
static int count_fd = -1;

__attribute__((constructor)) static void begin(void)
{
	const char *at = getenv("FAULT_AT"), *count = getenv("FAULT_COUNT");

	fault_at = at ? atol(at) : 0;
	directory = getenv("FAULT_DIR");
	kind = getenv("FAULT_KIND");
	if (count)
		count_fd = open(count, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	/* A test in the background of a script inherits ignored signals. */
	signal(SIGHUP, SIG_DFL);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
}

/// Whether the operation fails; sets errno.
static int fails(int needs_space)
{
	long number = atomic_fetch_add(&done, 1) + 1;

	if (count_fd >= 0)
		syscall(SYS_write, count_fd, ".", 1);
	if (!fault_at || !kind)
		return 0;
	if (kind[0] == 'F') {
		errno = ENOSPC;
		return needs_space && number >= fault_at;
	}
	if (number != fault_at)
		return 0;
	if (kind[0] == 'S') {
		int signal = atoi(kind + 1);

		kill(getpid(), signal);
		// A thread of the program may handle it.
		for (int wait = 0; wait < 300; wait++)
			usleep(10000);
		return 0;
	}
	errno = atoi(kind);
	return 1;
}

static int is_inside(const char *path)
{
	return directory && path && strncmp(path, directory, strlen(directory)) == 0;
}

static int is_fd_inside(int fd)
{
	char link[64], path[4096];
	ssize_t length;

	if (fd == count_fd)
		return 0;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	length = syscall(SYS_readlink, link, path, sizeof path - 1);
	if (length < 0)
		return 0;
	path[length] = 0;
	return is_inside(path);
}

static int is_at_inside(int folder, const char *path)
{
	return path && path[0] == '/' ? is_inside(path) : folder == AT_FDCWD ? 0 : is_fd_inside(folder);
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

#define OF_FD(result, name, parameters, arguments, needs_space) \
	result name parameters \
	{ \
		if (is_fd_inside(fd) && fails(needs_space)) \
			return -1; \
		return REAL(name) arguments; \
	}

#define OF_PATH(name, parameters, arguments, needs_space) \
	int name parameters \
	{ \
		if (is_inside(path) && fails(needs_space)) \
			return -1; \
		return REAL(name) arguments; \
	}

OF_FD(ssize_t, write, (int fd, const void *bytes, size_t count), (fd, bytes, count), 1)
OF_FD(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), 1)
OF_FD(ssize_t, pwrite64, (int fd, const void *bytes, size_t count, off64_t at), (fd, bytes, count, at), 1)
OF_FD(int, fsync, (int fd), (fd), 0)
OF_FD(int, fdatasync, (int fd), (fd), 0)
OF_FD(int, ftruncate64, (int fd, off64_t length), (fd, length), 0)
OF_PATH(mkdir, (const char *path, mode_t mode), (path, mode), 1)
OF_PATH(rmdir, (const char *path), (path), 0)
OF_PATH(unlink, (const char *path), (path), 0)
OF_PATH(rename, (const char *path, const char *name), (path, name), 0)
OF_PATH(link, (const char *path, const char *name), (path, name), 1)

int linkat(int folder, const char *path, int to, const char *name, int flags)
{
	if (is_at_inside(folder, path) && fails(1))
		return -1;
	return REAL(linkat)(folder, path, to, name, flags);
}

int unlinkat(int folder, const char *path, int flags)
{
	if (is_at_inside(folder, path) && fails(0))
		return -1;
	return REAL(unlinkat)(folder, path, flags);
}

int open64(const char *path, int flags, ...)
{
	va_list rest;
	mode_t mode;

	va_start(rest, flags);
	mode = va_arg(rest, mode_t);
	va_end(rest);
	if (is_inside(path) && (flags & O_ACCMODE) != O_RDONLY && fails(flags & O_CREAT))
		return -1;
	return REAL(open64)(path, flags, mode);
}
