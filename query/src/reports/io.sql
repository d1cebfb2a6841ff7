-- Requests of block devices by keys. total, avg, p99 and max are those of the time in the device.
SELECT {keys}count(*) AS requests, count(error) AS errors, sum(bytes) AS bytes, sum(queued) AS queued,
  sum(duration) AS total, CAST(round(avg(duration)) AS BIGINT) AS avg, quantile(duration, 0.99) AS p99, max(duration) AS max,
  count(*) - count(duration) AS unknown, quantize(duration) AS histogram
FROM block_io
WHERE {where}
{group}
