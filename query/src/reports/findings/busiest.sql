-- The 100 ms with most samples of threads that are not idle.
WITH slots AS (
  SELECT (time - {start}) / 100000000 AS slot, count(*) AS samples
  FROM samples
  WHERE pid <> 0 AND event = (SELECT event FROM samples GROUP BY event ORDER BY count(*) DESC, event LIMIT 1)
  GROUP BY 1
), busiest AS (
  SELECT slot, samples, (SELECT avg(samples) FROM slots) AS average FROM slots ORDER BY samples DESC, slot LIMIT 1
)
SELECT 'info' AS severity, concat('The busiest 100 ms begin at ', CAST(slot / 10.0 AS TEXT), ' s') AS title,
  concat(samples, ' samples, ', CAST(round(samples / average, 1) AS TEXT), ' times the average') AS detail,
  concat('SELECT comm, count(*) FROM samples WHERE time BETWEEN ', {start} + slot * 100000000, ' AND ', {start} + (slot + 1) * 100000000 - 1,
    ' GROUP BY comm ORDER BY 2 DESC') AS sql
FROM busiest
