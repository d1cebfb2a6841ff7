-- ancestors(call_id): Calls that enclose a call.
-- needs: calls
-- record: --call 'vfs_*' -a
-- duckdb: own
-- arguments:
--   call_id  The call, an ID in calls.
-- columns:
--   call_id      The call.
--   ancestor_id  The enclosing call, an ID in calls.
--   distance     Number of calls between them, plus 1.
--   function     Function of the enclosing call; NULL if the call was written after the enclosed one.
SELECT call_id, ancestor_id, distance, ancestor AS function{, trace}
FROM pass_ancestors($call_id)
