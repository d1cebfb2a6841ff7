//! Generated from schemas/*.toml by cargo xtask schemas: the fixed tables, their columns and their rows.
//!
//! ```text
//! losses::Row { time: Some(5), count: Some(2), reason: b"ring full", ..Default::default() }.push(writer.rows(losses));
//! ```
//! Strings are raw bytes; the store replaces invalid UTF-8.

use crate::store::{ColumnSchema, ColumnType, Encoding, Rows, TableSchema};

fn column(
    name: &str,
    kind: ColumnType,
    nullable: bool,
    unit: &str,
    encoding: Encoding,
    doc: &str,
) -> ColumnSchema {
    ColumnSchema {
        name: name.to_owned(),
        kind,
        nullable,
        unit: unit.to_owned(),
        doc: doc.to_owned(),
        encoding,
    }
}

/// One key of one aggregation.
pub mod aggregates {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "aggregates";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "One key of one aggregation.".to_owned(),
            columns: vec![
                column(
                    "aggregate_id",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Delta,
                    "ID of the row, from 1.",
                ),
                column(
                    "name",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Name of the aggregation; NULL if it has none.",
                ),
                column(
                    "action",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "count, sum, avg, min, max, stddev, quantize, lquantize or llquantize; NULL if unknown.",
                ),
                column(
                    "keys",
                    ColumnType::TextList,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Parts of the key.",
                ),
                column(
                    "value",
                    ColumnType::Float64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Aggregated value; NULL for distributions, whose bars are in buckets.",
                ),
                column(
                    "kernel_stack",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Kernel stack in the key, an ID in stacks; NULL if the key has none.",
                ),
                column(
                    "user_stack",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "User stack in the key, an ID in stacks; NULL if the key has none.",
                ),
                column(
                    "snapshot",
                    ColumnType::Int32,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Number of the printout, from 0; later printouts include the earlier values, unless `since` is set.",
                ),
                column(
                    "time",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Dictionary,
                    "Time of the printout; NULL if unknown.",
                ),
                column(
                    "since",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Dictionary,
                    "Start of the period of the value, which ends at `time`; NULL if it starts with the recording.",
                ),
                column(
                    "exact_value",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "The value as an integer: `value` is rounded above 2^53. NULL for fractions, and beyond 64 bits.",
                ),
            ],
            sort: vec!["aggregate_id".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// ID of the row, from 1.
        pub aggregate_id: i64,
        /// Name of the aggregation; NULL if it has none.
        pub name: Option<&'a [u8]>,
        /// count, sum, avg, min, max, stddev, quantize, lquantize or llquantize; NULL if unknown.
        pub action: Option<&'a [u8]>,
        /// Parts of the key.
        pub keys: &'a [&'a [u8]],
        /// Aggregated value; NULL for distributions, whose bars are in buckets.
        pub value: Option<f64>,
        /// Kernel stack in the key, an ID in stacks; NULL if the key has none.
        pub kernel_stack: Option<i32>,
        /// User stack in the key, an ID in stacks; NULL if the key has none.
        pub user_stack: Option<i32>,
        /// Number of the printout, from 0; later printouts include the earlier values, unless `since` is set.
        pub snapshot: i32,
        /// Time of the printout; NULL if unknown.
        pub time: Option<i64>,
        /// Start of the period of the value, which ends at `time`; NULL if it starts with the recording.
        pub since: Option<i64>,
        /// The value as an integer: `value` is rounded above 2^53. NULL for fractions, and beyond 64 bits.
        pub exact_value: Option<i64>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_aggregate_id,
                to_name,
                to_action,
                to_keys,
                to_value,
                to_kernel_stack,
                to_user_stack,
                to_snapshot,
                to_time,
                to_since,
                to_exact_value,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than aggregates");
                return;
            };
            to_aggregate_id.push_i64(self.aggregate_id);
            match self.name {
                Some(value) => to_name.push_bytes(value),
                None => to_name.push_null(),
            }
            match self.action {
                Some(value) => to_action.push_bytes(value),
                None => to_action.push_null(),
            }
            to_keys.push_text_list(self.keys.iter().copied());
            match self.value {
                Some(value) => to_value.push_f64(value),
                None => to_value.push_null(),
            }
            match self.kernel_stack {
                Some(value) => to_kernel_stack.push_i64(i64::from(value)),
                None => to_kernel_stack.push_null(),
            }
            match self.user_stack {
                Some(value) => to_user_stack.push_i64(i64::from(value)),
                None => to_user_stack.push_null(),
            }
            to_snapshot.push_i64(i64::from(self.snapshot));
            match self.time {
                Some(value) => to_time.push_i64(value),
                None => to_time.push_null(),
            }
            match self.since {
                Some(value) => to_since.push_i64(value),
                None => to_since.push_null(),
            }
            match self.exact_value {
                Some(value) => to_exact_value.push_i64(value),
                None => to_exact_value.push_null(),
            }
        }
    }
}

/// One bar of a distribution.
pub mod buckets {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "buckets";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "One bar of a distribution.".to_owned(),
            columns: vec![
                column(
                    "aggregate_id",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Delta,
                    "Distribution of the bar, an ID in aggregates.",
                ),
                column(
                    "low",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Smallest value of the bar; NULL if it has no lower bound.",
                ),
                column(
                    "high",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "First value above the bar; NULL if it has no upper bound.",
                ),
                column(
                    "count",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Number of values in the bar.",
                ),
            ],
            sort: vec!["aggregate_id".to_owned(), "low".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row {
        /// Distribution of the bar, an ID in aggregates.
        pub aggregate_id: i64,
        /// Smallest value of the bar; NULL if it has no lower bound.
        pub low: Option<i64>,
        /// First value above the bar; NULL if it has no upper bound.
        pub high: Option<i64>,
        /// Number of values in the bar.
        pub count: i64,
    }

    impl Row {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [to_aggregate_id, to_low, to_high, to_count] = rows.columns_mut() else {
                debug_assert!(false, "rows of another table than buckets");
                return;
            };
            to_aggregate_id.push_i64(self.aggregate_id);
            match self.low {
                Some(value) => to_low.push_i64(value),
                None => to_low.push_null(),
            }
            match self.high {
                Some(value) => to_high.push_i64(value),
                None => to_high.push_null(),
            }
            to_count.push_i64(self.count);
        }
    }
}

