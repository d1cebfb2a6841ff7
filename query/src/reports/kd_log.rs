//! The calls of a trace as lines of a KFI log, as read by kd.

use std::collections::HashMap;

use anyhow::Result;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};

use perfquet::Session;
use perfquet::stacks::strings;

use crate::filter::Filters;

/// ID of a name.
pub(super) type NameId = u32;

/// A line of the log, as read by kd.
#[derive(Debug, Clone)]
pub(super) struct LogLine {
    pub(super) function: NameId,
    pub(super) caller: Option<NameId>,
    /// Microseconds; -1 if the exit was not seen.
    pub(super) duration: i64,
    /// Microseconds from the start of the log.
    pub(super) entry: i64,
    pub(super) pid: Box<str>,
    pub(super) args: Box<str>,
}

/// The log.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) names: Vec<String>,
    ids: HashMap<String, NameId>,
    pub(super) rows: Vec<LogLine>,
}

impl Log {
    pub(super) fn id(&mut self, name: &str) -> NameId {
        if let Some(&id) = self.ids.get(name) {
            return id;
        }
        let id = self.names.len() as NameId;
        self.names.push(name.to_owned());
        self.ids.insert(name.to_owned(), id);
        id
    }

    pub(super) fn query(session: &Session, filters: &Filters) -> Result<Log> {
        let sql = include_str!("kd.sql").replace("{where}", &filters.condition(session)?);
        let batches = session.collect(&sql)?;
        // On SMP, the kernel printed the CPU after the PID, and so did kd.
        let is_smp = fact(session, "kfi.smp").is_some_and(|value| value == "true");
        let start = start_of_log(session, &batches);
        let mut log = Log::default();
        for batch in &batches {
            log.add(batch, is_smp, start)?;
        }
        Ok(log)
    }

    fn add(&mut self, batch: &RecordBatch, is_smp: bool, start: i64) -> Result<()> {
        let texts = [0, 1, 6].map(|column| strings(batch.column(column)));
        let [functions, callers, contexts] = texts;
        let (functions, callers, contexts) = (functions?, callers?, contexts?);
        let long = |column: usize| batch.column(column).as_primitive::<Int64Type>();
        let short = |column: usize| batch.column(column).as_primitive::<Int32Type>();
        let (durations, times, tids, cpus) = (long(2), long(3), short(4), short(5));
        let args = batch.column(7).as_list::<i32>();
        for row in 0..batch.num_rows() {
            let in_task = !contexts.is_valid(row) || contexts.value(row) == "task";
            let cpu = cpus.is_valid(row).then(|| cpus.value(row));
            let tid = tids.is_valid(row).then(|| tids.value(row));
            let words = match args.is_valid(row) {
                true => Words::of(&strings(&args.value(row))?),
                false => Words::default(),
            };
            let function = match functions.is_valid(row) {
                true => self.id(functions.value(row)),
                false => self.id("[unknown]"),
            };
            let caller = callers.is_valid(row).then(|| self.id(callers.value(row)));
            let time = if times.is_valid(row) {
                times.value(row)
            } else {
                start
            };
            self.rows.push(LogLine {
                function,
                caller,
                duration: match durations.is_valid(row) {
                    true => durations.value(row).div_euclid(1000),
                    false => words.delta.unwrap_or(-1),
                },
                entry: words
                    .entry
                    .unwrap_or(time.saturating_sub(start).div_euclid(1000)),
                pid: pid(tid.filter(|_| in_task), cpu, in_task, is_smp).into(),
                args: words.arguments.into(),
            });
        }
        Ok(())
    }
}

/// Returns the start of the log's times: that of its start trigger, if known.
fn start_of_log(session: &Session, batches: &[RecordBatch]) -> i64 {
    let stated = fact(session, "kfi.start").and_then(|value| value.parse::<i64>().ok());
    if let Some(start) = stated {
        return start.saturating_mul(1000);
    }
    // Entries alone already count from 0.
    if fact(session, "clock").is_some_and(|clock| clock == "kfi-relative") {
        return 0;
    }
    let times = batches
        .iter()
        .filter_map(|batch| arrow::compute::min(batch.column(3).as_primitive::<Int64Type>()));
    times.min().unwrap_or(0)
}

/// Returns a fact of the first trace.
fn fact<'a>(session: &'a Session, name: &str) -> Option<&'a str> {
    session.traces().first()?.fact(name)
}

/// Formats the PID like the kernel: -1 in interrupts, the CPU after a dot on SMP, `.0` and `.9` without an exit.
fn pid(tid: Option<i32>, cpu: Option<i32>, in_task: bool, is_smp: bool) -> String {
    let tid = tid.unwrap_or(-1);
    if !is_smp {
        return tid.to_string();
    }
    let digit = match cpu {
        Some(cpu) => u32::try_from(cpu)
            .ok()
            .and_then(|cpu| char::from_u32(u32::from('0') + cpu))
            .unwrap_or('?'),
        None if in_task => '0',
        None => '9',
    };
    format!("{tid}.{digit}")
}

/// Values of a log line that are not columns of calls.
#[derive(Debug, Default, PartialEq, Eq)]
struct Words {
    /// The three arguments as read by kd: without the leading frame pointer.
    arguments: String,
    /// A delta that is not a duration; kd adds it to its totals nevertheless.
    delta: Option<i64>,
    /// The entry if there is no time, because the log restarted.
    entry: Option<i64>,
}

impl Words {
    fn of(args: &arrow::array::StringViewArray) -> Words {
        let mut words = Words::default();
        let mut values = Vec::new();
        for text in args.iter().flatten() {
            match text.split_once('=') {
                Some(("delta", "no exit")) => words.delta = Some(0),
                Some(("delta", delta)) => words.delta = delta.parse().ok(),
                Some(("entry", entry)) => words.entry = entry.parse().ok(),
                Some(("segment" | "frame", _)) => {}
                Some((_, value)) => values.push(value),
                None => values.push(text),
            }
        }
        words.arguments = values.join(" ");
        words
    }
}
