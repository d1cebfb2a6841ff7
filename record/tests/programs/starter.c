// Starts a thread every half millisecond for a second. Each thread writes zero bytes with increasing counts until killed.

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static void *worker(void *unused)
{
	(void)unused;
	for (int i = 1;; i++) {
		if (write(-1, "", i) >= 0)
			return NULL;
		usleep(50000);
	}
	return NULL;
}

int main(void)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	puts("started");
	fflush(stdout);
	for (int i = 0; i < 2000; i++) {
		pthread_t thread;

		if (pthread_create(&thread, &attr, worker, NULL))
			return 1;
		usleep(500);
	}
	puts("all");
	fflush(stdout);
	pause();
	return 0;
}
