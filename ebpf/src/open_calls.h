/*
 * Calls that are open, by thread: an entry adds one, its return removes it and knows how long it took.
 *
 *   entry      time and values onto the lane's stack of open calls
 *   return     the duration; to the call around it, the time
 *
 * A thread and the interrupts on top of it nest in each other, so they share one lane; the idle tasks share a thread
 * number, so they have one for each CPU. A lane stays until its thread ends, with room for the outermost call: most
 * calls take one look into the map at either end.
 */
#pragma once

#include "program.h"

#define MOST_DEPTH 64
#define MOST_SAVED 6
/* Open calls that one return may end: whoever jumps out of functions, and returns that the kernel missed. */
#define MOST_MISSED 8
/* Lanes of idle tasks. */
#define IDLE (1ULL << 32)

/* Reasons of our own. */
#define LOST_SHORT (LOST_OWN + 0) /* filtered */
#define LOST_LONG (LOST_OWN + 1) /* filtered */
#define LOST_DEEP (LOST_OWN + 2)
#define LOST_RETURN (LOST_OWN + 3)
#define LOST_RING (LOST_OWN + 4)
#define LOST_OPEN (LOST_OWN + 5) /* filtered */

struct lane_key {
	u64 lane;
	u64 depth;
};

/* layout: OpenCall */
struct open_call {
	u64 time;
	u64 inside; /* nanoseconds in calls inside of it */
	u32 function;
	u32 is_unreadable; /* a value that was to be saved */
	u64 saved[MOST_SAVED];
};

/* layout: Lane */
struct lane {
	u64 depth;
	struct open_call outermost;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1); /* the loader makes it larger where calls are paired */
	TYPE(key, u64);
	TYPE(value, struct lane);
} lanes SEC(".maps");

/* Those that are not the outermost. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1); /* as above */
	TYPE(key, struct lane_key);
	TYPE(value, struct open_call);
} open_calls SEC(".maps");

/* The call that a return ends. */
struct ending {
	struct lane_key key;
	struct lane *lane;
	struct open_call *call;
	u64 duration;
};

static ALWAYS_INLINE u64 own_lane(void)
{
	u32 thread = (u32)bpf_get_current_pid_tgid();
	return thread ? thread : IDLE + bpf_get_smp_processor_id();
}

/* A call begins: its place, whose time is to be set last. NULL: there was no room. */
static ALWAYS_INLINE struct open_call *begin_call(struct lane_key *key, u32 function)
{
	key->lane = own_lane();
	struct lane *lane = bpf_map_lookup_elem(&lanes, &key->lane);
	if (!lane) {
		struct lane fresh = {};
		bpf_map_update_elem(&lanes, &key->lane, &fresh, BPF_NOEXIST);
		lane = bpf_map_lookup_elem(&lanes, &key->lane);
	}
	if (!lane) {
		lose(LOST_NO_ROOM);
		return NULL;
	}
	key->depth = lane->depth;
	lane->depth = key->depth + 1;
	struct open_call *open = &lane->outermost;
	if (key->depth >= MOST_DEPTH) {
		lose(LOST_DEEP);
		return NULL;
	}
	if (key->depth) {
		struct open_call fresh = {};
		bpf_map_update_elem(&open_calls, key, &fresh, BPF_ANY);
		open = bpf_map_lookup_elem(&open_calls, key);
		if (!open) {
			lose(LOST_NO_ROOM);
			return NULL;
		}
	}
	open->inside = 0;
	open->function = function;
	open->is_unreadable = 0;
	return open;
}

static ALWAYS_INLINE struct open_call *call_at(struct lane *lane, struct lane_key *key)
{
	return key->depth ? bpf_map_lookup_elem(&open_calls, key) : &lane->outermost;
}

/*
 * Finds the call that a function's return ends: until it is closed, calls of interrupts are inside of it. Not true: none
 * that began since we did, or a value of it could not be read.
 */
static ALWAYS_INLINE bool find_ending(u32 function, u64 now, struct ending *ending)
{
	struct lane_key *key = &ending->key;
	key->lane = own_lane();
	struct lane *lane = bpf_map_lookup_elem(&lanes, &key->lane);
	if (!lane || !lane->depth)
		return false; /* entered before we began */
	u64 level = lane->depth, deepest = level;
	if (level > MOST_DEPTH) {
		lane->depth = level - 1;
		return false;
	}
	struct open_call *open = NULL;
	for (u32 missed = 0; missed < MOST_MISSED; missed++) {
		if (!level)
			break;
		level -= 1;
		key->depth = level;
		struct open_call *here = call_at(lane, key);
		if (!here) {
			/* Its entry found no room; an outer call of the same function is another one. */
			lane->depth = level;
			lose(LOST_RETURN);
			return false;
		}
		if (here->function == function) {
			open = here;
			break;
		}
	}
	if (!open) {
		lose(LOST_RETURN);
		return false;
	}
	for (u32 missed = 0; missed < MOST_MISSED; missed++) {
		deepest -= 1;
		if (deepest <= level)
			break;
		key->depth = deepest;
		bpf_map_delete_elem(&open_calls, key);
		lose(LOST_OPEN);
	}
	lane->depth = level + 1;
	key->depth = level;
	ending->lane = lane;
	ending->call = open;
	ending->duration = now - open->time;
	return true;
}

/* Removes a call that was found, and gives the one around it. */
static ALWAYS_INLINE struct open_call *close_call(struct ending *ending)
{
	struct lane_key *key = &ending->key;
	ending->lane->depth = key->depth;
	if (!key->depth)
		return NULL;
	bpf_map_delete_elem(&open_calls, key);
	key->depth -= 1;
	struct open_call *around = call_at(ending->lane, key);
	if (around)
		around->inside += ending->duration;
	return around;
}

/* Calls that a thread never leaves. Its number may be another thread's next. */
static ALWAYS_INLINE void end_lane(u32 thread)
{
	struct lane_key key = {};
	key.lane = thread;
	struct lane *lane = bpf_map_lookup_elem(&lanes, &key.lane);
	if (!lane)
		return;
	u64 open = lane->depth;
	for (u32 level = 0; level < MOST_DEPTH; level++) {
		if (level >= open)
			break;
		key.depth = level;
		if (level)
			bpf_map_delete_elem(&open_calls, &key);
		lose(LOST_OPEN);
	}
	bpf_map_delete_elem(&lanes, &key.lane);
}

#define END_LANE(READ) end_lane(READ((struct task_struct *)ctx[0], pid))
AT_TRACEPOINT(call_thread_exit, "sched_process_exit", END_LANE)
