-- Events that are missing.
SELECT 'warning' AS severity,
  CASE WHEN count(count) = count(*) THEN concat('Events are missing: ', sum(count)) ELSE 'Events are missing' END AS title,
  string_agg(DISTINCT concat(reason, CASE WHEN event IS NULL THEN '' ELSE concat(' (', event, ')') END), ', ') AS detail,
  'SELECT * FROM losses ORDER BY count DESC' AS sql
FROM losses
HAVING count(*) > 0
