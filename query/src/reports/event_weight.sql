-- Every event with its table. Those with samples come first, for they were meant to show where time goes.
SELECT system, event, table_name, sum(rows) AS rows
FROM event_types
GROUP BY system, event, table_name
ORDER BY table_name = 'samples' DESC, rows DESC, event
