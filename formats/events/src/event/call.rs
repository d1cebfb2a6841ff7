//! Calls of functions, as readers emit them: entries and exits to be paired, or complete calls.
//!
//! ```text
//! 0)               |  ksys_write() {           Enter { function: ksys_write }
//! 0)   0.371 us    |    __fdget_pos();         Call  { function: __fdget_pos, duration: 371 }
//! 0)   9.220 us    |  }                        Leave { duration: 9220 }
//! ```
//! A reader emits only what a line or record contains. `normalize` pairs entries and exits, and finds callers and
//! self times.

use super::{Space, Stack};

/// Members of every edge and call: thread, CPU, time, stacks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Common<'a> {
    /// Time in nanoseconds on the trace's clock.
    pub time: Option<i64>,
    /// CPU number.
    pub cpu: Option<u32>,
    /// Process ID.
    pub pid: Option<i32>,
    /// Thread ID.
    pub tid: Option<i32>,
    /// Thread name, if the format has it in each line or record.
    pub comm: Option<&'a [u8]>,
    /// Kernel stack.
    pub kernel_stack: Stack<'a>,
    /// User stack.
    pub user_stack: Stack<'a>,
}

/// A function, as identified by the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Function<'a> {
    /// Not recorded.
    #[default]
    Unknown,
    /// By name.
    Named {
        /// Name, without offset.
        name: &'a [u8],
        /// Module that contains the function; empty if unknown.
        module: &'a [u8],
    },
    /// By an address inside the function; `normalize` looks up its name in the given symbols.
    Address {
        /// Address space.
        space: Space,
        /// Absolute address.
        address: u64,
    },
}

impl<'a> Function<'a> {
    /// Returns a function with only a name.
    #[inline]
    pub fn named(name: &'a [u8]) -> Function<'a> {
        Function::Named { name, module: b"" }
    }
}

/// Context in which code ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Context {
    /// A thread, in the kernel or in user space.
    Task,
    /// A softirq.
    Softirq,
    /// A hardware interrupt.
    Irq,
    /// A non-maskable interrupt.
    Nmi,
}

impl Context {
    /// Returns the value of `calls.context`.
    #[inline]
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
    /// Thread, CPU, time and stacks.
    pub common: Common<'a>,
    /// The called function.
    pub function: Function<'a>,
    /// The caller; `Unknown` means the enclosing call.
    pub caller: Function<'a>,
    /// Number of enclosing calls, if the format has it.
    pub depth: Option<u32>,
    /// Context, if recorded.
    pub context: Option<Context>,
    /// Arguments as `name=value`; empty: not recorded.
    pub args: &'a [&'a [u8]],
}

/// A function returned.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leave<'a> {
    /// Thread, CPU, time and stacks. `time` is `None` if the format has a duration but no time of the exit.
    pub common: Common<'a>,
    /// The function that returned; `Unknown` means the innermost open call, or that of `depth`.
    pub function: Function<'a>,
    /// Number of enclosing calls, if the format has it.
    pub depth: Option<u32>,
    /// Context, if recorded.
    pub context: Option<Context>,
    /// Nanoseconds from entry to exit, if the format has them; takes precedence over the difference of the times.
    pub duration: Option<i64>,
    /// Return value.
    pub retval: Option<i64>,
}

/// A complete call from one line or record. Calls come in the order of their entries.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Thread, CPU and stacks; the time is that of the entry.
    pub common: Common<'a>,
    /// The called function.
    pub function: Function<'a>,
    /// The caller; `Unknown` means the enclosing call.
    pub caller: Function<'a>,
    /// Number of enclosing calls, if the format has it.
    pub depth: Option<u32>,
    /// Context, if recorded.
    pub context: Option<Context>,
    /// Arguments as `name=value`; empty: not recorded.
    pub args: &'a [&'a [u8]],
    /// Nanoseconds from entry to exit; `None` if the exit was not seen, or is never recorded (tracer
    /// `function`).
    pub duration: Option<i64>,
    /// Return value.
    pub retval: Option<i64>,
    /// Whether other calls may be nested inside. `false` for a leaf (`func();`), or if the end is unknown
    /// (tracer `function`).
    pub may_nest: bool,
}

/// A context switch. Assigns calls to threads if lines have only the CPU.
#[derive(Debug, Clone, Copy)]
pub struct Switch<'a> {
    /// Time of the switch.
    pub time: Option<i64>,
    /// CPU number.
    pub cpu: u32,
    /// ID of the previous thread.
    pub previous_tid: i32,
    /// Name of this thread.
    pub previous_comm: &'a [u8],
    /// ID of the next thread.
    pub next_tid: i32,
    /// Name of this thread.
    pub next_comm: &'a [u8],
}
