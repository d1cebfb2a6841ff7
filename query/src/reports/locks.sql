-- Waits for locks by keys. A wait for the end of a thread is none: nobody holds anything.
SELECT {keys}count(*) AS waits, count(error) AS errors, sum(duration) AS total, CAST(round(avg(duration)) AS BIGINT) AS avg, quantile(duration, 0.99) AS p99, max(duration) AS max,
  count(*) - count(duration) AS unknown, quantize(duration) AS histogram
FROM locks
WHERE kind <> 'join' AND ({where}
)
{group}
