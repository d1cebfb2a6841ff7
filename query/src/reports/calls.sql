-- One row a call, in the order of the entries.
SELECT {columns}
FROM calls
WHERE {where}
ORDER BY {order}
{limit}
