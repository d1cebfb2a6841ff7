-- recorded_events: Recorded events, with their tables and numbers of rows.
-- duckdb: same
-- columns:
--   system      Subsystem of the event.
--   event       Name of the event.
--   table_name  Table with its rows.
--   rows        Number of rows.
SELECT system, event, table_name, sum(rows) AS rows
FROM event_types
GROUP BY system, event, table_name
