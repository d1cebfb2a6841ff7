// Writes a variable 100 times, and reads it 50 times.

#include <stdint.h>

volatile int32_t watched;

int main(void)
{
	int sum = 0;

	for (int i = 0; i < 100; i++)
		watched = i;
	for (int i = 0; i < 50; i++)
		sum += watched;
	return sum == 0;
}
