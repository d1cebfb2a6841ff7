/*
 * Walks user stacks with tables of unwind rules. Most code of a distribution has no frame pointers; its .eh_frame describes
 * where the caller of each frame is. The recorder loads these rules into the kernel as tables of 8 bytes per row, and the
 * mappings of each process as lists; the programs walk the stack when a sample is taken.
 *
 *   ip → mapping of the process (list) → file, address in the file → rule (table) → the caller's ip, rsp, rbp → …
 *
 * formats/trace/src/symbols/unwind/walk.rs walks copied stacks by the same steps; rule.rs next to it encodes the rows.
 * Lists and tables are search trees of 4 KiB blocks, from one pool that grows while recording: the recorder cannot know in
 * advance which programs will run.
 */
#pragma once

#include "program.h"

#define MOST_WALKED 511 /* maximum number of frames; deeper stacks are cut and marked as such */
#define ADDRESS_BITS 47

#define CHUNK_BLOCKS 256
#define MOST_CHUNKS 256
#define MOST_FILES 8192
#define MOST_LOST_COPIED 16
#define YOUNG_NS 500000000 /* while a program maps its files, and the recorder reads of it */

/* The rows of a block (walk_tables.rs writes them). */
struct pair {
	u32 key;
	u32 value;
};

struct mapping_row {
	u64 start;
	u64 end;
	u32 file; /* in an inner node: the block */
	u32 file_start;
	u64 generation; /* in the first row of a block */
};

struct block {
	struct pair pairs[512];
};

/* The first row has no addresses but the block's generation, which changes when the block is reused for another list. */
struct list_block {
	struct mapping_row rows[128];
};

/* walk_tables.rs: FileEntry */
struct file_entry {
	u32 state;
	u32 levels; /* height of the tree */
	u32 root;
	u32 chains_hold;
	u32 wide[4]; /* blocks with rules that do not fit into a row */
};

#define FILE_UNKNOWN 0 /* no table yet */
#define FILE_TABLE 1
#define FILE_WITHOUT 2 /* code without a table: frame pointers, if `chains_hold` */

/* formats/trace/src/symbols/unwind/rule.rs writes it: two words. */
struct wide_rule {
	u8 base;
	u8 flags;
	s16 return_address;
	s32 offset;
	s32 indirect;
	s32 rbp;
};

/* walk_tables.rs: ProcessEntry */
struct process_entry {
	u64 as_of; /* the list has all mappings made before this time */
	u64 generation;
	u32 root;
	u32 levels;
	u32 lost; /* walks since then that ended outside all known code */
	u32 unused;
};

/* Chunks of blocks, added on demand. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	NUMBER(max_entries, MOST_CHUNKS);
	NUMBER(key_size, 4);
	struct {
		NUMBER(type, BPF_MAP_TYPE_ARRAY);
		NUMBER(max_entries, CHUNK_BLOCKS);
		NUMBER(key_size, 4);
		NUMBER(value_size, 4096);
	} *values[0];
} chunks SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, MOST_FILES);
	TYPE(key, u32);
	TYPE(value, struct file_entry);
} files SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, struct process_entry);
} processes SEC(".maps");

/* Time at which a process got its address space, by fork or exec. Lists from before describe another address space. */
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u32);
	TYPE(value, u64);
} births SEC(".maps");

/* How a walk ended (walk_tables.rs: WalkEnd). */
#define WALK_ROOT 0
#define WALK_LOST 1 /* the next address is outside all code */
#define WALK_MEMORY 2 /* a word of the stack could not be read */
#define WALK_NO_RULE 3 /* code without unwind information and frame pointers */
#define WALK_DEEP 4
#define WALK_NO_TABLE 5 /* the file has no table yet */
#define WALK_NO_LIST 6 /* the process has no list of mappings yet */
#define WALK_UNSUPPORTED 7 /* a 32-bit process */

/* Registers by DWARF number, 0 to 15: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15. */
#define REGISTERS 16
#define RBP 6
#define RSP 7