/// One execution of a function.
pub mod calls {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "calls";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
name: NAME.to_owned(),
doc: "One execution of a function.".to_owned(),
columns: [common::columns(), vec![column("duration", ColumnType::Int64, true, "ns", Encoding::Dictionary, "Time from entry to exit; NULL if unknown."),column("self_time", ColumnType::Int64, true, "ns", Encoding::Dictionary, "Duration without nested calls; NULL if one of their durations is unknown."),column("function", ColumnType::Text, true, "", Encoding::Dictionary, "Name of the function."),column("module", ColumnType::Text, true, "", Encoding::Dictionary, "File that contains the function; NULL if unknown."),column("caller", ColumnType::Text, true, "", Encoding::Dictionary, "Function that made the call; NULL if unknown."),column("depth", ColumnType::Int32, true, "", Encoding::Dictionary, "Number of enclosing calls, 0 for the outermost one recorded."),column("call_id", ColumnType::Int64, false, "", Encoding::Delta, "ID of the call, from 1."),column("parent_id", ColumnType::Int64, true, "", Encoding::Dictionary, "Enclosing call, an ID in calls; NULL if unknown."),column("retval", ColumnType::Int64, true, "", Encoding::Dictionary, "Return value; NULL if not recorded."),column("args", ColumnType::TextList, true, "", Encoding::Dictionary, "Arguments, as name=value; NULL if not recorded."),column("context", ColumnType::Text, true, "", Encoding::Dictionary, "task, softirq, irq or nmi."),column("entry_seen", ColumnType::Bool, false, "", Encoding::Dictionary, "Whether the entry was recorded; if not, time is that of the exit minus the duration, if known."),column("exit_seen", ColumnType::Bool, false, "", Encoding::Dictionary, "Whether the exit was recorded; if not, duration is NULL."),]].concat(),
sort: vec!["time".to_owned()],
}
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Time of the event on the trace's clock; NULL if unknown.
        pub time: Option<i64>,
        /// CPU of the event; NULL if unknown.
        pub cpu: Option<i32>,
        /// Process ID (the kernel's tgid).
        pub pid: Option<i32>,
        /// Thread ID (the kernel's pid).
        pub tid: Option<i32>,
        /// Thread name at the time of the event.
        pub comm: Option<&'a [u8]>,
        /// Kernel stack, an ID in stacks; NULL if not recorded.
        pub kernel_stack: Option<i32>,
        /// User stack, an ID in stacks; NULL if not recorded.
        pub user_stack: Option<i32>,
        /// Time from entry to exit; NULL if unknown.
        pub duration: Option<i64>,
        /// Duration without nested calls; NULL if one of their durations is unknown.
        pub self_time: Option<i64>,
        /// Name of the function.
        pub function: Option<&'a [u8]>,
        /// File that contains the function; NULL if unknown.
        pub module: Option<&'a [u8]>,
        /// Function that made the call; NULL if unknown.
        pub caller: Option<&'a [u8]>,
        /// Number of enclosing calls, 0 for the outermost one recorded.
        pub depth: Option<i32>,
        /// ID of the call, from 1.
        pub call_id: i64,
        /// Enclosing call, an ID in calls; NULL if unknown.
        pub parent_id: Option<i64>,
        /// Return value; NULL if not recorded.
        pub retval: Option<i64>,
        /// Arguments, as name=value; NULL if not recorded.
        pub args: Option<&'a [&'a [u8]]>,
        /// task, softirq, irq or nmi.
        pub context: Option<&'a [u8]>,
        /// Whether the entry was recorded; if not, time is that of the exit minus the duration, if known.
        pub entry_seen: bool,
        /// Whether the exit was recorded; if not, duration is NULL.
        pub exit_seen: bool,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_time,
                to_cpu,
                to_pid,
                to_tid,
                to_comm,
                to_kernel_stack,
                to_user_stack,
                to_duration,
                to_self_time,
                to_function,
                to_module,
                to_caller,
                to_depth,
                to_call_id,
                to_parent_id,
                to_retval,
                to_args,
                to_context,
                to_entry_seen,
                to_exit_seen,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than calls");
                return;
            };
            match self.time {
                Some(value) => to_time.push_i64(value),
                None => to_time.push_null(),
            }
            match self.cpu {
                Some(value) => to_cpu.push_i64(i64::from(value)),
                None => to_cpu.push_null(),
            }
            match self.pid {
                Some(value) => to_pid.push_i64(i64::from(value)),
                None => to_pid.push_null(),
            }
            match self.tid {
                Some(value) => to_tid.push_i64(i64::from(value)),
                None => to_tid.push_null(),
            }
            match self.comm {
                Some(value) => to_comm.push_bytes(value),
                None => to_comm.push_null(),
            }
            match self.kernel_stack {
                Some(value) => to_kernel_stack.push_i64(i64::from(value)),
                None => to_kernel_stack.push_null(),
            }
            match self.user_stack {
                Some(value) => to_user_stack.push_i64(i64::from(value)),
                None => to_user_stack.push_null(),
            }
            match self.duration {
                Some(value) => to_duration.push_i64(value),
                None => to_duration.push_null(),
            }
            match self.self_time {
                Some(value) => to_self_time.push_i64(value),
                None => to_self_time.push_null(),
            }
            match self.function {
                Some(value) => to_function.push_bytes(value),
                None => to_function.push_null(),
            }
            match self.module {
                Some(value) => to_module.push_bytes(value),
                None => to_module.push_null(),
            }
            match self.caller {
                Some(value) => to_caller.push_bytes(value),
                None => to_caller.push_null(),
            }
            match self.depth {
                Some(value) => to_depth.push_i64(i64::from(value)),
                None => to_depth.push_null(),
            }
            to_call_id.push_i64(self.call_id);
            match self.parent_id {
                Some(value) => to_parent_id.push_i64(value),
                None => to_parent_id.push_null(),
            }
            match self.retval {
                Some(value) => to_retval.push_i64(value),
                None => to_retval.push_null(),
            }
            match self.args {
                Some(value) => to_args.push_text_list(value.iter().copied()),
                None => to_args.push_null(),
            }
            match self.context {
                Some(value) => to_context.push_bytes(value),
                None => to_context.push_null(),
            }
            to_entry_seen.push_bool(self.entry_seen);
            to_exit_seen.push_bool(self.exit_seen);
        }
    }
}

/// Machine code of sampled functions, as the recorder read it: a row for each version that it saw. Only with --keep-code.
pub mod code {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "code";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
name: NAME.to_owned(),
doc: "Machine code of sampled functions, as the recorder read it: a row for each version that it saw. Only with --keep-code.".to_owned(),
columns: vec![column("time", ColumnType::Int64, true, "ns", Encoding::Delta, "Time at which the recorder read this version."),column("pid", ColumnType::Int32, true, "", Encoding::Dictionary, "Process whose code it is; NULL for the kernel."),column("module", ColumnType::Text, false, "", Encoding::Dictionary, "Module of the function, as in frames."),column("build_id", ColumnType::Text, true, "", Encoding::Dictionary, "Build ID of the module, hexadecimal."),column("function_start", ColumnType::Bits, false, "address", Encoding::Plain, "Start of the function, in the terms of frames: module_offset, or address if that is NULL, less function_offset."),column("address", ColumnType::Bits, false, "address", Encoding::Plain, "Address of the first byte: in memory, or as in the symbol table of the module's file."),column("size", ColumnType::Int64, false, "bytes", Encoding::Dictionary, "Length of the function; the code is shorter if the recorder kept only its beginning."),column("machine", ColumnType::Text, false, "", Encoding::Dictionary, "x86_64, i386, aarch64 or the machine number of ELF."),column("code", ColumnType::Binary, false, "", Encoding::Plain, "Machine code, from the start of the function."),],
sort: vec!["time".to_owned()],
}
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Time at which the recorder read this version.
        pub time: Option<i64>,
        /// Process whose code it is; NULL for the kernel.
        pub pid: Option<i32>,
        /// Module of the function, as in frames.
        pub module: &'a [u8],
        /// Build ID of the module, hexadecimal.
        pub build_id: Option<&'a [u8]>,
        /// Start of the function, in the terms of frames: module_offset, or address if that is NULL, less function_offset.
        pub function_start: u64,
        /// Address of the first byte: in memory, or as in the symbol table of the module's file.
        pub address: u64,
        /// Length of the function; the code is shorter if the recorder kept only its beginning.
        pub size: i64,
        /// x86_64, i386, aarch64 or the machine number of ELF.
        pub machine: &'a [u8],
        /// Machine code, from the start of the function.
        pub code: &'a [u8],
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_time,
                to_pid,
                to_module,
                to_build_id,
                to_function_start,
                to_address,
                to_size,
                to_machine,
                to_code,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than code");
                return;
            };
            match self.time {
                Some(value) => to_time.push_i64(value),
                None => to_time.push_null(),
            }
            match self.pid {
                Some(value) => to_pid.push_i64(i64::from(value)),
                None => to_pid.push_null(),
            }
            to_module.push_bytes(self.module);
            match self.build_id {
                Some(value) => to_build_id.push_bytes(value),
                None => to_build_id.push_null(),
            }
            to_function_start.push_u64(self.function_start);
            to_address.push_u64(self.address);
            to_size.push_i64(self.size);
            to_machine.push_bytes(self.machine);
            to_code.push_bytes(self.code);
        }
    }
}

/// The first columns of every event table.
pub mod common {
    use super::*;

    /// Names of the columns, in order.
    pub const NAMES: [&str; 7] = [
        "time",
        "cpu",
        "pid",
        "tid",
        "comm",
        "kernel_stack",
        "user_stack",
    ];

