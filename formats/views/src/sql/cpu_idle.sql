-- cpu_idle: Idle states of each CPU, one row per period.
-- needs: power:cpu_idle
-- record: -a -e power:cpu_idle
-- duckdb: own
-- columns:
--   time      time  Time at which the CPU enters the state.
--   duration  ns    Time until it leaves the state; NULL for the last period, or if events are missing.
--   cpu       CPU.
--   state     Number of the state; deeper ones have higher numbers.
SELECT time, duration, cpu, value AS state{, trace}
FROM pass_cpu_idle()
