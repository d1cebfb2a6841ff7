/*
 * Records the user stack of each sample of a clock or counter, directly before the sample in the same ring; the recorder
 * joins the two. While a table or list is missing, a copy of the stack is recorded instead, which the recorder unwinds. So
 * no sample has a shorter stack because the tables came late, unless the recorder gets no time to read the copies.
 */
#define SEES_V8
#include "v8.h"
#include "births.h"

#define COPY_PAGES 8
#define PAGE_BYTES 4096
#define PIECE_BYTES (COPY_PAGES * PAGE_BYTES)
/* Records of one copy after the first, because a record is limited to 64 KiB: from below, and at the top of the stack. */
#define MOST_PIECES 2
#define MOST_TOP_PIECES 2
#define MOST_STACK_BYTES (1ull << 26)

/* walker.rs: WalkSettings */
struct walk_settings {
	u32 leaves_own_out; /* samples of the recorder are dropped */
	u32 has_user_stacks;
	u32 checks_walks; /* a walked stack is copied, too */
	u32 unused;
};

const volatile struct walk_settings walk_settings = {};

/* record/src/user_stacks/sample.rs reads it. */
struct copy_record {
	u32 kind;
	u32 end;
	u32 bytes;
	u32 file;
	u64 at;
	u64 ip;
	u64 registers[REGISTERS];
	u8 memory[(COPY_PAGES + 1) * PAGE_BYTES];
};

#define COPY_HEAD_BYTES (32 + REGISTERS * 8)

RECORDS(walk_records);

/* Indexed by CPU: values of a per-CPU map are limited to 32 KiB. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1); /* the loader sets the number of CPUs */
	TYPE(key, u32);
	TYPE(value, struct copy_record);
} copies SEC(".maps");

/* A recorder that has not read the rings for this time gets no time. */
#define STALLED_NS 50000000

/* Bytes that a CPU may copy until the recorder has read the ring. If the recorder gets no time, copies must not fill it. */
struct copy_room {
	u64 copies;
	u64 pieces; /* after the first of a copy: samples of a compiler need 200 KiB each */
	u64 read_at;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1); /* the loader sets the number of CPUs */
	TYPE(key, u32);
	TYPE(value, struct copy_room);
} copy_rooms SEC(".maps");

static ALWAYS_INLINE int output_copy(void *ctx, struct copy_record *copy, u32 bytes)
{
	/* A single 64-bit number keeps its bound until the call in Linux 6.1; a 32-bit one loses it. */
	u64 size = bytes;
	asm volatile("" : "+r"(size));
	if (size > sizeof(copy->memory))
		return 1;
	copy->bytes = size;
	if (bpf_perf_event_output(ctx, &walk_records, BPF_F_CURRENT_CPU, copy, COPY_HEAD_BYTES + size)) {
		lose(LOST_NO_STACK);
		return 1;
	}
	return 0;
}

/* Copies a piece of a stack, which starts at a page. Returns whether all of it was recorded. */
static __attribute__((noinline)) int tell_piece(void *ctx, struct copy_record *copy, u64 from, struct copy_room *room)
{
	u32 bytes = 0;
	if (!copy || !room || room->pieces < PIECE_BYTES)
		return 0;
	for (u32 page = 0; page < COPY_PAGES; page++) {
		if (bpf_probe_read_user(copy->memory + page * PAGE_BYTES, PAGE_BYTES, (void *)(from + bytes)))
			break;
		bytes += PAGE_BYTES;
	}
	copy->at = from;
	if (!bytes || output_copy(ctx, copy, bytes))
		return 0;
	room->pieces -= PIECE_BYTES;
	return bytes == PIECE_BYTES;
}

/* Declared here, because every object has the BTF of what vmlinux.h declares. */
struct mm_struct___stack {
	u64 start_stack;
} __attribute__((preserve_access_index));

/*
 * The end of the thread's stack. The C library puts a thread's own variables there, to which fsbase points; the stack of the
 * first thread is where the kernel made it.
 */
static ALWAYS_INLINE u64 stack_top(struct task_struct *task, u64 sp)
{
	u64 own = task->thread.fsbase;
	u64 first = ((struct mm_struct___stack *)task->mm)->start_stack;
	u64 top = own - sp < MOST_STACK_BYTES ? own : first - sp < MOST_STACK_BYTES ? first : 0;
	return (top + PAGE_BYTES - 1) & ~(u64)(PAGE_BYTES - 1);
}

/*
 * Copies more of a deep stack from an address, the start of a page. A function may have a frame of half a megabyte (rustc); so
 * the callers at the top of the stack are copied even if what is between them is not.
 */
static ALWAYS_INLINE void tell_pieces(void *ctx, struct task_struct *task, struct copy_room *room, struct copy_record *copy,
				      u64 from)
{
	copy->kind = RECORD_PIECE;
	for (u32 piece = 0; piece < MOST_PIECES; piece++) {
		if (!tell_piece(ctx, copy, from, room))
			return;
		from += PIECE_BYTES;
	}
	u64 top = stack_top(task, from);
	if (top < from)
		return;
	if (top - from > MOST_TOP_PIECES * PIECE_BYTES)
		from = top - MOST_TOP_PIECES * PIECE_BYTES;
	for (u32 piece = 0; piece < MOST_TOP_PIECES; piece++) {
		if (!tell_piece(ctx, copy, from, room))
			return;
		from += PIECE_BYTES;
	}
}

