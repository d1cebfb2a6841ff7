-- The parts of a critical path, added up.
SELECT CAST(sum(duration) AS DOUBLE) / sum(sum(duration)) OVER () * 100 AS percent, sum(duration) AS total, count(*) AS parts,
  comm, tid, coalesce(state, 'unknown') AS state, why, ended_by, depth
FROM (
  -- The interrupt that ended a sleep.
  SELECT *, CASE WHEN coalesce(state, '') NOT IN ('running', 'runnable', 'preempted') THEN interrupt END AS ended_by
  FROM critical_path({tid}, {from}, {to})
)
GROUP BY comm, tid, state, why, ended_by, depth
ORDER BY total DESC, comm, tid, state
{limit}
