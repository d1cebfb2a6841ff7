// Writes zero bytes with increasing counts, one every half millisecond, for a number of seconds; with a second argument, after a byte from
// stdin.

#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int last = (argc > 1 ? atoi(argv[1]) : 1) * 2000;
	char byte;

	if (argc > 2 && read(0, &byte, 1) != 1)
		return 1;
	for (int i = 1; i <= last; i++) {
		if (write(-1, "", i) >= 0)
			return 1;
		usleep(450);
	}
	return 0;
}