    /// The columns, in order.
    pub fn columns() -> Vec<ColumnSchema> {
        vec![
            column(
                "time",
                ColumnType::Int64,
                true,
                "ns",
                Encoding::Delta,
                "Time of the event on the trace's clock; NULL if unknown.",
            ),
            column(
                "cpu",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "CPU of the event; NULL if unknown.",
            ),
            column(
                "pid",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "Process ID (the kernel's tgid).",
            ),
            column(
                "tid",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "Thread ID (the kernel's pid).",
            ),
            column(
                "comm",
                ColumnType::Text,
                true,
                "",
                Encoding::Dictionary,
                "Thread name at the time of the event.",
            ),
            column(
                "kernel_stack",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "Kernel stack, an ID in stacks; NULL if not recorded.",
            ),
            column(
                "user_stack",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "User stack, an ID in stacks; NULL if not recorded.",
            ),
        ]
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Time of the event on the trace's clock; NULL if unknown.
        pub time: Option<i64>,
        /// CPU of the event; NULL if unknown.
        pub cpu: Option<i32>,
        /// Process ID (the kernel's tgid).
        pub pid: Option<i32>,
        /// Thread ID (the kernel's pid).
        pub tid: Option<i32>,
        /// Thread name at the time of the event.
        pub comm: Option<&'a [u8]>,
        /// Kernel stack, an ID in stacks; NULL if not recorded.
        pub kernel_stack: Option<i32>,
        /// User stack, an ID in stacks; NULL if not recorded.
        pub user_stack: Option<i32>,
    }

    impl Row<'_> {
        /// Pushes the values to the first columns of an event table.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let Some((
                [
                    to_time,
                    to_cpu,
                    to_pid,
                    to_tid,
                    to_comm,
                    to_kernel_stack,
                    to_user_stack,
                ],
                _,
            )) = rows.columns_mut().split_first_chunk_mut::<7>()
            else {
                debug_assert!(false, "rows of another table than common");
                return;
            };
            match self.time {
                Some(value) => to_time.push_i64(value),
                None => to_time.push_null(),
            }
            match self.cpu {
                Some(value) => to_cpu.push_i64(i64::from(value)),
                None => to_cpu.push_null(),
            }
            match self.pid {
                Some(value) => to_pid.push_i64(i64::from(value)),
                None => to_pid.push_null(),
            }
            match self.tid {
                Some(value) => to_tid.push_i64(i64::from(value)),
                None => to_tid.push_null(),
            }
            match self.comm {
                Some(value) => to_comm.push_bytes(value),
                None => to_comm.push_null(),
            }
            match self.kernel_stack {
                Some(value) => to_kernel_stack.push_i64(i64::from(value)),
                None => to_kernel_stack.push_null(),
            }
            match self.user_stack {
                Some(value) => to_user_stack.push_i64(i64::from(value)),
                None => to_user_stack.push_null(),
            }
        }
    }
}

/// Events counted with --stat, per period.
pub mod counts {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "counts";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "Events counted with --stat, per period.".to_owned(),
            columns: vec![
                column(
                    "time",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Delta,
                    "End of the period.",
                ),
                column(
                    "since",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Delta,
                    "Start of the period.",
                ),
                column(
                    "event",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Counted event.",
                ),
                column(
                    "count",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Occurrences in the period, or ns of a clock; estimated from `counted` if the counter ran only for a part of it. NULL if it was not counted.",
                ),
                column(
                    "unit",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Unit of `count`: ns for clocks; NULL for occurrences.",
                ),
                column(
                    "counted",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Occurrences while the counter ran. NULL if it was not counted.",
                ),
                column(
                    "enabled",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Dictionary,
                    "Time for which the event was enabled, added up over CPUs or threads.",
                ),
                column(
                    "running",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Dictionary,
                    "Time for which it was counted; less than `enabled` if events shared a hardware counter.",
                ),
                column(
                    "cpu",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "CPU; NULL for all recorded ones.",
                ),
                column(
                    "tid",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Thread, including the threads it started; NULL for all recorded ones.",
                ),
                column(
                    "comm",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Name of the thread at the end of the period; NULL if unknown.",
                ),
                column(
                    "cgroup",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Path of the cgroup; NULL if no cgroups were selected.",
                ),
                column(
                    "error",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Why the event was not counted; NULL if it was.",
                ),
            ],
            sort: vec!["time".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// End of the period.
        pub time: Option<i64>,
        /// Start of the period.
        pub since: Option<i64>,
        /// Counted event.
        pub event: &'a [u8],
        /// Occurrences in the period, or ns of a clock; estimated from `counted` if the counter ran only for a part of it. NULL if it was not counted.
        pub count: Option<i64>,
        /// Unit of `count`: ns for clocks; NULL for occurrences.
        pub unit: Option<&'a [u8]>,
        /// Occurrences while the counter ran. NULL if it was not counted.
        pub counted: Option<i64>,
        /// Time for which the event was enabled, added up over CPUs or threads.
        pub enabled: Option<i64>,
        /// Time for which it was counted; less than `enabled` if events shared a hardware counter.
        pub running: Option<i64>,
        /// CPU; NULL for all recorded ones.
        pub cpu: Option<i32>,
        /// Thread, including the threads it started; NULL for all recorded ones.
        pub tid: Option<i32>,
        /// Name of the thread at the end of the period; NULL if unknown.
        pub comm: Option<&'a [u8]>,
        /// Path of the cgroup; NULL if no cgroups were selected.
        pub cgroup: Option<&'a [u8]>,
        /// Why the event was not counted; NULL if it was.
        pub error: Option<&'a [u8]>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_time,
                to_since,
                to_event,
                to_count,
                to_unit,
                to_counted,
                to_enabled,
                to_running,
                to_cpu,
                to_tid,
                to_comm,
                to_cgroup,
                to_error,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than counts");
                return;
            };
            match self.time {
                Some(value) => to_time.push_i64(value),
                None => to_time.push_null(),
            }
            match self.since {
                Some(value) => to_since.push_i64(value),
                None => to_since.push_null(),
            }
            to_event.push_bytes(self.event);
            match self.count {
                Some(value) => to_count.push_i64(value),
                None => to_count.push_null(),
            }
            match self.unit {
                Some(value) => to_unit.push_bytes(value),
                None => to_unit.push_null(),
            }
            match self.counted {
                Some(value) => to_counted.push_i64(value),
                None => to_counted.push_null(),
            }
            match self.enabled {
                Some(value) => to_enabled.push_i64(value),
                None => to_enabled.push_null(),
            }
            match self.running {
                Some(value) => to_running.push_i64(value),
                None => to_running.push_null(),
            }
            match self.cpu {
                Some(value) => to_cpu.push_i64(i64::from(value)),
                None => to_cpu.push_null(),
            }
            match self.tid {
                Some(value) => to_tid.push_i64(i64::from(value)),
                None => to_tid.push_null(),
            }
            match self.comm {
                Some(value) => to_comm.push_bytes(value),
                None => to_comm.push_null(),
            }
            match self.cgroup {
                Some(value) => to_cgroup.push_bytes(value),
                None => to_cgroup.push_null(),
            }
            match self.error {
                Some(value) => to_error.push_bytes(value),
                None => to_error.push_null(),
            }
        }
    }
}

