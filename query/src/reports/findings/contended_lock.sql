-- The lock for which threads waited longest. Of futexes, those that are locks: threads also wait for work with them, but a lock with
-- waiters has the value 2 in glibc, musl, Rust and Go, or priority inheritance. Who joins a thread waits for its end, not for a lock.
WITH futexes AS (
{futexes}),
waits AS (
  SELECT l.* FROM (SELECT * FROM locks WHERE duration IS NOT NULL AND address IS NOT NULL AND {threads}) AS l
    LEFT JOIN futexes AS f ON f.tid = l.tid AND f.time = l.time
  WHERE l.kind NOT IN ('futex', 'join') OR f.tid IS NOT NULL
), by_lock AS (
  SELECT kind, address, count(*) AS waits, count(DISTINCT tid) AS threads, sum(duration) AS total, max(duration) AS longest,
    first_value(owner_tid ORDER BY duration DESC, time) AS owner, first_value(time ORDER BY duration DESC, time) AS at_time
  FROM waits
  GROUP BY kind, address
)
SELECT 'warning' AS severity,
  concat('A ', kind, ' was held for ', duration(longest), ' while others waited') AS title,
  concat(waits, CASE waits WHEN 1 THEN ' wait' ELSE ' waits' END, ' of ', threads, CASE threads WHEN 1 THEN ' thread' ELSE ' threads' END, ', ', duration(total),
    ' in total; the longest from ', CAST(round(since_start(at_time), 6) AS TEXT), ' s on',
    CASE WHEN owner IS NULL THEN '' ELSE concat(', held longest by ', coalesce((SELECT min(comm) FROM threads WHERE tid = owner), 'thread'), ' (', owner, ')') END) AS detail,
  'Threads that could run stand still until the owner releases the lock' AS why,
  concat('SELECT comm, tid, owner_tid, stack_text(coalesce(user_stack, kernel_stack)) AS stack, count(*) AS waits, sum(duration) AS waited FROM locks WHERE address = ',
    address, ' GROUP BY ALL ORDER BY waited DESC LIMIT 20') AS sql
FROM by_lock
WHERE longest >= greatest(10ms, 0.005 * {length}) OR (total >= 0.2 * {length} AND longest >= 1ms)
ORDER BY total DESC, address
LIMIT 1
