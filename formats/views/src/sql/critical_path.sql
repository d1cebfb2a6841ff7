-- critical_path(tid, from_time, to_time): Critical path of a thread: its own work, the work of threads that it waited for, and waits.
-- needs: sched:sched_switch, sched:sched_waking | sched:sched_wakeup
-- record: -a -g -e sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new,irq:*
-- duckdb: none, follows every thread through all scheduler events
-- arguments:
--   tid        The thread.
--   from_time  time  Start of the interval; NULL for that of the recording.
--   to_time    time  End of the interval; NULL for that of the recording.
-- columns:
--   time           time  Start of the part.
--   duration       ns    Length; the parts add up to the interval.
--   pid            Process ID; NULL if unknown.
--   tid            Thread on which the interval depended at that time.
--   comm           Name of the thread.
--   state          State of the thread, as in thread_states; "not started" and "exited" outside of its life; NULL if unknown.
--   why            Function in which it waited, from its kernel stack; NULL if it did not, or stacks were not recorded.
--   depth          Number of threads in the chain of waits from the given one.
--   waker_tid      Thread that woke it; NULL if an interrupt did, or it was not recorded.
--   waker_comm     Name of the waker.
--   waker_context  task, softirq, irq, nmi, or idle for an interrupt of unknown kind; NULL if unknown.
--   interrupt      Interrupt that woke it: its handler, or interrupt, softirq or NMI if that was not recorded; NULL if none, or unknown.
--   kernel_stack   Kernel stack with which it left its CPU, an ID in stacks.
--   user_stack     User stack with which it left its CPU, an ID in stacks.
-- While a thread sleeps, the path is that of the thread that wakes it. A sleep that an interrupt ends is on the path itself, and
-- so is one whose waker was recorded without its context (text without flags).
SELECT time, duration, pid, tid, comm, state, blocked_function(kernel_stack) AS why, depth, waker_tid, waker_comm, waker_context, interrupt,
  kernel_stack, user_stack{, trace}
FROM pass_critical_path($tid, $from_time, $to_time)
