-- latest_aggregates: Stored aggregates: each key as last printed.
-- duckdb: own
-- columns:
--   aggregate_id  ID of the aggregate.
--   name          Name of the aggregation.
--   action        count, sum, avg, min, max, stddev or a distribution; NULL if unknown.
--   keys          Key of the aggregation.
--   value         Aggregated value; NULL for distributions.
--   kernel_stack  Kernel stack of the key, an ID in stacks.
--   user_stack    User stack of the key, an ID in stacks.
--   snapshot      Number of the printout.
--   time          time  Time of the printout.
--   exact_value   The value as an integer; NULL for fractions, and beyond 64 bits.
-- Each key of a stored aggregation as last printed: later printouts include the earlier values. Rows of a single period are
-- omitted. Without a name and keys, a second printout cannot be distinguished from another aggregation, and all rows are
-- kept.
SELECT aggregate_id, name, action, keys, value, kernel_stack, user_stack, snapshot, time, exact_value{, trace}
FROM (
  SELECT *, rank() OVER (
    PARTITION BY name, known_action, keys, kernel_stack, user_stack{, trace}
    ORDER BY snapshot DESC
  ) AS age
  FROM (
    -- A distribution of one bar does not show its action; another printout of the same key may.
    SELECT *, coalesce(action, max(action) OVER (
      PARTITION BY name, keys, kernel_stack, user_stack, value IS NULL{, trace}
    )) AS known_action
    FROM aggregates
    WHERE since IS NULL
  )
)
WHERE age = 1
  OR name IS NULL AND cardinality(keys) = 0 AND kernel_stack IS NULL AND user_stack IS NULL
