//! Generated from schemas/*.toml by cargo xtask schemas: the fixed tables, their columns and their rows.
//!
//! ```text
//! losses::Row { time: Some(5), count: Some(2), reason: b"ring full", ..Default::default() }.push(writer.rows(losses));
//! ```
//! Text is bytes as found; what is no UTF-8 is replaced where it is stored.

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

    /// Its name.
    pub const NAME: &str = "aggregates";

    /// Its declaration.
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
                    "Number of the row, from 1.",
                ),
                column(
                    "name",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Name of the aggregation.",
                ),
                column(
                    "action",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "count, sum, avg, min, max, stddev, quantize, lquantize or llquantize; NULL: the output did not tell.",
                ),
                column(
                    "keys",
                    ColumnType::TextList,
                    false,
                    "",
                    Encoding::Dictionary,
                    "The key, part by part.",
                ),
                column(
                    "value",
                    ColumnType::Float64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "The value; NULL for distributions, whose bars are in buckets.",
                ),
                column(
                    "kernel_stack",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "A kernel stack in the key, an id into stacks.",
                ),
                column(
                    "user_stack",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "A user stack in the key, an id into stacks.",
                ),
                column(
                    "snapshot",
                    ColumnType::Int32,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Which printing of the aggregation, from 0; a later one holds the earlier ones.",
                ),
                column(
                    "time",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Dictionary,
                    "When it was printed.",
                ),
            ],
            sort: vec!["aggregate_id".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Number of the row, from 1.
        pub aggregate_id: i64,
        /// Name of the aggregation.
        pub name: Option<&'a [u8]>,
        /// count, sum, avg, min, max, stddev, quantize, lquantize or llquantize; NULL: the output did not tell.
        pub action: Option<&'a [u8]>,
        /// The key, part by part.
        pub keys: &'a [&'a [u8]],
        /// The value; NULL for distributions, whose bars are in buckets.
        pub value: Option<f64>,
        /// A kernel stack in the key, an id into stacks.
        pub kernel_stack: Option<i32>,
        /// A user stack in the key, an id into stacks.
        pub user_stack: Option<i32>,
        /// Which printing of the aggregation, from 0; a later one holds the earlier ones.
        pub snapshot: i32,
        /// When it was printed.
        pub time: Option<i64>,
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
        }
    }
}

/// One bar of a distribution.
pub mod buckets {
    use super::*;

    /// Its name.
    pub const NAME: &str = "buckets";

