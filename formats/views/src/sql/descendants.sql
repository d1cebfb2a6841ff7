-- descendants(call_id): Calls nested in a call.
-- needs: calls
-- record: --call 'vfs_*' -a
-- duckdb: own
-- arguments:
--   call_id  The call, an ID in calls.
-- columns:
--   time         time  Time of the entry.
--   duration     ns    Time from entry to exit; NULL if unknown.
--   self_time    ns    Duration without nested calls; NULL if one of their durations is unknown.
--   call_id      The nested call.
--   ancestor_id  The enclosing call.
--   distance     Number of calls between them, plus 1.
--   function     Function of the nested call.
SELECT time, duration, self_time, call_id, ancestor_id, distance, function{, trace}
FROM pass_descendants($call_id)
