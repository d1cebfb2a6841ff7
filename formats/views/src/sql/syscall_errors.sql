-- syscall_errors: Failed system calls, by name, error and thread name.
-- needs: raw_syscalls:sys_enter | syscalls:sys_enter_* | strace:*, raw_syscalls:sys_exit | syscalls:sys_exit_* | strace:*
-- record: -a -e raw_syscalls:sys_enter,raw_syscalls:sys_exit
-- duckdb: none, selects from syscalls
-- columns:
--   name   Name of the system call.
--   error  Name of the error.
--   comm   Thread name.
--   count  Number of failed calls.
--   first  time  Time of the first one.
--   last   time  Time of the last one.
SELECT name, error, comm, count(*) AS count, min(time) AS first, max(time) AS last{, trace}
FROM syscalls
WHERE error IS NOT NULL
GROUP BY name, error, comm{, trace}
