# Shared by the recording scripts. They run as root in a virtual machine of `cargo xtask corpus --record`, in a directory with the
# programs workload (frame pointers) and workload-nofp (none), and leave their recordings in out/.
W=$PWD
T=/sys/kernel/tracing
WL=$W/workload
mkdir -p "$W/out"
uname -r > "$W/out/RELEASE"

# about FILE WHAT HOW: adds a line to the list of files.
about() { printf '%s\t%s\t%s\n' "$1" "$2" "$3" >> "$W/out/ABOUT.tsv"; }

# Restores an empty ring with the options of a fresh boot.
reset_trace() {
  echo 0 > $T/tracing_on
  echo nop > $T/current_tracer
  for file in set_event set_event_pid set_ftrace_filter set_ftrace_notrace set_graph_function set_graph_notrace \
    set_ftrace_pid dynamic_events; do
    echo > $T/$file
  done
  echo 0 > $T/max_graph_depth
  echo local > $T/trace_clock
  for option in abstime:0 proc:0 overrun:0 tail:0 irqs:1 duration:1 cpu:1 overhead:1 args:0 retval:0 retaddr:0; do
    [ ! -e $T/options/funcgraph-${option%:*} ] || echo ${option#*:} > $T/options/funcgraph-${option%:*}
  done
  for option in stacktrace:0 userstacktrace:0 sym-offset:0 sym-addr:0 raw:0 hex:0 fields:0 verbose:0 latency-format:0 \
    context-info:1 irq-info:1 record-tgid:0 record-cmd:1 print-parent:1 annotate:1 overwrite:1 graph-time:1 \
    sleep-time:1 hash-ptr:0 func_stack_trace:0 func-args:0; do
    [ ! -e $T/options/${option%:*} ] || echo ${option#*:} > $T/options/${option%:*}
  done
  echo 1408 > $T/buffer_size_kb
  echo > $T/trace
}
enable() { for event in "$@"; do echo 1 > $T/events/${event/://}/enable; done; }
option() { [ ! -e $T/options/$1 ] || echo $2 > $T/options/$1; }
on() { echo 1 > $T/tracing_on; }
off() { echo 0 > $T/tracing_on; }

# The load of most recordings: six writes of 4 KiB by dd, then a pipe, on both CPUs.
load() {
  taskset -c 0 dd if=/dev/zero of=/tmp/f bs=4k count=6 2>/dev/null
  taskset -c 1 cat /tmp/f | wc -c > /dev/null
}
# Prints the symbols of a list and their successors in /proc/kallsyms.
kallsyms_of() {
  awk 'NR==FNR {want[$1]; next} {keep = ($3 in want)} (keep || after) && $2 ~ /^[tTwW]$/ {print} {after = keep}' \
    "$1" /proc/kallsyms
}
