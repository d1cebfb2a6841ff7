-- The lines of the log as they were read: calls are numbered in that order.
SELECT function, caller, duration, time, tid, cpu, context, args
FROM calls
WHERE {where}
ORDER BY call_id
