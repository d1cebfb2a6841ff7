-- A thread that repeats a system call that fails. From calls: they have results, and need no pass over entries and exits. Errors that
-- only say "not yet" or "not there", of calls that are made to find out, are none. strace of one process prints no thread.
WITH counted AS (
  SELECT tid, min(pid) AS pid, first_value(comm ORDER BY time DESC) AS comm, function, CASE WHEN retval BETWEEN -4095 AND -1 THEN retval END AS failure, count(*) AS count,
    min(time) AS first, max(time) AS last
  FROM calls
  WHERE (function LIKE 'syscall:%' OR function LIKE 'sys\_%') AND {threads}
  GROUP BY tid, function, 5
), compared AS (
  SELECT *, sum(count) OVER (PARTITION BY tid, function) AS calls, sum(count) OVER (PARTITION BY tid) AS all_calls FROM counted
), failing AS (
  SELECT *, errno_name(failure) AS error,
    CASE WHEN function LIKE 'syscall:%'
      THEN syscall_name(TRY_CAST(substr(function, 9) AS BIGINT), (SELECT value FROM trace_info WHERE name = 'architecture'))
      ELSE substr(function, 5) END AS name
  FROM compared
  WHERE failure IS NOT NULL AND count >= 50 AND 2 * count >= calls AND last - first >= 0.25 * {length}
)
SELECT CASE WHEN 5 * count >= all_calls THEN 'warning' ELSE 'info' END AS severity,
  concat(coalesce(comm, CASE WHEN tid IS NULL THEN 'The program' ELSE 'Thread' END), CASE WHEN tid IS NOT NULL THEN concat(' (', tid, ')') END, ' repeats ', name, ', which fails with ', error) AS title,
  concat(count, ' of ', calls, ' calls, ', CAST(round(1e9 * count / (last - first + 1)) AS BIGINT), ' a second, from ',
    CAST(round(since_start(first), 6) AS TEXT), ' s to ', CAST(round(since_start(last), 6) AS TEXT), ' s') AS detail,
  'A program that tries again and again has often lost a file, a peer or a permission' AS why,
  concat('SELECT path, args, count(*) AS failures FROM syscalls WHERE tid ', CASE WHEN tid IS NULL THEN 'IS NULL' ELSE concat('= ', tid) END, ' AND name = ''', name, ''' AND error = ''', error,
    ''' GROUP BY ALL ORDER BY failures DESC LIMIT 20') AS sql
FROM failing
WHERE name IS NOT NULL AND error NOT IN ('EAGAIN', 'EINTR', 'EINPROGRESS', 'ETIMEDOUT', 'EALREADY', 'ECHILD', 'ENOTTY', 'ENODATA', 'EOPNOTSUPP')
  AND error NOT LIKE 'ERESTART%'
ORDER BY count DESC, name, error, tid
LIMIT 1
