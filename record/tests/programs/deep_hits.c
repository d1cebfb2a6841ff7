// Recurses to the depth given as argument; touches a new page and calls the kernel there, repeatedly. Compiled without frame
// pointers, it can only be unwound with .eh_frame.

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096 };

static volatile unsigned long sink;

__attribute__((noinline)) void leaf(volatile char *page)
{
	*page = 1;
	sink += syscall(SYS_getppid);
}

__attribute__((noinline)) unsigned long down(int depth, volatile char *page)
{
	volatile unsigned long room[16];

	room[depth & 15] = depth;
	if (depth == 0) {
		leaf(page);
		return room[0];
	}
	return down(depth - 1, page) + room[depth & 15];
}

int main(int count, char **arguments)
{
	int depth = count > 1 ? atoi(arguments[1]) : 5;
	int rounds = count > 2 ? atoi(arguments[2]) : 1000;
	char *pages = mmap(0, (size_t)rounds * PAGE, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		return 1;
	madvise(pages, (size_t)rounds * PAGE, MADV_NOHUGEPAGE);
	for (int i = 0; i < rounds; i++)
		down(depth, pages + (size_t)i * PAGE);
	return 0;
}
