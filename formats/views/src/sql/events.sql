-- events: All events and samples: common columns, event name, wall-clock time.
-- duckdb: own
-- columns:
--   time          time  Time of the event on the trace's clock.
--   wall_time     Wall-clock time; NULL if the offset of the trace's clock is unknown.
--   cpu           CPU of the event.
--   pid           Process ID.
--   tid           Thread ID.
--   comm          Thread name at the time of the event.
--   event         Name of the event.
--   kernel_stack  Kernel stack, an ID in stacks; NULL if not recorded.
--   user_stack    User stack, an ID in stacks; NULL if not recorded.
--   trace         Name of the trace.
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
