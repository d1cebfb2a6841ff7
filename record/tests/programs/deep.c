// Recurses to the depth given as argument and spins there, repeatedly. Compiled without frame pointers, it can only be
// unwound with .eh_frame.

#include <stdlib.h>

static volatile unsigned long sink;

__attribute__((noinline)) unsigned long leaf(unsigned long n)
{
	unsigned long sum = n;

	for (int i = 0; i < 50000; i++)
		sum = sum * 31 + sink;
	sink = sum;
	return sum;
}

__attribute__((noinline)) unsigned long middle(unsigned long n)
{
	return leaf(n + 1) + 1;
}

__attribute__((noinline)) unsigned long down(int depth, unsigned long n)
{
	// Something on the stack, so that a short copy does not reach the top.
	volatile unsigned long room[16];

	room[depth & 15] = n;
	if (depth == 0)
		return middle(n) + room[0];
	return down(depth - 1, n + 1) + room[depth & 15];
}

int main(int count, char **arguments)
{
	int depth = count > 1 ? atoi(arguments[1]) : 5;

	int rounds = count > 2 ? atoi(arguments[2]) : 4000;

	for (int i = 0; i < rounds; i++)
		down(depth, i);
	return 0;
}
