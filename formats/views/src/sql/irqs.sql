-- irqs: Interrupts, softirqs and tasklets, and the threads that they interrupted.
-- needs: irq:irq_handler_entry | irq:softirq_entry | irq:tasklet_entry | irq_vectors:*
-- record: -a -e irq:*,irq_vectors:*
-- duckdb: none, finds the number of each interrupt in the last entry on its CPU
-- columns:
--   time              time  Time of the entry.
--   duration          ns    Time from entry to exit; NULL if one of them was not recorded.
--   self_time         ns    Duration without interrupts of this one; NULL if one of them is unknown.
--   cpu               CPU; NULL if the input has none.
--   kind              irq, ipi (from another CPU), softirq, tasklet or nmi.
--   nr                Number of the interrupt, vector or softirq; NULL if not recorded.
--   name              Name of the handler, vector or softirq.
--   interrupted_tid   Thread that was interrupted.
--   interrupted_comm  Name of the interrupted thread.
SELECT time, duration, self_time, cpu, kind, nr, name, interrupted_tid, interrupted_comm{, trace}
FROM pass_interrupts()
