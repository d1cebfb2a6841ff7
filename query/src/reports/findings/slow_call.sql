-- The longest call.
SELECT 'info' AS severity, concat('The longest call is ', function, ', ', duration(duration)) AS title,
  concat('by ', coalesce(comm, 'an unknown thread'), ', from ', CAST(round((time - {start}) / 1e9, 6) AS TEXT), ' s on') AS detail,
  concat('SELECT * FROM descendants(', call_id, ') ORDER BY duration DESC LIMIT 20') AS sql
FROM calls
WHERE duration IS NOT NULL AND context = 'task'
ORDER BY duration DESC, time
LIMIT 1
