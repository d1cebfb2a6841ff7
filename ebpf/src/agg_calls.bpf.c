/* Aggregations of calls: durations, and values at entries and returns. */
#include "aggregate.h"

/* Values to save at entries. */
const volatile struct saved call_saved = {};

SEC("kprobe")
int call_enter(void *ctx)
{
	if (!is_wanted())
		return 0;
	struct lane_key key = {};
	struct open_call *open = begin_call(&key, bpf_get_attach_cookie(ctx));
	if (!open)
		return 0;
	if (!save(ctx, &call_saved, open->saved))
		open->is_unreadable = 1;
	if (call_saved.texts[0].base != BASE_NOTHING && !save_texts(ctx, &call_saved, &key))
		open->is_unreadable = 1;
	open->time = bpf_ktime_get_ns();
	return 0;
}

SEC("kprobe")
int call_leave(void *ctx)
{
	u64 now = bpf_ktime_get_ns();
	struct ending ending = {};
	if (!find_ending(bpf_get_attach_cookie(ctx), now, &ending))
		return 0;
	struct measured measured = {};
	measured.duration = ending.duration;
	measured.self = ending.duration - ending.call->inside;
	measured.saved = ending.call->saved;
	if (call_saved.texts[0].base != BASE_NOTHING)
		measured.texts = bpf_map_lookup_elem(&open_texts, &ending.key);
	if (ending.call->is_unreadable)
		lose(LOST_UNREADABLE);
	else if (is_on())
		aggregate(ctx, &measured);
	close_call(&ending);
	return 0;
}
