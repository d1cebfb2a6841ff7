/*
 * Stacks as numbers.
 *
 * A stack is told once, as a record in the rings at the moment when it is first seen: then its addresses can be
 * resolved, since the mappings of its process are in the journal at their times, even if the process is gone before
 * the recording ends. From then on its number stands for it. (The kernel's own map of stacks drops a stack whose hash
 * falls on that of another, and holds addresses only.)
 */
#pragma once

#include "program.h"

#define MOST_FRAMES 127
/* Programs at tracepoints' functions are called, not interrupted: the innermost frames are theirs. */
#ifndef FRAMES_OF_OUR_OWN
#define FRAMES_OF_OUR_OWN 0
#endif
#define STACK_ROOMS 4

/* formats/events/src/wire/stack.rs; the addresses from the leaf on. */
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

/* Numbers of the stacks that were told. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1); /* the loader makes it larger where stacks are asked for */
	TYPE(key, u64);
	TYPE(value, u32);
} told_stacks SEC(".maps");

/* Where a stack is fetched to. Programs on user probes can be preempted by each other: several rooms. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, STACK_ROOMS);
	TYPE(key, u32);
	TYPE(value, struct stack_record);
} stack_rooms SEC(".maps");

/* Not 0: taken. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, STACK_ROOMS);
	TYPE(key, u32);
	TYPE(value, u64);
} stack_rooms_taken SEC(".maps");

/* 64 bits of the addresses: with a million stacks, two share a number once in 37 million recordings. */
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
		return 0; /* a thread of the kernel has no user stack */
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

/* The number of the stack that ctx is on; 0: none, or it was lost. A call, so that it is checked and compiled once. */
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
