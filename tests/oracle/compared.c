/*
 * A program in which one function's cost is chosen when it is compiled: HASH_STEPS, one or two. Everything else does the
 * same work, at the same addresses and after the same branches: code that moves, or a loop that takes more turns, changes
 * what the processor has predicted and cached, and functions that nobody has touched really become faster or slower.
 * RENAMED gives another function another name.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define APART __attribute__((noinline))

#ifdef RENAMED
#define sort_all order_all
#endif

static volatile uint64_t sink;

APART uint64_t hash(uint64_t x);

APART uint64_t parse(const char *text, int length)
{
	uint64_t value = 0;

	for (int i = 0; i < length; i++)
		value = value * 31 + text[i];
	return value;
}

APART void insert(uint32_t *all, int place)
{
	uint32_t value = all[place];

	for (; place > 0 && all[place - 1] > value; place--)
		all[place] = all[place - 1];
	all[place] = value;
}

APART void sort_all(uint32_t *all, int count)
{
	for (int round = 0; round < 30; round++)
		for (int i = 1; i < count; i++)
			if (all[i] < all[i - 1])
				insert(all, i);
}

APART void fill(uint32_t *all, int count, uint64_t seed)
{
	for (int i = 0; i < count; i++) {
		seed = seed * 6364136223846793005ULL + 1;
		all[i] = seed >> 33;
	}
}

APART void work(uint64_t round)
{
	static uint32_t all[300];
	static char text[4000];

	memset(text, 'a' + round % 26, sizeof(text));
	fill(all, 300, round);
	sort_all(all, 300);
	sink += all[7] + parse(text, sizeof(text));
	for (int i = 0; i < 60; i++)
		sink += hash(round + i);
}

int main(int count, char **words)
{
	long rounds = count > 1 ? atol(words[1]) : 20000;

	for (long i = 0; i < rounds; i++)
		work(i);
	return 0;
}

/* Stands behind all that it must not move. */
APART uint64_t hash(uint64_t x)
{
	for (int i = 0; i < 40; i++) {
		x ^= x >> 33;
		x *= 0xff51afd7ed558ccdULL;
#if HASH_STEPS > 1
		x ^= x >> 29;
		x *= 0xc4ceb9fe1a85ec53ULL;
#endif
	}
	return x;
}
