-- cpu_utilization(step): Utilization of each CPU, in steps of equal length.
-- needs: sched:sched_switch
-- record: -a -e sched:sched_switch,irq:irq_handler_entry,irq:irq_handler_exit,irq:softirq_entry,irq:softirq_exit
-- duckdb: none, follows every thread through all scheduler events
-- arguments:
--   step  ns  Length of a step.
-- columns:
--   time      time   Start of the step.
--   duration  ns     Length of the step.
--   cpu       CPU.
--   busy      share  Time not idle.
--   user      share  Time of threads outside of system calls; NULL if system calls were not recorded.
--   kernel    share  Time of threads in system calls and of the kernel's threads; NULL if system calls were not recorded.
--   irq       share  Time in interrupts; NULL if they were not recorded.
--   softirq   share  Time in softirqs; NULL if they were not recorded.
--   idle      share  Time in the idle task.
--   covered   share  Share of the step for which the state of the CPU is known; the other shares refer to this time.
-- user, kernel, irq, softirq and idle add up to 1 if all were recorded. Page faults count as user.
SELECT time, duration, cpu, busy, "user", kernel, irq, softirq, idle, covered{, trace}
FROM pass_cpu_utilization($step)