/// One recorded event type.
pub mod event_types {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "event_types";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "One recorded event type.".to_owned(),
            columns: vec![
                column(
                    "system",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Subsystem of the event, such as sched, syscalls, hardware, software or perf.",
                ),
                column(
                    "event",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Name of the event.",
                ),
                column(
                    "table_name",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Table with its rows, as named in SQL.",
                ),
                column(
                    "kind",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "counter, software, tracepoint, kprobe, kretprobe, uprobe, uretprobe, usdt, recorder or marker.",
                ),
                column(
                    "period",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Sampling period: one row per this many events.",
                ),
                column(
                    "frequency",
                    ColumnType::Int64,
                    true,
                    "Hz",
                    Encoding::Dictionary,
                    "Requested sampling rate in rows per second.",
                ),
                column(
                    "filter",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Filter applied by the kernel.",
                ),
                column(
                    "print_format",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "The kernel's print format of the event.",
                ),
                column(
                    "fields",
                    ColumnType::TextList,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Declarations of the fields.",
                ),
                column(
                    "rows",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Number of rows in this trace.",
                ),
                column(
                    "lost",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Number of lost rows; NULL if unknown.",
                ),
            ],
            sort: vec![],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Subsystem of the event, such as sched, syscalls, hardware, software or perf.
        pub system: &'a [u8],
        /// Name of the event.
        pub event: &'a [u8],
        /// Table with its rows, as named in SQL.
        pub table_name: &'a [u8],
        /// counter, software, tracepoint, kprobe, kretprobe, uprobe, uretprobe, usdt, recorder or marker.
        pub kind: &'a [u8],
        /// Sampling period: one row per this many events.
        pub period: Option<i64>,
        /// Requested sampling rate in rows per second.
        pub frequency: Option<i64>,
        /// Filter applied by the kernel.
        pub filter: Option<&'a [u8]>,
        /// The kernel's print format of the event.
        pub print_format: Option<&'a [u8]>,
        /// Declarations of the fields.
        pub fields: Option<&'a [&'a [u8]]>,
        /// Number of rows in this trace.
        pub rows: i64,
        /// Number of lost rows; NULL if unknown.
        pub lost: Option<i64>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_system,
                to_event,
                to_table_name,
                to_kind,
                to_period,
                to_frequency,
                to_filter,
                to_print_format,
                to_fields,
                to_rows,
                to_lost,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than event_types");
                return;
            };
            to_system.push_bytes(self.system);
            to_event.push_bytes(self.event);
            to_table_name.push_bytes(self.table_name);
            to_kind.push_bytes(self.kind);
            match self.period {
                Some(value) => to_period.push_i64(value),
                None => to_period.push_null(),
            }
            match self.frequency {
                Some(value) => to_frequency.push_i64(value),
                None => to_frequency.push_null(),
            }
            match self.filter {
                Some(value) => to_filter.push_bytes(value),
                None => to_filter.push_null(),
            }
            match self.print_format {
                Some(value) => to_print_format.push_bytes(value),
                None => to_print_format.push_null(),
            }
            match self.fields {
                Some(value) => to_fields.push_text_list(value.iter().copied()),
                None => to_fields.push_null(),
            }
            to_rows.push_i64(self.rows);
            match self.lost {
                Some(value) => to_lost.push_i64(value),
                None => to_lost.push_null(),
            }
        }
    }
}

/// A code location, with its name if known.
pub mod frames {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "frames";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "A code location, with its name if known.".to_owned(),
            columns: vec![
                column(
                    "frame_id",
                    ColumnType::Int32,
                    false,
                    "",
                    Encoding::Delta,
                    "ID of the frame, from 1.",
                ),
                column(
                    "module",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "File that contains the code, or a name in brackets.",
                ),
                column(
                    "build_id",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Build ID of the module, hexadecimal.",
                ),
                column(
                    "module_offset",
                    ColumnType::Bits,
                    true,
                    "address",
                    Encoding::Plain,
                    "Offset of the instruction in the module's file.",
                ),
                column(
                    "address",
                    ColumnType::Bits,
                    true,
                    "address",
                    Encoding::Plain,
                    "Absolute address; only for the kernel, or if no module is known.",
                ),
                column(
                    "function",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Demangled function name.",
                ),
                column(
                    "function_offset",
                    ColumnType::Int64,
                    true,
                    "bytes",
                    Encoding::Dictionary,
                    "Offset from the start of the function.",
                ),
                column(
                    "file",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Source file.",
                ),
                column(
                    "line",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Line in the source file, from 1.",
                ),
                column(
                    "inlined_into",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Frame of the call site, for inlined code.",
                ),
                column(
                    "space",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "kernel, user, hypervisor, guest kernel or guest user.",
                ),
                column(
                    "return_address",
                    ColumnType::Bool,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Whether the location is a return address; the call is the instruction before it.",
                ),
                column(
                    "unverified",
                    ColumnType::Bool,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Whether the name comes from a file not proven to be the recorded one, because no build ID was recorded; NULL if there is no name.",
                ),
            ],
            sort: vec!["frame_id".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// ID of the frame, from 1.
        pub frame_id: i32,
        /// File that contains the code, or a name in brackets.
        pub module: Option<&'a [u8]>,
        /// Build ID of the module, hexadecimal.
        pub build_id: Option<&'a [u8]>,
        /// Offset of the instruction in the module's file.
        pub module_offset: Option<u64>,
        /// Absolute address; only for the kernel, or if no module is known.
        pub address: Option<u64>,
        /// Demangled function name.
        pub function: Option<&'a [u8]>,
        /// Offset from the start of the function.
        pub function_offset: Option<i64>,
        /// Source file.
        pub file: Option<&'a [u8]>,
        /// Line in the source file, from 1.
        pub line: Option<i32>,
        /// Frame of the call site, for inlined code.
        pub inlined_into: Option<i32>,
        /// kernel, user, hypervisor, guest kernel or guest user.
        pub space: Option<&'a [u8]>,
        /// Whether the location is a return address; the call is the instruction before it.
        pub return_address: bool,
        /// Whether the name comes from a file not proven to be the recorded one, because no build ID was recorded; NULL if there is no name.
        pub unverified: Option<bool>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_frame_id,
                to_module,
                to_build_id,
                to_module_offset,
                to_address,
                to_function,
                to_function_offset,
                to_file,
                to_line,
                to_inlined_into,
                to_space,
                to_return_address,
                to_unverified,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than frames");
                return;
            };
            to_frame_id.push_i64(i64::from(self.frame_id));
            match self.module {
                Some(value) => to_module.push_bytes(value),
                None => to_module.push_null(),
            }
            match self.build_id {
                Some(value) => to_build_id.push_bytes(value),
                None => to_build_id.push_null(),
            }
            match self.module_offset {
                Some(value) => to_module_offset.push_u64(value),
                None => to_module_offset.push_null(),
            }
            match self.address {
                Some(value) => to_address.push_u64(value),
                None => to_address.push_null(),
            }
            match self.function {
                Some(value) => to_function.push_bytes(value),
                None => to_function.push_null(),
            }
            match self.function_offset {
                Some(value) => to_function_offset.push_i64(value),
                None => to_function_offset.push_null(),
            }
            match self.file {
                Some(value) => to_file.push_bytes(value),
                None => to_file.push_null(),
            }
            match self.line {
                Some(value) => to_line.push_i64(i64::from(value)),
                None => to_line.push_null(),
            }
            match self.inlined_into {
                Some(value) => to_inlined_into.push_i64(i64::from(value)),
                None => to_inlined_into.push_null(),
            }
            match self.space {
                Some(value) => to_space.push_bytes(value),
                None => to_space.push_null(),
            }
            to_return_address.push_bool(self.return_address);
            match self.unverified {
                Some(value) => to_unverified.push_bool(value),
                None => to_unverified.push_null(),
            }
        }
    }
}

/// Events known to be missing.
pub mod losses {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "losses";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "Events known to be missing.".to_owned(),
            columns: vec![
                column(
                    "time",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Delta,
                    "Time at which the loss was noticed.",
                ),
                column(
                    "cpu",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "CPU of the buffer.",
                ),
                column(
                    "event",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Lost event; NULL if unknown.",
                ),
                column(
                    "count",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Number of lost events; NULL if unknown.",
                ),
                column(
                    "reason",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "ring full, throttled, filtered, buffer overrun, or the term of the recording tool; paused and resumed: nothing was recorded in between, on request or between two inputs of one import.",
                ),
            ],
            sort: vec!["time".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Time at which the loss was noticed.
        pub time: Option<i64>,
        /// CPU of the buffer.
        pub cpu: Option<i32>,
        /// Lost event; NULL if unknown.
        pub event: Option<&'a [u8]>,
        /// Number of lost events; NULL if unknown.
        pub count: Option<i64>,
        /// ring full, throttled, filtered, buffer overrun, or the term of the recording tool; paused and resumed: nothing was recorded in between, on request or between two inputs of one import.
        pub reason: &'a [u8],
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [to_time, to_cpu, to_event, to_count, to_reason] = rows.columns_mut() else {
                debug_assert!(false, "rows of another table than losses");
                return;
            };
            match self.time {
                Some(value) => to_time.push_i64(value),
                None => to_time.push_null(),
            }
            match self.cpu {
                Some(value) => to_cpu.push_i64(i64::from(value)),
                None => to_cpu.push_null(),
            }
            match self.event {
                Some(value) => to_event.push_bytes(value),
                None => to_event.push_null(),
            }
            match self.count {
                Some(value) => to_count.push_i64(value),
                None => to_count.push_null(),
            }
            to_reason.push_bytes(self.reason);
        }
    }
}

