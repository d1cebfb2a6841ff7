-- The system call that fails most often.
WITH calls AS (
  SELECT name, error, count(*) AS count, sum(count(*)) OVER (PARTITION BY name) AS calls FROM syscalls GROUP BY name, error
)
SELECT 'info' AS severity, concat(name, ' fails most often') AS title,
  concat(count, ' of ', calls, ' calls with ', error) AS detail,
  concat('SELECT comm, path, count(*) FROM syscalls WHERE name = ''', name, ''' AND error = ''', error, ''' GROUP BY ALL ORDER BY 3 DESC') AS sql
FROM calls
WHERE error IS NOT NULL AND name IS NOT NULL
ORDER BY count DESC, name, error
LIMIT 1
