-- cpu_frequency: Frequency of each CPU, one row per period.
-- needs: power:cpu_frequency
-- record: -a -e power:cpu_frequency
-- duckdb: own
-- columns:
--   time      time  Start of the period.
--   duration  ns    Time until the frequency changes; NULL for the last period, or if events are missing.
--   cpu       CPU.
--   khz       kHz   Frequency.
SELECT time, duration, cpu, value AS khz{, trace}
FROM pass_cpu_frequency()
