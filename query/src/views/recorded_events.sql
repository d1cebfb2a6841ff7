-- Every recorded event with its table and its rows, also one that never occurred.
SELECT system, event, table_name, sum(rows) AS rows
FROM event_types
GROUP BY system, event, table_name
