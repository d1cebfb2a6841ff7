-- cpu_frequency: Frequency of each CPU, as stretches.
-- needs: power:cpu_frequency
-- record: -a -e power:cpu_frequency
-- columns:
--   time      time  Begin of the stretch.
--   duration  ns    Time until the frequency changes; NULL for the last stretch, or if events are missing.
--   cpu       CPU.
--   khz       kHz   Frequency.
SELECT time, duration, cpu, value AS khz{, trace}
FROM pass_cpu_frequency()
