-- Every event with its table. Those with samples come first, for they were meant to show where time goes.
SELECT system, event, "table", sum(rows) AS rows
FROM event_types
GROUP BY system, event, "table"
ORDER BY "table" = 'samples' DESC, rows DESC, event
