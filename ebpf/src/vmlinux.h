/*
 * The kernel types that our programs read. The loader takes the offset of each member from the running kernel's BTF
 * (CO-RE), so only names and types of members matter here, not their order or completeness.
 */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

/*
 * The registers of x86-64, of a context (include/uapi/linux/bpf_perf_event.h) or of a thread's entry into the kernel
 * (arch/x86/include/asm/ptrace.h): their places are fixed.
 */
struct pt_regs {
	u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip;
	u16 cs, unused[3];
	u64 flags, sp, ss;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

struct signal_struct {
	/* Threads of the process that are still there. */
	atomic_t live;
};

struct mm_struct;

struct rq {
	/* Tasks that run or wait for the CPU. */
	u32 nr_running;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct thread_struct {
	u64 fsbase;
};

struct task_struct {
	struct sched_entity se;
	struct thread_struct thread;
	struct mm_struct *mm;
	/* The thread, and its process. */
	s32 pid;
	s32 tgid;
	char comm[16];
	/* Before Linux 5.14 it was called `state`; see task_struct___old. */
	u32 __state;
	struct signal_struct *signal;
};

struct task_struct___old {
	long state;
};

#pragma clang attribute pop
