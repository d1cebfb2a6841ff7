-- Stretches in which threads did not run, by keys. The stack says what a sleeping thread waits for.
SELECT {keys}count(*) AS waits, sum(duration) AS total, CAST(round(avg(duration)) AS BIGINT) AS avg, quantile(duration, 0.99) AS p99, max(duration) AS max,
  count(*) - count(duration) AS unknown, quantize(duration) AS histogram
FROM (
  SELECT *, CASE WHEN state NOT IN ('runnable', 'preempted') THEN blocked_function(kernel_stack) END AS reason
  FROM thread_states
  WHERE state NOT IN ('running', 'dead')
)
WHERE {where}
{group}
