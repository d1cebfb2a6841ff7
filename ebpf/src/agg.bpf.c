/* Aggregations of hits: of probes, tracepoints, counters and clocks. */
#include "aggregate.h"

/* Probes of our own: the context is the registers. No record of the hit itself. */
SEC("kprobe")
int aggregate_probe(void *ctx)
{
	if (is_wanted())
		aggregate(ctx, NULL);
	return 0;
}

/* Tracepoints: it is the record. They are everybody's: 0 would keep the hit from all who record it elsewhere. */
SEC("tracepoint")
int aggregate_tracepoint(void *ctx)
{
	if (is_wanted())
		aggregate(ctx, NULL);
	return 1;
}

/* Counters and clocks, opened for us alone. */
SEC("perf_event")
int aggregate_sample(void *ctx)
{
	if (is_wanted())
		aggregate(ctx, NULL);
	return 0;
}
