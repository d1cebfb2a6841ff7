-- distributions: Stored distributions: the bars of each key as last printed.
-- duckdb: same
-- columns:
--   aggregate_id  Aggregate, an ID in aggregates.
--   name          Name of the aggregation.
--   action        quantize, lquantize or llquantize; NULL if unknown.
--   keys          Key of the aggregation.
--   value         Always NULL; see low, high and count.
--   kernel_stack  Kernel stack of the key, an ID in stacks.
--   user_stack    User stack of the key, an ID in stacks.
--   snapshot      Number of the printout.
--   time          time  Time of the printout.
--   low           Smallest value of the bar; NULL if open.
--   high          First value above the bar; NULL if open.
--   count         Number of values in the bar.
SELECT a.*, b.low, b.high, b.count
FROM latest_aggregates a
JOIN buckets b ON a.aggregate_id = b.aggregate_id{ AND a.trace = b.trace}
