WITH RECURSIVE rooted AS (
  SELECT call_id, call_id AS root_id, function AS root_function
  FROM calls
  WHERE parent_id IS NULL OR parent_id NOT IN (SELECT call_id FROM calls)
  UNION ALL
  SELECT nested.call_id, rooted.root_id, rooted.root_function
  FROM rooted JOIN calls nested ON nested.parent_id = rooted.call_id
)
SELECT time, cpu, pid, tid, comm, kernel_stack, user_stack, duration, self_time, function, module, caller, depth, call_id, parent_id,
  retval, args, context, entry_seen, exit_seen,
  -- A call whose parent was not recorded has an unknown root.
  CASE WHEN parent_id IS NULL OR root_id <> call_id THEN root_id END AS root_id,
  CASE WHEN parent_id IS NULL OR root_id <> call_id THEN root_function END AS root_function
FROM calls LEFT JOIN rooted USING (call_id)
