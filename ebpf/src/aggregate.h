/*
 * Aggregations as in DTrace. Values of hits, durations of calls, and times between events are aggregated in the kernel;
 * user space reads only the result.
 *
 *   quantize(bytes) by comm                   key: [bar, comm]       cell: count
 *   avg(size), max(size) by kstack            key: [no bar, stack]   cell: count, sum, maximum
 *   avg(duration), quantize(duration) by cpu  both
 *
 * There is one cell per key and CPU. It is updated atomically even so, since a program on a user probe can be preempted by
 * another instance of itself on the same CPU. Actions, keys and values are constants, set when the object is loaded.
 */
#pragma once

#include "predicate.h"
#include "stacks.h"

#define MOST_KEYS 6
/* Words of a key: the bar, with the interval in the upper half, then the parts. A long string takes 16. */
#define NARROW_WORDS 8
#define WIDE_WORDS 40

/* formats/events/src/wire/aggregate.rs: ACTIONS */
#define ACTION_COUNT 0
#define ACTION_SUM 1
#define ACTION_AVG 2
#define ACTION_MIN 3
#define ACTION_MAX 4
#define ACTION_STDDEV 5
#define ACTION_QUANTIZE 6
#define ACTION_LQUANTIZE 7
#define ACTION_LLQUANTIZE 8

/* layout: Part */
#define PART_NONE 0
#define PART_COMM 1
#define PART_PROCESS 2
#define PART_THREAD 3
#define PART_CPU 4
#define PART_KERNEL_STACK 5
#define PART_USER_STACK 6
#define PART_NUMBER 7
#define PART_TEXT 8
#define PART_PROBE 9
#define PART_SAVED_NUMBER 10
#define PART_SAVED_TEXT 11

/* layout: Value */
#define VALUE_FETCHED 0
#define VALUE_SAVED 1 /* at the entry, in word `place` */
#define VALUE_DURATION 2
#define VALUE_SELF 3 /* without the time in nested calls */
#define VALUE_RUNQUEUE 4 /* number of tasks waiting for this CPU */

/* layout: KeyPart */
struct key_part {
	u32 part;
	u32 word; /* offset in the key */
	u32 place; /* word of a saved value */
	u32 words; /* length of a string */
	struct fetch fetch;
};

/* layout: AggSettings */
struct agg_settings {
	u32 actions; /* bits */
	u32 self_actions; /* bits, of the self time in addition to the duration; no distributions */
	u32 is_wide;
	u32 unused;
	u32 value_kind;
	u32 value_place;
	s64 low; /* lquantize */
	u64 step;
	u64 levels;
	struct fetch value;
	struct key_part keys[MOST_KEYS];
};

/* Used instead of a bar number by the cells of all actions except distributions. */
#define NO_BAR 0x80000000U
#define NO_BAR_OF_SELF 0x80000001U
#define HAS(actions, action) ((actions) >> (action) & 1)
#define DISTRIBUTIONS (1 << ACTION_QUANTIZE | 1 << ACTION_LQUANTIZE | 1 << ACTION_LLQUANTIZE)

const volatile struct agg_settings agg_settings = {};

/* layout: Cell. Zeroes are an empty one. */
struct cell {
	u64 count;
	u64 sum;
	u64 least; /* inverted, so that the largest is kept */
	u64 most;
	u64 squares_low;
	u64 squares_high;
};

struct narrow_key {
	u64 words[NARROW_WORDS];
};

struct wide_key {
	u64 words[WIDE_WORDS];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_HASH);
	NUMBER(max_entries, 1);
	TYPE(key, struct narrow_key);
	TYPE(value, struct cell);
} narrow_cells SEC(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_HASH);
	NUMBER(max_entries, 1);
	TYPE(key, struct wide_key);
	TYPE(value, struct cell);
} wide_cells SEC(".maps");

