/* Computes for a while: three quarters of the time in spin(), the rest in turn(). */
#include <stdlib.h>
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline)) static void spin(unsigned long rounds) {
	for (unsigned long i = 0; i < rounds; i++)
		sink += i;
}

__attribute__((noinline)) static void turn(unsigned long rounds) {
	for (unsigned long i = 0; i < rounds; i++)
		sink ^= i;
}

int main(int argc, char **argv) {
	double seconds = argc > 1 ? atof(argv[1]) : 2;
	while (clock() < seconds * CLOCKS_PER_SEC) {
		spin(300000);
		turn(100000);
	}
	return 0;
}
