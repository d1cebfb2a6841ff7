-- The longest wait for a CPU, and the longest uninterruptible sleep: of the views runqueue_waits and off_cpu, in one pass.
SELECT CASE WHEN duration >= CASE kind WHEN 'wait' THEN 10000000 ELSE 100000000 END THEN 'warning' ELSE 'info' END AS severity,
  concat(coalesce(comm, 'Thread'), ' (', tid, CASE kind WHEN 'wait' THEN ') waited ' ELSE ') was blocked for ' END, duration(duration),
    CASE kind WHEN 'wait' THEN ' for a CPU' ELSE '' END) AS title,
  concat(CASE WHEN kind = 'wait' THEN concat(why, ', ') WHEN reason IS NULL THEN '' ELSE concat('in ', reason, ', ') END,
    'from ', CAST(round((time - {start}) / 1e9, 6) AS TEXT), ' s on', CASE kind WHEN 'wait' THEN concat(', CPU ', cpu) ELSE '' END) AS detail,
  CASE kind
    WHEN 'wait' THEN concat('SELECT * FROM thread_states WHERE state = ''running'' AND cpu = ', cpu, ' AND time BETWEEN ', time, ' AND ', time + duration)
    ELSE concat('SELECT * FROM critical_path(', tid, ', ', time, ', ', time + duration, ')') END AS sql
FROM (SELECT *, blocked_function(kernel_stack) AS reason FROM pass_longest_waits())