/* Buffers for wide keys. Programs on user probes can preempt each other on a CPU, so each CPU has several. */
#define KEY_ROOMS 4

struct key_room {
	u64 is_taken;
	struct wide_key key;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, KEY_ROOMS);
	TYPE(key, u32);
	TYPE(value, struct key_room);
} key_rooms SEC(".maps");

/* A cell of zeros, inserted for a new key. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct cell);
} empty_cell SEC(".maps");

/* llquantize: lower edges of the bars of positive values. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} edges SEC(".maps");

/* floor(log2(value)) for value != 0; BPF has no instruction for it. */
static ALWAYS_INLINE u32 power_of(u64 value)
{
	u32 power = 0;
	if (value >> 32) {
		power += 32;
		value >>= 32;
	}
	if (value >> 16) {
		power += 16;
		value >>= 16;
	}
	if (value >> 8) {
		power += 8;
		value >>= 8;
	}
	if (value >> 4) {
		power += 4;
		value >>= 4;
	}
	if (value >> 2) {
		power += 2;
		value >>= 2;
	}
	return power + (value >> 1);
}

/* Bar numbers are those of perfquet-query: they grow with the values. */

/* Bar 0: the value 0; 1 + k: [2^k, 2^(k+1)); negative values mirror these. */
static ALWAYS_INLINE s64 power_bar(s64 value)
{
	if (value == 0)
		return 0;
	s64 bar = 1 + (s64)power_of(value < 0 ? -(u64)value : (u64)value);
	if (bar > 63)
		bar = 63;
	return value < 0 ? -bar : bar;
}

/* Bar 0: values below low; then one bar per step; the last bar: values above. */
static ALWAYS_INLINE s64 linear_bar(s64 value)
{
	u64 step = agg_settings.step;
	if (value < agg_settings.low || !step)
		return 0;
	u64 bar = ((u64)value - (u64)agg_settings.low) / step;
	return (bar < agg_settings.levels ? bar : agg_settings.levels) + 1;
}

/* Number of edges at or below the value; negative values mirror these. */
static ALWAYS_INLINE s64 edge_bar(s64 value)
{
	u64 size = value < 0 ? -(u64)value : (u64)value;
	u32 place = 0;
	struct control *now = bpf_map_lookup_elem(&control, &place);
	if (!now)
		return 0;
	/* Always 0, but unknown to the verifier: with a constant it would explore all 2^16 paths of the search. */
	u32 count = now->unused;
	for (u32 step = 1 << 15; step; step /= 2) {
		place = count + step - 1;
		u64 *edge = bpf_map_lookup_elem(&edges, &place);
		if (edge && *edge <= size)
			count += step;
	}
	return value < 0 ? -(s64)count : (s64)count;
}

static ALWAYS_INLINE void keep_largest(u64 *place, u64 value)
{
	/* The cell belongs to this CPU, so only an interrupting program can change it in between; not eight times. */
	for (u32 turn = 0; turn < 8; turn++) {
		u64 old = *(volatile u64 *)place;
		if (value <= old || __sync_val_compare_and_swap(place, old, value) == old)
			return;
	}
	lose(LOST_BUSY);
}

static ALWAYS_INLINE void add_square(struct cell *cell, s64 value)
{
	u64 size = value < 0 ? -(u64)value : (u64)value;
	u64 low = (u32)size, high = size >> 32;
	u64 middle = low * high;
	u64 square = low * low;
	u64 upper = high * high + (middle >> 31);
	u64 part = middle << 33;
	square += part;
	upper += square < part;
	u64 before = __sync_fetch_and_add(&cell->squares_low, square);
	upper += before + square < square;
	if (upper)
		__sync_fetch_and_add(&cell->squares_high, upper);
}

