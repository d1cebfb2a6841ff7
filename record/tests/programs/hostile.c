// Programs of a user who wants the recorder to fail:
//
//   file PATH            runs code at offset 0x1000 of an ELF file
//   list FUNCTIONS NAME  generated code with a perf map of so many functions, and a name of NAME bytes
//   runtime PATH         maps a file named libjvm.so, and answers requests one byte at a time
//
// Each runs until it is killed.

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

// mov rcx, 0x1000000; dec rcx; jnz; ret
static const unsigned char code[] = {0x48, 0xc7, 0xc1, 0,    0,    0,   1,
				     0x48, 0xff, 0xc9, 0x75, 0xfb, 0xc3};

static void run(void *place)
{
	for (;;)
		((void (*)(void))place)();
}

static void *map(const char *path, off_t offset)
{
	int file = open(path, O_RDONLY);
	void *place = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, offset);

	if (file < 0 || place == MAP_FAILED) {
		perror(path);
		exit(1);
	}
	return place;
}

static void list(unsigned long functions, unsigned long name)
{
	unsigned char *place = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
				    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char path[64];
	FILE *file;

	memcpy(place, code, sizeof code);
	snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
	file = fopen(path, "w");
	if (!file)
		exit(1);
	fprintf(file, "%lx 1000 ", (unsigned long)place);
	for (unsigned long i = 0; i < name; i++)
		fputc('x', file);
	fputc('\n', file);
	for (unsigned long i = 0; i < functions; i++)
		fprintf(file, "%lx 1 a\n", i);
	fclose(file);
	run(place);
}

static void *answer(void *argument)
{
	int connection = (int)(long)argument;

	while (send(connection, "0", 1, MSG_NOSIGNAL) == 1)
		usleep(300000);
	close(connection);
	return NULL;
}

static void *listen_to(void *argument)
{
	int listener = (int)(long)argument;
	pthread_t thread;

	for (;;) {
		long connection = accept(listener, NULL, NULL);

		if (connection >= 0)
			pthread_create(&thread, NULL, answer, (void *)connection);
	}
}

static void runtime(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);
	void *place = map(path, 0x1000);
	pthread_t thread;

	snprintf(address.sun_path, sizeof address.sun_path, "/tmp/.java_pid%d", getpid());
	bind(listener, (struct sockaddr *)&address, sizeof address);
	listen(listener, 50);
	pthread_create(&thread, NULL, listen_to, (void *)(long)listener);
	run(place);
}

int main(int count, char **arguments)
{
	if (count == 3 && !strcmp(arguments[1], "file"))
		run(map(arguments[2], 0x1000));
	if (count == 4 && !strcmp(arguments[1], "list"))
		list(strtoul(arguments[2], NULL, 10), strtoul(arguments[3], NULL, 10));
	if (count == 3 && !strcmp(arguments[1], "runtime"))
		runtime(arguments[2]);
	return 1;
}
