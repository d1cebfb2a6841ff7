/*
 * Stack IDs.
 *
 * A stack is recorded once, in the rings, when it is first seen. Its process is alive then and its mappings are in the
 * journal, so its addresses can be resolved even if the process exits before the recording ends. Later hits have only the
 * ID. (BPF_MAP_TYPE_STACK_TRACE does not suit: it drops a stack whose hash collides with another, and it has addresses
 * only, without the process and the time that are needed to resolve them.)
 */
#pragma once

#include "program.h"
#ifdef WALKS_STACKS
#include "births.h"
#endif

#define MOST_FRAMES 127
/* A program at a tracepoint is called, so the innermost frames of the stack are its own: skip them. */
#ifndef FRAMES_OF_OUR_OWN
#define FRAMES_OF_OUR_OWN 0
#endif
#define STACK_ROOMS 4

/* formats/events/src/wire/stack.rs; addresses leaf first. */
struct stack_record {
	u32 kind;
	u32 end; /* how the walk of a user stack ended, until it is counted; 0 in the ring */
	u64 id;
	u32 process;
	u32 flags;
	u64 addresses[MOST_FRAMES];
};

#define STACK_IS_USER 1
#define STACK_IS_CUT 2 /* its outer frames are missing */

#define STACK_HEAD_BYTES 24

RECORDS(stack_records);

/* IDs of the recorded stacks. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1); /* the loader enlarges it if stacks are requested */
	TYPE(key, u64);
	TYPE(value, u32);
} told_stacks SEC(".maps");

/* Buffers for one stack. Programs on user probes can preempt each other on a CPU, so each CPU has several. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, STACK_ROOMS);
	TYPE(key, u32);
	TYPE(value, struct stack_record);
} stack_rooms SEC(".maps");

/* Not 0: the buffer is in use. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, STACK_ROOMS);
	TYPE(key, u32);
	TYPE(value, u64);
} stack_rooms_taken SEC(".maps");

/* A 64-bit hash of the addresses: with a million stacks, two share an ID in one of 37 million recordings. */
static ALWAYS_INLINE u64 number_of_stack(struct stack_record *room, u32 frames, u64 seed)
{
	u64 hash = seed ^ 0x9e3779b97f4a7c15ULL;
	for (u32 frame = 0; frame < MOST_FRAMES; frame++) {
		if (frame >= frames)
			break;
		hash ^= room->addresses[frame];
		hash *= 0xff51afd7ed558ccdULL;
		hash ^= hash >> 32;
	}
	hash *= 0xc4ceb9fe1a85ec53ULL;
	hash ^= hash >> 29;
	return hash ? hash : 1;
}

#ifdef WALKS_STACKS
/*
 * User stacks are walked with tables, as those of samples (walk.h). While a table or list is missing, frame pointers are
 * followed, the stack is marked as cut, since these may not hold, and the recorder is asked for what is missing.
 */

#define WALK_BUSY 8 /* another program on this CPU was walking */
#define WALK_ENDS 9
#define RECORD_MISS 9
#define MISS_INTERVAL_NS 1000000

/* Number of walks by how they ended (walk_tables.rs: WalkEnd); those without a table or list followed frame pointers. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, WALK_ENDS);
	TYPE(key, u32);
	TYPE(value, u64);
} walk_ends SEC(".maps");

/* Not 0: the walk is in use, by a program that this one has interrupted. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} walk_taken SEC(".maps");

/* A walk_record without addresses, with the process instead of their number; the journal does not get it. */
struct miss_record {
	u32 kind;
	u32 end;
	u32 process;
	u32 file;
	u64 at;
};

/* When the recorder was last asked about a process. */
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, u32);
	TYPE(value, u64);
} misses SEC(".maps");

static ALWAYS_INLINE void tell_miss(void *ctx, struct walk *walk, u32 process)
{
	u64 now = bpf_ktime_get_ns();
	u64 *last = bpf_map_lookup_elem(&misses, &process);
	if (last && now - *last < MISS_INTERVAL_NS)
		return;
	struct miss_record miss = {
		.kind = RECORD_MISS,
		.end = walk->record.end,
		.process = process,
		.file = walk->record.file,
		.at = walk->record.at,
	};
	/* One that does not fit into the ring is repeated. */
	if (!bpf_perf_event_output(ctx, &stack_records, BPF_F_CURRENT_CPU, &miss, sizeof(miss)))
		bpf_map_update_elem(&misses, &process, &now, BPF_ANY);
}

static ALWAYS_INLINE void count_end(u32 end)
{
	u64 *count = bpf_map_lookup_elem(&walk_ends, &end);
	if (count)
		*count += 1;
}

