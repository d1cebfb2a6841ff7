-- The system call that fails most often. From calls: they have results, and need no pass over entries and exits.
WITH results AS (
  SELECT function, CASE WHEN retval BETWEEN -4095 AND -1 THEN retval END AS failure, count(*) AS count
  FROM calls
  WHERE function LIKE 'syscall:%' OR function LIKE 'sys\_%'
  GROUP BY 1, 2
), named AS (
  SELECT errno_name(failure) AS error, count, sum(count) OVER (PARTITION BY function) AS calls,
    -- Of failures only: else the condition below would be checked for each call.
    CASE WHEN failure IS NULL THEN NULL
      WHEN function LIKE 'syscall:%'
      THEN syscall_name(TRY_CAST(substr(function, 9) AS BIGINT), (SELECT value FROM trace_info WHERE name = 'architecture'))
      ELSE substr(function, 5) END AS name
  FROM results
)
SELECT 'info' AS severity, concat(name, ' fails most often') AS title,
  concat(count, ' of ', calls, ' calls with ', error) AS detail,
  concat('SELECT comm, path, count(*) FROM syscalls WHERE name = ''', name, ''' AND error = ''', error, ''' GROUP BY ALL ORDER BY 3 DESC') AS sql
FROM named
WHERE error IS NOT NULL AND name IS NOT NULL
ORDER BY count DESC, name, error
LIMIT 1
