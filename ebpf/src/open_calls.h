/*
 * Open calls, by thread: an entry adds a call, its return removes it and computes the duration.
 *
 *   entry      time and values onto the lane's stack of open calls
 *   return     the duration, which is added to the nested time of the calling function
 *
 * Calls of a thread and of the interrupts that hit it are nested, so they share one lane. All idle tasks have TID 0, so they
 * have a lane per CPU. A lane exists until its thread exits and contains the outermost call itself: most calls then cost
 * a single map lookup at entry and at return.
 */
#pragma once

#include "program.h"

#define MOST_DEPTH 64
#define MOST_SAVED 6
/* Maximum number of open calls that one return closes: functions left by longjmp, or whose return the kernel missed. */
#define MOST_MISSED 8
/* Lanes of idle tasks. */
#define IDLE (1ULL << 32)

/* Additional reasons for losses. */
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
	u64 inside; /* nanoseconds in nested calls */
	u32 function;
	u32 is_unreadable; /* a requested value could not be read */
	u64 saved[MOST_SAVED];
};

/* layout: Lane */
struct lane {
	u64 depth;
	struct open_call outermost;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1); /* the loader enlarges it if calls are paired */
	TYPE(key, u64);
	TYPE(value, struct lane);
} lanes SEC(".maps");

/* Open calls except the outermost of each lane. */
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

/* Opens a call. The caller sets its time last, so that saving values does not count. Returns NULL without room. */
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
 * Finds the call that the return of `function` ends; calls of interrupts are nested in it until close_call(). Returns false
 * if its entry was before the recording, or was lost.
 */
static ALWAYS_INLINE bool find_ending(u32 function, u64 now, struct ending *ending)
{
	struct lane_key *key = &ending->key;
	key->lane = own_lane();
	struct lane *lane = bpf_map_lookup_elem(&lanes, &key->lane);
	if (!lane || !lane->depth)
		return false; /* entered before the recording */
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
			/* Its entry was lost for lack of room; an outer call of the same function must not be closed instead. */
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

/* Removes the call and returns the enclosing one. */
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

/* Discards the open calls of an exited thread, since its TID may be reused. */
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
