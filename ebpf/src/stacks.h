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

#define MOST_FRAMES 127
/* A program at a tracepoint is called, so the innermost frames of the stack are its own: skip them. */
#ifndef FRAMES_OF_OUR_OWN
#define FRAMES_OF_OUR_OWN 0
#endif
#define STACK_ROOMS 4

/* formats/events/src/wire/stack.rs; addresses leaf first. */
struct stack_record {
	u32 kind;
	u32 unused;
	u64 id;
	u32 process;
	u32 is_user;
	u64 addresses[MOST_FRAMES];
};

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

static ALWAYS_INLINE u64 tell_stack(void *ctx, struct stack_record *room, u32 process, bool is_user)
{
	long bytes = bpf_get_stack(ctx, room->addresses, sizeof(room->addresses), is_user ? BPF_F_USER_STACK : FRAMES_OF_OUR_OWN);
	if (bytes <= 0)
		return 0; /* a kernel thread has no user stack */
	u32 frames = ((u32)bytes / 8) & 127;
	u64 id = number_of_stack(room, frames, is_user ? process : 0);
	if (bpf_map_lookup_elem(&told_stacks, &id))
		return id;
	u32 is_told = 1;
	if (bpf_map_update_elem(&told_stacks, &id, &is_told, BPF_ANY)) {
		lose(LOST_NO_STACK);
		return 0;
	}
	room->kind = RECORD_STACK;
	room->unused = 0;
	room->id = id;
	room->process = process;
	room->is_user = is_user;
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
