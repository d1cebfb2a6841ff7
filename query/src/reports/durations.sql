-- Per function and caller, in one pass; callers are added up in Rust, where each is also told its slowest child.
SELECT {keys}coalesce(function, '[unknown]') AS function, caller,
  count(*) AS count, count(duration) AS known, sum(duration) AS total, sum(self_time) AS self,
  min(duration) AS min, max(duration) AS max, histogram(duration) AS bars
FROM calls
WHERE {where}
GROUP BY {keys}coalesce(function, '[unknown]'), caller
