// Does a bit of everything for as many milliseconds as its argument says: computes, touches memory, writes, sleeps, starts threads
// and processes.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long sink;

static long milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

__attribute__((noinline)) unsigned long compute(unsigned long n)
{
	unsigned long sum = n;

	for (int i = 0; i < 200000; i++)
		sum = sum * 31 + sink;
	sink = sum;
	return sum;
}

__attribute__((noinline)) int step(int n)
{
	size_t bytes = 1 << 19;
	char *room = malloc(bytes);

	if (room == NULL)
		return 1;
	memset(room, n, bytes);
	sink += room[compute(n) % bytes];
	free(room);
	if (write(STDOUT_FILENO, "x", 1) != 1)
		return 1;
	usleep(1000);
	return 0;
}

static void *other(void *unused)
{
	step(1);
	return unused;
}

int main(int count, char **arguments)
{
	long end = milliseconds() + (count > 1 ? atol(arguments[1]) : 100);

	for (int n = 0; milliseconds() < end; n++) {
		if (step(n))
			return 1;
		if (n % 8 == 0) {
			pthread_t thread;

			if (pthread_create(&thread, NULL, other, NULL) == 0)
				pthread_join(thread, NULL);
		}
		if (n % 16 == 0) {
			pid_t child = fork();

			if (child == 0)
				_exit(step(2));
			waitpid(child, NULL, 0);
		}
	}
	return 0;
}
