-- The distribution of an expression by keys.
SELECT {keys}{function} AS bars
FROM {table}
WHERE {where} AND ({expression}) IS NOT NULL
{group}
