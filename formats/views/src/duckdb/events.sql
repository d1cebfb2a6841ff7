SELECT time, make_timestamp_ns(time + wall_offset) AS wall_time, cpu, pid, tid, comm, event, kernel_stack, user_stack, trace
FROM (
  SELECT * FROM parts_of_views.sample_rows
  UNION ALL
  SELECT * FROM parts_of_views.event_rows
)