/* record/src/user_stacks/mod.rs reads it. */
struct walk_record {
	u32 kind; /* RECORD_WALK, RECORD_COPY or RECORD_PIECE */
	u32 end;
	u32 frames; /* in a copy: number of bytes */
	u32 file; /* the file without a table that ended the walk */
	u64 at; /* the first address that was not followed */
	u64 addresses[MOST_WALKED + 1];
};

#define RECORD_WALK 5
#define RECORD_COPY 6
#define RECORD_PIECE 8 /* more memory of the copy before it */
#define WALK_HEAD_BYTES 24

struct walk {
	struct walk_record record;
	u64 ip;
	u64 sp;
	u64 bp;
	u64 registers[REGISTERS];
	u64 generation;
	u32 root;
	u32 levels;
	u32 has_bp;
	u32 is_interrupted; /* ip is the next instruction, not a return address after a call */
	u32 system_call; /* of a sample in the kernel */
	u32 sees_v8; /* the process runs V8: v8.h */
	/* The mapping of the last frame. */
	struct mapping_row mapping;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct walk);
} walks SEC(".maps");

static ALWAYS_INLINE void *block_at(u32 number)
{
	u32 chunk = number / CHUNK_BLOCKS;
	u32 inside = number % CHUNK_BLOCKS;
	void *blocks = bpf_map_lookup_elem(&chunks, &chunk);
	if (!blocks)
		return NULL;
	return bpf_map_lookup_elem(blocks, &inside);
}

/*
 * Finds the last of 512 sorted keys that is <= `wanted`, without branches, since each branch doubles the number of states
 * that the verifier explores. Unused keys are the maximum. The shift copies the sign into all bits, for a mask.
 */
#define NOT_ABOVE(key, wanted) ({ \
	s64 difference_ = (s64)((u64)(key) - (u64)(wanted) - 1); \
	asm volatile("" : "+r"(difference_)); \
	(u64)(difference_ >> 63); \
})

/* Linux 6.1 loses the bounds of a number computed by masks; the assembly keeps the compiler from dropping this one. */
#define WITHIN(number, most) ({ \
	u64 number_ = (number); \
	asm volatile("" : "+r"(number_)); \
	number_ & (most); \
})

static ALWAYS_INLINE u64 search_pairs(struct block *block, u32 wanted)
{
	u64 place = 0;
#pragma unroll
	for (u64 step = 256; step; step /= 2)
		place += step & NOT_ABOVE(block->pairs[WITHIN(place + step, 511)].key, wanted);
	return WITHIN(place, 511);
}

static ALWAYS_INLINE struct mapping_row *search_rows(struct list_block *block, u64 wanted)
{
	u64 place = 0;
#pragma unroll
	for (u64 step = 64; step; step /= 2)
		place += step & NOT_ABOVE(block->rows[WITHIN(place + step, 127)].start, wanted);
	return &block->rows[WITHIN(place, 127)];
}

/* Finds the mapping of an address, in walk->mapping. Returns false outside all code. */
static __attribute__((noinline)) bool find_mapping(struct walk *walk, u64 address)
{
	if (address >= walk->mapping.start && address < walk->mapping.end)
		return true;
	if (address >> ADDRESS_BITS)
		return false;
	struct list_block *block = block_at(walk->root);
	if (!block || block->rows[0].generation != walk->generation)
		return false;
	struct mapping_row *row = search_rows(block, address);
	if (walk->levels > 1) {
		block = block_at(row->file);
		if (!block || block->rows[0].generation != walk->generation)
			return false;
		row = search_rows(block, address);
	}
	if (address < row->start || address >= row->end)
		return false;
	walk->mapping = *row;
	return true;
}

/* Kind of a row, its lower three bits (rule.rs). */
#define RULE_GAP 0
#define RULE_RSP 1
#define RULE_RBP 2
#define RULE_ROOT 3
#define RULE_PLT 4
#define RULE_SIGNAL 5
#define RULE_WIDE 6
#define RULE_OPAQUE 7
#define RBP_SAME 32767
#define RBP_UNKNOWN -32768
#define WIDE_INDIRECT 1
#define WIDE_AT_RBP 2
#define WIDE_RETURN_AT_RBP 4

