//! The end of `--help`.

pub(super) const EXAMPLES: &str = "\
Sampling:
  # Sample a command with stacks
  perfquet-record -g -- make -j8
  # Sample the whole system for 10 seconds
  perfquet-record -a -g -F 997 --duration 10s
Events and probes:
  # Show how long threads wait for a CPU
  perfquet-record --preset runqlat --duration 10s
  # Record every context switch and interrupt until Ctrl-C
  perfquet-record -a -e 'sched:sched_switch,irq:*'
  # Record large writes of a process
  perfquet-record -e syscalls:sys_enter_write --filter 'count > 4096' -p 1234
  # Record the argument of a kernel function
  perfquet-record --kprobe 'tcp_sendmsg size' -- curl -s example.org
  # Record every malloc() on the system
  perfquet-record -a --uprobe 'libc.so.6:malloc bytes=%di:u64' --duration 5s
Calls and triggers:
  # Record kernel functions and their callees, with durations
  perfquet-record --function-graph ksys_write --max-depth 2 -- dd if=a of=b
  # Record slow calls, starting with the first open
  perfquet-record -a --call 'vfs_*' --min-duration 500us \\
    --start-on entry:do_sys_openat2 --stop-on time:5s
Boot:
  # Print the kernel parameters that trace slow functions of the next boot
  perfquet-record --boot --function-graph '*' --min-duration 500us
  # After the reboot
  perfquet-record --collect-boot -o boot.pqt
In-kernel aggregation:
  # Aggregate the sizes of malloc() by program
  perfquet-record -a --uprobe 'libc.so.6:malloc bytes=%di:u64' \\
    --agg 'quantize(bytes) by comm' --duration 5s
  # Aggregate the time that threads spend off the CPU
  perfquet-record -a --off-cpu --duration 10s
Flight recorder:
  # Write the last 30 seconds whenever SIGUSR1 arrives
  perfquet-record -a -g --ring 30s --snapshot-on SIGUSR1
Listing:
  # List tracepoints by name
  perfquet-record --list 'block:*'
Query the result with: perfquet-query top trace.pqt

Exit status:
  0    success without a command, or the recording ended before the command
  N    status of the command: 128 + N if signal N killed it, 127 if not found,
       126 if not executable
  1    recording failed
  2    invalid command line
  130  interrupted twice, or while the tables are written:
       perfquet-convert DIR completes the trace";
