-- Weight per stack, kernel and user stacks each for themselves: there are far fewer of them than of pairs.
-- `weight`: all that ran under the stack; `own`: what ran in its topmost frame, with no kernel stack above it.
SELECT {trace} AS trace, kernel_stack AS stack, sum({weight}) AS weight, sum({weight}) AS own, count(*) AS samples
FROM {table}
WHERE {where} AND coalesce(kernel_stack, 0) <> 0
GROUP BY {by_trace}kernel_stack
UNION ALL
SELECT
  {trace} AS trace,
  user_stack AS stack,
  sum({weight}) AS weight,
  sum(CASE WHEN coalesce(kernel_stack, 0) = 0 THEN {weight} ELSE 0 END) AS own,
  sum(CASE WHEN coalesce(kernel_stack, 0) = 0 THEN 1 ELSE 0 END) AS samples
FROM {table}
WHERE {where}
GROUP BY {by_trace}user_stack
