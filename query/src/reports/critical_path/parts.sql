-- The parts of a critical path in their order.
SELECT (time - {start}) / 1e9 AS seconds, duration, depth, comm, tid, state, why, waker_comm, interrupt
FROM critical_path({tid}, {from}, {to})
ORDER BY time
{limit}