/// A file, or anonymous memory, mapped into a process or the kernel.
pub mod mappings {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "mappings";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "A file, or anonymous memory, mapped into a process or the kernel.".to_owned(),
            columns: vec![
                column(
                    "time",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Delta,
                    "Time of the mapping; NULL if before the recording.",
                ),
                column(
                    "pid",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Process ID; NULL for the kernel.",
                ),
                column(
                    "start_address",
                    ColumnType::Bits,
                    false,
                    "address",
                    Encoding::Plain,
                    "First address.",
                ),
                column(
                    "end_address",
                    ColumnType::Bits,
                    false,
                    "address",
                    Encoding::Plain,
                    "First address past the end.",
                ),
                column(
                    "file_offset",
                    ColumnType::Bits,
                    false,
                    "bytes",
                    Encoding::Dictionary,
                    "File offset of the first address.",
                ),
                column(
                    "path",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Path of the file, or a name in brackets.",
                ),
                column(
                    "build_id",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Build ID of the file, hexadecimal.",
                ),
                column(
                    "inode",
                    ColumnType::Bits,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Inode number of the file.",
                ),
                column(
                    "protection",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Bits of PROT_*: 1 read, 2 write, 4 execute.",
                ),
            ],
            sort: vec!["time".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Time of the mapping; NULL if before the recording.
        pub time: Option<i64>,
        /// Process ID; NULL for the kernel.
        pub pid: Option<i32>,
        /// First address.
        pub start_address: u64,
        /// First address past the end.
        pub end_address: u64,
        /// File offset of the first address.
        pub file_offset: u64,
        /// Path of the file, or a name in brackets.
        pub path: &'a [u8],
        /// Build ID of the file, hexadecimal.
        pub build_id: Option<&'a [u8]>,
        /// Inode number of the file.
        pub inode: Option<u64>,
        /// Bits of PROT_*: 1 read, 2 write, 4 execute.
        pub protection: Option<i32>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_time,
                to_pid,
                to_start_address,
                to_end_address,
                to_file_offset,
                to_path,
                to_build_id,
                to_inode,
                to_protection,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than mappings");
                return;
            };
            match self.time {
                Some(value) => to_time.push_i64(value),
                None => to_time.push_null(),
            }
            match self.pid {
                Some(value) => to_pid.push_i64(i64::from(value)),
                None => to_pid.push_null(),
            }
            to_start_address.push_u64(self.start_address);
            to_end_address.push_u64(self.end_address);
            to_file_offset.push_u64(self.file_offset);
            to_path.push_bytes(self.path);
            match self.build_id {
                Some(value) => to_build_id.push_bytes(value),
                None => to_build_id.push_null(),
            }
            match self.inode {
                Some(value) => to_inode.push_u64(value),
                None => to_inode.push_null(),
            }
            match self.protection {
                Some(value) => to_protection.push_i64(i64::from(value)),
                None => to_protection.push_null(),
            }
        }
    }
}

/// Files that were open in a process when the recorder looked at it: at the start, and when it executed a program. Only with system calls.
pub mod open_files {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "open_files";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
name: NAME.to_owned(),
doc: "Files that were open in a process when the recorder looked at it: at the start, and when it executed a program. Only with system calls.".to_owned(),
columns: vec![column("time", ColumnType::Int64, true, "ns", Encoding::Delta, "Time at which the recorder looked."),column("pid", ColumnType::Int32, false, "", Encoding::Dictionary, "Process ID."),column("fd", ColumnType::Int32, false, "", Encoding::Dictionary, "File descriptor."),column("path", ColumnType::Text, false, "", Encoding::Dictionary, "Path, as the process sees it; for what is no file, the kernel's name, such as socket:[4711]."),],
sort: vec!["time".to_owned()],
}
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Time at which the recorder looked.
        pub time: Option<i64>,
        /// Process ID.
        pub pid: i32,
        /// File descriptor.
        pub fd: i32,
        /// Path, as the process sees it; for what is no file, the kernel's name, such as socket:\[4711\].
        pub path: &'a [u8],
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [to_time, to_pid, to_fd, to_path] = rows.columns_mut() else {
                debug_assert!(false, "rows of another table than open_files");
                return;
            };
            match self.time {
                Some(value) => to_time.push_i64(value),
                None => to_time.push_null(),
            }
            to_pid.push_i64(i64::from(self.pid));
            to_fd.push_i64(i64::from(self.fd));
            to_path.push_bytes(self.path);
        }
    }
}

/// Unreadable data in an input.
pub mod problems {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "problems";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "Unreadable data in an input.".to_owned(),
            columns: vec![
                column(
                    "source",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Name of the input.",
                ),
                column(
                    "input_offset",
                    ColumnType::Int64,
                    true,
                    "bytes",
                    Encoding::Dictionary,
                    "Byte offset in the input.",
                ),
                column(
                    "line",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Line in the input, from 1.",
                ),
                column(
                    "count",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Number of problems of this kind.",
                ),
                column(
                    "message",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Description of the problem: what was expected, and what was found.",
                ),
            ],
            sort: vec![],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Name of the input.
        pub source: &'a [u8],
        /// Byte offset in the input.
        pub input_offset: Option<i64>,
        /// Line in the input, from 1.
        pub line: Option<i64>,
        /// Number of problems of this kind.
        pub count: i64,
        /// Description of the problem: what was expected, and what was found.
        pub message: &'a [u8],
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [to_source, to_input_offset, to_line, to_count, to_message] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than problems");
                return;
            };
            to_source.push_bytes(self.source);
            match self.input_offset {
                Some(value) => to_input_offset.push_i64(value),
                None => to_input_offset.push_null(),
            }
            match self.line {
                Some(value) => to_line.push_i64(value),
                None => to_line.push_null(),
            }
            to_count.push_i64(self.count);
            to_message.push_bytes(self.message);
        }
    }
}

