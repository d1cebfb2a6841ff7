// Looks like an interpreter of Python 3.11: 250 frames deep, a function for each of them from an endless supply, each with a long name
// and a long table of lines. Runs until it is killed.

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 250, FRAME_BYTES = 128, CODES = 200000, CODE_BYTES = 192, LINES = 100000 };

unsigned Py_Version = 0x030b07f0;
char _PyRuntime[4096] = {1};
static char interpreter[4096], thread[4096], top[64];
static char *codes, *frames;

static void set(char *object, int offset, const void *value)
{
	*(uint64_t *)(object + offset) = (uint64_t)value;
}

__attribute__((noinline, used)) void _PyEval_EvalFrameDefault(void)
{
	// As large as the one of Python.
	__asm__ volatile("jmp 1f; .fill 9000, 1, 0x90; 1:");
	for (unsigned long next = 0;;) {
		for (int i = 0; i < FRAMES; i++)
			set(frames + i * FRAME_BYTES, 32, codes + next++ % CODES * CODE_BYTES);
		for (volatile int i = 0; i < 20000; i++)
			;
	}
}

int main(void)
{
	char *name = calloc(1, 1 << 16), *lines = calloc(1, LINES + 64);

	codes = calloc(CODES, CODE_BYTES);
	frames = calloc(FRAMES, FRAME_BYTES);
	// 4,096 characters of 4 bytes.
	*(uint64_t *)(name + 16) = 4096;
	*(uint32_t *)(name + 32) = 4 << 2 | 8 << 2 | 1;
	for (int i = 0; i < 4096; i++)
		((uint32_t *)(name + 72))[i] = 0x1f600;
	*(uint64_t *)(lines + 16) = LINES;
	memset(lines + 32, 0x80, LINES);
	for (int i = 0; i < CODES; i++) {
		char *code = codes + i * CODE_BYTES;

		set(code, 112, name);
		set(code, 128, name);
		set(code, 136, lines);
		*(uint32_t *)(code + 72) = i;
	}
	for (int i = 0; i < FRAMES; i++) {
		char *frame = frames + i * FRAME_BYTES;

		set(frame, 48, i + 1 < FRAMES ? frame + FRAME_BYTES : NULL);
		set(frame, 56, (void *)(~0UL >> 1));
		frame[68] = 1;
		set(frame, 32, codes);
	}
	set(_PyRuntime, 48, interpreter);
	set(interpreter, 16, thread);
	*(uint64_t *)(thread + 152) = (uint64_t)pthread_self();
	set(thread, 56, top);
	set(top, 8, frames);
	_PyEval_EvalFrameDefault();
	return 0;
}
