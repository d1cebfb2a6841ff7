/*
 * Aggregations as in DTrace: what hits of a probe hold is summed up here, and only sums leave the kernel.
 *
 *   quantize(bytes) by comm        key: [bar, comm]       cell: how many
 *   avg(size) by kstack            key: [0, stack]           cell: how many, their sum
 *
 * A cell is kept for each key and CPU, and changed by atomic instructions, since a program on a user probe can be
 * preempted by itself. Which action, which keys, which values: constants, set when the object is loaded.
 */
#include "predicate.h"
#include "stacks.h"

#define MOST_KEYS 6
/* Words of a key: the bar, and the parts behind it. Texts have 16. */
#define NARROW_WORDS 8
#define WIDE_WORDS 40
#define TEXT_BYTES 128

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

/* layout.rs: Part */
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

/* layout.rs: KeyPart */
struct key_part {
	u32 part;
	u32 word; /* where in the key */
	struct fetch fetch;
};

/* layout.rs: AggSettings */
struct agg_settings {
	u32 action;
	u32 is_wide;
	s64 low; /* lquantize */
	u64 step;
	u64 levels;
	struct fetch value;
	struct key_part keys[MOST_KEYS];
};

const volatile struct agg_settings agg_settings = {};

/* layout.rs: Cell. Zeroes are an empty one. */
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

/* llquantize: where the bars of positive values begin. */
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} edges SEC(".maps");

/* floor(log2(value)) of what is not 0. */
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

/* Bars are numbered as perfquet-query numbers them: they grow with the values. */

/* 0: 0; 1 + k: [2^k, 2^(k+1)); negative ones mirror them. */
static ALWAYS_INLINE s64 power_bar(s64 value)
{
	if (value == 0)
		return 0;
	s64 bar = 1 + (s64)power_of(value < 0 ? -(u64)value : (u64)value);
	if (bar > 63)
		bar = 63;
	return value < 0 ? -bar : bar;
}

/* 0: below low; then the steps; the last: what is above. */
static ALWAYS_INLINE s64 linear_bar(s64 value)
{
	u64 step = agg_settings.step;
	if (value < agg_settings.low || !step)
		return 0;
	u64 bar = ((u64)value - (u64)agg_settings.low) / step;
	return (bar < agg_settings.levels ? bar : agg_settings.levels) + 1;
}

/* How many edges are not above the value; negative ones mirror them. */
static ALWAYS_INLINE s64 edge_bar(s64 value)
{
	u64 size = value < 0 ? -(u64)value : (u64)value;
	u32 place = 0;
	struct control *now = bpf_map_lookup_elem(&control, &place);
	if (!now)
		return 0;
	/* 0, but the verifier must not know: it would follow each of the 2^16 ways on its own. */
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
	/* Only a program that interrupted us on this CPU can come between; eight times do not happen. */
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

static ALWAYS_INLINE void add_to(struct cell *cell, s64 value)
{
	u32 action = agg_settings.action;
	__sync_fetch_and_add(&cell->count, 1);
	if (action == ACTION_SUM || action == ACTION_AVG || action == ACTION_STDDEV)
		__sync_fetch_and_add(&cell->sum, (u64)value);
	if (action == ACTION_STDDEV)
		add_square(cell, value);
	if (action == ACTION_MIN)
		keep_largest(&cell->least, ~((u64)value ^ 1ULL << 63));
	if (action == ACTION_MAX)
		keep_largest(&cell->most, (u64)value ^ 1ULL << 63);
}

static __attribute__((noinline)) bool add_part(void *ctx, const volatile struct key_part *part, u64 *words, u32 room)
{
	u32 word = part->word;
	if (word >= room)
		return true;
	u64 ids = bpf_get_current_pid_tgid();
	switch (part->part) {
	case PART_COMM:
		if (word + 2 <= room)
			bpf_get_current_comm(&words[word], 16);
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
		if (word + TEXT_BYTES / 8 <= room)
			return fetch_text(ctx, &part->fetch, (char *)&words[word], TEXT_BYTES);
		break;
	}
	return true;
}

/* Two of them, for keys of two sizes: a key is hashed and compared whole at every hit. */
#define ADD_TO_CELLS(name, key_type, cells, key_words) \
	static ALWAYS_INLINE void name(void *ctx, s64 bar, s64 value) \
	{ \
		struct key_type key = {}; \
		key.words[0] = (u64)bar; \
		_Pragma("unroll") for (u32 number = 0; number < MOST_KEYS; number++) \
		{ \
			if (agg_settings.keys[number].part == PART_NONE) \
				continue; \
			if (!add_part(ctx, &agg_settings.keys[number], key.words, key_words)) { \
				lose(LOST_UNREADABLE); \
				return; \
			} \
		} \
		struct cell *cell = bpf_map_lookup_elem(&cells, &key); \
		if (!cell) { \
			struct cell empty = {}; \
			bpf_map_update_elem(&cells, &key, &empty, BPF_NOEXIST); \
			cell = bpf_map_lookup_elem(&cells, &key); \
		} \
		if (cell) \
			add_to(cell, value); \
		else \
			lose(LOST_NO_ROOM); \
	}

ADD_TO_CELLS(add_narrow, narrow_key, narrow_cells, NARROW_WORDS)
ADD_TO_CELLS(add_wide, wide_key, wide_cells, WIDE_WORDS)

static ALWAYS_INLINE void aggregate(void *ctx)
{
	if (!is_wanted() || !is_chosen(ctx))
		return;
	u32 action = agg_settings.action;
	u64 value = 0;
	s64 bar = 0;
	if (action != ACTION_COUNT && !fetch_number(ctx, &agg_settings.value, &value)) {
		lose(LOST_UNREADABLE);
		return;
	}
	if (action == ACTION_QUANTIZE)
		bar = power_bar(value);
	else if (action == ACTION_LQUANTIZE)
		bar = linear_bar(value);
	else if (action == ACTION_LLQUANTIZE)
		bar = edge_bar(value);
	if (agg_settings.is_wide)
		add_wide(ctx, bar, value);
	else
		add_narrow(ctx, bar, value);
}

/* Probes of our own: the context is the registers. No record of the hit itself. */
SEC("kprobe")
int aggregate_probe(void *ctx)
{
	aggregate(ctx);
	return 0;
}

/* Tracepoints: it is the record. They are everybody's: 0 would keep the hit from all who record it elsewhere. */
SEC("tracepoint")
int aggregate_tracepoint(void *ctx)
{
	aggregate(ctx);
	return 1;
}

/* Counters and clocks, opened for us alone. */
SEC("perf_event")
int aggregate_sample(void *ctx)
{
	aggregate(ctx);
	return 0;
}
