#!/bin/bash
# trace.dat files. Their `trace-cmd report` is printed on the host, which has the plugins.
. ./common.sh
cd /tmp; reset_trace
# trace-cmd stores all of /proc/kallsyms, 7 MB, and without any event the formats of all: a short list of symbols and
# an event that never happens keep the files small.
kallsyms_of "$W/names.txt" > /tmp/kallsyms
mount --bind /tmp/kallsyms /proc/kallsyms
FEW="-e syscalls:sys_enter_reboot"
DD="dd if=/dev/zero of=/tmp/f bs=4k count=12"
S="-e sched:sched_switch -e sched:sched_wakeup -e syscalls:sys_enter_write -e syscalls:sys_exit_write"
E="-e syscalls:sys_enter_write"
record() { # NAME WHAT ARGUMENT...
  local name=$1 what=$2; shift 2
  if trace-cmd record -q -o "$W/out/$name.dat" "$@" > /tmp/said 2>&1; then
    about $name.dat "$what" "trace-cmd record $*"
  else echo "FAILED: $name: $*"; tail -3 /tmp/said; fi
  trace-cmd reset > /dev/null 2>&1
}
probes() { # trace-cmd reset removes them
  echo 'p:probe/vfs_write vfs_write file=%di count=%dx:u64' >> $T/dynamic_events
  echo 'r:probe/vfs_write_ret vfs_write ret=$retval:s64' >> $T/dynamic_events
  echo 'p:probe/do_sys_openat2 do_sys_openat2 name=+0(%si):ustring comm=$comm' >> $T/dynamic_events
  echo "p:probe_work/work_inner $WL:$(cat $W/offset) n=%di:s64 label=+0(%si):string" >> $T/dynamic_events
}
case $1 in
few)
record events "events" $S $DD
record graph "function_graph of ksys_write to depth 2" $FEW -p function_graph -g ksys_write --max-graph-depth 2 $DD
record graph-v6 "function_graph, version 6 of the file" --file-version 6 $FEW -p function_graph -g ksys_write --max-graph-depth 3 $DD
record function "the function tracer" $FEW -p function -l vfs_write -l vfs_read -l ksys_write $DD
;;
events)
record events-v7 "events, version 7 of the file, zstd" $S $DD
record events-v7-none "events, version 7, not compressed" --compression none $S $DD
record events-v6 "events, version 6" --file-version 6 $S $DD
record events-two-cpu "events of two busy CPUs" $S sh -c "taskset -c 0 $DD & taskset -c 1 $DD; wait"
record stacktrace "events with kernel stacks" -T $E dd if=/dev/zero of=/tmp/f bs=4k count=5
record date "the time of day" --date $E $DD
for clock in mono global x86-tsc counter; do
  record clock-$clock "the clock $clock" -C $clock $E dd if=/dev/zero of=/tmp/f bs=4k count=3
done
record buffers "the top buffer and two instances" $E -B sched -e sched:sched_switch -B func -p function -l vfs_write $DD
record filter "a filter" -e syscalls:sys_enter_write -f 'count > 100' $DD
record follow "a command and its children" -F -c -e syscalls:sys_enter_openat -e sched:sched_process_exec -e sched:sched_process_fork sh -c 'ls /; cat /proc/version'
record procmap "mappings of the process, and user stacks" --proc-map -F -O userstacktrace $E $WL 3
record irq-timer "interrupts, timers, work queues" -e irq -e timer:hrtimer_expire_entry -e workqueue:workqueue_execute_start $DD
record nothing "no event happened" -e syscalls:sys_enter_reboot true
record lost "lost events: a tiny ring, seldom read" -b 8 -s 1000000 $E -e syscalls:sys_exit_write dd if=/dev/zero of=/dev/null bs=1 count=500
;;
functions)
record function "the function tracer, three functions" $FEW -p function -l vfs_write -l vfs_read -l ksys_write $DD
record function-stack "the function tracer with stacks" $FEW -p function -l vfs_write --func-stack dd if=/dev/zero of=/tmp/f count=4
record graph "function_graph of ksys_write to depth 2" $FEW -p function_graph -g ksys_write --max-graph-depth 2 $DD
record graph-deep "function_graph of ksys_write to depth 5" $FEW -p function_graph -g ksys_write --max-graph-depth 5 dd if=/dev/zero of=/tmp/f bs=4k count=3
record graph-v6 "function_graph, version 6 of the file" --file-version 6 $FEW -p function_graph -g ksys_write --max-graph-depth 3 $DD
record graph-events "function_graph and events" -p function_graph -g ksys_write --max-graph-depth 3 $S $DD
probes; record probes "probes in the kernel and in a program, with arguments and strings" -e probe -e probe_work $WL 10
probes; record probes-v6 "the same, version 6 of the file" --file-version 6 -e probe -e probe_work $WL 10
trace-cmd start -q $E > /dev/null 2>&1
echo "a marker, before dd" > $T/trace_marker; $DD 2>/dev/null; echo "a marker, after dd" > $T/trace_marker
trace-cmd stop; trace-cmd extract -o $W/out/extract.dat > /dev/null 2>&1
about extract.dat "a ring that was read afterwards, with two markers" "trace-cmd start $E; trace-cmd stop; trace-cmd extract"
trace-cmd reset > /dev/null 2>&1
;;
esac
umount /proc/kallsyms
reset_trace
