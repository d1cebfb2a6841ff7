//! Calls of functions, as readers tell them: edges that are still to be paired, or calls that are whole.
//!
//! ```text
//! 0)               |  ksys_write() {           Enter { function: ksys_write }
//! 0)   0.371 us    |    __fdget_pos();         Call  { function: __fdget_pos, duration: 371 }
//! 0)   9.220 us    |  }                        Leave { duration: 9220 }
//! ```
//! A reader tells what a line or record says and nothing more: which enter belongs to which leave, who called
//! whom, what a function did itself is found out by `normalize`.

use super::{Space, Stack};

/// Who, where and when: what every edge and call has.
#[derive(Debug, Clone, Copy, Default)]
pub struct Common<'a> {
    /// Nanoseconds of the trace's clock.
    pub time: Option<i64>,
    /// CPU number.
    pub cpu: Option<u32>,
    /// Process.
    pub pid: Option<i32>,
    /// Thread.
    pub tid: Option<i32>,
    /// Thread name, where the format writes it here.
    pub comm: Option<&'a [u8]>,
    /// Stack in the kernel.
    pub kernel_stack: Stack<'a>,
    /// Stack in user space.
    pub user_stack: Stack<'a>,
}

/// A function, as the input tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Function<'a> {
    /// Not told.
    #[default]
    Unknown,
    /// By name.
    Named {
        /// Name, without offset.
        name: &'a [u8],
        /// Module that holds it; empty if not told.
        module: &'a [u8],
    },
    /// By an address inside of it; `normalize` asks the symbols that the user gave for its name.
    Address {
        /// Where it is.
        space: Space,
        /// Absolute address.
        address: u64,
    },
}

impl<'a> Function<'a> {
    /// A function of which only the name is known.
    pub fn named(name: &'a [u8]) -> Function<'a> {
        Function::Named { name, module: b"" }
    }
}

/// In which context code ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Context {
    /// A thread, in the kernel or in user space.
    Task,
    /// A softirq, on top of whatever was running.
    Softirq,
    /// A hardware interrupt.
    Irq,
    /// A non-maskable interrupt.
    Nmi,
}

impl Context {
    /// As in `calls.context`.
    pub fn as_str(self) -> &'static str {
        match self {
            Context::Task => "task",
            Context::Softirq => "softirq",
            Context::Irq => "irq",
            Context::Nmi => "nmi",
        }
    }
}

/// A function was entered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Enter<'a> {
    /// Who, where, when.
    pub common: Common<'a>,
    /// What was called.
    pub function: Function<'a>,
    /// By whom; `Unknown`: by the call around it.
    pub caller: Function<'a>,
    /// Calls around it, where the format tells.
    pub depth: Option<u32>,
    /// Where told.
    pub context: Option<Context>,
    /// Arguments as `name=value`; empty: not recorded.
    pub args: &'a [&'a [u8]],
}

/// A function was left.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leave<'a> {
    /// Who, where, when. Where the format tells a duration but no time of the exit, `time` is `None`.
    pub common: Common<'a>,
    /// What was left; `Unknown`: the innermost that is open, or that of `depth`.
    pub function: Function<'a>,
    /// Calls around it, where the format tells.
    pub depth: Option<u32>,
    /// Where told.
    pub context: Option<Context>,
    /// From entry to exit in nanoseconds, where the format tells it: goes before the difference of the times.
    pub duration: Option<i64>,
    /// What it returned.
    pub retval: Option<i64>,
}

/// A call of which one line or record tells all that is known. In the order of the entries.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Who, where; the time is that of the entry.
    pub common: Common<'a>,
    /// What was called.
    pub function: Function<'a>,
    /// By whom; `Unknown`: by the call around it.
    pub caller: Function<'a>,
    /// Calls around it, where the format tells.
    pub depth: Option<u32>,
    /// Where told.
    pub context: Option<Context>,
    /// Arguments as `name=value`; empty: not recorded.
    pub args: &'a [&'a [u8]],
    /// From entry to exit in nanoseconds; `None`: the exit was not seen, or is not recorded at all (the
    /// `function` tracer).
    pub duration: Option<i64>,
    /// What it returned.
    pub retval: Option<i64>,
    /// Whether calls may lie inside. `false`: it is known to be a leaf (`func();`), or nothing is known of its
    /// end (`function` tracer), so that nothing is put into it.
    pub may_nest: bool,
}

/// Another thread runs on a CPU from now on: whose calls they are, where lines name the CPU only.
#[derive(Debug, Clone, Copy)]
pub struct Switch<'a> {
    /// When.
    pub time: Option<i64>,
    /// Where.
    pub cpu: u32,
    /// Who ran.
    pub previous_tid: i32,
    /// Its name.
    pub previous_comm: &'a [u8],
    /// Who runs.
    pub next_tid: i32,
    /// Its name.
    pub next_comm: &'a [u8],
}
