/* Program for aggregations.rs: calls work(value, name) 3 times for each value of 0 … 99, and once for some odd ones. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) void work(long value, const char *name)
{
	__asm__ volatile("" : : "r"(value), "r"(name) : "memory");
}

__attribute__((noinline)) void outer(long value)
{
	work(value, "outer");
	__asm__ volatile("");
}

__attribute__((noinline)) void inner(long value)
{
	work(value, "inner");
	__asm__ volatile("");
}

int main(int count, char **arguments)
{
	const char *what = count > 1 ? arguments[1] : "";
	if (!strcmp(what, "fork")) {
		/* A child that was started while it is recorded; it does ten, its parent one. */
		pid_t child = fork();
		for (int turn = 0; turn < (child ? 1 : 10); turn++)
			outer(turn);
		if (child)
			waitpid(child, 0, 0);
		return 0;
	}
	if (!strcmp(what, "many")) {
		for (long turn = 0; turn < 20000; turn++)
			outer(turn);
		return 0;
	}
	if (!strcmp(what, "wait")) {
		/* Until something is written to it; then ten, and the end. */
		char byte;
		if (read(0, &byte, 1) != 1)
			return 1;
		for (int turn = 0; turn < 10; turn++)
			outer(turn);
		return 0;
	}
	for (long value = 0; value < 100; value++) {
		outer(value);
		outer(value);
		inner(value);
	}
	inner(-1);
	inner(-1000);
	inner(1L << 62);
	return 0;
}
