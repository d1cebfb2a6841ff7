#!/bin/bash
# perf.data files, each with the output of `perf script` on the recording host (NAME.script).
. ./common.sh
cd /tmp; mkdir -p /root/.debug
# In the virtual machine only: settings of this host are not changed.
[ ! -d /vm ] || sysctl -q -w kernel.perf_event_paranoid=-1 kernel.kptr_restrict=0
export PERF_CONFIG=/dev/null
DD="dd if=/dev/zero of=/tmp/f bs=4k count=25"
FIELDS=comm,pid,tid,cpu,time,event,ip,sym,period,trace
# With all fields of the file; inlined functions would start addr2line for every frame.
script() {
  perf script --no-inline --ns -F $FIELDS -i "$W/out/$1.data" > "$W/out/$1.script" 2>/dev/null ||
    perf script --no-inline --ns -i "$W/out/$1.data" > "$W/out/$1.script" || echo "FAILED: perf script of $1"
}
record() { # NAME WHAT ARGUMENT...
  local name=$1 what=$2; shift 2
  if perf record -q -o "$W/out/$name.data" "$@" > /tmp/said 2>&1; then
    script $name; about $name.data "$what" "perf record $*"
  else echo "FAILED: $name: $*"; tail -3 /tmp/said; fi
}
case $1 in
events)
record tracepoints "events of the scheduler and of system calls, all CPUs" -a -e sched:sched_switch,sched:sched_wakeup,syscalls:sys_enter_write,syscalls:sys_exit_write -- $DD
record tracepoint-g "a tracepoint with kernel and user stacks" -g -e syscalls:sys_enter_write -- $WL 12
record filter "a tracepoint with a filter" -e syscalls:sys_enter_write --filter 'count > 100' -- $DD
record strings "tracepoints with strings" -a -e sched:sched_process_exec,sched:sched_process_fork,sched:sched_process_exit,syscalls:sys_enter_openat -- ls /
record irq "interrupts, soft interrupts, timers" -a -e irq:irq_handler_entry,irq:irq_handler_exit,irq:softirq_entry,irq:softirq_exit,timer:hrtimer_expire_entry -- $DD
record switch-events "records of context switches" --switch-events -e cpu-clock -F 499 -- sh -c "$WL 300; usleep 1000; $DD"
record lost "lost records: a ring of one page" -m 1 -e syscalls:sys_enter_write,syscalls:sys_exit_write,sched:sched_switch -c 1 -- dd if=/dev/zero of=/dev/null bs=1 count=900
record nothing "no samples" -e syscalls:sys_enter_reboot -- true
;;
probes)
perf probe -q -a 'vfs_write file=%di buf=%si count=%dx:u64'
perf probe -q -a 'vfs_write_ret=vfs_write%return ret=$retval:s64'
perf probe -q -a 'do_sys_openat2 dfd=%di:s32 name=+0(%si):ustring'
record kprobe "kprobes with arguments and a string, a kretprobe" -e probe:vfs_write,probe:vfs_write_ret__return,probe:do_sys_openat2 -- $DD
record kprobe-g "a kprobe with stacks" -g -e probe:vfs_write -- dd if=/dev/zero of=/tmp/f bs=4k count=10
perf probe -q -d 'probe:*'
perf probe -q -x $WL -a 'work_inner n=%di:s64 label=+0(%si):string'
perf probe -q -x $WL -a 'work_inner_ret=work_inner%return ret=$retval:s64'
record uprobe "a uprobe with a number and a string, a uretprobe" -e probe_workload:work_inner,probe_workload:work_inner_ret__return -- $WL 15
record uprobe-g "a uprobe with user stacks" -g -e probe_workload:work_inner -- $WL 8
perf probe -q -d 'probe_workload:*'
;;
samples)
record cpu-clock "cpu-clock without stacks" -e cpu-clock -F 999 -- $WL 1500
record cpu-clock-g "cpu-clock with stacks by frame pointers" -e cpu-clock -F 999 -g -- $WL 1500
record cpu-clock-a "cpu-clock of all CPUs with stacks, idle ones too" -a -e cpu-clock -F 299 -g -- $WL 800
record cpu-clock-dd "cpu-clock of dd: mostly kernel stacks" -e cpu-clock -F 999 -g -- dd if=/dev/zero of=/tmp/f bs=512 count=3000
record cpu-clock-dwarf "cpu-clock with registers and 1 KiB of stack" -e cpu-clock -F 299 --call-graph dwarf,1024 -- $W/workload-nofp 2500
record task-clock-period "task-clock with a fixed period, addresses, ids" -e task-clock -c 1000000 -d --sample-cpu -g -- $WL 800
record user-regs "cpu-clock with registers of user and interrupt" -e cpu-clock -F 499 --user-regs=ip,sp,bp,ax --intr-regs=ip,sp,ax -- $WL 800
record group "a group with sampled values" -e '{cpu-clock,task-clock,page-faults}:S' -F 499 -- $WL 1500
record multi "several software events" -e cpu-clock,page-faults,context-switches,minor-faults,cpu-migrations -c 9000 -- $DD
record page-faults "page faults with addresses" -e page-faults -c 1 -d -g -- ls /
;;
forms)
record compressed "compressed records" -z -e cpu-clock -F 999 -g -- $WL 1500
record namespaces "records of namespaces" --namespaces -e cpu-clock -F 499 -- unshare -m dd if=/dev/zero of=/tmp/f bs=4k count=400
mkdir -p /sys/fs/cgroup/demo/inner
record cgroups "records and ids of cgroups" --all-cgroups -e cpu-clock -F 499 -- sh -c "echo \$\$ > /sys/fs/cgroup/demo/inner/cgroup.procs; exec $WL 800"
record mono "the monotonic clock" -k mono -e cpu-clock -F 499 -g -- $WL 500
record no-buildid "no build ids" -B -N -e cpu-clock -F 499 -g -- $WL 500
record buildid-mmap "build ids in the records of mappings" --buildid-mmap -e cpu-clock -F 499 -g -- $WL 500
record weight-id "sample identifiers, times and periods" -T -P --sample-identifier -e cpu-clock -F 499 -- $WL 500
record tail-synth "records made up at the end" --tail-synthesize --overwrite -e cpu-clock -F 499 -- $WL 500
# The output of the command must not go into the pipe.
perf record -q -o - -e cpu-clock -F 499 -g -- sh -c "$WL 500 > /dev/null" > $W/out/pipe.data 2>/tmp/said
script pipe; about pipe.data "a pipe" "perf record -o - -e cpu-clock -F 499 -g -- workload 500"
perf record -q -o - -z -e cpu-clock -F 999 -g -- sh -c "$WL 500 > /dev/null" > $W/out/pipe-z.data 2>/tmp/said
script pipe-z; about pipe-z.data "a pipe, compressed" "perf record -o - -z -e cpu-clock -F 999 -g -- workload 500"
;;
host)
record cpu-clock-g "cpu-clock with stacks by frame pointers" -e cpu-clock -F 1999 -g -- $WL 9000
record cpu-clock-dwarf "cpu-clock with registers and 1 KiB of stack" -e cpu-clock -F 999 --call-graph dwarf,1024 -- $W/workload-nofp 9000
record tracepoints "system calls of one process" -e syscalls:sys_enter_write,syscalls:sys_exit_write -- $DD
record compressed "compressed records" -z -e cpu-clock -F 1999 -g -- $WL 9000
perf record -q -o - -e cpu-clock -F 999 -g -- sh -c "$WL 9000 > /dev/null" > $W/out/pipe.data 2>/tmp/said
script pipe; about pipe.data "a pipe" "perf record -o - -e cpu-clock -F 999 -g -- workload 9000"
;;
symbols)
# The symbols in the output, and the end of each.
cat $W/out/*.script | grep -oE '[a-zA-Z_][a-zA-Z0-9_.]{3,}' | sort -u > /tmp/names
kallsyms_of /tmp/names > $W/out/kallsyms.part
about kallsyms.part "the kernel's symbols that occur in the texts, each with its successor" "/proc/kallsyms"
;;
esac
rm -f $W/out/*.old
