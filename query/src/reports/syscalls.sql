-- System calls by keys. One without a name has its number instead.
SELECT {keys}count(*) AS calls, count(error) AS errors, sum(duration) AS total, CAST(round(avg(duration)) AS BIGINT) AS avg, quantile(duration, 0.99) AS p99, max(duration) AS max,
  count(*) - count(duration) AS unknown, quantize(duration) AS histogram
FROM (SELECT * EXCEPT (name), coalesce(name, CAST(nr AS TEXT)) AS name FROM syscalls) AS syscalls
WHERE {where}
{group}
