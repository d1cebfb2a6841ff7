/* Touches 12,800 new pages, 64 at a time, and works in between. */
#include <stdio.h>
#include <sys/mman.h>

enum { ROUNDS = 200, PAGES = 64, PAGE = 4096 };

int main(void)
{
	volatile long sum = 0;
	for (int round = 0; round < ROUNDS; round++) {
		char *pages = mmap(0, PAGES * PAGE, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (pages == MAP_FAILED)
			return 1;
		for (int page = 0; page < PAGES; page++)
			pages[page * PAGE] = 1;
		munmap(pages, PAGES * PAGE);
		for (int i = 0; i < 1000000; i++)
			sum += i;
	}
	return 0;
}
