-- What weighs most by one column.
SELECT {key} AS key, sum({weight}) AS weight, count(*) AS samples
FROM {table}
WHERE {where}
GROUP BY 1
ORDER BY 2 DESC, 1
