-- The lock for which threads waited longest in total.
SELECT 'info' AS severity,
  concat('Threads waited ', duration(sum(duration)), ' for one ', kind) AS title,
  concat(count(*), ' waits for ', address(address), ', the longest ', duration(max(duration))) AS detail,
  concat('SELECT comm, stack_text(kernel_stack), count(*), sum(duration) FROM locks WHERE address = ', address, ' GROUP BY comm, kernel_stack ORDER BY 4 DESC') AS sql
FROM locks
WHERE duration IS NOT NULL AND address IS NOT NULL
GROUP BY kind, address
ORDER BY sum(duration) DESC, address
LIMIT 1
