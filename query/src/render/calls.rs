//! Calls one by one, in the layout of function_graph.

use std::io::Write;

use anyhow::Result;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};

use crate::call_values::CallValues;
use crate::session::{Answer, Session};
use crate::text::{cut, harmless, strings};

/// Columns of the calls to print, in this order; with several traces, `trace` follows.
pub(crate) const CALL_COLUMNS: &str = "time, cpu, pid, tid, comm, duration, self_time, function, module, caller, depth, call_id, parent_id, retval, args, context, entry_seen, exit_seen";

/// Calls in the order of the query.
pub(crate) struct Calls<'s> {
    pub(crate) session: &'s Session,
    /// Rows of [`CALL_COLUMNS`].
    pub(crate) answer: Answer<'s>,
}

impl Calls<'_> {
    /// Prints a line per call.
    pub(super) fn write(mut self, out: &mut dyn Write) -> Result<()> {
        writeln!(
            out,
            "#     TIME        CPU  TASK                    DURATION             SELF        FUNCTION CALLS"
        )?;
        let mut count = 0;
        let mut indents = CallValues::for_calls(self.session);
        while let Some(batch) = self.answer.next()? {
            count += batch.num_rows();
            write_lines(self.session, &batch, &mut indents, out)?;
        }
        if count == 0 {
            say!("no matching calls");
        }
        Ok(())
    }
}

/// Maximum indentation.
const DEEPEST_SHOWN: u32 = 100;

fn write_lines(
    session: &Session,
    batch: &RecordBatch,
    indents: &mut [CallValues],
    out: &mut dyn Write,
) -> Result<()> {
    let text = |column: usize| strings(batch.column(column));
    let long = |column: usize| batch.column(column).as_primitive::<Int64Type>();
    let short = |column: usize| batch.column(column).as_primitive::<Int32Type>();
    let flag = |column: usize| batch.column(column).as_boolean();
    let (comms, functions, modules, contexts) = (text(4)?, text(7)?, text(8)?, text(15)?);
    let (times, durations, owns, retvals) = (long(0), long(5), long(6), long(13));
    let (cpus, tids, depths) = (short(1), short(3), short(10));
    let args = batch.column(14).as_list::<i32>();
    let (entries, exits) = (flag(16), flag(17));
    let (ids, parents) = (long(11), long(12));
    let several = session.traces.len() > 1;
    let traces = several.then(|| text(18)).transpose()?;
    for row in 0..batch.num_rows() {
        let value =
            |column: &arrow::array::Int64Array| column.is_valid(row).then(|| column.value(row));
        let number =
            |column: &arrow::array::Int32Array| column.is_valid(row).then(|| column.value(row));
        let word = |column: &arrow::array::StringViewArray| {
            column
                .is_valid(row)
                .then(|| harmless(column.value(row)).into_owned())
        };
        let time = value(times).map(seconds).unwrap_or_default();
        let cpu = number(cpus)
            .map(|cpu| format!("{cpu})"))
            .unwrap_or_default();
        let context = word(&contexts).filter(|context| context != "task");
        let task = match (word(&comms), number(tids)) {
            (Some(comm), Some(tid)) => format!("{comm}-{tid}"),
            (Some(comm), None) => comm,
            (None, Some(tid)) => tid.to_string(),
            (None, None) => context.clone().unwrap_or_default(),
        };
        let mut line = format!(
            "{time:>16}  {cpu:>4}  {:<18} {} | {} |  ",
            cut(&task, 18),
            duration(value(durations), true),
            duration(value(owns), false)
        );
        // One deeper than the enclosing call, if that is printed: the depths of several tracers each begin at 0.
        let trace = match &traces {
            Some(names) => session.forest.trace(names.value(row)).unwrap_or(0),
            None => 0,
        };
        let around = value(parents).and_then(|parent| indents[trace].get(parent));
        let depth = around.map_or(number(depths).unwrap_or(0).max(0) as u32, |depth| depth + 1);
        indents[trace].set(ids.value(row), depth);
        line.extend(std::iter::repeat_n(
            ' ',
            2 * depth.min(DEEPEST_SHOWN) as usize,
        ));
        line.push_str(&word(&functions).unwrap_or_else(|| "[unknown]".to_owned()));
        if let Some(module) = word(&modules) {
            line.push_str(&format!(" [{module}]"));
        }
        line.push('(');
        if args.is_valid(row) {
            let words = strings(&args.value(row))?;
            let words: Vec<_> = words.iter().flatten().map(harmless).collect();
            line.push_str(&words.join(", "));
        }
        line.push_str(");");
        let mut remarks = Vec::new();
        if let Some(retval) = value(retvals) {
            remarks.push(format!("= {retval}"));
        }
        remarks.extend(context);
        if !entries.value(row) {
            remarks.push("entry not seen".to_owned());
        }
        if !exits.value(row) {
            remarks.push("exit not seen".to_owned());
        }
        if let Some(traces) = &traces {
            remarks.extend(word(traces));
        }
        if !remarks.is_empty() {
            line.push_str(&format!(" /* {} */", remarks.join(", ")));
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Nanoseconds as seconds with nine digits.
fn seconds(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Formats microseconds with three decimals, optionally with the mark of function_graph.
fn duration(ns: Option<i64>, marked: bool) -> String {
    let width = if marked { 18 } else { 16 };
    let Some(ns) = ns else {
        return " ".repeat(width);
    };
    let size = ns.unsigned_abs();
    let sign = if ns < 0 { "-" } else { "" };
    let number = format!("{sign}{}.{:03} us", size / 1000, size % 1000);
    if !marked {
        return format!("{number:>width$}");
    }
    let mark = match size {
        1_000_000_001.. => '$',
        100_000_001.. => '@',
        10_000_001.. => '*',
        1_000_001.. => '#',
        100_001.. => '!',
        10_001.. => '+',
        _ => ' ',
    };
    format!("{mark} {number:>16}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_function_graph() {
        assert_eq!(duration(Some(10_000), true).trim(), "10.000 us");
        assert!(duration(Some(10_001), true).starts_with("+ "));
        assert!(duration(Some(115_171), true).starts_with("! "));
        assert!(duration(Some(2_000_000_000), true).starts_with("$ "));
        assert_eq!(duration(None, true).len(), duration(Some(1), true).len());
        assert_eq!(duration(None, false).len(), duration(Some(1), false).len());
        assert_eq!(seconds(-1), "-0.000000001");
        assert_eq!(seconds(5_000_149_000), "5.000149000");
    }
}
