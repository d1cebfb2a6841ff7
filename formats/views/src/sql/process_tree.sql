-- process_tree: Process tree, with children below their parents.
-- duckdb: none, follows every thread through all scheduler events
-- columns:
--   name        Name, indented by two blanks for each parent.
--   depth       Number of parents that were seen.
--   pid         Process ID.
--   parent      Process that created it; NULL if unknown.
--   cmdline     Command line; NULL if not recorded.
--   start_time  time  Time of creation; NULL if before the recording.
--   end_time    time  Time of exit; NULL if after the recording or unknown.
--   cpu_time    ns    Time that its threads ran; NULL if switches were not recorded, or which threads it has.
--   threads     Number of its threads that were seen; NULL if the recording has no process IDs.
SELECT name, depth, pid, parent, cmdline, start_time, end_time, cpu_time, threads{, trace}
FROM pass_process_tree()
