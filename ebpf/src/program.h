/*
 * Shared by all programs: the target, the on/off switch, the output of records, the counts of losses.
 *
 * A program sees every hit on the system, so it calls is_wanted() first. `frame_settings` has the target (constants: the
 * kernel removes branches not taken). For targets other than the whole system, the map `whom` has the tasks; the three
 * programs at the end of this file add the children of recorded tasks to it.
 * The Rust side of each struct is in layout/
 */
#pragma once

#include "helpers.h"

char frame_license[] SEC("license") = "Dual MIT/GPL";

/* layout: Whom */
#define WHOM_EVERYTHING 0
#define WHOM_PROCESSES 1
#define WHOM_THREADS 2

/* layout: WhomState */
#define WHOM_WAITING 1 /* a command before its exec */
#define WHOM_RUNNING 2

#define MOST_CPUS 4096
#define MOST_REASONS 16

/* layout: FrameSettings */
struct frame_settings {
	u32 whom;
	u32 own_process; /* the recorder, excluded */
	u32 has_cpus; /* record only on `cpus` */
	u32 unused;
	u64 cpus[MOST_CPUS / 64];
};

const volatile struct frame_settings frame_settings = {};

/* layout: Control; written by the recorder while programs run. */
struct control {
	u32 is_on;
	u32 unused;
	u32 interval; /* current interval, with --every */
	u32 unused_too;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct control);
} control SEC(".maps");

/* Keys are processes or threads, depending on frame_settings.whom. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1); /* the loader enlarges it if it is used */
	TYPE(key, u32);
	TYPE(value, u32);
} whom SEC(".maps");

/* Number of lost hits by reason (layout: Reason), for rows of `losses`. */
struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, MOST_REASONS);
	TYPE(key, u32);
	TYPE(value, u64);
} lost SEC(".maps");

/* layout: Reason */
#define LOST_NO_ROOM 0 /* a map is full */
#define LOST_BUSY 1 /* too many nested programs on one CPU */
#define LOST_UNREADABLE 2 /* memory that could not be read */
#define LOST_FOLLOWING 3 /* `whom` had no room for a child of a recorded process */
#define LOST_NO_STACK 4 /* a stack that could not be recorded */
#define LOST_OWN 8 /* first of the reasons that each program defines */

/* Kinds of records, the first 32 bits of each (formats/events/src/wire/mod.rs); 32 zero bits follow. */
#define RECORD_STACK 1

/*
 * Output of records: perf events of the recorder, one per CPU, that write into its rings; one map per kind of record.
 * The kernel counts records that do not fit into a ring, as for any event.
 */
#define RECORDS(name) \
	struct { \
		NUMBER(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY); \
		NUMBER(key_size, 4); \
		NUMBER(value_size, 4); \
		NUMBER(max_entries, 0); /* the loader sets the number of CPUs */ \
	} name SEC(".maps")

/* Counts a loss. */
static ALWAYS_INLINE void lose(u32 reason)
{
	u64 *count = bpf_map_lookup_elem(&lost, &reason);
	if (count)
		__sync_fetch_and_add(count, 1);
}

static ALWAYS_INLINE bool is_on(void)
{
	u32 first = 0;
	struct control *now = bpf_map_lookup_elem(&control, &first);
	return now && now->is_on;
}

static ALWAYS_INLINE u32 current_interval(void)
{
	u32 first = 0;
	struct control *now = bpf_map_lookup_elem(&control, &first);
	return now ? now->interval : 0;
}

static ALWAYS_INLINE bool is_wanted_cpu(void)
{
	if (!frame_settings.has_cpus)
		return true;
	u32 cpu = bpf_get_smp_processor_id();
	if (cpu >= MOST_CPUS)
		return false;
	return frame_settings.cpus[cpu / 64] >> (cpu % 64) & 1;
}

/* Whether a thread belongs to the target. */
static ALWAYS_INLINE bool is_wanted_thread(u32 process, u32 thread)
{
	if (process == frame_settings.own_process)
		return false;
	if (frame_settings.whom == WHOM_EVERYTHING)
		return true;
	u32 key = frame_settings.whom == WHOM_THREADS ? thread : process;
	u32 *state = bpf_map_lookup_elem(&whom, &key);
	return state && *state == WHOM_RUNNING;
}

/* Whether to record the current task on the current CPU. */
static ALWAYS_INLINE bool is_wanted(void)
{
	if (!is_on() || !is_wanted_cpu())
		return false;
	u64 both = bpf_get_current_pid_tgid();
	return is_wanted_thread(both >> 32, (u32)both);
}