/// One sample of a counter or clock.
pub mod samples {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "samples";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
name: NAME.to_owned(),
doc: "One sample of a counter or clock.".to_owned(),
columns: [common::columns(), vec![column("event", ColumnType::Text, false, "", Encoding::Dictionary, "Counter or clock, as in event_types."),column("period", ColumnType::Int64, true, "", Encoding::Dictionary, "Number of events that the sample represents."),column("ip", ColumnType::Bits, true, "address", Encoding::Dictionary, "Address of the instruction."),column("addr", ColumnType::Bits, true, "address", Encoding::Dictionary, "Address of the data."),column("weight", ColumnType::Bits, true, "", Encoding::Dictionary, "Cost of the access, usually latency in cycles; three packed numbers if the CPU reports a weight structure."),column("data_src", ColumnType::Bits, true, "mask", Encoding::Dictionary, "Source of the data, as union perf_mem_data_src of include/uapi/linux/perf_event.h."),column("transaction", ColumnType::Bits, true, "mask", Encoding::Dictionary, "Flags of the hardware transaction."),column("phys_addr", ColumnType::Bits, true, "address", Encoding::Dictionary, "Physical address of the data."),column("cgroup", ColumnType::Bits, true, "", Encoding::Dictionary, "ID of the cgroup."),column("data_page_size", ColumnType::Int64, true, "bytes", Encoding::Dictionary, "Size of the data's page."),column("code_page_size", ColumnType::Int64, true, "bytes", Encoding::Dictionary, "Size of the instruction's page."),column("stream_id", ColumnType::Bits, true, "", Encoding::Dictionary, "ID of the counter that took the sample."),column("branch_from", ColumnType::BitsList, true, "address", Encoding::Dictionary, "Addresses of the last branches, newest first."),column("branch_to", ColumnType::BitsList, true, "address", Encoding::Dictionary, "Targets of the branches."),column("branch_flags", ColumnType::BitsList, true, "mask", Encoding::Dictionary, "Flags of the branches: bit 0 mispredicted, 1 predicted, 2 in a transaction, 3 aborted, 4 to 19 cycles, 20 to 23 type."),column("branch_hw_index", ColumnType::Bits, true, "", Encoding::Dictionary, "Index of the newest branch in the CPU's branch buffer."),column("branch_counters", ColumnType::BitsList, true, "mask", Encoding::Dictionary, "Event counts between the branches, packed by branch."),column("user_regs", ColumnType::BitsList, true, "", Encoding::Dictionary, "User-space registers, lowest number first."),column("user_regs_mask", ColumnType::Bits, true, "mask", Encoding::Dictionary, "Mask of the registers in user_regs, with bits as in the architecture's perf_regs.h."),column("interrupt_regs", ColumnType::BitsList, true, "", Encoding::Dictionary, "Registers at the interrupt, lowest number first."),column("interrupt_regs_mask", ColumnType::Bits, true, "mask", Encoding::Dictionary, "Mask of the registers in interrupt_regs, with bits as in the architecture's perf_regs.h."),]].concat(),
sort: vec!["time".to_owned()],
}
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Time of the event on the trace's clock; NULL if unknown.
        pub time: Option<i64>,
        /// CPU of the event; NULL if unknown.
        pub cpu: Option<i32>,
        /// Process ID (the kernel's tgid).
        pub pid: Option<i32>,
        /// Thread ID (the kernel's pid).
        pub tid: Option<i32>,
        /// Thread name at the time of the event.
        pub comm: Option<&'a [u8]>,
        /// Kernel stack, an ID in stacks; NULL if not recorded.
        pub kernel_stack: Option<i32>,
        /// User stack, an ID in stacks; NULL if not recorded.
        pub user_stack: Option<i32>,
        /// Counter or clock, as in event_types.
        pub event: &'a [u8],
        /// Number of events that the sample represents.
        pub period: Option<i64>,
        /// Address of the instruction.
        pub ip: Option<u64>,
        /// Address of the data.
        pub addr: Option<u64>,
        /// Cost of the access, usually latency in cycles; three packed numbers if the CPU reports a weight structure.
        pub weight: Option<u64>,
        /// Source of the data, as union perf_mem_data_src of include/uapi/linux/perf_event.h.
        pub data_src: Option<u64>,
        /// Flags of the hardware transaction.
        pub transaction: Option<u64>,
        /// Physical address of the data.
        pub phys_addr: Option<u64>,
        /// ID of the cgroup.
        pub cgroup: Option<u64>,
        /// Size of the data's page.
        pub data_page_size: Option<i64>,
        /// Size of the instruction's page.
        pub code_page_size: Option<i64>,
        /// ID of the counter that took the sample.
        pub stream_id: Option<u64>,
        /// Addresses of the last branches, newest first.
        pub branch_from: Option<&'a [u64]>,
        /// Targets of the branches.
        pub branch_to: Option<&'a [u64]>,
        /// Flags of the branches: bit 0 mispredicted, 1 predicted, 2 in a transaction, 3 aborted, 4 to 19 cycles, 20 to 23 type.
        pub branch_flags: Option<&'a [u64]>,
        /// Index of the newest branch in the CPU's branch buffer.
        pub branch_hw_index: Option<u64>,
        /// Event counts between the branches, packed by branch.
        pub branch_counters: Option<&'a [u64]>,
        /// User-space registers, lowest number first.
        pub user_regs: Option<&'a [u64]>,
        /// Mask of the registers in user_regs, with bits as in the architecture's perf_regs.h.
        pub user_regs_mask: Option<u64>,
        /// Registers at the interrupt, lowest number first.
        pub interrupt_regs: Option<&'a [u64]>,
        /// Mask of the registers in interrupt_regs, with bits as in the architecture's perf_regs.h.
        pub interrupt_regs_mask: Option<u64>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_time,
                to_cpu,
                to_pid,
                to_tid,
                to_comm,
                to_kernel_stack,
                to_user_stack,
                to_event,
                to_period,
                to_ip,
                to_addr,
                to_weight,
                to_data_src,
                to_transaction,
                to_phys_addr,
                to_cgroup,
                to_data_page_size,
                to_code_page_size,
                to_stream_id,
                to_branch_from,
                to_branch_to,
                to_branch_flags,
                to_branch_hw_index,
                to_branch_counters,
                to_user_regs,
                to_user_regs_mask,
                to_interrupt_regs,
                to_interrupt_regs_mask,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than samples");
                return;
            };
            match self.time {
                Some(value) => to_time.push_i64(value),
                None => to_time.push_null(),
            }
            match self.cpu {
                Some(value) => to_cpu.push_i64(i64::from(value)),
                None => to_cpu.push_null(),
            }
            match self.pid {
                Some(value) => to_pid.push_i64(i64::from(value)),
                None => to_pid.push_null(),
            }
            match self.tid {
                Some(value) => to_tid.push_i64(i64::from(value)),
                None => to_tid.push_null(),
            }
            match self.comm {
                Some(value) => to_comm.push_bytes(value),
                None => to_comm.push_null(),
            }
            match self.kernel_stack {
                Some(value) => to_kernel_stack.push_i64(i64::from(value)),
                None => to_kernel_stack.push_null(),
            }
            match self.user_stack {
                Some(value) => to_user_stack.push_i64(i64::from(value)),
                None => to_user_stack.push_null(),
            }
            to_event.push_bytes(self.event);
            match self.period {
                Some(value) => to_period.push_i64(value),
                None => to_period.push_null(),
            }
            match self.ip {
                Some(value) => to_ip.push_u64(value),
                None => to_ip.push_null(),
            }
            match self.addr {
                Some(value) => to_addr.push_u64(value),
                None => to_addr.push_null(),
            }
            match self.weight {
                Some(value) => to_weight.push_u64(value),
                None => to_weight.push_null(),
            }
            match self.data_src {
                Some(value) => to_data_src.push_u64(value),
                None => to_data_src.push_null(),
            }
            match self.transaction {
                Some(value) => to_transaction.push_u64(value),
                None => to_transaction.push_null(),
            }
            match self.phys_addr {
                Some(value) => to_phys_addr.push_u64(value),
                None => to_phys_addr.push_null(),
            }
            match self.cgroup {
                Some(value) => to_cgroup.push_u64(value),
                None => to_cgroup.push_null(),
            }
            match self.data_page_size {
                Some(value) => to_data_page_size.push_i64(value),
                None => to_data_page_size.push_null(),
            }
            match self.code_page_size {
                Some(value) => to_code_page_size.push_i64(value),
                None => to_code_page_size.push_null(),
            }
            match self.stream_id {
                Some(value) => to_stream_id.push_u64(value),
                None => to_stream_id.push_null(),
            }
            match self.branch_from {
                Some(value) => to_branch_from.push_u64_list(value),
                None => to_branch_from.push_null(),
            }
            match self.branch_to {
                Some(value) => to_branch_to.push_u64_list(value),
                None => to_branch_to.push_null(),
            }
            match self.branch_flags {
                Some(value) => to_branch_flags.push_u64_list(value),
                None => to_branch_flags.push_null(),
            }
            match self.branch_hw_index {
                Some(value) => to_branch_hw_index.push_u64(value),
                None => to_branch_hw_index.push_null(),
            }
            match self.branch_counters {
                Some(value) => to_branch_counters.push_u64_list(value),
                None => to_branch_counters.push_null(),
            }
            match self.user_regs {
                Some(value) => to_user_regs.push_u64_list(value),
                None => to_user_regs.push_null(),
            }
            match self.user_regs_mask {
                Some(value) => to_user_regs_mask.push_u64(value),
                None => to_user_regs_mask.push_null(),
            }
            match self.interrupt_regs {
                Some(value) => to_interrupt_regs.push_u64_list(value),
                None => to_interrupt_regs.push_null(),
            }
            match self.interrupt_regs_mask {
                Some(value) => to_interrupt_regs_mask.push_u64(value),
                None => to_interrupt_regs_mask.push_null(),
            }
        }
    }
}

