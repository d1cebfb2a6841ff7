-- What each function took.
SELECT {keys}coalesce(function, '[unknown]') AS function,
  count(*) AS count, count(duration) AS known, sum(duration) AS total, sum(self_time) AS self,
  min(duration) AS min, max(duration) AS max, histogram(duration) AS bars,
  quantiles(duration, 0.5, 0.95, 0.99) AS percentiles
FROM calls
WHERE {where}
GROUP BY {keys}coalesce(function, '[unknown]')
