-- How an expression is distributed in each slot of time.
SELECT (time - {start}) / {width} AS slot, histogram({expression}) AS bars
FROM {table}
WHERE {where} AND time IS NOT NULL AND ({expression}) IS NOT NULL
GROUP BY 1