static ALWAYS_INLINE long walk_task(void *ctx, struct walk *walk, struct stack_record *room, u32 process, struct task_struct *task)
{
	if (take_registers_of(walk, task) != USER_CODE_64) {
		room->flags |= STACK_IS_CUT;
		room->end = WALK_UNSUPPORTED;
		return -1;
	}
	if (is_between_programs(walk))
		return 0;
	walk_stack(walk, process);
	if (is_new_thread(walk))
		walk->record.end = WALK_ROOT;
	u32 end = walk->record.end;
	u32 frames = walk->record.frames;
	if (end == WALK_ROOT && frames > MOST_FRAMES)
		end = WALK_DEEP;
	if (end != WALK_ROOT)
		room->flags |= STACK_IS_CUT;
	room->end = end;
	if (end == WALK_NO_TABLE || end == WALK_NO_LIST) {
		tell_miss(ctx, walk, process);
		return -1;
	}
	count_end(end);
	u32 frame = 0;
	for (; frame < MOST_FRAMES; frame++) {
		if (frame >= frames)
			break;
		room->addresses[frame] = walk->record.addresses[frame];
	}
	return frame * 8;
}

/* Writes the user stack of the current task. Returns its bytes, negative if it was not walked. */
static __attribute__((noinline)) long walk_user_stack(void *ctx, struct stack_record *room, u32 process)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u32 first = 0;
	struct walk *walk = bpf_map_lookup_elem(&walks, &first);
	u64 *taken = bpf_map_lookup_elem(&walk_taken, &first);
	if (!room)
		return -1;
	room->end = WALK_BUSY;
	if (!walk || !taken)
		return -1;
	if (!task->mm)
		return 0;
	if (__sync_lock_test_and_set(taken, 1)) {
		room->flags |= STACK_IS_CUT;
		return -1;
	}
	long bytes = walk_task(ctx, walk, room, process, task);
	*(volatile u64 *)taken = 0;
	return bytes;
}
#else
/* Negative: user stacks are not walked. */
#define walk_user_stack(ctx, room, process) ((void)(process), -1)
#endif

/* Writes a stack. Returns its bytes. */
static ALWAYS_INLINE long read_stack(void *ctx, struct stack_record *room, u32 process, bool is_user)
{
	long bytes = is_user ? walk_user_stack(ctx, room, process) : -1;
	if (bytes >= 0)
		return bytes;
	bytes = bpf_get_stack(ctx, room->addresses, sizeof(room->addresses), is_user ? BPF_F_USER_STACK : FRAMES_OF_OUR_OWN);
#ifdef WALKS_STACKS
	if (is_user && bytes > 0)
		count_end(room->end);
	else if (is_user && room->end != WALK_UNSUPPORTED)
		lose(LOST_NO_STACK);
#endif
	return bytes;
}

static ALWAYS_INLINE u64 tell_stack(void *ctx, struct stack_record *room, u32 process, bool is_user)
{
	room->flags = is_user ? STACK_IS_USER : 0;
	long bytes = read_stack(ctx, room, process, is_user);
	if (bytes <= 0)
		return 0; /* a kernel thread has no user stack */
	u32 frames = ((u32)bytes / 8) & 127;
	u64 seed = is_user ? process | (u64)room->flags << 32 : 0;
	u64 id = number_of_stack(room, frames, seed);
	if (bpf_map_lookup_elem(&told_stacks, &id))
		return id;
	u32 is_told = 1;
	if (bpf_map_update_elem(&told_stacks, &id, &is_told, BPF_ANY)) {
		lose(LOST_NO_STACK);
		return 0;
	}
	room->kind = RECORD_STACK;
	room->end = 0;
	room->id = id;
	room->process = process;
	if (bpf_perf_event_output(ctx, &stack_records, BPF_F_CURRENT_CPU, room, STACK_HEAD_BYTES + frames * 8)) {
		bpf_map_delete_elem(&told_stacks, &id);
		lose(LOST_NO_STACK);
		return 0;
	}
	return id;
}

/* Returns the ID of the stack at ctx; 0: none, or lost. Not inlined, so that the verifier checks it once. */
static __attribute__((noinline)) u64 stack_of(void *ctx, u32 process, bool is_user)
{
	for (u32 place = 0; place < STACK_ROOMS; place++) {
		u32 key = place;
		u64 *taken = bpf_map_lookup_elem(&stack_rooms_taken, &key);
		struct stack_record *room = bpf_map_lookup_elem(&stack_rooms, &key);
		if (!taken || !room)
			return 0;
		if (__sync_lock_test_and_set(taken, 1))
			continue;
		u64 id = tell_stack(ctx, room, process, is_user);
		*(volatile u64 *)taken = 0;
		return id;
	}
	lose(LOST_NO_STACK);
	return 0;
}