/*
 * Copies the stack from rsp, page by page: a read across an unmapped page would fail as a whole. Returns 0 if there was no
 * room.
 */
static ALWAYS_INLINE int tell_copy(void *ctx, struct task_struct *task, struct walk *walk)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct copy_record *copy = bpf_map_lookup_elem(&copies, &cpu);
	struct copy_room *room = bpf_map_lookup_elem(&copy_rooms, &cpu);
	if (!copy || !room)
		return 0;
	if (room->copies < sizeof(*copy) && bpf_ktime_get_ns() - room->read_at > STALLED_NS)
		return 0;
	copy->kind = RECORD_COPY;
	copy->end = walk->record.end;
	copy->file = walk->record.file;
	copy->at = walk->record.at;
	u64 sp = walk->registers[RSP];
	copy->ip = walk->record.addresses[0];
#pragma unroll
	for (u32 number = 0; number < REGISTERS; number++)
		copy->registers[number] = walk->registers[number];
	u32 bytes = 0;
	u32 first = PAGE_BYTES - (sp & (PAGE_BYTES - 1));
	if (!bpf_probe_read_user(copy->memory, first, (void *)sp)) {
		bytes = first;
		for (u32 page = 0; page < COPY_PAGES; page++) {
			if (bytes > COPY_PAGES * PAGE_BYTES)
				break;
			if (bpf_probe_read_user(copy->memory + bytes, PAGE_BYTES, (void *)(sp + bytes)))
				break;
			bytes += PAGE_BYTES;
		}
	}
	/* Most stacks are much smaller than the most that is copied. */
	u64 taken = COPY_HEAD_BYTES + bytes;
	room->copies -= room->copies < taken ? room->copies : taken;
	if (!output_copy(ctx, copy, bytes) && bytes == first + PIECE_BYTES)
		tell_pieces(ctx, task, room, copy, sp + bytes);
	return 1;
}

static ALWAYS_INLINE void tell_walk(void *ctx, struct walk *walk)
{
	u64 frames = WITHIN(walk->record.frames, MOST_WALKED);
	walk->record.kind = RECORD_WALK;
	if (bpf_perf_event_output(ctx, &walk_records, BPF_F_CURRENT_CPU, &walk->record, WALK_HEAD_BYTES + frames * 8))
		lose(LOST_NO_STACK);
}

static ALWAYS_INLINE void tell_interpreted(void *ctx, struct python_record *record)
{
	u64 frames = WITHIN(record->frames, MOST_PYTHON_FRAMES);
	if (bpf_perf_event_output(ctx, &walk_records, BPF_F_CURRENT_CPU, record,
				  PYTHON_HEAD_BYTES + frames * sizeof(struct python_frame)))
		lose(LOST_NO_STACK);
}

static ALWAYS_INLINE void tell_interpreters(void *ctx, struct task_struct *task, u32 process, u32 is_v8)
{
	struct python *python = read_python(task, process);
	if (python) {
		tell_interpreted(ctx, &python->record);
		return;
	}
	struct ruby *ruby = read_ruby(task, process);
	if (ruby) {
		tell_interpreted(ctx, &ruby->record);
		return;
	}
	struct v8 *v8 = v8_read();
	if (is_v8 && v8 && v8->record.frames)
		tell_interpreted(ctx, &v8->record);
}

/* Returns 1 to keep the sample, 0 to drop it. */
SEC("perf_event")
int walk_sample(struct pt_regs *ctx)
{
	u32 process = bpf_get_current_pid_tgid() >> 32;
	if (walk_settings.leaves_own_out && process == frame_settings.own_process)
		return 0;
	struct task_struct *task = bpf_get_current_task_btf();
	if (!walk_settings.has_user_stacks || !task->mm)
		return 1;
	u32 first = 0;
	struct walk *walk = bpf_map_lookup_elem(&walks, &first);
	if (!walk)
		return 1;
	/* The verifier allows only loads of whole words from the context. */
	u64 segment;
	asm volatile("%0 = *(u64 *)(%1 + 136)" : "=r"(segment) : "r"(ctx));
	segment &= 0xffff;
	walk->system_call = NO_SYSTEM_CALL;
	if (segment & 3)
		TAKE_REGISTERS(walk, ctx);
	else
		segment = take_registers_of(walk, task);
	if (segment != USER_CODE_64) {
		walk->record.addresses[0] = walk->ip;
		walk->record.frames = 1;
		walk->record.end = WALK_UNSUPPORTED;
		tell_walk(ctx, walk);
		return 1;
	}
	if (is_between_programs(walk)) {
		walk->record.frames = 0;
		walk->record.end = WALK_ROOT;
		tell_walk(ctx, walk);
		return 1;
	}
	walk->sees_v8 = begin_v8(process);
	walk_stack(walk, process);
	if (is_new_thread(walk))
		walk->record.end = WALK_ROOT;
	tell_interpreters(ctx, task, process, walk->sees_v8);
	int is_missing = walk->record.end == WALK_NO_TABLE || walk->record.end == WALK_NO_LIST;
	int is_copied = (is_missing || walk_settings.checks_walks) && tell_copy(ctx, task, walk);
	if (!is_missing || !is_copied)
		tell_walk(ctx, walk);
	return 1;
}
