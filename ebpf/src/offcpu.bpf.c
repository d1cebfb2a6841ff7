/*
 * Time off the CPU, from when a thread is switched out until it is switched in again, by its stacks, the reason for the
 * switch, and the name of the waking thread.
 *
 *   sched_switch, as prev     stacks and time into `starts`
 *   sched_waking              the name of the waker into the same entry
 *   sched_switch, as next     the difference into `off_cells`
 */
/* Frames to skip: the kernel's call of the program, the program, stack_of(). */
#define FRAMES_OF_OUR_OWN 3
#include "stacks.h"

#define TASK_INTERRUPTIBLE 1
#define TASK_UNINTERRUPTIBLE 2
#define TASK_DEAD 0x80
#define TASK_NOLOAD 0x400 /* with TASK_UNINTERRUPTIBLE: an idle kernel thread, not one that waits for I/O */

/* layout: OffState */
#define OFF_PREEMPTED 0
#define OFF_INTERRUPTIBLE 1
#define OFF_UNINTERRUPTIBLE 2
#define OFF_IDLE 3
#define OFF_OTHER 4

/* layout: OffSettings */
struct off_settings {
	u64 least; /* minimum duration in nanoseconds; shorter periods are ignored */
	u32 has_prev_state; /* whether sched_switch has the state as an argument */
	u32 has_kernel_side; /* whether kernel stacks are recorded */
	u32 has_user_side; /* whether user stacks are recorded */
	u32 unused;
};

const volatile struct off_settings off_settings = {};

/* layout: OffKey */
struct off_key {
	u64 kernel_stack;
	u64 user_stack;
	char comm[16];
	char waker[16];
	u32 process;
	u32 state;
	u32 interval; /* the interval in which the thread was switched in */
	u32 unused;
};

/* layout: OffStart */
struct off_start {
	struct off_key key;
	u64 time;
};

/* layout: OffCell */
struct off_cell {
	u64 count;
	u64 total;
};

/* Threads that are off the CPU, by TID. */
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 65536);
	TYPE(key, u32);
	TYPE(value, struct off_start);
} starts SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_HASH);
	NUMBER(max_entries, 16384);
	TYPE(key, struct off_key);
	TYPE(value, struct off_cell);
} off_cells SEC(".maps");

/*
 * The reason for which the thread leaves its CPU: its state when it called schedule(). A wake-up on another CPU may set the
 * state of the task (to TASK_WAKING) before the thread has left, so the argument of sched_switch is read where there is one.
 * Only __schedule() itself sets the state to 0 before that, if a signal is pending: the thread stays runnable. The argument
 * has that only since Linux 6.16.
 */
static ALWAYS_INLINE u32 state_of(u64 *ctx, struct task_struct *task)
{
	bool is_preempted = ctx[0];
	u32 state;
	if (HAS_MEMBER(task->__state))
		state = task->__state;
	else
		state = (u32)((struct task_struct___old *)task)->state;
	if (off_settings.has_prev_state && state)
		state = (u32)ctx[3];
	if (state & TASK_DEAD)
		return TASK_DEAD;
	if (is_preempted || !state)
		return OFF_PREEMPTED;
	if (state & TASK_INTERRUPTIBLE)
		return OFF_INTERRUPTIBLE;
	if (state & TASK_UNINTERRUPTIBLE && state & TASK_NOLOAD)
		return OFF_IDLE;
	if (state & TASK_UNINTERRUPTIBLE)
		return OFF_UNINTERRUPTIBLE;
	return OFF_OTHER;
}

static ALWAYS_INLINE void go_off(u64 *ctx, struct task_struct *task, u64 now)
{
	u32 thread = task->pid;
	u32 process = task->tgid;
	if (!thread || !is_wanted_cpu() || !is_wanted_thread(process, thread))
		return;
	u32 state = state_of(ctx, task);
	if (state == TASK_DEAD)
		return;
	struct off_start start = {};
	/* prev is still the current task. */
	bpf_get_current_comm(start.key.comm, sizeof(start.key.comm));
	start.key.process = process;
	start.key.state = state;
	if (off_settings.has_kernel_side)
		start.key.kernel_stack = stack_of(ctx, process, false);
	if (off_settings.has_user_side)
		start.key.user_stack = stack_of(ctx, process, true);
	start.time = now;
	if (bpf_map_update_elem(&starts, &thread, &start, BPF_ANY))
		lose(LOST_NO_ROOM);
}

static ALWAYS_INLINE void come_back(struct task_struct *task, u64 now)
{
	u32 thread = task->pid;
	struct off_start *start = bpf_map_lookup_elem(&starts, &thread);
	if (!start)
		return;
	u64 time = now - start->time;
	if (time >= off_settings.least && now >= start->time) {
		struct off_key key = start->key;
		key.interval = current_interval();
		struct off_cell *cell = bpf_map_lookup_elem(&off_cells, &key);
		if (!cell) {
			struct off_cell empty = {};
			bpf_map_update_elem(&off_cells, &key, &empty, BPF_NOEXIST);
			cell = bpf_map_lookup_elem(&off_cells, &key);
		}
		if (cell) {
			__sync_fetch_and_add(&cell->count, 1);
			__sync_fetch_and_add(&cell->total, time);
		} else {
			lose(LOST_NO_ROOM);
		}
	}
	bpf_map_delete_elem(&starts, &thread);
}

/* bool preempt, struct task_struct *prev, struct task_struct *next, since Linux 5.18 also unsigned int prev_state */
SEC("tp_btf/sched_switch")
int off_cpu_switch(u64 *ctx)
{
	if (!is_on())
		return 0;
	u64 now = bpf_ktime_get_ns();
	go_off(ctx, (void *)ctx[1], now);
	come_back((void *)ctx[2], now);
	return 0;
}

/* Runs in the context of the waker; in an interrupt, that is the interrupted thread. */
SEC("tp_btf/sched_waking")
int off_cpu_waking(u64 *ctx)
{
	if (!is_on())
		return 0;
	struct task_struct *task = (void *)ctx[0];
	u32 thread = task->pid;
	struct off_start *start = bpf_map_lookup_elem(&starts, &thread);
	if (start && start->key.state != OFF_PREEMPTED)
		bpf_get_current_comm(start->key.waker, sizeof(start->key.waker));
	return 0;
}
