/* Program for probes.rs: one static probe at two places, whose arguments are in different registers and sizes. */
#include <stdio.h>

#define PROBE(arguments, first, second)                                            \
	__asm__ volatile("990: nop\n"                                              \
			 ".pushsection .note.stapsdt,\"?\",\"note\"\n"             \
			 ".balign 4\n"                                             \
			 ".4byte 992f-991f,994f-993f,3\n"                          \
			 "991: .asciz \"stapsdt\"\n"                               \
			 "992: .balign 4\n"                                        \
			 "993: .8byte 990b\n"                                      \
			 ".8byte 0\n"                                              \
			 ".8byte 0\n"                                              \
			 ".asciz \"sites\"\n"                                      \
			 ".asciz \"entry\"\n"                                      \
			 ".asciz \"" arguments "\"\n"                              \
			 "994: .balign 4\n"                                        \
			 ".popsection\n"                                           \
			 :                                                         \
			 : "D"(first), "S"(second))

__attribute__((noinline)) int one(int n)
{
	PROBE("-4@%%edi", n, 0L);
	return n + 1;
}

__attribute__((noinline)) long two(long n)
{
	PROBE("8@%%rsi -4@%%edi", 5, n);
	return n + 2;
}

int main(void)
{
	long sum = 0;

	for (int k = 1; k <= 3; k++)
		sum += one(k) + two(k * 10);
	printf("%ld\n", sum);
	return 0;
}