/*
 * A register at a probe, by its word in struct pt_regs. The recorder chooses the word, so one object serves every
 * architecture. The verifier accepts only constant offsets into the context, hence the switch: `place` comes from constant
 * settings, so a single case remains. The assembly stops the compiler from merging the cases into one load at a computed
 * offset, which the verifier would reject.
 */
#define REGISTER_CASE(place) \
	case place: \
		asm volatile("%0 = *(u64 *)(%1 + " #place " * 8)" : "=r"(value) : "r"(ctx)); \
		break;
#define REGISTER_CASES(place) REGISTER_CASE(place##0) REGISTER_CASE(place##1) REGISTER_CASE(place##2) \
	REGISTER_CASE(place##3) REGISTER_CASE(place##4) REGISTER_CASE(place##5) REGISTER_CASE(place##6) \
	REGISTER_CASE(place##7) REGISTER_CASE(place##8) REGISTER_CASE(place##9)

static __attribute__((noinline)) u64 register_at(void *ctx, u32 place)
{
	u64 value = 0;
	switch (place) {
		REGISTER_CASES() REGISTER_CASES(1)
		REGISTER_CASE(20) REGISTER_CASE(30) REGISTER_CASE(31) REGISTER_CASE(32) REGISTER_CASE(33)
	}
	return value;
}

/*
 * Programs at tracepoints of tasks, in two forms. `_raw` attaches without the kernel's BTF, whose parsing takes longer than
 * everything else. The other form is for lockdown, which forbids bpf_probe_read_kernel() but not typed access.
 */
#define READ_PROBED(pointer, member) \
	({ \
		typeof((pointer)->member) value = 0; \
		bpf_probe_read_kernel(&value, sizeof(value), &(pointer)->member); \
		value; \
	})
#define READ_DIRECT(pointer, member) ((pointer)->member)
#define AT_TRACEPOINT(name, tracepoint, DO) \
	SEC("raw_tp/" tracepoint) int name##_raw(u64 *ctx) \
	{ \
		DO(READ_PROBED); \
		return 0; \
	} \
	SEC("tp_btf/" tracepoint) int name(u64 *ctx) \
	{ \
		DO(READ_DIRECT); \
		return 0; \
	}

/* The programs below are loaded only for targets whose children are followed. */

static ALWAYS_INLINE void start_to_follow(u32 from, u32 to)
{
	if (from == to)
		return; /* a new thread of a known process */
	u32 *state = bpf_map_lookup_elem(&whom, &from);
	if (!state)
		return;
	u32 same = *state;
	if (bpf_map_update_elem(&whom, &to, &same, BPF_ANY))
		lose(LOST_FOLLOWING);
}

#define FOLLOW_FORK(READ) \
	struct task_struct *parent = (void *)ctx[0]; \
	struct task_struct *child = (void *)ctx[1]; \
	if (frame_settings.whom == WHOM_THREADS) \
		start_to_follow(READ(parent, pid), READ(child, pid)); \
	else \
		start_to_follow(READ(parent, tgid), READ(child, tgid))
AT_TRACEPOINT(follow_fork, "sched_process_fork", FOLLOW_FORK)

/* A thread that calls exec gets the TID of its process's main thread. */
static ALWAYS_INLINE void follow_on(u32 from, u32 to)
{
	u32 running = WHOM_RUNNING;
	if (!bpf_map_lookup_elem(&whom, &from))
		return;
	if (bpf_map_update_elem(&whom, &to, &running, BPF_ANY))
		lose(LOST_FOLLOWING);
	if (from != to)
		bpf_map_delete_elem(&whom, &from);
}

#define FOLLOW_EXEC(READ) \
	struct task_struct *task = (void *)ctx[0]; \
	if (frame_settings.whom == WHOM_THREADS) \
		follow_on(ctx[1], READ(task, pid)); \
	else \
		follow_on(READ(task, tgid), READ(task, tgid))
AT_TRACEPOINT(follow_exec, "sched_process_exec", FOLLOW_EXEC)

#define FOLLOW_EXIT(READ) \
	struct task_struct *task = (void *)ctx[0]; \
	u32 key = READ(task, pid); \
	if (frame_settings.whom != WHOM_THREADS) { \
		struct signal_struct *signal = READ(task, signal); \
		if (READ(signal, live.counter) > 0) \
			return 0; \
		key = READ(task, tgid); \
	} \
	bpf_map_delete_elem(&whom, &key)
AT_TRACEPOINT(follow_exit, "sched_process_exit", FOLLOW_EXIT)
