-- An expression added up by keys, as DTrace's count, sum, avg, min, max and stddev.
SELECT {keys}count(*) AS count{values}
FROM {table}
WHERE {where}
{group}
ORDER BY {sort}
{limit}
