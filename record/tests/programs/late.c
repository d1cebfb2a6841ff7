/*
 * late COUNT: causes 40 page faults within 0.4 s, loads ./late_library, and causes COUNT faults in it at once, 20 calls deep.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096l
#define EARLY 40

int main(int argc, char **argv)
{
	long count = atoi(argv[argc - 1]);
	long bytes = PAGE * (count + EARLY);
	char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (pages == MAP_FAILED)
		return 1;
	/* A page for each fault. */
	madvise(pages, bytes, MADV_NOHUGEPAGE);
	for (int i = 0; i < EARLY; i++) {
		pages[PAGE * (count + i)] = 1;
		usleep(10000);
	}
	void *library = dlopen("./late_library", RTLD_NOW);
	if (!library)
		return 2;
	int (*down)(int, volatile char *) = (int (*)(int, volatile char *))dlsym(library, "down");
	for (long i = 0; i < count; i++)
		down(20, pages + PAGE * i);
	return 0;
}
