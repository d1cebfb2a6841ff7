-- The process with most page faults a second.
WITH by_process AS (
  SELECT pid, CASE WHEN pid IS NULL THEN tid END AS tid, first_value(comm ORDER BY time DESC) AS comm, count(*) AS faults, 1e9 * count(*) / {recorded} AS rate
  FROM page_faults
  WHERE {threads}
  GROUP BY 1, 2
)
SELECT CASE WHEN rate >= 50000 THEN 'warning' ELSE 'info' END AS severity,
  concat(coalesce(comm, 'Process'), ' (', coalesce(pid, tid), ') has ', CAST(round(rate) AS BIGINT), ' page faults a second') AS title,
  concat(faults, ' faults in ', duration({recorded})) AS detail,
  'Each costs about a microsecond: memory is mapped and returned again, or does not fit' AS why,
  concat('SELECT kind, mapping, stack_text(user_stack) AS stack, count(*) AS faults FROM page_faults WHERE ', CASE WHEN pid IS NULL THEN concat('tid = ', tid) ELSE concat('pid = ', pid) END, ' GROUP BY ALL ORDER BY faults DESC LIMIT 20') AS sql
FROM by_process
WHERE faults >= 1000 AND rate >= 20000
ORDER BY faults DESC, pid, tid
LIMIT 1
