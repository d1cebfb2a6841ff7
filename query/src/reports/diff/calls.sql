-- Calls by function and run or slice.
SELECT {key} AS function, {module} AS module, {replicate} AS replicate, count(*) AS calls, count(duration) AS known,
    sum(duration) AS total, sum(self_time) AS own
FROM {table}
WHERE {where}
GROUP BY 1, 2, 3
