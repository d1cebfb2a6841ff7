-- Weight and rows by key and run or slice.
SELECT CAST({key} AS TEXT) AS key, {replicate} AS replicate, sum({weight}) AS weight, count(*) AS samples
FROM {table}
WHERE {where}
GROUP BY 1, 2
