/*
 * Pairs entries and returns of functions. Only calls within the requested range of durations become records, with the
 * values of their entries. The programs return 0, so the probes themselves record nothing.
 */
#include "open_calls.h"

#define MOST_ARGUMENTS 6
#define RECORD_CALL 4

/* layout: CallSettings */
struct call_settings {
	u64 least;
	u64 most;
	u32 arguments[MOST_ARGUMENTS]; /* words of struct pt_regs */
	u32 returned;
	u32 unused;
};

const volatile struct call_settings call_settings = {};

/* formats/events/src/wire/call.rs */
struct call_record {
	u32 kind;
	u32 unused;
	u32 function;
	u32 depth;
	u32 parent; /* function of the caller */
	u32 has_parent;
	u64 entry;
	u64 exit;
	u64 parent_entry;
	u64 inside;
	u64 returned;
	u64 arguments[MOST_ARGUMENTS];
};

RECORDS(call_records);

SEC("kprobe")
int call_enter(void *ctx)
{
	if (!is_wanted())
		return 0;
	struct lane_key key = {};
	struct open_call *open = begin_call(&key, bpf_get_attach_cookie(ctx));
	if (!open)
		return 0;
	open->saved[0] = register_at(ctx, call_settings.arguments[0]);
	open->saved[1] = register_at(ctx, call_settings.arguments[1]);
	open->saved[2] = register_at(ctx, call_settings.arguments[2]);
	open->saved[3] = register_at(ctx, call_settings.arguments[3]);
	open->saved[4] = register_at(ctx, call_settings.arguments[4]);
	open->saved[5] = register_at(ctx, call_settings.arguments[5]);
	open->time = bpf_ktime_get_ns();
	return 0;
}

SEC("kprobe")
int call_leave(void *ctx)
{
	u64 now = bpf_ktime_get_ns();
	u32 function = bpf_get_attach_cookie(ctx);
	struct ending ending = {};
	if (!find_ending(function, now, &ending))
		return 0;
	struct call_record record = {};
	record.kind = RECORD_CALL;
	record.function = function;
	record.depth = ending.key.depth;
	record.entry = ending.call->time;
	record.exit = now;
	record.inside = ending.call->inside;
	record.returned = register_at(ctx, call_settings.returned);
#pragma unroll
	for (u32 place = 0; place < MOST_ARGUMENTS; place++)
		record.arguments[place] = ending.call->saved[place];
	struct open_call *around = close_call(&ending);
	if (around) {
		record.has_parent = 1;
		record.parent = around->function;
		record.parent_entry = around->time;
	}
	if (ending.duration < call_settings.least)
		lose(LOST_SHORT);
	else if (ending.duration > call_settings.most)
		lose(LOST_LONG);
	else if (is_on() && bpf_perf_event_output(ctx, &call_records, BPF_F_CURRENT_CPU, &record, sizeof(record)))
		lose(LOST_RING);
	return 0;
}
