// Looks like an interpreter of Ruby 3.1: 250 frames deep, an instruction sequence for each of them from an endless supply, each
// with a long name and a long table of lines, and a VM stack without an end. Runs until it is killed.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 250, FRAME_BYTES = 64, CODES = 200000, CODE_BYTES = 192, LINES = 100000 };

const char ruby_version[] = "3.1.2";
__thread void *ruby_current_ec;
static uint64_t context[8], flags = 0x22220001 | 0x20;
static char *codes, *frames;

static void set(char *object, int offset, const void *value)
{
	*(uint64_t *)(object + offset) = (uint64_t)value;
}

__attribute__((noinline, used)) void rb_vm_exec(void)
{
	// As large as the one of Ruby, with a call that leads nowhere.
	__asm__ volatile("jmp 1f; .fill 9000, 1, 0xe8; 1:");
	for (unsigned long next = 0;;) {
		for (int i = 0; i < FRAMES; i++)
			set(frames + i * FRAME_BYTES, 16, codes + next++ % CODES * CODE_BYTES);
		for (volatile int i = 0; i < 20000; i++)
			;
	}
}

int main(void)
{
	char *name = calloc(1, 1 << 16), *lines = calloc(1, LINES + 64);

	codes = calloc(CODES, CODE_BYTES);
	frames = calloc(FRAMES, FRAME_BYTES);
	// A string whose text is elsewhere: here.
	*(uint64_t *)name = 5 | 1 << 13;
	*(uint64_t *)(name + 16) = 4096;
	set(name, 24, name + 64);
	memset(name + 64, 'x', 4096);
	memset(lines, 0xff, LINES);
	for (int i = 0; i < CODES; i++) {
		char *code = codes + i * CODE_BYTES;

		// Its body is the sequence itself, one word on.
		set(code, 16, code + 24);
		*(uint32_t *)(code + 24 + 4) = 1000;
		set(code, 24 + 64, name);
		set(code, 24 + 80, name);
		set(code, 24 + 88, (void *)(i * 2UL + 1));
		set(code, 24 + 120, lines);
		*(uint32_t *)(code + 24 + 136) = 8000;
		set(code, 24 + 144, lines);
	}
	for (int i = 0; i < FRAMES; i++)
		set(frames + i * FRAME_BYTES, 32, &flags);
	context[1] = ~0UL >> 4;
	context[2] = (uint64_t)frames;
	ruby_current_ec = context;
	rb_vm_exec();
}
