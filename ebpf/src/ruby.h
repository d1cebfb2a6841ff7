/*
 * Frames of the Ruby interpreter (CRuby), read at the moment of a sample: Ruby methods and blocks run in one C function, which
 * the walk of the native stack shows once per call from C.
 *
 *   fsbase → dynamic thread vector → variables of libruby → execution context → control frames, innermost first, up to the
 *   end of the thread's VM stack
 *
 * Each thread has its own execution context: no lock of the interpreter has to be held. Rows are as those of Python: the
 * instruction sequence (iseq), the program counter, and the iseq's body, which changes if the iseq is freed.
 */
#pragma once

#include "python.h"

#define RECORD_RUBY 11
#define MOST_RUBY_STEPS 512
/* In an iseq; the same in all supported versions, as are the first members of the two structs below. */
#define RUBY_BODY 16
/* Flags of a frame, where its environment pointer points to. */
#define RUBY_FINISH 0x20 /* called from C */
#define RUBY_CFRAME 0x80 /* a C function */
#define RUBY_TYPE 0x7fff0001
#define RUBY_DUMMY 0x79990001 /* the outermost frame of a thread, which runs nothing */

/* walk_tables.rs: RubyEntry */
struct ruby_entry {
	u32 block; /* in the dynamic thread vector: pointer to libruby's variables */
	u32 context; /* in these: pointer to the execution context */
	u32 frame_bytes;
	u32 unused;
};

struct ruby_context {
	u64 stack;
	u64 stack_words;
	u64 frame;
};

struct ruby_frame {
	u64 instruction;
	u64 stack;
	u64 iseq;
	u64 self;
	u64 environment;
};

struct ruby {
	struct python_record record;
	struct ruby_entry entry;
	struct ruby_frame frame;
	u64 at;
	u64 end;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 8192);
	TYPE(key, u32);
	TYPE(value, struct ruby_entry);
} rubies SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct ruby);
} ruby_reads SEC(".maps");

static ALWAYS_INLINE void inherit_ruby(u32 from, u32 to)
{
	struct ruby_entry *ruby = bpf_map_lookup_elem(&rubies, &from);
	if (ruby) {
		struct ruby_entry same = *ruby;
		bpf_map_update_elem(&rubies, &to, &same, BPF_ANY);
	}
}

/* For births.h. */
#define INHERIT_RUBY(from, to) inherit_ruby(from, to)
#define FORGET_RUBY(process) bpf_map_delete_elem(&rubies, &(process))

static ALWAYS_INLINE struct ruby *ruby_read(void)
{
	u32 first = 0;
	return bpf_map_lookup_elem(&ruby_reads, &first);
}

static long read_ruby_frame(u32 index __attribute__((unused)), void *ctx __attribute__((unused)))
{
	struct ruby *ruby = ruby_read();
	u64 flags = 0;
	if (!ruby || ruby->at >= ruby->end)
		return 1;
	u32 frames = ruby->record.frames;
	if (frames >= MOST_PYTHON_FRAMES || bpf_probe_read_user(&ruby->frame, sizeof(ruby->frame), (void *)ruby->at) ||
	    bpf_probe_read_user(&flags, 8, (void *)ruby->frame.environment)) {
		ruby->record.is_cut = 1;
		return 1;
	}
	ruby->at += ruby->entry.frame_bytes;
	if (flags & RUBY_CFRAME || (flags & RUBY_TYPE) == RUBY_DUMMY)
		return 0;
	struct python_frame *row = &ruby->record.rows[WITHIN(frames, MOST_PYTHON_FRAMES)];
	u64 iseq = ruby->frame.iseq & ~7ull;
	row->code = iseq | !!(flags & RUBY_FINISH);
	row->instruction = ruby->frame.instruction;
	row->qualname = 0;
	bpf_probe_read_user(&row->qualname, 8, (void *)(iseq + RUBY_BODY));
	ruby->record.frames = frames + 1;
	return 0;
}

/* The thread's Ruby frames, innermost first; NULL without any. */
static __attribute__((noinline)) struct ruby *read_ruby(struct task_struct *task, u32 process)
{
	struct ruby_entry *entry = bpf_map_lookup_elem(&rubies, &process);
	struct ruby *ruby = ruby_read();
	struct ruby_context context = {};
	u64 at = 0;
	if (!entry || !ruby)
		return NULL;
	ruby->entry = *entry;
	ruby->record.kind = RECORD_RUBY;
	ruby->record.frames = 0;
	ruby->record.is_cut = 0;
	/* glibc: the thread vector is the second word of a thread's own variables. */
	if (bpf_probe_read_user(&at, 8, (void *)(task->thread.fsbase + 8)) || !at)
		return NULL;
	if (bpf_probe_read_user(&at, 8, (void *)(at + entry->block)) || !at)
		return NULL;
	if (bpf_probe_read_user(&at, 8, (void *)(at + entry->context)) || !at)
		return NULL;
	if (bpf_probe_read_user(&context, sizeof(context), (void *)at))
		return NULL;
	ruby->at = context.frame;
	ruby->end = context.stack + context.stack_words * 8;
	bpf_loop(MOST_RUBY_STEPS, read_ruby_frame, NULL, 0);
	if (ruby->at < ruby->end)
		ruby->record.is_cut = 1;
	return ruby->record.frames ? ruby : NULL;
}