static ALWAYS_INLINE void add_to(struct cell *cell, u32 actions, s64 value)
{
	__sync_fetch_and_add(&cell->count, 1);
	if (HAS(actions, ACTION_SUM) || HAS(actions, ACTION_AVG) || HAS(actions, ACTION_STDDEV))
		__sync_fetch_and_add(&cell->sum, (u64)value);
	if (HAS(actions, ACTION_STDDEV))
		add_square(cell, value);
	if (HAS(actions, ACTION_MIN))
		keep_largest(&cell->least, ~((u64)value ^ 1ULL << 63));
	if (HAS(actions, ACTION_MAX))
		keep_largest(&cell->most, (u64)value ^ 1ULL << 63);
}

static __attribute__((noinline)) bool add_part(void *ctx, const volatile struct key_part *part, struct measured *measured,
					       u64 *words, u32 room)
{
	u32 word = part->word;
	if (word >= room)
		return true;
	u64 ids = bpf_get_current_pid_tgid();
	switch (part->part) {
	case PART_COMM:
		if (word + SHORT_WORDS <= room)
			bpf_get_current_comm(&words[word], SHORT_WORDS * 8);
		break;
	case PART_PROCESS:
		words[word] = ids >> 32;
		break;
	case PART_THREAD:
		words[word] = (u32)ids;
		break;
	case PART_CPU:
		words[word] = bpf_get_smp_processor_id();
		break;
	case PART_KERNEL_STACK:
		words[word] = stack_of(ctx, ids >> 32, false);
		break;
	case PART_USER_STACK:
		words[word] = stack_of(ctx, ids >> 32, true);
		break;
	case PART_NUMBER:
		return fetch_number(ctx, &part->fetch, &words[word]);
	case PART_PROBE:
		words[word] = bpf_get_attach_cookie(ctx);
		break;
	case PART_TEXT:
		if (part->words == SHORT_WORDS && word + SHORT_WORDS <= room)
			return fetch_text(ctx, &part->fetch, (char *)&words[word], SHORT_WORDS * 8);
		if (word + TEXT_BYTES / 8 <= room)
			return fetch_text(ctx, &part->fetch, (char *)&words[word], TEXT_BYTES);
		break;
	case PART_SAVED_NUMBER:
		words[word] = saved_number(measured, part->place);
		break;
	case PART_SAVED_TEXT:
		if (part->words == SHORT_WORDS && word + SHORT_WORDS <= room)
			return saved_text(measured, part->place, &words[word], SHORT_WORDS * 8);
		if (word + TEXT_BYTES / 8 <= room)
			return saved_text(measured, part->place, &words[word], TEXT_BYTES);
		break;
	}
	return true;
}

static ALWAYS_INLINE void add_cell(void *cells, void *key, u32 actions, s64 value)
{
	struct cell *cell = bpf_map_lookup_elem(cells, key);
	if (!cell) {
		u32 first = 0;
		struct cell *empty = bpf_map_lookup_elem(&empty_cell, &first);
		if (empty)
			bpf_map_update_elem(cells, key, empty, BPF_NOEXIST);
		cell = bpf_map_lookup_elem(cells, key);
	}
	if (cell)
		add_to(cell, actions, value);
	else
		lose(LOST_NO_ROOM);
}

/* Assembles the parts of a key; returns false if one cannot be read. */
static ALWAYS_INLINE bool add_parts(void *ctx, struct measured *measured, u64 *words, u32 room)
{
#pragma unroll
	for (u32 number = 0; number < MOST_KEYS; number++) {
		if (agg_settings.keys[number].part == PART_NONE)
			continue;
		if (!add_part(ctx, &agg_settings.keys[number], measured, words, room)) {
			lose(LOST_UNREADABLE);
			return false;
		}
	}
	return true;
}

/* The values that a hit adds to the cell of its key. */
struct addend {
	s64 bar;
	s64 value;
	s64 self;
};

