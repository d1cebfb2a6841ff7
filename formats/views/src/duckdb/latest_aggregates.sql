SELECT aggregate_id, name, action, keys, value, kernel_stack, user_stack, snapshot, time, exact_value
FROM (
  SELECT *, rank() OVER (
    PARTITION BY name, known_action, keys, kernel_stack, user_stack
    ORDER BY snapshot DESC
  ) AS age
  FROM (
    -- A distribution of one bar does not show its action; another printout of the same key may.
    SELECT *, coalesce(action, max(action) OVER (
      PARTITION BY name, keys, kernel_stack, user_stack, value IS NULL
    )) AS known_action
    FROM aggregates
    WHERE since IS NULL
  )
)
WHERE age = 1
  OR name IS NULL AND len(keys) = 0 AND kernel_stack IS NULL AND user_stack IS NULL
