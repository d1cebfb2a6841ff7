/* Program for flight.rs: a function that is fast many times, and slow once in between. */
#include <unistd.h>

__attribute__((noinline)) void work(int us)
{
	if (us)
		usleep(us);
	__asm__ volatile("");
}

int main(void)
{
	for (int k = 0; k < 300; k++) {
		work(k == 150 ? 60000 : 0);
		usleep(5000);
	}
	return 0;
}
