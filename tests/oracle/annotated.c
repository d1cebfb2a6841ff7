#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline uint64_t step(uint64_t x)
{
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return x;
}

__attribute__((noinline)) uint64_t mix(uint64_t x, int rounds)
{
	uint64_t sum = 0;
	for (int i = 0; i < rounds; i++) {
		x = step(x);
		if (x & 1)
			sum += x / 7;
		else
			sum ^= x;
	}
	return sum;
}

__attribute__((noinline)) int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

/* Loops of different instructions. */
#define LOOP(name, type, step) \
	__attribute__((noinline)) type name(type x, int rounds) \
	{ \
		type sum = 0; \
		for (int i = 0; i < rounds; i++) { \
			step; \
			sum += x; \
		} \
		return sum; \
	}

LOOP(multiply, uint64_t, x *= 6364136223846793005ull)
LOOP(divide, uint64_t, x = (x | 1ull << 60) / (uint64_t)(i + 3))
LOOP(rotate, uint64_t, x = (x << 11 | x >> 53) + (uint64_t)i)
LOOP(halve, double, x = x / 1.5 + 1)
LOOP(narrow, uint32_t, x = (uint16_t)(x * 31u) + (uint32_t)i)
LOOP(branch, uint64_t, if (x & 8) x += 5; else x ^= (uint64_t)i << 2)

int main(int argc, char **argv)
{
	uint64_t sum = 0, *all = malloc(200000 * sizeof *all);
	double half = 0;
	for (int i = 0; i < 60; i++) {
		sum += multiply(sum + 1, 300000) + divide(sum, 300000) + rotate(sum, 300000);
		sum += narrow((uint32_t)sum, 300000) + branch(sum, 300000);
		half += halve((double)i, 300000);
		sum += mix(88172645463325252ull + i, 2000000);
		for (int j = 0; j < 50000; j++)
			all[j] = mix(sum + j, 3);
		qsort(all, 50000, sizeof *all, compare);
	}
	printf("%llu %f\n", (unsigned long long)sum, half);
	return 0;
}
