-- The longest uninterruptible sleep.
SELECT CASE WHEN duration >= 100000000 THEN 'warning' ELSE 'info' END AS severity,
  concat(coalesce(comm, 'Thread'), ' (', tid, ') was blocked for ', duration(duration)) AS title,
  concat(CASE WHEN reason IS NULL THEN '' ELSE concat('in ', reason, ', ') END, 'from ', CAST(round((time - {start}) / 1e9, 6) AS TEXT), ' s on') AS detail,
  concat('SELECT * FROM critical_path(', tid, ', ', time, ', ', time + duration, ')') AS sql
FROM off_cpu
WHERE duration IS NOT NULL AND state = 'uninterruptible'
ORDER BY duration DESC, time
LIMIT 1
