-- Waits for futexes that are locks.
SELECT tid, time FROM syscalls WHERE name = 'futex' AND (array_has(args, 'val=2') OR array_to_string(args, ' ') LIKE '%LOCK\_PI%')
