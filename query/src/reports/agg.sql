-- An expression added up by keys, as DTrace's count, sum, avg, min, max and stddev: its values, not the rows without one.
SELECT {keys}{values}
FROM {table}
WHERE {where}
{group}
ORDER BY {sort}
{limit}
