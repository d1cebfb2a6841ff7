-- runqueue_lengths: Number of threads that wait for each CPU, as a step function.
-- needs: sched:sched_switch, sched:sched_waking | sched:sched_wakeup
-- record: -a -e sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new,sched:sched_migrate_task
-- duckdb: none, follows every thread through all scheduler events
-- columns:
--   time      time  Start of the step.
--   duration  ns    Time until the length changes; NULL for the last step.
--   cpu       CPU.
--   length    Number of waiting threads, without the running one.
-- Waits whose end was not recorded do not count. A recording of some threads has no rows: how many others wait is unknown.
SELECT time, duration, cpu, length{, trace}
FROM pass_runqueue_lengths()
