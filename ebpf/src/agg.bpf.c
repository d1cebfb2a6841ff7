/* Aggregations of hits: of probes, tracepoints, counters and clocks. */
#include "aggregate.h"

/* The recorder's own probes, whose context is the registers. 0: do not record the hit itself. */
SEC("kprobe")
int aggregate_probe(void *ctx)
{
	if (is_wanted())
		aggregate(ctx, NULL);
	return 0;
}

/* Tracepoints, whose context is the record. All users share them: 0 would hide the hit from every other perf session. */
SEC("tracepoint")
int aggregate_tracepoint(void *ctx)
{
	if (is_wanted())
		aggregate(ctx, NULL);
	return 1;
}

/* The recorder's own counters and clocks. */
SEC("perf_event")
int aggregate_sample(void *ctx)
{
	if (is_wanted())
		aggregate(ctx, NULL);
	return 0;
}
