-- Every event with its table. Those with samples come first, for they were meant to show where time goes.
SELECT system, event, CASE WHEN kind IN ('counter', 'software') THEN 'samples' ELSE 'events' END AS place, sum(rows) AS rows
FROM event_types
GROUP BY system, event, place
ORDER BY place DESC, rows DESC, event
