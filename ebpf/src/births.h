/*
 * Programs that observe the start and end of address spaces. Loaded by every object that walks stacks.
 */
#pragma once

#include "walk.h"

/* python.h has these, if it is included before. */
#ifndef INHERIT_PYTHON
#define INHERIT_PYTHON(from, to)
#define FORGET_PYTHON(process)
#endif

/* A child starts with the mappings of its parent. */
SEC("tp_btf/sched_process_fork")
int walk_fork(u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0];
	struct task_struct *child = (void *)ctx[1];
	u32 from = parent->tgid, to = child->tgid;
	if (from == to)
		return 0;
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
	return 0;
}

SEC("tp_btf/sched_process_exec")
int walk_exec(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 process = task->tgid;
	u64 now = bpf_ktime_get_ns();
	bpf_map_update_elem(&births, &process, &now, BPF_ANY);
	FORGET_PYTHON(process);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int walk_exit(u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	u32 process = task->tgid;
	if (task->signal->live.counter <= 0) {
		bpf_map_delete_elem(&processes, &process);
		FORGET_PYTHON(process);
	}
	return 0;
}
