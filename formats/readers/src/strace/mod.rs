//! The output of strace, `perf trace` and ltrace: system calls and calls of library functions, with arguments and results.
//!
//! ```text
//! 14959 1795363209.096580 execve("./sys", ["./sys"], 0x7ffdcf133ad8 /* 2 vars */) = 0 <0.000147>
//! 14960 1795363209.099512 read(3,  <unfinished ...>
//! 14959 1795363209.099700 openat(AT_FDCWD, "/none", O_RDONLY) = -1 ENOENT (No such file or directory) <0.000010>
//! 14960 1795363209.100706 <... read resumed>"x"..., 64) = 1 <0.001054>
//! 14962 1795363209.117845 --- SIGUSR1 {si_signo=SIGUSR1, si_code=SI_USER, si_pid=14959, si_uid=0} ---
//! 14960 1795363209.125106 +++ exited with 7 +++
//! ```
//! Read as strace 4.x to 7.2 prints it, with the options `-f -ff -t -tt -ttt -r -T -i -n -k -y -yy -Y -c -C -U` and
//! `--absolute-timestamps`, and ltrace with `-f -i -t -tt -ttt -r -T -S`. The format has no specification other than
//! strace.c and syscall.c.
//!
//! - A system call becomes a call of `sys_NAME`, a library function one of its name. Arguments are split at commas outside of
//!   brackets and strings. Of a failed call, `retval` is the negative error number, as the kernel records it, and the last
//!   argument is `error=NAME`.
//! - An interrupted line (`<unfinished ...>`) is joined with the line that resumes it: the call begins at the first. The rest is
//!   looked up ahead, so that calls come in the order of their entries.
//! - `duration` is that of `-T`; without it, of a resumed call, the time between its lines, which includes strace's.
//! - Times of `-ttt` are real time; those of `-t` and `-tt` are nanoseconds since midnight, in the time zone of strace; those
//!   of `-r` alone are sums of the differences. Without any of these options there is no time.
//! - The data that `-e read=` and `-e write=` print below a call is not kept.
//! - Signals are hits of `strace:signal`. Results of `clone`, `fork` and `vfork` create threads, `+++` ends them.
//! - The table of `-c` and `-C` becomes aggregations by system call: `calls`, `errors`, `seconds`; with `-U`, also `shortest` and
//!   `longest`, and what follows from others, `usecs/call` and `% time`, if the table does not have those.
//! - Without `-f`'s thread numbers, lines belong to the first thread that none of the calls creates, also before a second one is named.
//! - With `-ff`, the thread is in the name of the file: `trace.15035`.
//! - `perf trace` is another language (`perf_trace.rs`) with the same rows.
//! - On the standard error, lines may be output of the program: they are counted.

mod ahead;
mod call;
mod line;
mod perf_trace;
mod read;
mod signal_type;
mod sniff;
mod summary;
#[cfg(test)]
mod tests;

use perfquet_events::event::Sink;
use perfquet_events::{Error, Format, Input};

/// Output of strace, perf trace and ltrace.
pub const STRACE: Format = Format {
    name: "strace",
    about: "output of strace, perf trace and ltrace: NAME(ARGUMENTS) = RESULT",
    main_file: None,
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read,
};

fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    match perf_trace::is_perf_trace(input.head()) {
        true => perf_trace::read(input, sink),
        false => read::read(input, sink),
    }
}
