WITH marks AS (
  -- At equal times, a loss comes first.
  SELECT time, 1 AS kind, row_number() OVER () AS place, cpu_id, state FROM power.cpu_frequency WHERE time IS NOT NULL
  UNION ALL
  SELECT time, 0, 0, NULL, NULL FROM losses WHERE time IS NOT NULL
), counted AS (
  SELECT *, count(*) FILTER (WHERE kind = 0) OVER (ORDER BY time, kind, place ROWS UNBOUNDED PRECEDING) AS losses_before
  FROM marks
), periods AS (
  SELECT time, cpu_id, state, losses_before, lead(time) OVER of_cpu AS next, lead(losses_before) OVER of_cpu AS losses_before_next
  FROM counted
  WHERE kind = 1 AND cpu_id IS NOT NULL AND state IS NOT NULL
  WINDOW of_cpu AS (PARTITION BY cpu_id ORDER BY time, place)
)
SELECT time, CASE WHEN losses_before = losses_before_next THEN next - time END AS duration, CAST(cpu_id AS INTEGER) AS cpu,
  CAST(state AS BIGINT) AS khz
FROM periods
