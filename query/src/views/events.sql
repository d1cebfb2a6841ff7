-- The common columns of samples and of every event table, with the name of the event.
SELECT
  time,
  -- Wall-clock time, where the offset of the trace's clock is known.
  arrow_cast(time + wall_offset, 'Timestamp(Nanosecond, Some("UTC"))') AS wall_time,
  cpu,
  pid,
  tid,
  comm,
  event,
  kernel_stack,
  user_stack,
  trace
FROM (
  SELECT time, wall_offset, cpu, pid, tid, comm, event, kernel_stack, user_stack, trace
  FROM parts_of_views.sample_rows
  UNION ALL
  SELECT time, wall_offset, cpu, pid, tid, comm, event, kernel_stack, user_stack, trace
  FROM parts_of_views.event_rows
)
