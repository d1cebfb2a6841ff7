-- The function with most samples of its own.
WITH by_stack AS (
  SELECT coalesce(kernel_stack, user_stack) AS stack, count(*) AS samples
  FROM samples
  WHERE pid <> 0 AND event = (SELECT event FROM samples GROUP BY event ORDER BY count(*) DESC, event LIMIT 1)
  GROUP BY 1
), by_function AS (
  SELECT stack_leaf(stack) AS function, sum(samples) AS samples FROM by_stack WHERE stack IS NOT NULL GROUP BY 1
)
SELECT 'info' AS severity, concat('The hottest function is ', function) AS title,
  concat(CAST(round(100.0 * samples / (SELECT sum(samples) FROM by_stack), 1) AS TEXT), '% of the samples') AS detail,
  concat('SELECT stack_text(user_stack), stack_text(kernel_stack), count(*) FROM samples WHERE stack_leaf(coalesce(kernel_stack, user_stack)) = ''',
    replace(function, '''', ''''''), ''' GROUP BY user_stack, kernel_stack ORDER BY 3 DESC') AS sql
FROM by_function
WHERE function IS NOT NULL
ORDER BY samples DESC, function
LIMIT 1
