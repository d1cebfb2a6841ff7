-- The bars of stored distributions as last printed.
SELECT a.*, b.low, b.high, b.count
FROM latest_aggregates a
JOIN buckets b ON a.aggregate_id = b.aggregate_id{ AND a.trace = b.trace}
