// Recurses to the depth given as argument and sleeps there for 2 ms, repeatedly. Compiled without frame pointers, it can only
// be unwound with .eh_frame.

#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) void leaf(void)
{
	struct timespec time = {0, 2000000};

	nanosleep(&time, NULL);
	sink++;
}

__attribute__((noinline)) unsigned long down(int depth)
{
	volatile unsigned long room[16];

	room[depth & 15] = depth;
	if (depth == 0) {
		leaf();
		return room[0];
	}
	return down(depth - 1) + room[depth & 15];
}

int main(int count, char **arguments)
{
	int depth = count > 1 ? atoi(arguments[1]) : 5;
	int rounds = count > 2 ? atoi(arguments[2]) : 400;

	for (int i = 0; i < rounds; i++)
		down(depth);
	return 0;
}