/// A node of the prefix tree of all stacks: a frame and, through its parent, its callers.
pub mod stacks {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "stacks";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
name: NAME.to_owned(),
doc: "A node of the prefix tree of all stacks: a frame and, through its parent, its callers.".to_owned(),
columns: vec![column("stack_id", ColumnType::Int32, false, "", Encoding::Delta, "ID of the node, from 1; 0 is the empty stack and has no row."),column("parent_id", ColumnType::Int32, false, "", Encoding::Delta, "Node of the caller, always smaller than stack_id; 0 at the root."),column("frame_id", ColumnType::Int32, false, "", Encoding::Delta, "Frame of the node, an ID in frames."),column("depth", ColumnType::Int32, false, "", Encoding::Dictionary, "Number of frames from the root to this node, 1 at the root."),column("cut", ColumnType::Bool, true, "", Encoding::Dictionary, "Whether callers of this outermost frame are missing; NULL if none are known to be."),],
sort: vec!["stack_id".to_owned()],
}
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row {
        /// ID of the node, from 1; 0 is the empty stack and has no row.
        pub stack_id: i32,
        /// Node of the caller, always smaller than stack_id; 0 at the root.
        pub parent_id: i32,
        /// Frame of the node, an ID in frames.
        pub frame_id: i32,
        /// Number of frames from the root to this node, 1 at the root.
        pub depth: i32,
        /// Whether callers of this outermost frame are missing; NULL if none are known to be.
        pub cut: Option<bool>,
    }

    impl Row {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [to_stack_id, to_parent_id, to_frame_id, to_depth, to_cut] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than stacks");
                return;
            };
            to_stack_id.push_i64(i64::from(self.stack_id));
            to_parent_id.push_i64(i64::from(self.parent_id));
            to_frame_id.push_i64(i64::from(self.frame_id));
            to_depth.push_i64(i64::from(self.depth));
            match self.cut {
                Some(value) => to_cut.push_bool(value),
                None => to_cut.push_null(),
            }
        }
    }
}

/// Calls of a function in an hour whose durations are nearly equal, in a lake with summaries: one bar of a histogram that can be merged.
pub mod summary_durations {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "summary_durations";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
name: NAME.to_owned(),
doc: "Calls of a function in an hour whose durations are nearly equal, in a lake with summaries: one bar of a histogram that can be merged.".to_owned(),
columns: vec![column("hour", ColumnType::Int64, true, "", Encoding::Dictionary, "Start of the hour (UTC) in which the calls began, in seconds since 1970; NULL if their time, or the wall clock, is unknown."),column("function", ColumnType::Text, true, "", Encoding::Dictionary, "Name of the function."),column("module", ColumnType::Text, true, "", Encoding::Dictionary, "File that contains the function; NULL if unknown."),column("duration", ColumnType::Int64, true, "ns", Encoding::Dictionary, "Middle of the bar: it differs from the duration of each of these calls by at most 1/128 of that, and not at all below 128 ns. NULL if the durations are unknown."),column("calls", ColumnType::Int64, false, "", Encoding::Dictionary, "Number of calls."),column("total_duration", ColumnType::Int64, true, "ns", Encoding::Dictionary, "Sum of their durations, exact; NULL if they are unknown, or if it exceeds 64 bits."),],
sort: vec!["hour".to_owned()],
}
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Start of the hour (UTC) in which the calls began, in seconds since 1970; NULL if their time, or the wall clock, is unknown.
        pub hour: Option<i64>,
        /// Name of the function.
        pub function: Option<&'a [u8]>,
        /// File that contains the function; NULL if unknown.
        pub module: Option<&'a [u8]>,
        /// Middle of the bar: it differs from the duration of each of these calls by at most 1/128 of that, and not at all below 128 ns. NULL if the durations are unknown.
        pub duration: Option<i64>,
        /// Number of calls.
        pub calls: i64,
        /// Sum of their durations, exact; NULL if they are unknown, or if it exceeds 64 bits.
        pub total_duration: Option<i64>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_hour,
                to_function,
                to_module,
                to_duration,
                to_calls,
                to_total_duration,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than summary_durations");
                return;
            };
            match self.hour {
                Some(value) => to_hour.push_i64(value),
                None => to_hour.push_null(),
            }
            match self.function {
                Some(value) => to_function.push_bytes(value),
                None => to_function.push_null(),
            }
            match self.module {
                Some(value) => to_module.push_bytes(value),
                None => to_module.push_null(),
            }
            match self.duration {
                Some(value) => to_duration.push_i64(value),
                None => to_duration.push_null(),
            }
            to_calls.push_i64(self.calls);
            match self.total_duration {
                Some(value) => to_total_duration.push_i64(value),
                None => to_total_duration.push_null(),
            }
        }
    }
}

/// Samples of a function in an hour, in a lake with summaries.
pub mod summary_functions {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "summary_functions";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "Samples of a function in an hour, in a lake with summaries.".to_owned(),
            columns: vec![
                column(
                    "hour",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Start of the hour (UTC), in seconds since 1970; NULL if the time of the samples, or the wall clock, is unknown.",
                ),
                column(
                    "event",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Sampled event.",
                ),
                column(
                    "function",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Name of the function; otherwise its module in brackets; [no stack] for samples without a stack.",
                ),
                column(
                    "module",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "File that contains the function; NULL if unknown.",
                ),
                column(
                    "is_kernel",
                    ColumnType::Bool,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Whether it is a function of the kernel.",
                ),
                column(
                    "samples",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Number of samples in the function itself.",
                ),
                column(
                    "self_weight",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Weight of these samples: the sum of their periods; NULL if it exceeds 64 bits.",
                ),
                column(
                    "total_weight",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Weight of all samples whose stack contains the function, each counted once; NULL if it exceeds 64 bits.",
                ),
            ],
            sort: vec!["hour".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Start of the hour (UTC), in seconds since 1970; NULL if the time of the samples, or the wall clock, is unknown.
        pub hour: Option<i64>,
        /// Sampled event.
        pub event: &'a [u8],
        /// Name of the function; otherwise its module in brackets; \[no stack\] for samples without a stack.
        pub function: &'a [u8],
        /// File that contains the function; NULL if unknown.
        pub module: Option<&'a [u8]>,
        /// Whether it is a function of the kernel.
        pub is_kernel: bool,
        /// Number of samples in the function itself.
        pub samples: i64,
        /// Weight of these samples: the sum of their periods; NULL if it exceeds 64 bits.
        pub self_weight: Option<i64>,
        /// Weight of all samples whose stack contains the function, each counted once; NULL if it exceeds 64 bits.
        pub total_weight: Option<i64>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_hour,
                to_event,
                to_function,
                to_module,
                to_is_kernel,
                to_samples,
                to_self_weight,
                to_total_weight,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than summary_functions");
                return;
            };
            match self.hour {
                Some(value) => to_hour.push_i64(value),
                None => to_hour.push_null(),
            }
            to_event.push_bytes(self.event);
            to_function.push_bytes(self.function);
            match self.module {
                Some(value) => to_module.push_bytes(value),
                None => to_module.push_null(),
            }
            to_is_kernel.push_bool(self.is_kernel);
            to_samples.push_i64(self.samples);
            match self.self_weight {
                Some(value) => to_self_weight.push_i64(value),
                None => to_self_weight.push_null(),
            }
            match self.total_weight {
                Some(value) => to_total_weight.push_i64(value),
                None => to_total_weight.push_null(),
            }
        }
    }
}

/// Losses of an hour, in a lake with summaries.
pub mod summary_losses {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "summary_losses";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "Losses of an hour, in a lake with summaries.".to_owned(),
            columns: vec![
                column(
                    "hour",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Start of the hour (UTC), in seconds since 1970; NULL if the time of the losses, or the wall clock, is unknown.",
                ),
                column(
                    "event",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Lost event; NULL if unknown.",
                ),
                column(
                    "reason",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Reason, as in losses.",
                ),
                column(
                    "losses",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Number of losses.",
                ),
                column(
                    "lost",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Lost events of all losses whose number is known; NULL if none is, or if it exceeds 64 bits.",
                ),
                column(
                    "uncounted",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Losses whose number of events is unknown.",
                ),
            ],
            sort: vec!["hour".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Start of the hour (UTC), in seconds since 1970; NULL if the time of the losses, or the wall clock, is unknown.
        pub hour: Option<i64>,
        /// Lost event; NULL if unknown.
        pub event: Option<&'a [u8]>,
        /// Reason, as in losses.
        pub reason: &'a [u8],
        /// Number of losses.
        pub losses: i64,
        /// Lost events of all losses whose number is known; NULL if none is, or if it exceeds 64 bits.
        pub lost: Option<i64>,
        /// Losses whose number of events is unknown.
        pub uncounted: i64,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_hour,
                to_event,
                to_reason,
                to_losses,
                to_lost,
                to_uncounted,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than summary_losses");
                return;
            };
            match self.hour {
                Some(value) => to_hour.push_i64(value),
                None => to_hour.push_null(),
            }
            match self.event {
                Some(value) => to_event.push_bytes(value),
                None => to_event.push_null(),
            }
            to_reason.push_bytes(self.reason);
            to_losses.push_i64(self.losses);
            match self.lost {
                Some(value) => to_lost.push_i64(value),
                None => to_lost.push_null(),
            }
            to_uncounted.push_i64(self.uncounted);
        }
    }
}

