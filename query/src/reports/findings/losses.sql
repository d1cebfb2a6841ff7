-- Events that are missing, and pauses that were requested.
SELECT 'warning' AS severity,
  CASE WHEN count(count) = count(*) THEN concat('Events are missing: ', sum(count)) ELSE 'Events are missing' END AS title,
  string_agg(DISTINCT concat(reason, CASE WHEN event IS NULL THEN '' ELSE concat(' (', event, ')') END), ', ') AS detail,
  'SELECT * FROM losses ORDER BY count DESC' AS sql
FROM losses WHERE coalesce(reason, '') NOT IN ('paused', 'resumed')
HAVING count(*) > 0
UNION ALL
SELECT 'info', concat('The recording was paused ', CASE WHEN count(*) = 1 THEN 'once' ELSE concat(count(*), ' times') END),
  'nothing was recorded in the meantime', 'SELECT time, reason FROM losses ORDER BY time'
FROM losses WHERE reason = 'paused'
HAVING count(*) > 0