/* Finds the row for an address of a file: kind and CFA offset in the lower half, place of rbp in the upper half. */
static __attribute__((noinline)) u32 find_row(struct file_entry *file, u32 address)
{
	struct block *block = block_at(file->root);
	if (!block)
		return RULE_GAP;
	if (file->levels > 2) {
		block = block_at(block->pairs[search_pairs(block, address)].value);
		if (!block)
			return RULE_GAP;
	}
	if (file->levels > 1) {
		block = block_at(block->pairs[search_pairs(block, address)].value);
		if (!block)
			return RULE_GAP;
	}
	struct pair *found = &block->pairs[search_pairs(block, address)];
	return found->key <= address ? found->value : RULE_GAP;
}

/* Moves on to the caller, whose rsp is the CFA. Returns 1 and sets `end` if the walk ends. */
static ALWAYS_INLINE int leave(struct walk *walk, u64 cfa, s64 return_address, u32 *end)
{
	u64 ip = 0;
	if (cfa <= walk->sp) {
		*end = WALK_LOST;
		return 1;
	}
	if (bpf_probe_read_user(&ip, 8, (void *)(cfa + return_address))) {
		*end = WALK_MEMORY;
		return 1;
	}
	if (!ip) {
		*end = WALK_ROOT;
		return 1;
	}
	walk->ip = ip;
	walk->sp = cfa;
	return 0;
}

static ALWAYS_INLINE int leave_by_frame_pointer(struct walk *walk, u32 *end)
{
	u64 bp = walk->bp, callers = 0;
	if (!walk->has_bp) {
		*end = WALK_NO_RULE;
		return 1;
	}
	if (!bp) {
		*end = WALK_ROOT;
		return 1;
	}
	if (bpf_probe_read_user(&callers, 8, (void *)bp)) {
		*end = bp < walk->sp ? WALK_LOST : WALK_MEMORY;
		return 1;
	}
	if (leave(walk, bp + 16, -8, end))
		return 1;
	walk->bp = callers;
	return 0;
}

struct wide_block {
	struct wide_rule rules[256];
};

static __attribute__((noinline)) int leave_by_wide_rule(struct walk *walk, struct file_entry *file, u32 number)
{
	u32 end = WALK_NO_RULE;
	struct wide_block *block = block_at(file->wide[(number / 256) & 3]);
	if (!block)
		return 1 + WALK_NO_RULE;
	struct wide_rule rule = block->rules[number % 256];
	u64 base = 0;
	if (rule.base == RSP) {
		base = walk->sp;
	} else if (rule.base == RBP) {
		if (!walk->has_bp)
			return 1 + WALK_NO_RULE;
		base = walk->bp;
	} else if (walk->record.frames == 1) {
		base = walk->registers[rule.base & (REGISTERS - 1)];
	} else {
		return 1 + WALK_NO_RULE;
	}
	u64 cfa = base + (s64)rule.offset;
	if (rule.flags & WIDE_INDIRECT) {
		u64 there = 0;
		if (bpf_probe_read_user(&there, 8, (void *)cfa))
			return 1 + WALK_MEMORY;
		cfa = there + (s64)rule.indirect;
	}
	u64 bp = walk->bp;
	u32 has_bp = walk->has_bp;
	if (rule.rbp == RBP_UNKNOWN) {
		has_bp = 0;
	} else if (rule.rbp != RBP_SAME) {
		u64 place = (rule.flags & WIDE_AT_RBP ? walk->bp : cfa) + (s64)rule.rbp;
		if (rule.flags & WIDE_AT_RBP && !has_bp)
			return 1 + WALK_NO_RULE;
		if (place >= walk->sp) {
			if (bpf_probe_read_user(&bp, 8, (void *)place))
				return 1 + WALK_MEMORY;
			has_bp = 1;
		}
	}
	s64 return_address = (s64)rule.return_address * 8;
	if (rule.flags & WIDE_RETURN_AT_RBP) {
		if (!walk->has_bp)
			return 1 + WALK_NO_RULE;
		return_address = (s64)(walk->bp + 8 - cfa);
	}
	if (leave(walk, cfa, return_address, &end))
		return 1 + end;
	walk->bp = bp;
	walk->has_bp = has_bp;
	return 0;
}

