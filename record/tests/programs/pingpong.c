// Two threads on different CPUs, if there are, that wake each other as often as the argument says: mostly while the other one goes to sleep.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

static int to[2], from[2];
static int rounds;

static void run_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

static void *answer(void *unused)
{
	char byte;

	run_on(1);
	for (int i = 0; i < rounds; i++)
		if (read(to[0], &byte, 1) != 1 || write(from[1], &byte, 1) != 1)
			exit(1);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	char byte = 0;

	rounds = argc > 1 ? atoi(argv[1]) : 1;
	run_on(0);
	if (pipe(to) || pipe(from) || pthread_create(&thread, NULL, answer, NULL))
		return 1;
	for (int i = 0; i < rounds; i++) {
		if (write(to[1], &byte, 1) != 1)
			return 1;
		// The other one mostly answers while this one goes to sleep.
		for (volatile int n = 0; n < i % 2000; n++)
			;
		if (read(from[0], &byte, 1) != 1)
			return 1;
	}
	return pthread_join(thread, NULL);
}
