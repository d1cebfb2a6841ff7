-- Wake-ups by keys. total, avg, p99 and max are those of the wait for a CPU after the wake-up.
SELECT {keys}count(*) AS wakeups, sum(slept) AS slept, sum(latency) AS total, CAST(round(avg(latency)) AS BIGINT) AS avg, quantile(latency, 0.99) AS p99, max(latency) AS max,
  count(*) - count(latency) AS unknown, quantize(latency) AS histogram
FROM wakeups
WHERE {where}
{group}
