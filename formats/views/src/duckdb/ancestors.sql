WITH RECURSIVE above AS (
  SELECT below.call_id AS of_call, below.parent_id AS ancestor, 1 AS steps, parent.function AS name, parent.parent_id AS next
  FROM calls below LEFT JOIN calls parent ON parent.call_id = below.parent_id
  WHERE below.call_id = $call_id AND below.parent_id IS NOT NULL
  UNION ALL
  SELECT above.of_call, parent.call_id, above.steps + 1, parent.function, parent.parent_id
  FROM above JOIN calls parent ON parent.call_id = above.next
  -- What a damaged trace connects in a circle ends here.
  WHERE above.steps < 100000
)
SELECT above.of_call AS call_id, above.ancestor AS ancestor_id, above.steps AS distance, above.name AS function
FROM above