/* `mov eax, 15; syscall`: the call of rt_sigreturn() to which signal handlers of musl and Go return. */
static ALWAYS_INLINE bool is_signal_return(const u8 *code)
{
	if (code[0] == 0x48 && code[1] == 0xc7 && code[2] == 0xc0 && code[3] == 15 && !code[4] && !code[5] && !code[6] &&
	    code[7] == 0x0f && code[8] == 5)
		return true;
	return code[0] == 0xb8 && code[1] == 15 && !code[2] && !code[3] && !code[4] && code[5] == 0x0f && code[6] == 5;
}

/* Derives a rule for code that no table covers from the instructions at ip. */
static __attribute__((noinline)) u32 rule_of_gap(struct walk *walk)
{
	u8 code[16] = {};
	if (bpf_probe_read_user(code, 9, (void *)walk->ip))
		return RULE_GAP;
	if (is_signal_return(code))
		return RULE_SIGNAL;
	if (!walk->is_interrupted)
		return RULE_GAP;
	/* endbr64, or push rbp before mov: the entry. ret: the end. In both places the return address is at rsp. */
	if ((code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e && code[3] == 0xfa) ||
	    (code[0] == 0x55 && code[1] == 0x48 && (code[2] == 0x89 || code[2] == 0x8b)) || code[0] == 0xc3 || code[0] == 0xc2 ||
	    (code[0] == 0xf3 && code[1] == 0xc3))
		return RULE_RSP | 1 << 3 | (u32)RBP_SAME << 16;
	/* mov rbp, rsp: rbp is pushed already. */
	if (code[0] == 0x48 && ((code[1] == 0x89 && code[2] == 0xe5) || (code[1] == 0x8b && code[2] == 0xec)))
		return RULE_RSP | 2 << 3 | (u32)0xfffe << 16;
	return RULE_GAP;
}

#define CONTEXT_REGISTERS 40
#define CONTEXT_RBP 10
#define CONTEXT_RSP 15
#define CONTEXT_RIP 16

/* Moves from a frame to its caller. Returns 0, or 1 + WALK_… if the walk ends. */
static __attribute__((noinline)) int take_step(struct walk *walk, struct file_entry *file, u32 row)
{
	u32 end = WALK_LOST;
	u32 number = (row & 0xffff) >> 3;
	u32 was_interrupted = walk->is_interrupted;
	walk->is_interrupted = 0;
	u64 cfa;
	switch (row & 7) {
	case RULE_GAP:
		return leave_by_frame_pointer(walk, &end) ? 1 + end : 0;
	case RULE_ROOT:
		return 1 + WALK_ROOT;
	case RULE_OPAQUE:
		return 1 + WALK_NO_RULE;
	case RULE_PLT:
		cfa = walk->sp + (was_interrupted && (walk->ip & 15) >= number ? 16 : 8);
		return leave(walk, cfa, -8, &end) ? 1 + end : 0;
	case RULE_SIGNAL: {
		if (number) {
			/* The caller is on another stack; only rbp leads there. */
			if (walk->has_bp)
				walk->sp = walk->bp;
			return leave_by_frame_pointer(walk, &end) ? 1 + end : 0;
		}
		u64 saved[7] = {};
		/* rbp, rbx, rdx, rax, rcx, rsp, rip */
		if (bpf_probe_read_user(saved, sizeof(saved), (void *)(walk->sp + CONTEXT_REGISTERS + CONTEXT_RBP * 8)))
			return 1 + WALK_MEMORY;
		walk->bp = saved[0];
		walk->has_bp = 1;
		walk->sp = saved[CONTEXT_RSP - CONTEXT_RBP];
		walk->ip = saved[CONTEXT_RIP - CONTEXT_RBP];
		walk->is_interrupted = 1;
		return 0;
	}
	case RULE_WIDE:
		if (!file)
			return 1 + WALK_NO_RULE;
		return leave_by_wide_rule(walk, file, number);
	}
	u64 base = walk->sp;
	if ((row & 7) == RULE_RBP) {
		if (!walk->has_bp)
			return 1 + WALK_NO_RULE;
		base = walk->bp;
	}
	cfa = base + (u64)number * 8;
	s64 words = (s16)(row >> 16);
	u64 bp = walk->bp;
	u32 has_bp = walk->has_bp;
	if (words == RBP_UNKNOWN) {
		has_bp = 0;
	} else if (words != RBP_SAME) {
		u64 place = cfa + words * 8;
		/* Below rsp: rbp has been popped. Tables leave its place in these rows, to save rows. */
		if (place >= walk->sp) {
			if (bpf_probe_read_user(&bp, 8, (void *)place))
				return 1 + WALK_MEMORY;
			has_bp = 1;
		}
	}
	if (leave(walk, cfa, -8, &end))
		return 1 + end;
	walk->bp = bp;
	walk->has_bp = has_bp;
	return 0;
}

