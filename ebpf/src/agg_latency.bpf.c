/*
 * Aggregations of latencies: the time from an event to another one with the same key, as from sched_wakeup[pid] to
 * sched_switch[next_pid]. Of several START events before an END, the first counts.
 */
#include "aggregate.h"

#define MOST_STARTS 4
#define MOST_LATENCY_KEYS 3

/* layout: LatencyStart */
struct latency_start {
	struct fetch key[MOST_LATENCY_KEYS];
	struct saved saved;
	struct predicate predicate;
};

/* layout: LatencySettings */
struct latency_settings {
	u32 is_by_thread; /* the first part of the key is a TID, which decides whether the hit is wanted */
	u32 unused;
	struct fetch end_key[MOST_LATENCY_KEYS];
	struct latency_start starts[MOST_STARTS];
};

const volatile struct latency_settings latency_settings = {};

struct latency_key {
	u64 words[MOST_LATENCY_KEYS];
};

struct started {
	u64 time;
	u64 saved[MOST_SAVED];
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, 1); /* the loader enlarges it if latencies are measured */
	TYPE(key, struct latency_key);
	TYPE(value, struct started);
} starts SEC(".maps");

static ALWAYS_INLINE bool fetch_key(void *ctx, const volatile struct fetch *fetch, struct latency_key *key)
{
#pragma unroll
	for (u32 place = 0; place < MOST_LATENCY_KEYS; place++) {
		if (fetch[place].base != BASE_NOTHING && !fetch_number(ctx, &fetch[place], &key->words[place])) {
			lose(LOST_UNREADABLE);
			return false;
		}
	}
	return true;
}

static ALWAYS_INLINE void begin_latency(void *ctx, const volatile struct latency_start *start)
{
	struct latency_key key = {};
	if (!is_on() || !is_chosen(ctx, &start->predicate, NULL) || !fetch_key(ctx, start->key, &key))
		return;
	u64 ids = bpf_get_current_pid_tgid();
	bool is_by_thread = latency_settings.is_by_thread;
	if (!is_wanted_thread(is_by_thread ? ~0U : ids >> 32, is_by_thread ? key.words[0] : (u32)ids))
		return;
	struct started started = {};
	if (!save(ctx, &start->saved, started.saved)) {
		lose(LOST_UNREADABLE);
		return;
	}
	started.time = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&starts, &key, &started, BPF_NOEXIST) && !bpf_map_lookup_elem(&starts, &key))
		lose(LOST_NO_ROOM);
}

#define LATENCY_START(number) \
	SEC("tracepoint") \
	int latency_start_##number(void *ctx) \
	{ \
		begin_latency(ctx, &latency_settings.starts[number]); \
		return 1; \
	}

LATENCY_START(0)
LATENCY_START(1)
LATENCY_START(2)
LATENCY_START(3)

SEC("tracepoint")
int latency_end(void *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct latency_key key = {};
	if (!is_on() || !fetch_key(ctx, latency_settings.end_key, &key))
		return 1;
	struct started *started = bpf_map_lookup_elem(&starts, &key);
	if (!started)
		return 1;
	struct measured measured = {};
	measured.duration = now - started->time;
	measured.self = measured.duration;
	measured.saved = started->saved;
	if (is_wanted_cpu() && now >= started->time)
		aggregate(ctx, &measured);
	bpf_map_delete_elem(&starts, &key);
	return 1;
}
