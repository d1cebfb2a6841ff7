-- Of all threads, in one pass: the one that waited longest for a CPU, of those that waited longer than they ran; the one that was blocked
-- longest; the one that keeps a CPU busy; the one that most often left its CPU without a record, of those that did so twice (a thread
-- that executes a program may have changed its ID). What cannot be interrupted is most often a wait for a disk. A parent waits so for a
-- child that it has created with vfork, and kernel threads do so for their own purposes.
WITH kinds AS (
  SELECT *, unnest(['unrecorded', 'starved', 'blocked', 'busy']) AS kind FROM pass_thread_totals({from}, {to}) WHERE {threads}
), candidates AS (
  SELECT *, CASE kind WHEN 'unrecorded' THEN unrecorded WHEN 'starved' THEN waiting WHEN 'blocked' THEN blocked ELSE running END AS amount,
    CASE kind WHEN 'blocked' THEN blocked_function(block_stack) END AS reason
  FROM kinds
  WHERE CASE kind
    WHEN 'unrecorded' THEN unrecorded > 1
      AND NOT EXISTS (SELECT * FROM event_types WHERE event = 'sched_switch' AND (filter IS NOT NULL OR period > 1))
    WHEN 'starved' THEN waiting > running AND wait >= 1ms AND (waiting >= 0.2 * {length} OR wait >= greatest(100ms, 0.02 * {length}))
    WHEN 'blocked' THEN block >= 1ms AND (blocked >= 0.2 * {length} OR block >= greatest(100ms, 0.01 * {length}))
      AND coalesce(comm, '') NOT LIKE 'kworker/%' AND coalesce(comm, '') NOT LIKE 'jbd2/%'
    ELSE running >= 0.9 * {length} END
), ranked AS (
  SELECT *, row_number() OVER (PARTITION BY kind ORDER BY amount DESC, tid) AS place, count(*) OVER (PARTITION BY kind) - 1 AS others,
    sum(unrecorded) OVER (PARTITION BY kind) AS missing
  FROM candidates
  WHERE coalesce(reason, '') NOT IN ('kernel_clone', '_do_fork', 'do_fork', 'wait_for_vfork_done')
), described AS (
  SELECT *, CASE tid WHEN 0 THEN 'the idle thread' ELSE concat(coalesce(comm, 'Thread'), ' (', tid, ')') END AS thread, concat(CAST(round(100.0 * amount / {length}) AS BIGINT), '%') AS percent
  FROM ranked
  WHERE place = 1
)
SELECT CASE kind WHEN 'unrecorded' THEN -18 WHEN 'starved' THEN -15 WHEN 'blocked' THEN 0 ELSE 45 END AS rank,
  CASE WHEN kind = 'busy' OR kind = 'unrecorded' AND unrecorded * 20 < switches THEN 'info' ELSE 'warning' END AS severity,
  CASE kind
    WHEN 'unrecorded' THEN concat('Switches are missing: ', missing)
    WHEN 'starved' THEN concat(thread, ' waited ', duration(waiting), ' for a CPU, ', percent, ' of the time')
    WHEN 'blocked' THEN concat(thread, ' was blocked for ', duration(blocked), ', ', percent, ' of the time')
    ELSE concat(thread, ' keeps a CPU busy: it runs ', percent, ' of the time') END AS title,
  CASE kind
    WHEN 'unrecorded' THEN concat(thread, ' left its CPU without a record ', unrecorded, ' times, and with one ', switches, ' times',
      CASE WHEN others > 0 THEN concat('; other threads without a record: ', others) ELSE '' END)
    WHEN 'starved' THEN concat('it ran for ', duration(running), '; its longest wait: ', duration(wait), ' from ', CAST(round(since_start(wait_time), 6) AS TEXT), ' s on',
      CASE WHEN wait_cpu IS NULL THEN '' ELSE concat(', CPU ', wait_cpu) END,
      CASE WHEN others > 0 THEN concat('; other threads that waited like this: ', others) ELSE '' END)
    WHEN 'blocked' THEN concat(CASE WHEN reason IS NULL THEN '' ELSE concat('in ', reason, '; ') END, 'the longest time: ', duration(block), ' from ',
      CAST(round(since_start(block_time), 6) AS TEXT), ' s on')
    ELSE concat(duration(running), ' of ', duration({length})) END AS detail,
  CASE kind
    WHEN 'unrecorded' THEN 'A filter, or the kernel, which does not count them, left these events out; what the threads did is unknown there'
    WHEN 'starved' THEN 'There is more to run than the CPUs can run, or priorities and affinities keep this thread from running'
    WHEN 'blocked' THEN 'It waits for a disk or for another part of the kernel, and cannot be stopped meanwhile'
    ELSE 'It computes without a pause, or spins while it waits' END AS why,
  CASE kind
    WHEN 'unrecorded' THEN concat('SELECT cpu, last_comm AS comm, last_tid AS tid, count(*) AS missing FROM (SELECT cpu, prev_pid, lag(next_comm) OVER w AS last_comm, lag(next_pid) OVER w AS last_tid',
      ' FROM sched_switch WINDOW w AS (PARTITION BY cpu ORDER BY time)) WHERE last_tid <> prev_pid GROUP BY ALL ORDER BY missing DESC')
    WHEN 'starved' THEN concat('SELECT comm, tid, count(*) AS periods, sum(duration) AS running FROM thread_states WHERE state = ''running''',
      CASE WHEN wait_cpu IS NULL THEN '' ELSE concat(' AND cpu = ', wait_cpu) END, ' AND time BETWEEN ', wait_time, ' AND ', wait_time + wait,
      ' GROUP BY ALL ORDER BY running DESC LIMIT 20')
    WHEN 'blocked' THEN concat('SELECT reason, stack_text(kernel_stack) AS stack, count(*) AS times, sum(duration) AS blocked FROM off_cpu WHERE state = ''uninterruptible'' AND tid = ', tid,
      ' GROUP BY ALL ORDER BY blocked DESC LIMIT 20')
    ELSE concat('SELECT state, count(*) AS periods, sum(duration) AS total FROM thread_states WHERE tid = ', tid, ' GROUP BY ALL ORDER BY total DESC') END AS sql
FROM described