/* An object whose program reads the functions of V8 defines SEES_V8, and includes v8.h. */
#ifdef SEES_V8
static int see_v8_frame(struct walk *walk);
#else
static ALWAYS_INLINE int see_v8_frame(struct walk *walk __attribute__((unused)))
{
	return 0;
}
#endif

/* Records the address of a frame and moves on to its caller. */
static long walk_frame(u32 index __attribute__((unused)), void *ctx __attribute__((unused)))
{
	u32 first = 0;
	struct walk *walk = bpf_map_lookup_elem(&walks, &first);
	if (!walk)
		return 1;
	u32 frames = walk->record.frames;
	if (!find_mapping(walk, walk->ip - !walk->is_interrupted)) {
		walk->record.at = walk->ip;
		walk->record.end = WALK_LOST;
		/* The mapping is newer than the list, or the program called a wild pointer. */
		if (!frames) {
			walk->record.addresses[0] = walk->ip;
			walk->record.frames = 1;
			walk->record.end = WALK_NO_LIST;
		}
		return 1;
	}
	if (frames >= MOST_WALKED) {
		walk->record.end = WALK_DEEP;
		return 1;
	}
	/* Consumers subtract 1 from the addresses of callers, so add 1 to that of an interrupted frame, which is exact. */
	walk->record.addresses[WITHIN(frames, MOST_WALKED)] = walk->ip + (frames && walk->is_interrupted);
	walk->record.frames = frames + 1;
	u32 number = walk->mapping.file;
	struct file_entry *file = bpf_map_lookup_elem(&files, &number);
	if (!file || file->state == FILE_UNKNOWN) {
		walk->record.end = WALK_NO_TABLE;
		walk->record.file = number;
		return 1;
	}
	u32 row = RULE_GAP;
	if (file->state == FILE_TABLE) {
		u64 address = walk->ip - !walk->is_interrupted - walk->mapping.start + walk->mapping.file_start;
		if (address >> 32 == 0)
			row = find_row(file, address);
	}
	if ((row & 7) == RULE_GAP) {
		row = rule_of_gap(walk);
		if (row == RULE_GAP && !file->chains_hold) {
			walk->record.end = WALK_NO_RULE;
			return 1;
		}
		if (row == RULE_GAP && walk->sees_v8)
			see_v8_frame(walk);
	}
	int stopped = take_step(walk, file, row);
	if (stopped)
		walk->record.end = stopped - 1;
	return stopped ? 1 : 0;
}

