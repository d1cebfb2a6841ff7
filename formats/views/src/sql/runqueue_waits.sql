-- runqueue_waits: Waits of threads for a CPU.
-- needs: sched:sched_switch, sched:sched_waking | sched:sched_wakeup
-- record: -a -e sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new
-- duckdb: none, follows every thread through all scheduler events
-- columns:
--   time        time  Start of the wait.
--   duration    ns    Time until the thread runs; NULL if that was not recorded.
--   cpu         CPU on which the wait ended.
--   pid         Process ID; NULL if unknown.
--   tid         Thread ID.
--   comm        Thread name.
--   why         woken, preempted or new.
--   waker_tid   Thread that woke it; NULL if an interrupt did, or it was not recorded.
--   waker_comm  Name of the waker.
--   from_cpu    CPU on which the thread ran before; NULL if unknown.
--   migrated    Whether cpu differs from from_cpu.
SELECT time, duration, cpu, pid, tid, comm,
  CASE WHEN state = 'preempted' THEN 'preempted' WHEN is_new THEN 'new' ELSE 'woken' END AS why,
  waker_tid, waker_comm, from_cpu, cpu <> from_cpu AS migrated{, trace}
FROM pass_thread_states()
WHERE state IN ('runnable', 'preempted')
