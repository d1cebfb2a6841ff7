-- Events that are missing, and pauses that were requested.
SELECT CASE WHEN sum(count) * 1000 < {events} AND count(count) = count(*) THEN 'info' ELSE 'warning' END AS severity,
  CASE WHEN count(count) = count(*) THEN concat('Events are missing: ', sum(count)) ELSE 'Events are missing' END AS title,
  concat(string_agg(DISTINCT concat(reason, CASE WHEN event IS NULL THEN '' ELSE concat(' (', event, ')') END), ', '),
    CASE WHEN min(time) IS NULL THEN '' ELSE concat('; first noticed at ', CAST(round(since_start(min(time)), 6) AS TEXT), ' s') END) AS detail,
  'Counts and sums are too low, and durations across the gaps are unknown' AS why,
  'SELECT reason, event, cpu, count(*) AS gaps, sum(count) AS events, min(since_start(time)) AS first_s, max(since_start(time)) AS last_s FROM losses GROUP BY ALL ORDER BY events DESC' AS sql
FROM losses WHERE coalesce(reason, '') NOT IN ('paused', 'resumed')
HAVING count(*) > 0
UNION ALL
SELECT 'info', concat('The recording was paused ', CASE WHEN count(*) = 1 THEN 'once' ELSE concat(count(*), ' times') END),
  concat('first at ', CAST(round(since_start(min(time)), 6) AS TEXT), ' s'), 'Nothing was recorded in the meantime',
  'SELECT since_start(time) AS s, reason FROM losses ORDER BY time'
FROM losses WHERE reason = 'paused'
HAVING count(*) > 0
