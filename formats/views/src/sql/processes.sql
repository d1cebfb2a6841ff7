-- processes: Processes: their parents, lifetimes and CPU times.
-- duckdb: none, follows every thread through all scheduler events
-- columns:
--   pid         Process ID.
--   parent      Process that created it; NULL if unknown.
--   comm        Name of its first thread.
--   cmdline     Command line; NULL if not recorded.
--   start_time  time  Time of creation; NULL if before the recording.
--   end_time    time  Time of exit; NULL if after the recording or unknown.
--   exit_code   Exit status; NULL if unknown.
--   cpu_time    ns    Time that its threads ran; NULL if switches were not recorded, or which threads it has, or only some of its threads were recorded. Periods without a recorded start or end do not count; those open at the end count up to the last event.
--   threads     Number of its threads that were seen; NULL if the recording has no process IDs.
-- A recording without process IDs, such as a text of ftrace, has only processes whose execution of a program was recorded
-- (sched_process_exec), or whose creation as a process (task_newtask). A message counts the other threads.
SELECT pid, parent, comm, cmdline, start_time, end_time, exit_code, cpu_time, threads{, trace}
FROM pass_processes()
