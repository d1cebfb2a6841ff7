-- calls_with_context: Calls with their outermost enclosing call.
-- needs: calls
-- record: --call 'vfs_*' -a
-- duckdb: own
-- columns:
--   time           time  Time of the entry.
--   cpu            CPU.
--   pid            Process ID.
--   tid            Thread ID.
--   comm           Thread name.
--   kernel_stack   Kernel stack, an ID in stacks.
--   user_stack     User stack, an ID in stacks.
--   duration       ns    Time from entry to exit; NULL if unknown.
--   self_time      ns    Duration without nested calls; NULL if one of their durations is unknown.
--   function       Name of the function.
--   module         File that contains the function; NULL if unknown.
--   caller         Function that made the call; NULL if unknown.
--   depth          Number of enclosing calls, 0 for the outermost one recorded.
--   call_id        ID of the call.
--   parent_id      Enclosing call, an ID in calls; NULL if unknown.
--   retval         Return value; NULL if not recorded.
--   args           Arguments, as name=value; NULL if not recorded.
--   context        task, softirq, irq or nmi.
--   entry_seen     Whether the entry was recorded.
--   exit_seen      Whether the exit was recorded.
--   root_id        Outermost enclosing call, or the call itself; NULL if unknown.
--   root_function  Function of the outermost call.
SELECT time, cpu, pid, tid, comm, kernel_stack, user_stack, duration, self_time, function, module, caller, depth, call_id, parent_id,
  retval, args, context, entry_seen, exit_seen, ancestor_id AS root_id, ancestor AS root_function{, trace}
FROM pass_rooted_calls()
