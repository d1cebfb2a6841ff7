#!/bin/bash
# Texts of tracefs: each is one read of `trace`, or of the file named in its line, after a small load.
. ./common.sh
cd /tmp; reset_trace
save() { off; cat "$T/${4:-trace}" > $W/out/$1; about "$1" "$2" "$3"; reset_trace; }
# Number of events that the kernel counts in its rings, and of overwritten ones.
stats() { for cpu in 0 1; do sed "s/^/$1 cpu$cpu /" $T/per_cpu/cpu$cpu/stats; done | grep -E ' cpu[01] (entries|overrun): ' >> $W/out/STATS; }
EVENTS="sched:sched_switch sched:sched_wakeup sched:sched_process_exec sched:sched_process_fork sched:sched_process_exit syscalls:sys_enter_write syscalls:sys_exit_write syscalls:sys_enter_openat syscalls:sys_exit_openat irq:softirq_entry irq:softirq_exit timer:hrtimer_expire_entry"
SMALL="sched:sched_switch syscalls:sys_enter_write syscalls:sys_exit_write"
# A few functions only: patching all of them takes an emulated machine ten seconds each time.
FEW="ksys_* vfs_* *_write_iter* rw_verify* generic_* fdget_pos mutex_* *nanosleep* hrtimer_start* __fsnotify* file_*"
graph() {
  for pattern in $FEW; do echo "$pattern" >> $T/set_ftrace_filter; done
  for function in "$@"; do echo $function >> $T/set_graph_function; done
  echo function_graph > $T/current_tracer
}
dd2() { taskset -c 0 dd if=/dev/zero of=/tmp/f bs=4k count=2 2>/dev/null; }
filter() { for function in "$@"; do echo $function >> $T/set_ftrace_filter; done; }
case $1 in
events)
enable $EVENTS; on; load; off; stats events.trace
save events.trace "events of the scheduler, of system calls, of timers on two CPUs" "cat trace"
# The same ring twice: with the events' print formats, and with their fields.
enable $EVENTS kmem:kmalloc kmem:kfree; on; load; off
cat $T/trace > $W/out/twice.trace; about twice.trace "a ring, printed by the formats of the events" "cat trace"
if [ -e $T/options/fields ]; then
  option fields 1; cat $T/trace > $W/out/twice-fields.trace
  about twice-fields.trace "the same ring, printed field by field" "echo 1 > options/fields; cat trace"
fi
reset_trace
for name in sym-offset verbose raw hex latency-format record-tgid stacktrace userstacktrace; do
  enable $SMALL; option $name 1; on; load; off; stats events-$name.trace
  save events-$name.trace "with the option $name" "echo 1 > options/$name"
done
for name in context-info irq-info annotate; do
  enable $SMALL; option $name 0; on; load; off; stats events-no$name.trace
  save events-no$name.trace "without the option $name" "echo 0 > options/$name"
done
for clock in global counter uptime mono x86-tsc; do
  echo $clock > $T/trace_clock; enable syscalls:sys_enter_write; on; load; off; stats clock-$clock.trace
  save clock-$clock.trace "the clock $clock" "echo $clock > trace_clock"
