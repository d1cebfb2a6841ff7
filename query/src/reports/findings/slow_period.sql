-- The period in which calls of a function took several times as long as in the others. Calls that wait for something to happen are none.
WITH timed AS (
  SELECT function, CAST((time - {from}) / {slot} AS BIGINT) AS slot, duration
  FROM calls
  WHERE duration IS NOT NULL AND context = 'task' AND function NOT LIKE 'syscall:%' AND {threads}
    AND NOT regexp_like(function, '^sys_(p?poll|p?select|pselect6|epoll_|(clock_)?nanosleep|futex|wait|pause|rt_sig|accept|recv|read|connect|io_)')
), by_slot AS (
  SELECT function, slot, count(*) AS calls, sum(duration) AS total FROM timed GROUP BY function, slot
), usual AS (
  SELECT function, median(CAST(total AS DOUBLE) / calls) AS usual, count(*) AS slots, sum(calls) AS calls FROM by_slot GROUP BY function
)
SELECT 'warning' AS severity,
  concat(duration({slot}), ' were slow: ', s.function, ' took ', CAST(round(s.total / s.calls / u.usual, 1) AS TEXT), ' times as long as usual') AS title,
  concat('from ', CAST(round(since_start({from} + s.slot * {slot}), 6) AS TEXT), ' s on: ', s.calls, ' calls, ', duration(CAST(s.total / s.calls AS BIGINT)), ' on average; usually ',
    duration(CAST(u.usual AS BIGINT))) AS detail,
  'What else happened in this period is the first suspect' AS why,
  concat('SELECT since_start(time) AS s, duration, comm, tid FROM calls WHERE function = ''', replace(s.function, '''', ''''''), ''' AND time BETWEEN ', {from} + s.slot * {slot}, ' AND ',
    {from} + (s.slot + 1) * {slot} - 1, ' ORDER BY duration DESC LIMIT 20') AS sql
FROM by_slot AS s JOIN usual AS u ON s.function = u.function
WHERE u.slots >= 5 AND u.calls >= 50 AND u.usual > 0 AND s.calls >= 3
  AND s.total >= 5 * u.usual * s.calls AND s.total - u.usual * s.calls >= 0.2 * {slot}
ORDER BY s.total - u.usual * s.calls DESC, s.function
LIMIT 1
