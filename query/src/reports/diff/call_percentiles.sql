-- Percentiles of durations by function and run.
SELECT {key} AS function, {module} AS module, {replicate} AS replicate, quantile(duration, 0.5) AS p50, quantile(duration, 0.95) AS p95,
    quantile(duration, 0.99) AS p99
FROM {table}
WHERE {where}
GROUP BY 1, 2, 3