/* User registers: those of the context if the sample hit user code, otherwise those saved at the entry into the kernel. */
#define TAKE_REGISTERS(walk, from) do { \
	(walk)->ip = (from)->ip; \
	(walk)->sp = (from)->sp; \
	(walk)->bp = (from)->bp; \
	(walk)->registers[0] = (from)->ax; \
	(walk)->registers[1] = (from)->dx; \
	(walk)->registers[2] = (from)->cx; \
	(walk)->registers[3] = (from)->bx; \
	(walk)->registers[4] = (from)->si; \
	(walk)->registers[5] = (from)->di; \
	(walk)->registers[6] = (from)->bp; \
	(walk)->registers[7] = (from)->sp; \
	(walk)->registers[8] = (from)->r8; \
	(walk)->registers[9] = (from)->r9; \
	(walk)->registers[10] = (from)->r10; \
	(walk)->registers[11] = (from)->r11; \
	(walk)->registers[12] = (from)->r12; \
	(walk)->registers[13] = (from)->r13; \
	(walk)->registers[14] = (from)->r14; \
	(walk)->registers[15] = (from)->r15; \
} while (0)

/* Walks the stack from walk->ip, with the registers in `walk`. */
static ALWAYS_INLINE void walk_stack(struct walk *walk, u32 process)
{
	u64 *birth = bpf_map_lookup_elem(&births, &process);
	struct process_entry *entry = bpf_map_lookup_elem(&processes, &process);
	walk->record.file = 0;
	walk->record.at = 0;
	walk->record.frames = 0;
	walk->record.end = WALK_DEEP;
	walk->mapping.start = 0;
	walk->mapping.end = 0;
	walk->has_bp = 1;
	walk->is_interrupted = 1;
	if (!entry || !entry->root || (birth && *birth >= entry->as_of)) {
		walk->record.addresses[0] = walk->ip;
		walk->record.frames = 1;
		walk->record.end = WALK_NO_LIST;
		return;
	}
	walk->root = entry->root;
	walk->levels = entry->levels;
	walk->generation = entry->generation;
	bpf_loop(MOST_WALKED + 1, walk_frame, NULL, 0);
	/*
	 * At first the list may lack the mapping: the recorder unwinds a copy later, when it knows the mapping. A young program may
	 * have hundreds of samples until then.
	 */
	if (walk->record.end != WALK_LOST || !walk->record.at)
		return;
	bool is_young = birth && bpf_ktime_get_ns() - *birth < YOUNG_NS;
	if (is_young || entry->lost < MOST_LOST_COPIED) {
		entry->lost += !is_young;
		walk->record.end = WALK_NO_LIST;
	}
}

#define USER_CODE_64 0x33

#define NO_SYSTEM_CALL 0xffffffff
#define CALLS_CLONE(number) ((number) == 56 || (number) == 435) /* clone, clone3 */
#define CALLS_EXEC(number) ((number) == 59 || (number) == 322) /* execve, execveat */

/* Not inlined: the compiler would merge loads from context and task, which the verifier treats differently. */
static __attribute__((noinline)) u32 take_registers_of(struct walk *walk, struct task_struct *task)
{
	struct pt_regs *user = (void *)bpf_task_pt_regs(task);
	TAKE_REGISTERS(walk, user);
	walk->system_call = user->orig_ax;
	return user->cs;
}

/* Inside execve(), between the address spaces of two programs: the old stack is gone, and the new program has not begun. */
static ALWAYS_INLINE bool is_between_programs(struct walk *walk)
{
	u8 byte;
	return CALLS_EXEC(walk->system_call) && bpf_probe_read_user(&byte, 1, (void *)walk->registers[RSP]);
}

/* A new thread that has not returned from clone() yet: its stack is empty, so the word at rsp is no return address. */
static ALWAYS_INLINE bool is_new_thread(struct walk *walk)
{
	return CALLS_CLONE(walk->system_call) && !walk->registers[0] && walk->record.frames == 1 &&
	       (walk->record.end == WALK_MEMORY || (walk->record.at && walk->record.end != WALK_ROOT));
}
