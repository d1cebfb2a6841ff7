// Looks like the JVM of JDK 17: a code cache with 100,000 blobs, all of which change all the time, and free blocks without an end
// behind them. It runs in memory that no blob describes, so that each stack asks for the list again. Runs until it is killed.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOBS = 100000, BLOCK_BYTES = 128, CACHE_BYTES = 64 << 20 };

struct entry {
	const char *type, *field, *kind;
	uint64_t is_static, offset;
	void *address;
};

struct type {
	const char *name;
	uint64_t size;
};

struct heap {
	char *low_boundary, *high_boundary, *low, *high;
	int segment;
};

static struct heap heap, *heap_pointers[1] = {&heap};
static struct {
	int length, most;
	struct heap **data;
} heaps = {1, 1, heap_pointers};
static void *heaps_pointer = &heaps;

static struct entry structs[] = {
	{"CodeCache", "_heaps", "", 1, 0, &heaps_pointer},
	{"GrowableArrayBase", "_len", "int", 0, 0, 0},
	{"GrowableArray<int>", "_data", "", 0, 8, 0},
	{"CodeHeap", "_memory", "", 0, 0, 0},
	{"CodeHeap", "_log2_segment_size", "int", 0, 32, 0},
	{"VirtualSpace", "_low_boundary", "", 0, 0, 0},
	{"VirtualSpace", "_high_boundary", "", 0, 8, 0},
	{"VirtualSpace", "_low", "", 0, 16, 0},
	{"VirtualSpace", "_high", "", 0, 24, 0},
	{"HeapBlock", "_header", "", 0, 0, 0},
	{"HeapBlock::Header", "_length", "size_t", 0, 0, 0},
	{"HeapBlock::Header", "_used", "bool", 0, 8, 0},
	{"CodeBlob", "_name", "", 0, 0, 0},
	{"CodeBlob", "_frame_size", "int", 0, 8, 0},
	{"CodeBlob", "_frame_complete_offset", "int", 0, 12, 0},
	{"CodeBlob", "_code_begin", "address", 0, 16, 0},
	{"CodeBlob", "_code_end", "address", 0, 24, 0},
	{0},
};
static struct type types[] = {{"HeapBlock", 16}, {0}};

struct entry *gHotSpotVMStructs = structs;
struct type *gHotSpotVMTypes = types;
uint64_t gHotSpotVMStructEntryTypeNameOffset = 0, gHotSpotVMStructEntryFieldNameOffset = 8;
uint64_t gHotSpotVMStructEntryTypeStringOffset = 16, gHotSpotVMStructEntryOffsetOffset = 32;
uint64_t gHotSpotVMStructEntryAddressOffset = 40, gHotSpotVMStructEntryArrayStride = sizeof(struct entry);
uint64_t gHotSpotVMTypeEntryTypeNameOffset = 0, gHotSpotVMTypeEntrySizeOffset = 8;
uint64_t gHotSpotVMTypeEntryArrayStride = sizeof(struct type);

struct blob {
	uint64_t length, used;
	const char *name;
	int frame, complete;
	char *begin, *end;
};

// Waits, without a frame; copied to memory of no file.
__asm__(".text\n"
	".globl spin, spin_end\n"
	"spin:\n"
	"	mov $200000, %eax\n"
	"1:	dec %eax\n"
	"	jnz 1b\n"
	"	xor %ebp, %ebp\n"
	"	ret\n"
	"spin_end:\n");
extern char spin[], spin_end[];

int main(void)
{
	char *cache = mmap(NULL, CACHE_BYTES, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *generated = cache + CACHE_BYTES - 4096;

	memcpy(generated, spin, spin_end - spin);
	for (int i = 0; i < BLOBS; i++) {
		struct blob *blob = (struct blob *)(cache + i * BLOCK_BYTES);

		*blob = (struct blob){1, 1, "nmethod", 4, 16, (char *)blob + 64, (char *)blob + BLOCK_BYTES};
	}
	// Free ones are one segment long, and a segment has one byte.
	for (char *free = cache + BLOBS * BLOCK_BYTES; free < generated - 16; free += 16)
		*(uint64_t *)free = 1;
	heap = (struct heap){cache, cache + CACHE_BYTES, cache, (char *)(1ul << 47), 7};
	for (unsigned i = 0;; i++) {
		for (int n = 0; n < BLOBS; n += 100)
			((struct blob *)(cache + n * BLOCK_BYTES))->frame = 2 + (i + n) % 100;
		((void (*)(void))generated)();
	}
}
