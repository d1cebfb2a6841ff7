/* Program for calls.rs: calls of known duration, nested calls, recursion. */
#include <stdio.h>
#include <time.h>

__attribute__((noinline)) int nap(int ms)
{
	struct timespec time = { 0, ms * 1000000L };
	nanosleep(&time, 0);
	return 2 * ms;
}

__attribute__((noinline)) long down(long n)
{
	long below = n > 0 ? down(n - 1) : 0;
	__asm__ volatile("" : "+r"(below));
	return below + n;
}

__attribute__((noinline)) const char *outer(int ms)
{
	int got = nap(ms);
	__asm__ volatile("" : "+r"(got));
	return "done";
}

__attribute__((noinline)) void begin(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) void end(void)
{
	__asm__ volatile("");
}

__attribute__((noinline)) void never(void)
{
	__asm__ volatile("");
}

int main(void)
{
	nap(1);
	begin();
	for (int ms = 2; ms <= 30; ms += 7)
		outer(ms);
	long sum = down(3);
	begin();
	end();
	nap(1);
	end();
	printf("%ld\n", sum);
	return 0;
}
