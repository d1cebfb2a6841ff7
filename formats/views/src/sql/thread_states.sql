-- thread_states: States of threads: one row per period of running, waiting or sleeping.
-- needs: sched:sched_switch | perf:context_switch
-- record: -a -g -e sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new
-- columns:
--   time           time  Start of the period.
--   duration       ns    Time until the next one; NULL if its end was not recorded.
--   cpu            CPU on which the thread runs, waits or left.
--   pid            Process ID; NULL if unknown.
--   tid            Thread ID.
--   comm           Thread name.
--   state          running, runnable (woken, waiting for a CPU), preempted (waiting for a CPU), interruptible, uninterruptible, stopped, idle, parked or dead; NULL if it sleeps in an unknown state.
--   waker_tid      Thread that woke it, or was interrupted by the wake-up; NULL if not recorded.
--   waker_comm     Name of the waker.
--   waker_context  task, softirq, irq, nmi, or idle for an unknown interrupt; NULL if unknown.
--   wake_time      time  Time of the wake-up that ended a sleep or began a wait.
--   kernel_stack   Kernel stack with which it left its CPU, an ID in stacks.
--   user_stack     User stack with which it left its CPU, an ID in stacks.
-- Without wake-ups, the wait after a sleep is part of the sleep. Idle tasks are not threads.
SELECT time, duration, cpu, pid, tid, comm, state, waker_tid, waker_comm, waker_context, wake_time, kernel_stack, user_stack{, trace}
FROM pass_thread_states()
