// The workload of docs/five-tools.md: two threads handle 20 orders each. An order reads a file, misses another, writes a line and sleeps.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int sink;

__attribute__((noinline)) void load_price(int number) {
    char price[64];
    int file = open("price.txt", O_RDONLY);
    if (file >= 0) {
        if (read(file, price, sizeof price) > 0) sink += number;
        close(file);
    }
    if (access("discount.txt", R_OK) == 0) sink++;
}

__attribute__((noinline)) void handle_order(int number, int out) {
    load_price(number);
    char line[32];
    int length = snprintf(line, sizeof line, "order %d\n", number);
    if (write(out, line, length) != length) abort();
    struct timespec pause = {0, 2000000};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
}

static void *worker(void *start) {
    int first = (int)(long)start;
    pthread_setname_np(pthread_self(), first ? "worker-b" : "worker-a");
    int out = open("/dev/null", O_WRONLY);
    for (int number = first; number < first + 20; number++) handle_order(number, out);
    close(out);
    return NULL;
}

int main(void) {
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], NULL, worker, (void *)(i * 20));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
