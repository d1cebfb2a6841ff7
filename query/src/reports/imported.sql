-- Aggregations that another tool made, each key as it was printed last: later printings hold the earlier ones.
SELECT aggregate_id, name, action, keys, value, kernel_stack, user_stack{trace}
FROM (
  SELECT *, row_number() OVER (
    PARTITION BY {trace_key}name, action, keys, kernel_stack, user_stack
    ORDER BY snapshot DESC, aggregate_id DESC
  ) AS newest
  FROM aggregates
)
WHERE newest = 1 AND {where}
ORDER BY {trace_key}aggregate_id
