-- Input that could not be read.
SELECT 'warning' AS severity, 'Parts of the input could not be read' AS title, min(message) AS detail,
  'Their events are missing in every answer' AS why, 'SELECT * FROM problems' AS sql
FROM problems
HAVING count(*) > 0
