-- off_cpu: Off-CPU periods of threads, from leaving a CPU until running again.
-- needs: sched:sched_switch
-- record: -a -g -e sched:sched_switch,sched:sched_waking,sched:sched_wakeup,sched:sched_wakeup_new
-- duckdb: none, follows every thread through all scheduler events
-- columns:
--   time                time  Time at which the thread left its CPU.
--   duration            ns    Time until it ran again; NULL if that was not recorded.
--   cpu                 CPU that it left.
--   pid                 Process ID; NULL if unknown.
--   tid                 Thread ID.
--   comm                Thread name.
--   state               State in which it left: preempted, interruptible, uninterruptible, stopped, idle or parked.
--   reason              Function in which it waited: the innermost one outside the scheduler.
--   wake_time           time  Time of the wake-up; NULL if not recorded.
--   waker_tid           Thread that woke it; NULL if an interrupt did, or it was not recorded.
--   waker_comm          Name of the waker.
--   waker_context       task, softirq, irq, nmi, or idle for an interrupt of unknown kind; NULL if unknown.
--   interrupt           Interrupt in which the wake-up happened, as in wakeups; NULL if in none, or unknown.
--   kernel_stack        Kernel stack with which it left its CPU, an ID in stacks.
--   user_stack          User stack with which it left its CPU, an ID in stacks.
--   waker_kernel_stack  Kernel stack of the waker, an ID in stacks.
--   waker_user_stack    User stack of the waker, an ID in stacks.
SELECT time, duration, cpu, pid, tid, comm, state, blocked_function(kernel_stack) AS reason, wake_time, waker_tid, waker_comm, waker_context, interrupt,
  kernel_stack, user_stack, waker_kernel_stack, waker_user_stack{, trace}
FROM pass_off_cpu()
