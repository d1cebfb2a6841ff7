/*
 * Programs that observe the start and end of address spaces. Loaded by every object that walks stacks.
 */
#pragma once

#include "walk.h"

/* python.h, ruby.h and v8.h have these, if they are included before. */
#ifndef INHERIT_PYTHON
#define INHERIT_PYTHON(from, to)
#define FORGET_PYTHON(process)
#endif
#ifndef INHERIT_RUBY
#define INHERIT_RUBY(from, to)
#define FORGET_RUBY(process)
#endif
#ifndef INHERIT_V8
#define INHERIT_V8(from, to)
#define FORGET_V8(process)
#endif

/* A child starts with the mappings of its parent. */
static ALWAYS_INLINE void inherit_mappings(u32 from, u32 to)
{
	if (from == to)
		return; /* a new thread */
	u64 now = bpf_ktime_get_ns();
	u64 *birth = bpf_map_lookup_elem(&births, &from);
	struct process_entry *entry = bpf_map_lookup_elem(&processes, &from);
	if (entry && !(birth && *birth >= entry->as_of)) {
		struct process_entry same = *entry;
		same.as_of = now + 1;
		bpf_map_update_elem(&processes, &to, &same, BPF_ANY);
	}
	bpf_map_update_elem(&births, &to, &now, BPF_ANY);
	INHERIT_PYTHON(from, to);
	INHERIT_RUBY(from, to);
	INHERIT_V8(from, to);
}

#define WALK_FORK(READ) \
	struct task_struct *parent = (void *)ctx[0]; \
	struct task_struct *child = (void *)ctx[1]; \
	inherit_mappings(READ(parent, tgid), READ(child, tgid))
AT_TRACEPOINT(walk_fork, "sched_process_fork", WALK_FORK)

#define WALK_EXEC(READ) \
	struct task_struct *task = (void *)ctx[0]; \
	u32 process = READ(task, tgid); \
	u64 now = bpf_ktime_get_ns(); \
	bpf_map_update_elem(&births, &process, &now, BPF_ANY); \
	FORGET_PYTHON(process); \
	FORGET_RUBY(process); \
	FORGET_V8(process)
AT_TRACEPOINT(walk_exec, "sched_process_exec", WALK_EXEC)

#define WALK_EXIT(READ) \
	struct task_struct *task = (void *)ctx[0]; \
	u32 process = READ(task, tgid); \
	struct signal_struct *signal = READ(task, signal); \
	if (READ(signal, live.counter) > 0) \
		return 0; \
	bpf_map_delete_elem(&processes, &process); \
	FORGET_PYTHON(process); \
	FORGET_RUBY(process); \
	FORGET_V8(process)
AT_TRACEPOINT(walk_exit, "sched_process_exit", WALK_EXIT)
