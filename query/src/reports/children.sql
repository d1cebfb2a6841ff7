-- How long functions took by caller. In a question of its own: pairs of functions are many, and a distribution of each
-- would cost more than a second pass over three columns.
SELECT {keys}caller AS function, function AS child, sum(duration) AS total
FROM calls
WHERE caller IS NOT NULL AND {where}
GROUP BY {keys}caller, function
