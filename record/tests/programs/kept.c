// Generates code like a runtime, and changes it: a function that counts down, later with a nop in its loop, at the same address.
// With an argument, its list lies: the function has 2 GB, and another one is in memory that is not executable.

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// dec %rdi; jne .-3; ret
static const unsigned char before[] = {0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3};
// dec %rdi; nop; jne .-4; ret
static const unsigned char after[] = {0x48, 0xff, 0xcf, 0x90, 0x75, 0xfa, 0xc3};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void run(unsigned char *function, const unsigned char *code, size_t bytes)
{
	uint64_t end = now() + 1600000000;

	memcpy(function, code, bytes);
	while (now() < end)
		((void (*)(unsigned long))function)(1000000);
}

int main(int count, char **arguments)
{
	char path[64];
	unsigned char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	FILE *list;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	list = fopen(path, "w");
	fprintf(list, "%lx %s counts down\n", (unsigned long)(page + 64), count > 1 ? "80000000" : "10");
	fclose(list);
	run(page + 64, before, sizeof(before));
	run(page + 64, after, sizeof(after));
	return 0;
}