done
enable $SMALL; on; load; off
timeout 2 cat $T/trace_pipe > $W/out/events.trace_pipe; about events.trace_pipe "a pipe, without a head" "cat trace_pipe"
reset_trace
# Lost events: a ring that has wrapped, and the same through a pipe.
echo 8 > $T/buffer_size_kb; enable syscalls:sys_enter_write syscalls:sys_exit_write; on
for cpu in 0 1; do taskset -c $cpu dd if=/dev/zero of=/dev/null bs=1 count=600 2>/dev/null; done; off; stats overrun.trace
cat $T/trace > $W/out/overrun.trace; about overrun.trace "a ring that has wrapped" "buffer_size_kb=8; cat trace"
timeout 2 cat $T/trace_pipe > $W/out/lost.trace_pipe; about lost.trace_pipe "the same ring through a pipe" "cat trace_pipe"
reset_trace
enable syscalls:sys_enter_write; on; echo "a marker a=1" > $T/trace_marker; load; printf 'two\nlines' > $T/trace_marker
save marker.trace "markers among events" "echo a marker a=1 > trace_marker"
cat $T/trace > $W/out/empty.trace; about empty.trace "nothing was traced" "cat trace"
;;
functions)
F="vfs_read vfs_write ksys_write ksys_read schedule"
filter $F; echo function > $T/current_tracer; on; load; off; stats function.trace
save function.trace "the function tracer, five functions" "set_ftrace_filter: $F"
filter $F; echo function > $T/current_tracer; option func_stack_trace 1; on; dd2
save function-stack.trace "with stacks" "echo 1 > options/func_stack_trace"
filter $F; echo function > $T/current_tracer; enable syscalls:sys_enter_write sched:sched_switch; on; load
save function-events.trace "functions and events" "two events enabled as well"
graph ksys_write; on; dd2
save graph.trace "function_graph of ksys_write, every depth" "echo ksys_write > set_graph_function"
for name in abstime proc tail nocpu noduration noirqs; do
  graph ksys_write; echo 4 > $T/max_graph_depth
  case $name in no*) option funcgraph-${name#no} 0 ;; *) option funcgraph-$name 1 ;; esac
  on; dd2; save graph-$name.trace "function_graph to depth 4, $name" "max_graph_depth=4, option funcgraph-${name#no}"
done
graph ksys_write; echo 3 > $T/max_graph_depth; enable syscalls:sys_enter_write sched:sched_switch; on
echo "in the graph" > $T/trace_marker; load
save graph-events.trace "events and a marker inside of a graph" "max_graph_depth=3, two events, trace_marker"
graph __x64_sys_clock_nanosleep; on; usleep 20000; sleep 0.02
save graph-sleep.trace "a function that sleeps" "echo __x64_sys_clock_nanosleep > set_graph_function; usleep 20000"
graph ksys_write; echo 3 > $T/max_graph_depth; on; dd2; off
timeout 2 cat $T/trace_pipe > $W/out/graph.trace_pipe; about graph.trace_pipe "function_graph through a pipe" "cat trace_pipe"
reset_trace
;;
new)
# Output of newer kernels only.
graph ksys_write; echo 4 > $T/max_graph_depth; option funcgraph-args 1; on; dd2
save graph-args.trace "function_graph with arguments" "echo 1 > options/funcgraph-args"
filter vfs_read vfs_write; echo function > $T/current_tracer; option func-args 1; on; load
save function-args.trace "the function tracer with arguments" "echo 1 > options/func-args"
enable $EVENTS; on; load; off; stats events.trace
save events.trace "events of the scheduler, of system calls, of timers on two CPUs" "cat trace"
;;
probes)
echo 'p:probe/vfs_write vfs_write file=%di buf=%si count=%dx:u64' >> $T/dynamic_events
echo 'r:probe/vfs_write_ret vfs_write ret=$retval:s64' >> $T/dynamic_events
echo 'p:probe/do_sys_openat2 do_sys_openat2 dfd=%di:s32 name=+0(%si):ustring comm=$comm' >> $T/dynamic_events
enable probe:vfs_write probe:vfs_write_ret probe:do_sys_openat2; on; load
save kprobe.trace "kprobes with arguments and a string, a kretprobe" "p:probe/vfs_write vfs_write file=%di …"
echo "p:probe_work/work_inner $WL:$(cat $W/offset) n=%di:s64 label=+0(%si):string" >> $T/dynamic_events
echo "r:probe_work/work_inner_ret $WL:$(cat $W/offset) ret=\$retval:s64" >> $T/dynamic_events
enable probe_work:work_inner probe_work:work_inner_ret; on; $WL 5
save uprobe.trace "a uprobe with arguments, a uretprobe" "p:probe_work/work_inner workload:OFFSET n=%di:s64 …"
histogram() { # NAME WHAT EVENT TRIGGER
  echo "$4" > $T/events/$3/trigger; on; load; load; off
  cat $T/events/$3/hist > $W/out/$1; about $1 "$2" "echo '$4' > events/$3/trigger; cat hist"
  echo "!$4" > $T/events/$3/trigger
}
histogram hist-sizes.txt "a histogram of sizes" syscalls/sys_enter_write 'hist:keys=count.log2:vals=hitcount,count:sort=count'
histogram hist-tasks.txt "a histogram by task and size" syscalls/sys_enter_write 'hist:keys=common_pid.execname,count:vals=hitcount:sort=hitcount.descending'
reset_trace
;;
esac