    /// Its declaration.
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
                    "The distribution, an id into aggregates.",
                ),
                column(
                    "low",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Smallest value in the bar; NULL: open below.",
                ),
                column(
                    "high",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "First value above the bar; NULL: open above.",
                ),
                column(
                    "count",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "How many values fell into it.",
                ),
            ],
            sort: vec!["aggregate_id".to_owned(), "low".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row {
        /// The distribution, an id into aggregates.
        pub aggregate_id: i64,
        /// Smallest value in the bar; NULL: open below.
        pub low: Option<i64>,
        /// First value above the bar; NULL: open above.
        pub high: Option<i64>,
        /// How many values fell into it.
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

/// One call of a function.
pub mod calls {
    use super::*;

    /// Its name.
    pub const NAME: &str = "calls";

    /// Its declaration.
    pub fn schema() -> TableSchema {
        TableSchema {
name: NAME.to_owned(),
doc: "One call of a function.".to_owned(),
columns: [common::columns(), vec![column("duration", ColumnType::Int64, true, "ns", Encoding::Dictionary, "From entry to exit."),column("self_time", ColumnType::Int64, true, "ns", Encoding::Dictionary, "The duration without that of the calls inside."),column("function", ColumnType::Text, true, "", Encoding::Dictionary, "The function that was called."),column("module", ColumnType::Text, true, "", Encoding::Dictionary, "File that holds it."),column("caller", ColumnType::Text, true, "", Encoding::Dictionary, "The function that called it."),column("depth", ColumnType::Int32, true, "", Encoding::Dictionary, "Calls around it, 0 for the outermost seen."),column("call_id", ColumnType::Int64, false, "", Encoding::Delta, "Number of the call, from 1."),column("parent_id", ColumnType::Int64, true, "", Encoding::Dictionary, "The call around it."),column("retval", ColumnType::Int64, true, "", Encoding::Dictionary, "What it returned."),column("args", ColumnType::TextList, true, "", Encoding::Dictionary, "Its arguments, as name=value."),column("context", ColumnType::Text, true, "", Encoding::Dictionary, "task, softirq, irq or nmi."),column("entry_seen", ColumnType::Bool, false, "", Encoding::Dictionary, "Its entry was recorded; otherwise time is that of the exit less the duration, if known."),column("exit_seen", ColumnType::Bool, false, "", Encoding::Dictionary, "Its exit was recorded; otherwise the duration is NULL."),]].concat(),
sort: vec!["time".to_owned()],
}
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// When it happened, on the trace's clock.
        pub time: Option<i64>,
        /// The CPU that it happened on.
        pub cpu: Option<i32>,
        /// Process (the kernel's tgid).
        pub pid: Option<i32>,
        /// Thread (the kernel's pid).
        pub tid: Option<i32>,
        /// Name of the thread at that moment.
        pub comm: Option<&'a [u8]>,
        /// Stack in the kernel, an id into stacks.
        pub kernel_stack: Option<i32>,
        /// Stack in user space, an id into stacks.
        pub user_stack: Option<i32>,
        /// From entry to exit.
        pub duration: Option<i64>,
        /// The duration without that of the calls inside.
        pub self_time: Option<i64>,
        /// The function that was called.
        pub function: Option<&'a [u8]>,
        /// File that holds it.
        pub module: Option<&'a [u8]>,
        /// The function that called it.
        pub caller: Option<&'a [u8]>,
        /// Calls around it, 0 for the outermost seen.
        pub depth: Option<i32>,
        /// Number of the call, from 1.
        pub call_id: i64,
        /// The call around it.
        pub parent_id: Option<i64>,
        /// What it returned.
        pub retval: Option<i64>,
        /// Its arguments, as name=value.
        pub args: Option<&'a [&'a [u8]]>,
        /// task, softirq, irq or nmi.
        pub context: Option<&'a [u8]>,
        /// Its entry was recorded; otherwise time is that of the exit less the duration, if known.
        pub entry_seen: bool,
        /// Its exit was recorded; otherwise the duration is NULL.
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

/// The columns that every table of events begins with.
pub mod common {
    use super::*;

    /// The columns, in order.
    pub fn columns() -> Vec<ColumnSchema> {
        vec![
            column(
                "time",
                ColumnType::Int64,
                true,
                "ns",
                Encoding::Delta,
                "When it happened, on the trace's clock.",
            ),
            column(
                "cpu",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "The CPU that it happened on.",
            ),
            column(
                "pid",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "Process (the kernel's tgid).",
            ),
            column(
                "tid",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "Thread (the kernel's pid).",
            ),
            column(
                "comm",
                ColumnType::Text,
                true,
                "",
                Encoding::Dictionary,
                "Name of the thread at that moment.",
            ),
            column(
                "kernel_stack",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "Stack in the kernel, an id into stacks.",
            ),
            column(
                "user_stack",
                ColumnType::Int32,
                true,
                "",
                Encoding::Dictionary,
                "Stack in user space, an id into stacks.",
            ),
        ]
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// When it happened, on the trace's clock.
        pub time: Option<i64>,
        /// The CPU that it happened on.
        pub cpu: Option<i32>,
        /// Process (the kernel's tgid).
        pub pid: Option<i32>,
        /// Thread (the kernel's pid).
        pub tid: Option<i32>,
        /// Name of the thread at that moment.
        pub comm: Option<&'a [u8]>,
        /// Stack in the kernel, an id into stacks.
        pub kernel_stack: Option<i32>,
        /// Stack in user space, an id into stacks.
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

/// What was recorded.
pub mod event_types {
    use super::*;

    /// Its name.
    pub const NAME: &str = "event_types";

    /// Its declaration.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "What was recorded.".to_owned(),
            columns: vec![
                column(
                    "system",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Subsystem of the event: sched, syscalls, hardware, software, perf.",
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
                    "table",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Where its rows are, as SQL names it.",
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
                    "One row every so many events.",
                ),
                column(
                    "frequency",
                    ColumnType::Int64,
                    true,
                    "Hz",
                    Encoding::Dictionary,
                    "Rows per second aimed at.",
                ),
                column(
                    "filter",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Filter in the kernel.",
                ),
                column(
                    "print_format",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "How the kernel prints it.",
                ),
                column(
                    "fields",
                    ColumnType::TextList,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Declarations of its fields.",
                ),
                column(
                    "rows",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Rows of it in this trace.",
                ),
                column(
                    "lost",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Rows known to be missing; NULL: not told.",
                ),
            ],
            sort: vec![],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Subsystem of the event: sched, syscalls, hardware, software, perf.
        pub system: &'a [u8],
        /// Name of the event.
        pub event: &'a [u8],
        /// Where its rows are, as SQL names it.
        pub table: &'a [u8],
        /// counter, software, tracepoint, kprobe, kretprobe, uprobe, uretprobe, usdt, recorder or marker.
        pub kind: &'a [u8],
        /// One row every so many events.
        pub period: Option<i64>,
        /// Rows per second aimed at.
        pub frequency: Option<i64>,
        /// Filter in the kernel.
        pub filter: Option<&'a [u8]>,
        /// How the kernel prints it.
        pub print_format: Option<&'a [u8]>,
        /// Declarations of its fields.
        pub fields: Option<&'a [&'a [u8]]>,
        /// Rows of it in this trace.
        pub rows: i64,
        /// Rows known to be missing; NULL: not told.
        pub lost: Option<i64>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_system,
                to_event,
                to_table,
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
            to_table.push_bytes(self.table);
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

/// A place in code, with its name where that is known.
pub mod frames {
    use super::*;

    /// Its name.
    pub const NAME: &str = "frames";

    /// Its declaration.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "A place in code, with its name where that is known.".to_owned(),
            columns: vec![
                column(
                    "frame_id",
                    ColumnType::Int32,
                    false,
                    "",
                    Encoding::Delta,
                    "Number of the frame, from 1.",
                ),
                column(
                    "module",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "File that holds the code, or a name in brackets.",
                ),
                column(
                    "build_id",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Build id of the module, hexadecimal.",
                ),
                column(
                    "offset",
                    ColumnType::UInt64,
                    true,
                    "address",
                    Encoding::Plain,
                    "Offset of the instruction in the module's file.",
                ),
                column(
                    "address",
                    ColumnType::UInt64,
                    true,
                    "address",
                    Encoding::Plain,
                    "Absolute address, where no module is known and for the kernel.",
                ),
                column(
                    "function",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Function, demangled.",
                ),
                column(
                    "function_offset",
                    ColumnType::Int64,
                    true,
                    "bytes",
                    Encoding::Dictionary,
                    "Bytes from the start of the function.",
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
                    "Line in it, from 1.",
                ),
                column(
                    "inlined_into",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "For inlined code, the frame of the call site.",
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
                    "The place is where a call returns to; the call is the instruction before.",
                ),
                column(
                    "unverified",
                    ColumnType::Bool,
                    true,
                    "",
                    Encoding::Dictionary,
                    "The name is from a file that is not proven to be the recorded one, since no build ID was recorded; NULL if there is no name.",
                ),
            ],
            sort: vec!["frame_id".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Number of the frame, from 1.
        pub frame_id: i32,
        /// File that holds the code, or a name in brackets.
        pub module: Option<&'a [u8]>,
        /// Build id of the module, hexadecimal.
        pub build_id: Option<&'a [u8]>,
        /// Offset of the instruction in the module's file.
        pub offset: Option<u64>,
        /// Absolute address, where no module is known and for the kernel.
        pub address: Option<u64>,
        /// Function, demangled.
        pub function: Option<&'a [u8]>,
        /// Bytes from the start of the function.
        pub function_offset: Option<i64>,
        /// Source file.
        pub file: Option<&'a [u8]>,
        /// Line in it, from 1.
        pub line: Option<i32>,
        /// For inlined code, the frame of the call site.
        pub inlined_into: Option<i32>,
        /// kernel, user, hypervisor, guest kernel or guest user.
        pub space: Option<&'a [u8]>,
        /// The place is where a call returns to; the call is the instruction before.
        pub return_address: bool,
        /// The name is from a file that is not proven to be the recorded one, since no build ID was recorded; NULL if there is no name.
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
                to_offset,
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
            match self.offset {
                Some(value) => to_offset.push_u64(value),
                None => to_offset.push_null(),
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

    /// Its name.
    pub const NAME: &str = "losses";

    /// Its declaration.
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
                    "When the loss was noticed.",
                ),
                column(
                    "cpu",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "CPU whose buffer it was.",
                ),
                column(
                    "event",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Event that is missing, where told.",
                ),
                column(
                    "count",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "How many; NULL: told that there were some.",
                ),
                column(
                    "reason",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "ring full, throttled, filtered, buffer overrun, or the tool's own word.",
                ),
            ],
            sort: vec!["time".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// When the loss was noticed.
        pub time: Option<i64>,
        /// CPU whose buffer it was.
        pub cpu: Option<i32>,
        /// Event that is missing, where told.
        pub event: Option<&'a [u8]>,
        /// How many; NULL: told that there were some.
        pub count: Option<i64>,
        /// ring full, throttled, filtered, buffer overrun, or the tool's own word.
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

    /// Its name.
    pub const NAME: &str = "mappings";

    /// Its declaration.
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
                    "When it was mapped; NULL: before the recording.",
                ),
                column(
                    "pid",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Process; NULL for the kernel.",
                ),
                column(
                    "start",
                    ColumnType::UInt64,
                    false,
                    "address",
                    Encoding::Plain,
                    "First address.",
                ),
                column(
                    "end",
                    ColumnType::UInt64,
                    false,
                    "address",
                    Encoding::Plain,
                    "First address behind it.",
                ),
                column(
                    "file_offset",
                    ColumnType::UInt64,
                    false,
                    "bytes",
                    Encoding::Dictionary,
                    "Offset in the file of the first address.",
                ),
                column(
                    "path",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "File, or a name in brackets.",
                ),
                column(
                    "build_id",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Build id of the file, hexadecimal.",
                ),
                column(
                    "inode",
                    ColumnType::UInt64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Inode of the file.",
                ),
                column(
                    "protection",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "PROT_ bits: 1 read, 2 write, 4 execute.",
                ),
            ],
            sort: vec!["time".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// When it was mapped; NULL: before the recording.
        pub time: Option<i64>,
        /// Process; NULL for the kernel.
        pub pid: Option<i32>,
        /// First address.
        pub start: u64,
        /// First address behind it.
        pub end: u64,
        /// Offset in the file of the first address.
        pub file_offset: u64,
        /// File, or a name in brackets.
        pub path: &'a [u8],
        /// Build id of the file, hexadecimal.
        pub build_id: Option<&'a [u8]>,
        /// Inode of the file.
        pub inode: Option<u64>,
        /// PROT_ bits: 1 read, 2 write, 4 execute.
        pub protection: Option<i32>,
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [
                to_time,
                to_pid,
                to_start,
                to_end,
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
            to_start.push_u64(self.start);
            to_end.push_u64(self.end);
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

/// A place in an input that could not be read.
pub mod problems {
    use super::*;

    /// Its name.
    pub const NAME: &str = "problems";

    /// Its declaration.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "A place in an input that could not be read.".to_owned(),
            columns: vec![
                column(
                    "source",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "The input.",
                ),
                column(
                    "offset",
                    ColumnType::Int64,
                    true,
                    "bytes",
                    Encoding::Dictionary,
                    "Byte offset in it.",
                ),
                column(
                    "line",
                    ColumnType::Int64,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Line in it, from 1.",
                ),
                column(
                    "count",
                    ColumnType::Int64,
                    false,
                    "",
                    Encoding::Dictionary,
                    "How many of the same kind.",
                ),
                column(
                    "message",
                    ColumnType::Text,
                    false,
                    "",
                    Encoding::Dictionary,
                    "What was expected and what was found.",
                ),
            ],
            sort: vec![],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// The input.
        pub source: &'a [u8],
        /// Byte offset in it.
        pub offset: Option<i64>,
        /// Line in it, from 1.
        pub line: Option<i64>,
        /// How many of the same kind.
        pub count: i64,
        /// What was expected and what was found.
        pub message: &'a [u8],
    }

    impl Row<'_> {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [to_source, to_offset, to_line, to_count, to_message] = rows.columns_mut() else {
                debug_assert!(false, "rows of another table than problems");
                return;
            };
            to_source.push_bytes(self.source);
            match self.offset {
                Some(value) => to_offset.push_i64(value),
                None => to_offset.push_null(),
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

    /// Its name.
    pub const NAME: &str = "samples";

    /// Its declaration.
    pub fn schema() -> TableSchema {
        TableSchema {
name: NAME.to_owned(),
doc: "One sample of a counter or clock.".to_owned(),
columns: [common::columns(), vec![column("event", ColumnType::Text, false, "", Encoding::Dictionary, "The counter or clock, as in event_types."),column("period", ColumnType::Int64, true, "", Encoding::Dictionary, "How many events this sample stands for."),column("ip", ColumnType::UInt64, true, "address", Encoding::Dictionary, "Address of the instruction."),column("addr", ColumnType::UInt64, true, "address", Encoding::Dictionary, "Address of the data."),column("weight", ColumnType::UInt64, true, "", Encoding::Dictionary, "Cost of the access, mostly latency in cycles; three packed numbers where the CPU gives a weight structure."),column("data_src", ColumnType::UInt64, true, "mask", Encoding::Dictionary, "Where the data came from, as union perf_mem_data_src of include/uapi/linux/perf_event.h."),column("transaction", ColumnType::UInt64, true, "mask", Encoding::Dictionary, "Flags of the hardware transaction."),column("phys_addr", ColumnType::UInt64, true, "address", Encoding::Dictionary, "Physical address of the data."),column("cgroup", ColumnType::UInt64, true, "", Encoding::Dictionary, "Id of the cgroup."),column("data_page_size", ColumnType::Int64, true, "bytes", Encoding::Dictionary, "Size of the page that holds the data."),column("code_page_size", ColumnType::Int64, true, "bytes", Encoding::Dictionary, "Size of the page that holds the instruction."),column("stream_id", ColumnType::UInt64, true, "", Encoding::Dictionary, "Id of the counter that took the sample."),column("branch_from", ColumnType::UInt64List, true, "address", Encoding::Dictionary, "Addresses of the branches taken last, newest first."),column("branch_to", ColumnType::UInt64List, true, "address", Encoding::Dictionary, "Their targets."),column("branch_flags", ColumnType::UInt64List, true, "mask", Encoding::Dictionary, "Their flags: bit 0 mispredicted, 1 predicted, 2 in a transaction, 3 aborted, 4 to 19 cycles, 20 to 23 type."),column("branch_hw_index", ColumnType::UInt64, true, "", Encoding::Dictionary, "Place of the newest branch in the processor's own ring."),column("branch_counters", ColumnType::UInt64List, true, "mask", Encoding::Dictionary, "Events counted between the branches, packed by branch."),column("user_regs", ColumnType::UInt64List, true, "", Encoding::Dictionary, "Registers in user space, lowest number first."),column("user_regs_mask", ColumnType::UInt64, true, "mask", Encoding::Dictionary, "Which registers they are: bits as in the architecture's perf_regs.h."),column("interrupt_regs", ColumnType::UInt64List, true, "", Encoding::Dictionary, "Registers at the interrupt, lowest number first."),column("interrupt_regs_mask", ColumnType::UInt64, true, "mask", Encoding::Dictionary, "Which registers they are: bits as in the architecture's perf_regs.h."),]].concat(),
sort: vec!["time".to_owned()],
}
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// When it happened, on the trace's clock.
        pub time: Option<i64>,
        /// The CPU that it happened on.
        pub cpu: Option<i32>,
        /// Process (the kernel's tgid).
        pub pid: Option<i32>,
        /// Thread (the kernel's pid).
        pub tid: Option<i32>,
        /// Name of the thread at that moment.
        pub comm: Option<&'a [u8]>,
        /// Stack in the kernel, an id into stacks.
        pub kernel_stack: Option<i32>,
        /// Stack in user space, an id into stacks.
        pub user_stack: Option<i32>,
        /// The counter or clock, as in event_types.
        pub event: &'a [u8],
        /// How many events this sample stands for.
        pub period: Option<i64>,
        /// Address of the instruction.
        pub ip: Option<u64>,
        /// Address of the data.
        pub addr: Option<u64>,
        /// Cost of the access, mostly latency in cycles; three packed numbers where the CPU gives a weight structure.
        pub weight: Option<u64>,
        /// Where the data came from, as union perf_mem_data_src of include/uapi/linux/perf_event.h.
        pub data_src: Option<u64>,
        /// Flags of the hardware transaction.
        pub transaction: Option<u64>,
        /// Physical address of the data.
        pub phys_addr: Option<u64>,
        /// Id of the cgroup.
        pub cgroup: Option<u64>,
        /// Size of the page that holds the data.
        pub data_page_size: Option<i64>,
        /// Size of the page that holds the instruction.
        pub code_page_size: Option<i64>,
        /// Id of the counter that took the sample.
        pub stream_id: Option<u64>,
        /// Addresses of the branches taken last, newest first.
        pub branch_from: Option<&'a [u64]>,
        /// Their targets.
        pub branch_to: Option<&'a [u64]>,
        /// Their flags: bit 0 mispredicted, 1 predicted, 2 in a transaction, 3 aborted, 4 to 19 cycles, 20 to 23 type.
        pub branch_flags: Option<&'a [u64]>,
        /// Place of the newest branch in the processor's own ring.
        pub branch_hw_index: Option<u64>,
        /// Events counted between the branches, packed by branch.
        pub branch_counters: Option<&'a [u64]>,
        /// Registers in user space, lowest number first.
        pub user_regs: Option<&'a [u64]>,
        /// Which registers they are: bits as in the architecture's perf_regs.h.
        pub user_regs_mask: Option<u64>,
        /// Registers at the interrupt, lowest number first.
        pub interrupt_regs: Option<&'a [u64]>,
        /// Which registers they are: bits as in the architecture's perf_regs.h.
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

    /// Its name.
    pub const NAME: &str = "stacks";

    /// Its declaration.
    pub fn schema() -> TableSchema {
        TableSchema {
name: NAME.to_owned(),
doc: "A node of the prefix tree of all stacks: a frame and, through its parent, its callers.".to_owned(),
columns: vec![column("stack_id", ColumnType::Int32, false, "", Encoding::Delta, "Number of the node, from 1; 0 is the empty stack and has no row."),column("parent_id", ColumnType::Int32, false, "", Encoding::Delta, "Node of the caller, always smaller than stack_id; 0 at the root."),column("frame_id", ColumnType::Int32, false, "", Encoding::Delta, "The frame, an id into frames."),column("depth", ColumnType::Int32, false, "", Encoding::Dictionary, "Frames from the root to here, 1 at the root."),],
sort: vec!["stack_id".to_owned()],
}
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row {
        /// Number of the node, from 1; 0 is the empty stack and has no row.
        pub stack_id: i32,
        /// Node of the caller, always smaller than stack_id; 0 at the root.
        pub parent_id: i32,
        /// The frame, an id into frames.
        pub frame_id: i32,
        /// Frames from the root to here, 1 at the root.
        pub depth: i32,
    }

    impl Row {
        /// Pushes the values to the columns of this table; `Writer::end_row` ends the row.
        #[inline]
        pub fn push(&self, rows: &mut Rows) {
            let [to_stack_id, to_parent_id, to_frame_id, to_depth] = rows.columns_mut() else {
                debug_assert!(false, "rows of another table than stacks");
                return;
            };
            to_stack_id.push_i64(i64::from(self.stack_id));
            to_parent_id.push_i64(i64::from(self.parent_id));
            to_frame_id.push_i64(i64::from(self.frame_id));
            to_depth.push_i64(i64::from(self.depth));
        }
    }
}

/// Life of a thread under one name.
pub mod threads {
    use super::*;

    /// Its name.
    pub const NAME: &str = "threads";

    /// Its declaration.
    pub fn schema() -> TableSchema {
        TableSchema {
            name: NAME.to_owned(),
            doc: "Life of a thread under one name.".to_owned(),
            columns: vec![
                column(
                    "tid",
                    ColumnType::Int32,
                    false,
                    "",
                    Encoding::Dictionary,
                    "Thread (the kernel's pid).",
                ),
                column(
                    "pid",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Process (the kernel's tgid).",
                ),
                column(
                    "parent",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Process that created it.",
                ),
                column(
                    "comm",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Its name, the last one.",
                ),
                column(
                    "start",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Dictionary,
                    "When it was created; NULL: before the recording.",
                ),
                column(
                    "end",
                    ColumnType::Int64,
                    true,
                    "ns",
                    Encoding::Dictionary,
                    "When it ended; NULL: after the recording, or not seen.",
                ),
                column(
                    "exit_code",
                    ColumnType::Int32,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Its exit status.",
                ),
                column(
                    "cmdline",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Its command line.",
                ),
                column(
                    "cgroup",
                    ColumnType::Text,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Path of its cgroup.",
                ),
                column(
                    "namespaces",
                    ColumnType::TextList,
                    true,
                    "",
                    Encoding::Dictionary,
                    "Its namespaces, as name:inode.",
                ),
            ],
            sort: vec!["start".to_owned()],
        }
    }

    /// A row to be written.
    #[derive(Debug, Clone, Copy, Default)]
    pub struct Row<'a> {
        /// Thread (the kernel's pid).
        pub tid: i32,
        /// Process (the kernel's tgid).
        pub pid: Option<i32>,
        /// Process that created it.
        pub parent: Option<i32>,
        /// Its name, the last one.
        pub comm: Option<&'a [u8]>,
        /// When it was created; NULL: before the recording.
        pub start: Option<i64>,
        /// When it ended; NULL: after the recording, or not seen.
        pub end: Option<i64>,
        /// Its exit status.
        pub exit_code: Option<i32>,
        /// Its command line.
        pub cmdline: Option<&'a [u8]>,
        /// Path of its cgroup.
        pub cgroup: Option<&'a [u8]>,
        /// Its namespaces, as name:inode.
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
                to_start,
                to_end,
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
            match self.start {
                Some(value) => to_start.push_i64(value),
                None => to_start.push_null(),
            }
            match self.end {
                Some(value) => to_end.push_i64(value),
                None => to_end.push_null(),
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

/// The columns of a table that hold ids of rows, of its own or of another table: they begin anew in every trace.
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
