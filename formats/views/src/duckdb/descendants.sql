WITH RECURSIVE below AS (
  SELECT child.call_id AS nested, 1 AS steps
  FROM calls child WHERE child.parent_id = $call_id
  UNION ALL
  SELECT child.call_id, below.steps + 1
  FROM below JOIN calls child ON child.parent_id = below.nested
  -- What a damaged trace connects in a circle ends here.
  WHERE below.steps < 100000
)
SELECT nested.time, nested.duration, nested.self_time, nested.call_id AS call_id, CAST($call_id AS BIGINT) AS ancestor_id,
  below.steps AS distance, nested.function
FROM below JOIN calls nested ON nested.call_id = below.nested
