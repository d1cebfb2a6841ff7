// Generates code and runs it, like a runtime: two functions one after the other at the same address, a third elsewhere.
// Writes their names to /tmp/perf-PID.map or, with a directory as argument, to a jitdump there.

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// dec %rdi; jne .-3; ret
static const unsigned char code[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3};
static FILE *list, *dump;
static uint64_t next_index;

static uint64_t now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void open_dump(const char *folder)
{
	char path[4096];
	uint32_t head[10] = {0x4a695444, 1, 40, 62, 0, getpid()};

	snprintf(path, sizeof(path), "%s/jit-%d.dump", folder, getpid());
	dump = fopen(path, "w+");
	fwrite(head, sizeof(head), 1, dump);
	fflush(dump);
	// The mark by which a recorder knows.
	mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(dump), 0);
}

static void report(const char *name, void *address)
{
	if (list) {
		fprintf(list, "%lx %zx %s\n", (unsigned long)address, sizeof(code), name);
		fflush(list);
	}
	if (dump) {
		uint64_t where = (uint64_t)address;
		uint32_t bytes = 56 + strlen(name) + 1 + sizeof(code);
		uint64_t time = now(CLOCK_MONOTONIC), words[4] = {where, where, sizeof(code), next_index++};
		uint32_t ids[2] = {getpid(), getpid()}, prefix[2] = {0, bytes};

		fwrite(prefix, sizeof(prefix), 1, dump);
		fwrite(&time, sizeof(time), 1, dump);
		fwrite(ids, sizeof(ids), 1, dump);
		fwrite(words, sizeof(words), 1, dump);
		fwrite(name, strlen(name) + 1, 1, dump);
		fwrite(code, sizeof(code), 1, dump);
		fflush(dump);
	}
}

static void run(const char *name, unsigned char *page, size_t at)
{
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
	memcpy(page + at, code, sizeof(code));
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	report(name, page + at);
	/* By work as well as by time, which runs on while the machine stands still. */
	uint64_t end = now(CLOCK_PROCESS_CPUTIME_ID) + 300000000;
	for (int calls = 0; calls < 500 || now(CLOCK_PROCESS_CPUTIME_ID) < end; calls++)
		((void (*)(unsigned long))(page + at))(1000000);
}

int main(int count, char **arguments)
{
	char path[64];
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (count > 1) {
		open_dump(arguments[1]);
	} else {
		snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
		list = fopen(path, "w");
	}
	run("first generated", page, 64);
	run("second generated", page, 64);
	run("third generated", page, 256);
	return 0;
}
