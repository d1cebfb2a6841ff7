-- How long what was called took, by those calls that are shown.
SELECT {keys}p.function AS function, c.function AS child, sum(c.duration) AS total
FROM calls c
JOIN (SELECT {picked}call_id, coalesce(function, '[unknown]') AS function FROM calls WHERE {where}) p
  ON c.parent_id = p.call_id{same_trace}
GROUP BY {keys}p.function, c.function