/* Two key sizes, because the map hashes and compares the whole key at every hit. */
#define ADD_TO_CELLS(cells, key, addend) \
	do { \
		u64 interval = (u64)current_interval() << 32; \
		if (agg_settings.actions & DISTRIBUTIONS) { \
			(key)->words[0] = interval | (u32)(addend)->bar; \
			add_cell(&(cells), key, 0, 0); \
		} \
		if (agg_settings.actions & ~DISTRIBUTIONS) { \
			(key)->words[0] = interval | NO_BAR; \
			add_cell(&(cells), key, agg_settings.actions, (addend)->value); \
		} \
		if (agg_settings.self_actions) { \
			(key)->words[0] = interval | NO_BAR_OF_SELF; \
			add_cell(&(cells), key, agg_settings.self_actions, (addend)->self); \
		} \
	} while (0)

static ALWAYS_INLINE void add_narrow(void *ctx, struct measured *measured, struct addend *addend)
{
	struct narrow_key key = {};
	if (add_parts(ctx, measured, key.words, NARROW_WORDS))
		ADD_TO_CELLS(narrow_cells, &key, addend);
}

/* Wide keys do not fit on the BPF stack of 512 bytes. */
static ALWAYS_INLINE void add_wide(void *ctx, struct measured *measured, struct addend *addend)
{
	for (u32 place = 0; place < KEY_ROOMS; place++) {
		u32 number = place;
		struct key_room *room = bpf_map_lookup_elem(&key_rooms, &number);
		if (!room)
			return;
		if (__sync_lock_test_and_set(&room->is_taken, 1))
			continue;
#pragma unroll
		for (u32 word = 0; word < WIDE_WORDS; word++)
			room->key.words[word] = 0;
		if (add_parts(ctx, measured, room->key.words, WIDE_WORDS))
			ADD_TO_CELLS(wide_cells, &room->key, addend);
		*(volatile u64 *)&room->is_taken = 0;
		return;
	}
	lose(LOST_BUSY);
}

/* Number of tasks waiting for the current CPU, without the running one. */
static ALWAYS_INLINE u64 runqueue(void)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct cfs_rq *group = NULL;
	struct rq *queue = NULL;
	u32 running = 0;
	if (bpf_probe_read_kernel(&group, sizeof(group), &task->se.cfs_rq) ||
	    bpf_probe_read_kernel(&queue, sizeof(queue), &group->rq) ||
	    bpf_probe_read_kernel(&running, sizeof(running), &queue->nr_running))
		lose(LOST_UNREADABLE);
	return running ? running - 1 : 0;
}

/* Aggregates a hit, or the end of a call or latency with its measured values. */
static ALWAYS_INLINE void aggregate(void *ctx, struct measured *measured)
{
	if (!is_chosen(ctx, &predicate, measured))
		return;
	u64 value = 0;
	switch (agg_settings.value_kind) {
	case VALUE_FETCHED:
		if (agg_settings.actions != 1 << ACTION_COUNT && !fetch_number(ctx, &agg_settings.value, &value)) {
			lose(LOST_UNREADABLE);
			return;
		}
		break;
	case VALUE_SAVED:
		value = saved_number(measured, agg_settings.value_place);
		break;
	case VALUE_DURATION:
		value = measured->duration;
		break;
	case VALUE_SELF:
		value = measured->self;
		break;
	case VALUE_RUNQUEUE:
		value = runqueue();
		break;
	}
	struct addend addend = {.value = value};
	if (HAS(agg_settings.actions, ACTION_QUANTIZE))
		addend.bar = power_bar(value);
	else if (HAS(agg_settings.actions, ACTION_LQUANTIZE))
		addend.bar = linear_bar(value);
	else if (HAS(agg_settings.actions, ACTION_LLQUANTIZE))
		addend.bar = edge_bar(value);
	if (agg_settings.self_actions)
		addend.self = measured->self;
	if (agg_settings.is_wide)
		add_wide(ctx, measured, &addend);
	else
		add_narrow(ctx, measured, &addend);
}
