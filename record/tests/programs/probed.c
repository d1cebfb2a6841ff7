/* Program for probes.rs: a function with variables, a static probe with arguments. */
#include <stdio.h>

struct item {
	int id;
	long weight;
	const char *name;
	struct {
		int x, y;
	} at;
};

/* A note like those of sys/sdt.h; a listener increments the semaphore. */
__attribute__((section(".probes"))) volatile unsigned short listeners;

#define PROBE(number, text)                                                        \
	__asm__ volatile("990: nop\n"                                              \
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n"             \
			 ".balign 4\n"                                             \
			 ".4byte 992f-991f,994f-993f,3\n"                          \
			 "991: .asciz \"stapsdt\"\n"                               \
			 "992: .balign 4\n"                                        \
			 "993: .8byte 990b\n"                                      \
			 ".8byte 0\n"                                              \
			 ".8byte listeners\n"                                      \
			 ".asciz \"probed\"\n"                                     \
			 ".asciz \"step\"\n"                                       \
			 ".asciz \"-4@%0 8@%1\"\n"                                 \
			 "994: .balign 4\n"                                        \
			 ".popsection\n"                                           \
			 :                                                         \
			 : "r"(number), "r"(text))

__attribute__((noinline)) int work(int n, struct item *item)
{
	int total = 0;
	for (int i = 0; i < n; i++)
		total += item->id;
	if (listeners)
		PROBE(total, item->name);
	return total;
}

int main(void)
{
	struct item item = { 7, 123456789L, "hello", { 1, -2 } };
	int sum = 0;
	for (int k = 1; k <= 5; k++)
		sum += work(k, &item);
	printf("%d\n", sum);
	return 0;
}
