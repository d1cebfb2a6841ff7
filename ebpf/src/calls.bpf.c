/*
 * Calls of functions, paired here: only those that last as long as was asked for leave the kernel.
 *
 *   entry      time and arguments onto the thread's stack of open calls
 *   return     the duration; in range, a record with what the entry had; to the call around it, the time
 *
 * A thread and the interrupts on top of it nest in each other, so they share one stack; the idle tasks share a thread
 * number, so they have one for each CPU. The programs return 0: the probes themselves record nothing.
 */
#include "program.h"

#define MOST_DEPTH 64
#define MOST_ARGUMENTS 6
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

#define RECORD_CALL 4

/* layout.rs: CallSettings */
struct call_settings {
	u64 least;
	u64 most;
	u32 arguments[MOST_ARGUMENTS]; /* words of struct pt_regs */
	u32 returned;
	u32 unused;
};

const volatile struct call_settings call_settings = {};

struct lane_key {
	u64 lane;
	u64 depth;
};

struct open_call {
	u64 time;
	u64 inside; /* nanoseconds in calls inside of it */
	u64 function;
	u64 arguments[MOST_ARGUMENTS];
};

/* How deep each lane is. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u64);
	TYPE(value, u64);
} depths SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 131072);
	TYPE(key, struct lane_key);
	TYPE(value, struct open_call);
} open_calls SEC(".maps");

/* formats/events/src/wire/call.rs */
struct call_record {
	u32 kind;
	u32 unused;
	u32 function;
	u32 depth;
	u32 parent; /* its function */
	u32 has_parent;
	u64 entry;
	u64 exit;
	u64 parent_entry;
	u64 inside;
	u64 returned;
	u64 arguments[MOST_ARGUMENTS];
};

RECORDS(call_records);

static ALWAYS_INLINE u64 lane(void)
{
	u32 thread = (u32)bpf_get_current_pid_tgid();
	return thread ? thread : IDLE + bpf_get_smp_processor_id();
}

SEC("kprobe")
int call_enter(void *ctx)
{
	if (!is_wanted())
		return 0;
	struct lane_key key = {};
	key.lane = lane();
	u64 *depth = bpf_map_lookup_elem(&depths, &key.lane);
	if (depth) {
		key.depth = *depth;
		*depth += 1;
	} else {
		u64 one = 1;
		if (bpf_map_update_elem(&depths, &key.lane, &one, BPF_ANY)) {
			lose(LOST_NO_ROOM);
			return 0;
		}
	}
	if (key.depth >= MOST_DEPTH) {
		lose(LOST_DEEP);
		return 0;
	}
	struct open_call open = {};
	open.function = bpf_get_attach_cookie(ctx);
	open.arguments[0] = register_at(ctx, call_settings.arguments[0]);
	open.arguments[1] = register_at(ctx, call_settings.arguments[1]);
	open.arguments[2] = register_at(ctx, call_settings.arguments[2]);
	open.arguments[3] = register_at(ctx, call_settings.arguments[3]);
	open.arguments[4] = register_at(ctx, call_settings.arguments[4]);
	open.arguments[5] = register_at(ctx, call_settings.arguments[5]);
	open.time = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&open_calls, &key, &open, BPF_ANY))
		lose(LOST_NO_ROOM);
	return 0;
}

SEC("kprobe")
int call_leave(void *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct lane_key key = {};
	key.lane = lane();
	u64 *depth = bpf_map_lookup_elem(&depths, &key.lane);
	if (!depth || !*depth)
		return 0; /* entered before we began */
	u64 function = bpf_get_attach_cookie(ctx);
	u64 level = *depth, deepest = level;
	if (level > MOST_DEPTH) {
		*depth = level - 1;
		return 0;
	}
	struct open_call *open = 0;
	for (u32 missed = 0; missed < MOST_MISSED; missed++) {
		if (!level)
			break;
		level -= 1;
		key.depth = level;
		struct open_call *here = bpf_map_lookup_elem(&open_calls, &key);
		if (!here) {
			/* Its entry found no room; an outer call of the same function is another one. */
			*depth = level;
			lose(LOST_RETURN);
			return 0;
		}
		if (here->function == function) {
			open = here;
			break;
		}
	}
	if (!open) {
		lose(LOST_RETURN);
		return 0;
	}
	struct call_record record = {};
	record.kind = RECORD_CALL;
	record.function = function;
	record.depth = level;
	record.entry = open->time;
	record.exit = now;
	record.inside = open->inside;
	record.arguments[0] = open->arguments[0];
	record.arguments[1] = open->arguments[1];
	record.arguments[2] = open->arguments[2];
	record.arguments[3] = open->arguments[3];
	record.arguments[4] = open->arguments[4];
	record.arguments[5] = open->arguments[5];
	record.returned = register_at(ctx, call_settings.returned);
	bpf_map_delete_elem(&open_calls, &key);
	for (u32 missed = 0; missed < MOST_MISSED; missed++) {
		deepest -= 1;
		if (deepest <= level)
			break;
		key.depth = deepest;
		bpf_map_delete_elem(&open_calls, &key);
		lose(LOST_OPEN);
	}
	u64 took = now - record.entry;
	if (level) {
		*depth = level;
		key.depth = level - 1;
		struct open_call *around = bpf_map_lookup_elem(&open_calls, &key);
		if (around) {
			around->inside += took;
			record.has_parent = 1;
			record.parent = around->function;
			record.parent_entry = around->time;
		}
	} else {
		bpf_map_delete_elem(&depths, &key.lane);
	}
	if (took < call_settings.least) {
		lose(LOST_SHORT);
		return 0;
	}
	if (took > call_settings.most) {
		lose(LOST_LONG);
		return 0;
	}
	if (!is_on())
		return 0;
	if (bpf_perf_event_output(ctx, &call_records, BPF_F_CURRENT_CPU, &record, sizeof(record)))
		lose(LOST_RING);
	return 0;
}

/* Calls that a thread never leaves. Its number may be another thread's next. */
SEC("tp_btf/sched_process_exit")
int call_thread_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	struct lane_key key = {};
	key.lane = task->pid;
	u64 *depth = bpf_map_lookup_elem(&depths, &key.lane);
	if (!depth)
		return 0;
	u64 open = *depth;
	for (u32 level = 0; level < MOST_DEPTH; level++) {
		if (level >= open)
			break;
		key.depth = level;
		bpf_map_delete_elem(&open_calls, &key);
		lose(LOST_OPEN);
	}
	bpf_map_delete_elem(&depths, &key.lane);
	return 0;
}
