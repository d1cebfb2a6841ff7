// Starts processes that sleep until this one ends, and prints a line when all exist.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 1;

	for (int i = 0; i < processes; i++) {
		if (!fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	}
	puts("all");
	fflush(stdout);
	for (;;)
		pause();
}
