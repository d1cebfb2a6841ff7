-- processes: Processes: their parents, lifetimes and CPU times.
-- columns:
--   pid         Process ID.
--   parent      Process that created it; NULL if unknown.
--   comm        Name of its first thread.
--   cmdline     Command line; NULL if not recorded.
--   start_time  time  Time of creation; NULL if before the recording.
--   end_time    time  Time of exit; NULL if after the recording or unknown.
--   exit_code   Exit status; NULL if unknown.
--   cpu_time    ns    Time that its threads ran; NULL if switches were not recorded.
--   threads     Number of its threads that were seen.
SELECT pid, parent, comm, cmdline, start_time, end_time, exit_code, cpu_time, threads{, trace}
FROM pass_processes()
