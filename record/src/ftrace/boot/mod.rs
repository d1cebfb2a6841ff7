//! Tracing of the kernel's own start: parameters for the next boot, and the ring buffer that the last one left.
//!
//! ```text
//! perfquet-record --boot …            ftrace=function_graph tracing_thresh=500 …     (functions.rs, events.rs)
//! the kernel boots, traces, goes on tracing
//! perfquet-record --collect-boot …    /proc/cmdline names the buffer                 (parameters.rs, left.rs)
//! per_cpu/cpuN/trace_pipe_raw ─► OUT.pqt/journal/.trace.dat.cpuN                     as in any function recording
//! ```

mod events;
mod functions;
mod left;
mod parameters;

use clap::Args;
use perfquet_events::event::Selection;

use super::options::FunctionOptions;
use super::setup::default_ring_bytes;
use crate::failure::{Failure, misuse};
use crate::sys::host;
use crate::sys::tracefs::Tracefs;

pub(crate) use left::BootBuffer;

/// The clock of the next boot: that of the durations, whatever the clock of the ring is. Until the init calls of file systems, `mono`
/// and `boot` advance with the timer interrupt (4 ms: of 653 init calls, 205 had the time of another), and `global` lags if
/// interrupts are late: functions of 0.6 s began a second before their init call. An explicit `local` also keeps the kernel from changing the clock, and clearing the ring, later in the boot.
const CLOCK: &str = "local";
/// Maximum length of a whole command line on x86 and ARM (COMMAND_LINE_SIZE).
const LINE_BYTES: usize = 2048;

/// Options for tracing the boot.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct BootOptions {
    /// Print the kernel parameters that trace the next boot
    ///
    /// Takes --function-graph (with --max-depth and --min-duration) or --function, -e, --kprobe, --kretprobe and -m. The graph tracer
    /// starts with the init calls of the level core: start_kernel and what it calls before are not traced.
    #[arg(long = "boot")]
    pub(crate) is_line_wanted: bool,
    /// Record what the kernel traced while it booted
    ///
    /// Takes the ring buffer of the top level of tracefs, or of the INSTANCE that the kernel command line created, and ends the
    /// tracing.
    #[arg(long, value_name = "INSTANCE", num_args = 0..=1, require_equals = true, default_missing_value = "",
          conflicts_with = "is_line_wanted")]
    pub(crate) collect_boot: Option<String>,
}

/// What the next boot is to trace.
pub(crate) struct BootRequest<'a> {
    pub(crate) functions: &'a FunctionOptions,
    pub(crate) selection: Selection,
    /// Values of `-e`.
    pub(crate) events: &'a [String],
    /// Values of `--kprobe` and `--kretprobe`.
    pub(crate) kprobes: &'a [String],
    pub(crate) kretprobes: &'a [String],
    pub(crate) ring_bytes: Option<usize>,
}

/// Returns the kernel parameters, in one line.
pub(crate) fn boot_line(request: &BootRequest<'_>) -> Result<String, Failure> {
    let tracefs = Tracefs::open()?;
    let mut parameters = functions::parameters(&tracefs, request.functions, &request.selection)?;
    parameters.extend(events::parameters(request.events)?);
    parameters.extend(events::probe_parameters(
        request.kprobes,
        request.kretprobes,
    )?);
    if parameters.is_empty() {
        return Err(misuse("--boot: expected functions or events to trace").hint(
            "run: perfquet-record --boot --function-graph '*' --min-duration 500us -e sched:sched_process_exec",
        ));
    }
    let ring_bytes = request
        .ring_bytes
        .unwrap_or_else(|| default_ring_bytes(host::present_cpus().len()));
    parameters.push(format!("trace_buf_size={}K", ring_bytes >> 10));
    parameters.push(format!("trace_clock={CLOCK}"));
    // The start is wanted, not the latest events.
    parameters.push("trace_options=nooverwrite".to_owned());
    let line = parameters.join(" ");
    match line.len() {
        0..LINE_BYTES => Ok(line),
        bytes => Err(misuse(format!(
            "--boot: the parameters have {bytes} bytes, and a kernel command line at most {LINE_BYTES}"
        ))
        .hint("use wildcards for whole systems of events (-e 'initcall:*'), or fewer events and functions")),
    }
}