/// Samples of a stack in an hour, in a lake with summaries.
pub mod summary_stacks {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "summary_stacks";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "Samples of a stack in an hour, in a lake with summaries.".to_owned(),
            columns: vec![
                column(
                    "hour",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Start of the hour (UTC), in seconds since 1970; NULL if the time of the samples, or the wall clock, is unknown.",
                ),
                column(
                    "event",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Sampled event.",
                ),
                column(
                    "stack",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Functions, outermost first, those of the kernel after those of user space, separated by semicolons; NULL without a stack.",
                ),
                column(
                    "samples",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Number of samples.",
                ),
                column(
                    "weight",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Sum of their periods; NULL if it exceeds 64 bits.",
                ),
            ],
            sort: vec!["hour".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Start of the hour (UTC), in seconds since 1970; NULL if the time of the samples, or the wall clock, is unknown.
        pub hour: Option<i64>,
        /// Sampled event.
        pub event: &'a [u8],
        /// Functions, outermost first, those of the kernel after those of user space, separated by semicolons; NULL without a stack.
        pub stack: Option<&'a [u8]>,
        /// Number of samples.
        pub samples: i64,
        /// Sum of their periods; NULL if it exceeds 64 bits.
        pub weight: Option<i64>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [to_hour, to_event, to_stack, to_samples, to_weight] = rows.columns_mut() else {
                debug_assert!(false, "rows of another table than summary_stacks");
                return;
            };
            match self.hour {
                Some(value) => to_hour.push_i64(value),
                None => to_hour.push_null(),
            }
            to_event.push_bytes(self.event);
            match self.stack {
                Some(value) => to_stack.push_bytes(value),
                None => to_stack.push_null(),
            }
            to_samples.push_i64(self.samples);
            match self.weight {
                Some(value) => to_weight.push_i64(value),
                None => to_weight.push_null(),
            }
        }
    }
}

/// Lifetime of a thread.
pub mod threads {
    use super::*;

    /// Name of the table.
    pub const NAME: &str = "threads";

    /// Declaration of the table.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "Lifetime of a thread.".to_owned(),
            columns: vec![
                column(
                    "tid",
                    ColumnType::Int32,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Thread ID (the kernel's pid).",
                ),
                column(
                    "pid",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Process ID (the kernel's tgid).",
                ),
                column(
                    "parent",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "ID of the process that created the thread.",
                ),
                column(
                    "comm",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Last name of the thread.",
                ),
                column(
                    "start_time",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Dictionary,
                    "Time of creation; NULL if before the recording.",
                ),
                column(
                    "end_time",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Dictionary,
                    "Time of exit; NULL if after the recording or unknown.",
                ),
                column(
                    "exit_code",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Exit status of the recorded command: 0 to 255, or 128 and the signal that killed it; NULL for other processes, whose status no record has.",
                ),
                column(
                    "cmdline",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Last command line of its process, up to 4,096 bytes; NULL if unknown.",
                ),
                column(
                    "cgroup",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Last known path of its cgroup, of version 2 if there is one; NULL if unknown.",
                ),
                column(
                    "namespaces",
                    ColumnType::TextList,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Namespaces, as name:inode.",
                ),
            ],
            sort: vec!["start_time".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Thread ID (the kernel's pid).
        pub tid: i32,
        /// Process ID (the kernel's tgid).
        pub pid: Option<i32>,
        /// ID of the process that created the thread.
        pub parent: Option<i32>,
        /// Last name of the thread.
        pub comm: Option<&'a [u8]>,
        /// Time of creation; NULL if before the recording.
        pub start_time: Option<i64>,
        /// Time of exit; NULL if after the recording or unknown.
        pub end_time: Option<i64>,
        /// Exit status of the recorded command: 0 to 255, or 128 and the signal that killed it; NULL for other processes, whose status no record has.
        pub exit_code: Option<i32>,
        /// Last command line of its process, up to 4,096 bytes; NULL if unknown.
        pub cmdline: Option<&'a [u8]>,
        /// Last known path of its cgroup, of version 2 if there is one; NULL if unknown.
        pub cgroup: Option<&'a [u8]>,
        /// Namespaces, as name:inode.
        pub namespaces: Option<&'a [&'a [u8]]>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_tid,
                to_pid,
                to_parent,
                to_comm,
                to_start_time,
                to_end_time,
                to_exit_code,
                to_cmdline,
                to_cgroup,
                to_namespaces,
            ] = rows.columns_mut()
            else {
                debug_assert!(false, "rows of another table than threads");
                return;
            };
            to_tid.push_i64(i64::from(self.tid));
            match self.pid {
                Some(value) => to_pid.push_i64(i64::from(value)),
                None => to_pid.push_null(),
            }
            match self.parent {
                Some(value) => to_parent.push_i64(i64::from(value)),
                None => to_parent.push_null(),
            }
            match self.comm {
                Some(value) => to_comm.push_bytes(value),
                None => to_comm.push_null(),
            }
            match self.start_time {
                Some(value) => to_start_time.push_i64(value),
                None => to_start_time.push_null(),
            }
            match self.end_time {
                Some(value) => to_end_time.push_i64(value),
                None => to_end_time.push_null(),
            }
            match self.exit_code {
                Some(value) => to_exit_code.push_i64(i64::from(value)),
                None => to_exit_code.push_null(),
            }
            match self.cmdline {
                Some(value) => to_cmdline.push_bytes(value),
                None => to_cmdline.push_null(),
            }
            match self.cgroup {
                Some(value) => to_cgroup.push_bytes(value),
                None => to_cgroup.push_null(),
            }
            match self.namespaces {
                Some(value) => to_namespaces.push_text_list(value.iter().copied()),
                None => to_namespaces.push_null(),
            }
        }
    }
}

/// The tables that every trace has.
pub fn all() -> Vec<TableSchema> {
    vec![
        aggregates::schema(),
        buckets::schema(),
        calls::schema(),
        event_types::schema(),
        frames::schema(),
        losses::schema(),
        mappings::schema(),
        problems::schema(),
        samples::schema(),
        stacks::schema(),
        threads::schema(),
    ]
}

/// The tables with declared columns: those that every trace has, and those of traces with rows for them.
pub fn declared() -> Vec<TableSchema> {
    let mut tables = all();
    tables.extend([
        code::schema(),
        counts::schema(),
        open_files::schema(),
        summary_durations::schema(),
        summary_functions::schema(),
        summary_losses::schema(),
        summary_stacks::schema(),
    ]);
    tables
}

/// The columns of a table that hold row IDs, of this or another table. IDs restart in every trace.
pub fn ids(table: &str) -> &'static [&'static str] {
    match table {
        aggregates::NAME => &["aggregate_id", "kernel_stack", "user_stack"],
        buckets::NAME => &["aggregate_id"],
        calls::NAME => &["kernel_stack", "user_stack", "call_id", "parent_id"],
        event if event.starts_with("events/") => &["kernel_stack", "user_stack"],
        frames::NAME => &["frame_id", "inlined_into"],
        samples::NAME => &["kernel_stack", "user_stack"],
        stacks::NAME => &["stack_id", "parent_id", "frame_id"],
        _ => &[],
    }
}
/// The columns of a table that had another name in version 1 of the format: that name and today's.
pub fn former_names(table: &str) -> &'static [(&'static str, &'static str)] {
    match table {
        event_types::NAME => &[("table", "table_name")],
        frames::NAME => &[("offset", "module_offset")],
        mappings::NAME => &[("start", "start_address"), ("end", "end_address")],
        problems::NAME => &[("offset", "input_offset")],
        threads::NAME => &[("start", "start_time"), ("end", "end_time")],
        _ => &[],
    }
}
