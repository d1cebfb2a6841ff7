/*
 * JavaScript functions of V8, read while the stack is walked: code that V8 has generated and its builtins keep frame pointers,
 * and the frame of a function has the function's object.
 *
 *   rbp - 8    context (a pointer, lowest bit 1); in frames of other kinds a number (lowest bit 0)
 *   rbp - 16   function (JSFunction) → shared function info → name or scope info
 *
 * A row has the frame's address, the shared function info, and its name or scope info, which changes if the memory is used for
 * another function. Functions that the compiler has merged into their callers have no frames.
 */
#pragma once

#include "ruby.h"

#define RECORD_V8 12
#define V8_POINTER 1

/* walk_tables.rs: V8Entry; offsets */
struct v8_entry {
	u32 shared; /* in a function: shared function info */
	u32 name; /* in a shared function info: name or scope info */
};

struct v8 {
	struct python_record record;
	struct v8_entry entry;
};

struct v8_frame {
	u64 function;
	u64 context;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 8192);
	TYPE(key, u32);
	TYPE(value, struct v8_entry);
} v8s SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct v8);
} v8_reads SEC(".maps");

static ALWAYS_INLINE void inherit_v8(u32 from, u32 to)
{
	struct v8_entry *v8 = bpf_map_lookup_elem(&v8s, &from);
	if (v8) {
		struct v8_entry same = *v8;
		bpf_map_update_elem(&v8s, &to, &same, BPF_ANY);
	}
}

/* For births.h. */
#define INHERIT_V8(from, to) inherit_v8(from, to)
#define FORGET_V8(process) bpf_map_delete_elem(&v8s, &(process))

static ALWAYS_INLINE struct v8 *v8_read(void)
{
	u32 first = 0;
	return bpf_map_lookup_elem(&v8_reads, &first);
}

/* Before a walk: whether its process runs V8. */
static ALWAYS_INLINE u32 begin_v8(u32 process)
{
	struct v8_entry *entry = bpf_map_lookup_elem(&v8s, &process);
	struct v8 *v8 = v8_read();
	if (!entry || !v8)
		return 0;
	v8->entry = *entry;
	v8->record.kind = RECORD_V8;
	v8->record.frames = 0;
	v8->record.is_cut = 0;
	return 1;
}

/* Notes the function of a frame that the walk leaves by its frame pointer. */
static __attribute__((noinline)) int see_v8_frame(struct walk *walk)
{
	struct v8 *v8 = v8_read();
	struct v8_frame frame = {};
	u64 shared = 0;
	if (!v8 || !walk->has_bp)
		return 0;
	u64 at = walk->bp - sizeof(frame);
	/* Interrupted before it had pushed its function. */
	if (walk->is_interrupted && walk->sp > at)
		return 0;
	if (bpf_probe_read_user(&frame, sizeof(frame), (void *)at))
		return 0;
	if (!(frame.function & V8_POINTER) || !(frame.context & V8_POINTER))
		return 0;
	if (bpf_probe_read_user(&shared, 8, (void *)(frame.function - V8_POINTER + v8->entry.shared)) || !(shared & V8_POINTER))
		return 0;
	u32 frames = v8->record.frames;
	if (frames >= MOST_PYTHON_FRAMES) {
		v8->record.is_cut = 1;
		return 0;
	}
	struct python_frame *row = &v8->record.rows[WITHIN(frames, MOST_PYTHON_FRAMES)];
	row->code = shared;
	row->instruction = walk->record.addresses[WITHIN(walk->record.frames - 1, MOST_WALKED)];
	row->qualname = 0;
	bpf_probe_read_user(&row->qualname, 8, (void *)(shared - V8_POINTER + v8->entry.name));
	v8->record.frames = frames + 1;
	return 0;
}
