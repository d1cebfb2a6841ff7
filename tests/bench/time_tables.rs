//! A generated trace of calls and context switches, for joins by time: the same rows in every run.
//!
//! ```text
//! calls           threads that take turns with short calls, 0.3 of the time inside one
//! sched_switch    switches at random times
//! ```
//! The oracle of joins by time includes this file; `cargo xtask bench queries` runs it as the example `time_tables`.

use std::path::Path;

use anyhow::Result;
use perfquet_tests::random::Random;
use perfquet_trace::store::{ColumnType, Facts, TableId, TableSchema, Writer, WriterOptions};
use perfquet_trace::tables;

/// How much to generate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// Number of calls.
    pub(crate) calls: u64,
    /// Number of switches.
    pub(crate) switches: u64,
    /// Number of threads.
    pub(crate) threads: u64,
    /// Duration of the trace in nanoseconds.
    pub(crate) span: u64,
    /// With rows without a time or a duration, negative durations, equal times, and parts that overlap.
    pub(crate) is_odd: bool,
}

/// Where rows go: the parts in order, and another that overlaps with them.
type Forms = [TableId; 2];

/// Writes the trace.
pub(crate) fn write(path: &Path, size: Size) -> Result<()> {
    let options = WriterOptions {
        sync: false,
        force: true,
        ..WriterOptions::default()
    };
    let mut writer = Writer::create(path, options)?;
    let random = &mut Random(0x9e37_79b9_7f4a_7c15);
    write_calls(&mut writer, size, random)?;
    write_switches(&mut writer, size, random)?;
    writer.finish(Facts::default())?;
    Ok(())
}

fn write_calls(writer: &mut Writer, size: Size, random: &mut Random) -> Result<()> {
    const FUNCTIONS: [&str; 5] = [
        "vfs_read",
        "vfs_write",
        "do_sys_open",
        "schedule",
        "kmalloc",
    ];
    let forms = forms(writer, tables::calls::schema())?;
    let period = size.span * size.threads / size.calls.max(1);
    let mut calls = Vec::new();
    for thread in 0..size.threads {
        let mut time = random.below(period);
        for _ in 0..size.calls / size.threads {
            let duration = random.around(period * 3 / 10);
            calls.push((Some(1_000_000_000 + time as i64), duration as i64, thread));
            time += duration + random.around(period * 7 / 10);
        }
    }
    if size.is_odd {
        for call in &mut calls {
            match random.below(20) {
                0 => call.0 = None,
                1 => call.0 = call.0.map(|time| time / 1000 * 1000),
                _ => {}
            }
        }
    }
    calls.sort_unstable();
    for (number, (time, duration, thread)) in calls.into_iter().enumerate() {
        let duration = match random.below(20) {
            0 if size.is_odd => None,
            1 if size.is_odd => Some(-duration),
            2 if size.is_odd => Some(0),
            _ => Some(duration),
        };
        let tid = 1000 + thread as i32;
        let function = FUNCTIONS[random.below(5) as usize];
        let is_apart = size.is_odd && random.happens(4);
        let table = forms[usize::from(is_apart)];
        tables::calls::Row {
            time,
            cpu: Some(random.below(2) as i32),
            pid: Some(tid),
            tid: (!size.is_odd || !random.happens(20)).then_some(tid),
            comm: Some(b"worker"),
            kernel_stack: None,
            user_stack: None,
            duration,
            self_time: duration,
            function: Some(function.as_bytes()),
            module: None,
            caller: None,
            depth: Some(0),
            call_id: number as i64 + 1,
            parent_id: None,
            retval: None,
            args: None,
            context: None,
            entry_seen: true,
            exit_seen: duration.is_some(),
        }
        .push(writer.rows(table));
        writer.end_row(table)?;
    }
    Ok(())
}

fn write_switches(writer: &mut Writer, size: Size, random: &mut Random) -> Result<()> {
    let mut schema = TableSchema {
        name: "events/sched/sched_switch".to_owned(),
        doc: "Generated switches.".to_owned(),
        columns: tables::common::columns(),
        sort: vec!["time".to_owned()],
    };
    for name in ["prev_pid", "next_pid"] {
        let mut column = schema.columns[1].clone();
        (column.name, column.kind) = (name.to_owned(), ColumnType::Int32);
        schema.columns.push(column);
    }
    let forms = forms(writer, schema)?;
    let mut switches: Vec<Option<i64>> = Vec::new();
    for _ in 0..size.switches {
        let time = 1_000_000_000 + random.below(size.span) as i64;
        switches.push(match random.below(20) {
            0 if size.is_odd => None,
            1 if size.is_odd => Some(time / 1000 * 1000),
            _ => Some(time),
        });
    }
    switches.sort_unstable();
    for time in switches {
        let [prev, next] = [(); 2].map(|()| 1000 + random.below(size.threads) as i64);
        let is_apart = size.is_odd && random.happens(4);
        let table = forms[usize::from(is_apart)];
        let rows = writer.rows(table);
        let has_tid = !size.is_odd || !random.happens(20);
        for (index, value) in [
            time,
            Some(random.below(2) as i64),
            Some(prev),
            has_tid.then_some(prev),
            None,
            None,
            None,
            Some(prev),
            Some(next),
        ]
        .into_iter()
        .enumerate()
        {
            let column = rows.column(index);
            match value {
                Some(value) => column.push_i64(value),
                None => column.push_null(),
            }
        }
        writer.end_row(table)?;
    }
    Ok(())
}

fn forms(writer: &mut Writer, schema: TableSchema) -> Result<Forms> {
    Ok([writer.add_table(schema.clone())?, writer.add_form(schema)?])
}
