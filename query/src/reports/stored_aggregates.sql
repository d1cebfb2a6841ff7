-- Aggregations that another tool made, each key as it was printed last: later printings hold the earlier ones. Without a
-- name and keys nobody can tell a second printing from another aggregation; then all are shown.
SELECT aggregate_id, name, action, keys, value, kernel_stack, user_stack{trace}
FROM (
  SELECT *, rank() OVER (
    PARTITION BY {trace_key}name, action, keys, kernel_stack, user_stack
    ORDER BY snapshot DESC
  ) AS newest
  FROM aggregates
)
WHERE (
    newest = 1
    OR name IS NULL AND cardinality(keys) = 0 AND kernel_stack IS NULL AND user_stack IS NULL
  )
  AND {where}
ORDER BY {trace_key}aggregate_id
