-- The longest wait for a CPU.
SELECT CASE WHEN duration >= 10000000 THEN 'warning' ELSE 'info' END AS severity,
  concat(coalesce(comm, 'Thread'), ' (', tid, ') waited ', duration(duration), ' for a CPU') AS title,
  concat(why, ', from ', CAST(round((time - {start}) / 1e9, 6) AS TEXT), ' s on, CPU ', cpu) AS detail,
  concat('SELECT * FROM thread_states WHERE state = ''running'' AND cpu = ', cpu, ' AND time BETWEEN ', time, ' AND ', time + duration) AS sql
FROM runqueue_waits
WHERE duration IS NOT NULL
ORDER BY duration DESC, time
LIMIT 1
