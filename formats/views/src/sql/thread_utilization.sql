-- thread_utilization(step): Utilization of each thread, in steps of equal length.
-- needs: sched:sched_switch | perf:context_switch
-- record: -a -e sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new
-- duckdb: none, follows every thread through all scheduler events
-- arguments:
--   step  ns  Length of a step.
-- columns:
--   time      time   Start of the step.
--   duration  ns     Length of the step.
--   pid       Process ID; NULL if unknown.
--   tid       Thread ID.
--   comm      Thread name.
--   busy      share  Time running.
--   waiting   share  Time waiting for a CPU.
--   blocked   share  Time in uninterruptible sleep.
-- Steps in which a thread only slept have no row. A state that is open at the end lasts to the last event of the trace. The sum of `busy` is the parallelism.
SELECT time, duration, pid, tid, comm, busy, waiting, blocked{, trace}
FROM pass_thread_utilization($step)
