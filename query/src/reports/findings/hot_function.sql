-- The function, or the module of functions without names, with most samples of its own, of the event with most samples that stands for time: not faults, switches or bookkeeping.
WITH event AS (
  SELECT event FROM samples
  WHERE NOT regexp_like(event, '(dummy|fault|context-switches|^cs$|migrations|bpf-output|branch|cache|miss)')
  GROUP BY event ORDER BY count(*) DESC, event LIMIT 1
), by_stack AS (
  SELECT tid, first_value(comm) AS comm, coalesce(kernel_stack, user_stack) AS stack, count(*) AS samples
  FROM samples
  WHERE coalesce(tid, pid, -1) <> 0 AND event = (SELECT event FROM event) AND {threads}
  GROUP BY tid, 3
), by_function AS (
  SELECT stack_leaf(stack) AS function, sum(samples) AS samples, first_value(comm ORDER BY samples DESC, tid) AS comm, first_value(tid ORDER BY samples DESC, tid) AS tid
  FROM by_stack WHERE stack IS NOT NULL GROUP BY 1
)
SELECT 'info' AS severity, concat(function, ' takes ', CAST(round(100.0 * samples / (SELECT sum(samples) FROM by_stack), 1) AS TEXT), '% of the samples') AS title,
  concat(samples, ' of ', (SELECT sum(samples) FROM by_stack), ' samples of ', (SELECT event FROM event), ' on busy CPUs, recorders aside; most of ', coalesce(comm, 'thread'), ' (', tid, ')') AS detail,
  CASE WHEN function = '[unknown]' THEN 'Neither function nor module of this code is known: the recording has no mapping for its addresses'
    WHEN starts_with(function, '[') THEN 'This is a module, whose functions have no names in this trace: symbols or debug info would tell them apart'
    ELSE 'A change to this function, or to how often it is called, has the largest effect' END AS why,
  concat('SELECT stack_text(user_stack) AS user, stack_text(kernel_stack) AS kernel, count(*) AS samples FROM samples WHERE stack_leaf(coalesce(kernel_stack, user_stack)) = ''',
    replace(function, '''', ''''''), ''' GROUP BY user_stack, kernel_stack ORDER BY samples DESC LIMIT 20') AS sql
FROM by_function
WHERE function IS NOT NULL AND 10 * samples >= (SELECT sum(samples) FROM by_stack) AND samples >= 20
ORDER BY samples DESC, function
LIMIT 1
