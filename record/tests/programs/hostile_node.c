// Looks like Node.js 20: 250 frames deep, a function for each of them from an endless supply, each with a long name and a script
// of its own, whose text has a line for each of 16 million characters. Runs until it is killed.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FRAMES = 250, CODES = 200000, OBJECT_BYTES = 64, CHARACTERS = (1 << 24) - 1 };

#define SAYS(name, value) const int v8dbg_##name = value
SAYS(SmiShiftSize, 31);
SAYS(class_JSFunction__shared__SharedFunctionInfo, 24);
SAYS(class_SharedFunctionInfo__name_or_scope_info__Object, 16);
SAYS(class_SharedFunctionInfo__script_or_debug_info__HeapObject, 32);
SAYS(class_Script__name__Object, 16);
SAYS(class_Script__source__Object, 8);
SAYS(class_Map__instance_type__uint16_t, 12);
SAYS(class_String__length__int32_t, 12);
SAYS(class_SeqOneByteString__chars__char, 16);
SAYS(class_ThinString__actual__String, 16);
SAYS(class_ConsString__first__String, 16);
SAYS(class_SlicedString__parent__String, 16);
SAYS(class_SlicedString__offset__SMI, 24);
SAYS(class_ExternalString__resource__Object, 16);
SAYS(type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE, 262);
SAYS(type_Script__SCRIPT_TYPE, 167);
SAYS(type_ScopeInfo__SCOPE_INFO_TYPE, 261);
SAYS(scopeinfo_idx_ncontextlocals, 2);
SAYS(scopeinfo_idx_first_vars, 3);

static char maps[6][16], *functions, *codes, *scripts;
static uint64_t context[2];

static void set(char *object, int offset, uint64_t value)
{
	memcpy(object + offset, &value, 8);
}

// Pointers have their lowest bit set.
static uint64_t at(const void *object)
{
	return (uint64_t)object + 1;
}

static char *object(char *place, int map, int type)
{
	memcpy(maps[map] + 12, &type, 2);
	set(place, 0, at(maps[map]));
	return place;
}

static void churn(void)
{
	static unsigned long next;

	for (int i = 0; i < FRAMES; i++)
		set(functions + i * OBJECT_BYTES, 24, at(codes + next++ % CODES * OBJECT_BYTES));
}

// Frames as V8 makes them: context, function. Copied to memory of no file, as generated code is.
__asm__(".text\n"
	".globl down, down_end\n"
	"down:\n"
	"	push %rbp\n"
	"	mov %rsp, %rbp\n"
	"	push %rdx\n"
	"	push %rsi\n"
	"	add $64, %rsi\n"
	"	mov %rcx, %rbx\n"
	"	dec %edi\n"
	"	jz 1f\n"
	"	call down\n"
	"1:	call *%rbx\n"
	"	mov $40000, %eax\n"
	"2:	dec %eax\n"
	"	jnz 2b\n"
	"	jmp 1b\n"
	"down_end:\n");
extern char down[], down_end[];
typedef void run(int frames, uint64_t function, uint64_t context, void (*churn)(void));

int main(void)
{
	char *text = object(malloc(CHARACTERS + 32), 0, 0x28), *name = object(calloc(1, 8192), 0, 0x28);
	char *scope = object(calloc(1, 128), 1, 261), *endless = object(calloc(1, 32), 2, 0x2d);
	int characters = CHARACTERS, letters = 4096;

	memcpy(text + 12, &characters, 4);
	memset(text + 16, '\n', CHARACTERS);
	memcpy(name + 12, &letters, 4);
	memset(name + 16, 'x', letters);
	set(endless, 16, at(endless)); // stands for itself
	set(scope, 8, 7ul << 12 << 32);
	set(scope, 32, at(name));
	set(scope, 48, at(endless));
	set(scope, 56, (uint64_t)CHARACTERS << 32);
	functions = calloc(FRAMES, OBJECT_BYTES);
	codes = calloc(CODES, OBJECT_BYTES);
	scripts = calloc(CODES, OBJECT_BYTES);
	for (int i = 0; i < CODES; i++) {
		char *code = object(codes + i * OBJECT_BYTES, 3, 262), *script = object(scripts + i * OBJECT_BYTES, 4, 167);

		set(code, 16, at(scope));
		set(code, 32, at(script));
		set(script, 8, at(text));
		set(script, 16, at(i % 2 ? name : endless));
	}
	churn();

	void *generated = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(generated, down, down_end - down);
	((run *)generated)(FRAMES, at(functions), at(context), churn);
}
