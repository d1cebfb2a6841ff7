// Starts processes, fifty at a time; each calls a function and ends.

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int work(int n)
{
	__asm__ volatile("" : : "r"(n) : "memory");
	return n + 1;
}

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 1;

	for (int i = 0; i < processes; i++) {
		if (!fork()) {
			for (int n = 0; n < 20; n++)
				work(n);
			_exit(0);
		}
		if (i % 50 == 49)
			while (wait(NULL) > 0)
				;
	}
	while (wait(NULL) > 0)
		;
	return 0;
}
