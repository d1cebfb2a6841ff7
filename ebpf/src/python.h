/*
 * Frames of the Python interpreter, read at the moment of a sample: all Python functions run in one C function, which the
 * walk of the native stack shows once per call from C.
 *
 *   main interpreter → its threads, until the one whose ID is this thread's fsbase → current frame → previous frame → …
 *
 * A row has the addresses of a frame's code object and instruction; the recorder reads names and lines from the process
 * later. The name's address comes with it, so that a code object that was freed in between is not taken for another.
 */
#pragma once

#include "walk.h"

#define MOST_PYTHON_FRAMES 255
#define MOST_PYTHON_STEPS 512
#define MOST_PYTHON_THREADS 512
#define RECORD_PYTHON 7
#define PYTHON_HEAD_BYTES 16
#define NO_PLACE 0xffffffff
/* The lowest owner of frames that run no Python code: they stand for the call from C. */
#define OWNED_BY_C 3

/* walk_tables.rs: PythonEntry; all but the first are offsets. */
struct python_entry {
	u64 interpreter; /* where the address of the main interpreter is */
	u32 threads; /* in the interpreter: its first thread */
	u32 next; /* in a thread */
	u32 thread_id;
	u32 frame;
	u32 inner_frame; /* in what `frame` points to, or NO_PLACE */
	u32 code; /* in a frame */
	u32 previous;
	u32 instruction;
	u32 owner;
	u32 owner_is_entry; /* instead: whether the frame was called from C */
	u32 frame_bytes;
	u32 qualname; /* in a code object */
};

/* record/src/user_stacks/python reads it. */
struct python_frame {
	u64 code; /* lowest bit: called from C */
	u64 instruction;
	u64 qualname;
};

struct python_record {
	u32 kind;
	u32 frames;
	u32 is_cut;
	u32 unused;
	struct python_frame rows[MOST_PYTHON_FRAMES + 1];
};

struct python {
	struct python_record record;
	struct python_entry entry;
	u64 at; /* thread, then frame */
	u64 thread_id;
	u32 is_found;
	u8 bytes[128];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 8192);
	TYPE(key, u32);
	TYPE(value, struct python_entry);
} pythons SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct python);
} python_reads SEC(".maps");

static ALWAYS_INLINE void inherit_python(u32 from, u32 to)
{
	struct python_entry *python = bpf_map_lookup_elem(&pythons, &from);
	if (python) {
		struct python_entry same = *python;
		bpf_map_update_elem(&pythons, &to, &same, BPF_ANY);
	}
}

/* For births.h. */
#define INHERIT_PYTHON(from, to) inherit_python(from, to)
#define FORGET_PYTHON(process) bpf_map_delete_elem(&pythons, &(process))

static ALWAYS_INLINE struct python *python_read(void)
{
	u32 first = 0;
	return bpf_map_lookup_elem(&python_reads, &first);
}

static long find_python_thread(u32 index __attribute__((unused)), void *ctx __attribute__((unused)))
{
	struct python *python = python_read();
	u64 id = 0, next = 0;
	if (!python || !python->at)
		return 1;
	if (bpf_probe_read_user(&id, 8, (void *)(python->at + python->entry.thread_id)))
		return 1;
	if (id == python->thread_id) {
		python->is_found = 1;
		return 1;
	}
	if (bpf_probe_read_user(&next, 8, (void *)(python->at + python->entry.next)))
		return 1;
	python->at = next;
	return 0;
}

#define WORD_AT(bytes, place) (*(u64 *)((bytes) + ((place) & 120)))

static long read_python_frame(u32 index __attribute__((unused)), void *ctx __attribute__((unused)))
{
	struct python *python = python_read();
	if (!python || !python->at)
		return 1;
	u32 frames = python->record.frames;
	u64 size = WITHIN(python->entry.frame_bytes, 127);
	if (frames >= MOST_PYTHON_FRAMES || bpf_probe_read_user(python->bytes, size, (void *)python->at)) {
		python->record.is_cut = 1;
		return 1;
	}
	u32 owner = python->bytes[WITHIN(python->entry.owner, 127)];
	u64 code = WORD_AT(python->bytes, WITHIN(python->entry.code, 120)) & ~7ull;
	python->at = WORD_AT(python->bytes, WITHIN(python->entry.previous, 120));
	if (!python->entry.owner_is_entry && owner >= OWNED_BY_C) {
		if (frames)
			python->record.rows[WITHIN(frames - 1, MOST_PYTHON_FRAMES)].code |= 1;
		return 0;
	}
	struct python_frame *row = &python->record.rows[WITHIN(frames, MOST_PYTHON_FRAMES)];
	row->code = code | (python->entry.owner_is_entry && owner);
	row->instruction = WORD_AT(python->bytes, WITHIN(python->entry.instruction, 120));
	row->qualname = 0;
	bpf_probe_read_user(&row->qualname, 8, (void *)(code + python->entry.qualname));
	python->record.frames = frames + 1;
	return 0;
}

/* The thread's Python frames, innermost first; NULL without any. */
static __attribute__((noinline)) struct python *read_python(struct task_struct *task, u32 process)
{
	struct python_entry *entry = bpf_map_lookup_elem(&pythons, &process);
	struct python *python = python_read();
	u64 at = 0;
	if (!entry || !python)
		return NULL;
	python->entry = *entry;
	python->thread_id = task->thread.fsbase;
	python->is_found = 0;
	python->record.kind = RECORD_PYTHON;
	python->record.frames = 0;
	python->record.is_cut = 0;
	if (bpf_probe_read_user(&at, 8, (void *)entry->interpreter) || !at)
		return NULL;
	if (bpf_probe_read_user(&at, 8, (void *)(at + entry->threads)))
		return NULL;
	python->at = at;
	bpf_loop(MOST_PYTHON_THREADS, find_python_thread, NULL, 0);
	if (!python->is_found)
		return NULL;
	if (bpf_probe_read_user(&at, 8, (void *)(python->at + python->entry.frame)) || !at)
		return NULL;
	if (python->entry.inner_frame != NO_PLACE &&
	    (bpf_probe_read_user(&at, 8, (void *)(at + python->entry.inner_frame)) || !at))
		return NULL;
	python->at = at;
	bpf_loop(MOST_PYTHON_STEPS, read_python_frame, NULL, 0);
	if (python->at)
		python->record.is_cut = 1;
	return python->record.frames ? python : NULL;
}
