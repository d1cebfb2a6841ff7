//! Calls one by one, in the layout of function_graph.

use std::borrow::Cow;
use std::io::Write;

use anyhow::Result;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};

use perfquet::stacks::strings;
use perfquet::{Answer, Session};

use crate::call_values::CallValues;
use crate::text::{columns, harmless, shortened, shortest};

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
        let layout = Layout::of(super::width());
        writeln!(out, "{}", layout.heading())?;
        let mut count = 0;
        let mut indents = CallValues::for_calls(self.session);
        while let Some(batch) = self.answer.next_batch()? {
            count += batch.num_rows();
            write_lines(self.session, &batch, layout, &mut indents, out)?;
        }
        if count == 0 {
            say!("no matching calls");
        }
        Ok(())
    }
}

/// What a terminal has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// Columns of the terminal; `None` without one, when nothing is shortened.
    width: Option<usize>,
    room: Room,
}

/// How much room a terminal has for the columns before the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// For all of them, which take 85.
    Wide,
    /// Without the column SELF.
    Narrow,
    /// Without blanks between them.
    Tight,
}

impl Layout {
    fn of(width: Option<usize>) -> Layout {
        let room = match width {
            Some(..100) => Room::Tight,
            Some(..140) => Room::Narrow,
            _ => Room::Wide,
        };
        Layout { width, room }
    }

    fn heading(self) -> &'static str {
        match self.room {
            Room::Tight => "#   TIME      CPU TASK              DURATION   FUNCTION CALLS",
            Room::Narrow => {
                "#     TIME        CPU  TASK              DURATION        FUNCTION CALLS"
            }
            Room::Wide => {
                "#     TIME        CPU  TASK                    DURATION             SELF        FUNCTION CALLS"
            }
        }
    }

    /// The line before the call.
    fn begin(self, time: &str, cpu: &str, task: &str, times: [Option<i64>; 2]) -> String {
        let [all, own] = times;
        let (all, own) = (duration(all, true), duration(own, false));
        let short = without_work(task);
        let task = match self.room {
            Room::Wide => task,
            Room::Narrow | Room::Tight => short.as_ref(),
        };
        // A name that is wider takes the blanks before the duration, since it is typed into other commands.
        let room = |width: usize| width.saturating_sub(columns(task));
        match self.room {
            Room::Tight => {
                let room = room(26);
                format!(
                    "{time:>14} {cpu:>3} {task} {:>room$} | ",
                    in_front(&all, room.min(14))
                )
            }
            Room::Narrow => {
                let room = room(30);
                format!(
                    "{time:>16}  {cpu:>4}  {task} {:>room$} |  ",
                    in_front(&all, room)
                )
            }
            Room::Wide => {
                let room = room(36);
                format!(
                    "{time:>16}  {cpu:>4}  {task} {:>room$} | {own} |  ",
                    in_front(&all, room)
                )
            }
        }
    }

    /// Adds the indented call to a line. What is wider than the terminal loses the module, then the arguments, then a part of the
    /// indentation, then the modules in front of the function's name. Own names, results and remarks are never cut.
    fn add_call(self, line: &mut String, depth: u32, call: &Call) {
        let indent = 2 * depth.min(DEEPEST_SHOWN) as usize;
        let Some(width) = self.width else {
            line.extend(std::iter::repeat_n(' ', indent));
            line.push_str(&call.text(true, true));
            return;
        };
        let room = width.saturating_sub(columns(line));
        let forms = [(true, true), (false, true), (false, false)];
        let forms = forms.map(|(module, args)| call.text(module, args));
        let fitting = forms.iter().find(|form| indent + columns(form) <= room);
        let mut text = fitting.unwrap_or(&forms[2]).clone();
        let excess = columns(&text).saturating_sub(room);
        if excess > 0 {
            // Names of C++ and Rust, from the front.
            let own = columns(&call.function).saturating_sub(excess);
            let function = shortened(
                &call.function,
                own.max(columns(shortest(&call.function)) + 1),
            );
            text = Call {
                function: function.into_owned(),
                module: None,
                args: call.args.clone(),
                remarks: call.remarks.clone(),
            }
            .text(false, false);
        }
        // Without room beside the call, its result is on a line of its own.
        let mut remark = call.remark();
        match columns(&text) > room {
            true => text.truncate(text.len() - remark.len()),
            false => remark.clear(),
        }
        let begin = columns(line).saturating_sub(2);
        let indent = indent.min(room.saturating_sub(columns(&text)));
        line.extend(std::iter::repeat_n(' ', indent));
        line.push_str(&text);
        if !remark.is_empty() {
            line.push_str(&format!("\n{:>begin$} {remark}", "|"));
        }
    }
}

/// A kernel thread without its present work, if that is long, as in tables: `kworker/u8:4-…-12`.
fn without_work(task: &str) -> Cow<'_, str> {
    match (task.find('-'), task.rfind('-')) {
        (Some(work), Some(tid))
            if work < tid && columns(task) > 24 && task.starts_with("kworker/") =>
        {
            Cow::Owned(format!("{}-…{}", &task[..work], &task[tid..]))
        }
        _ => Cow::Borrowed(task),
    }
}

/// A duration without the blanks after its mark that are more than the room for it.
fn in_front(duration: &str, room: usize) -> String {
    if duration.len() <= room {
        return duration.to_owned();
    }
    let (mark, number) = duration.split_at(1);
    let number = number.trim_start();
    let room = room.max(number.len() + 2);
    match number.is_empty() {
        true => String::new(),
        false => format!("{mark}{number:>width$}", width = room - 1),
    }
}

/// A call as it is printed.
struct Call {
    function: String,
    module: Option<String>,
    args: String,
    remarks: Vec<String>,
}

impl Call {
    fn text(&self, with_module: bool, with_args: bool) -> String {
        let mut text = self.function.clone();
        if let Some(module) = self.module.as_ref().filter(|_| with_module) {
            text.push_str(&format!(" [{module}]"));
        }
        match with_args || self.args.is_empty() {
            true => text.push_str(&format!("({});", self.args)),
            false => text.push_str("(…);"),
        }
        text + &self.remark()
    }

    fn remark(&self) -> String {
        match self.remarks.is_empty() {
            true => String::new(),
            false => format!(" /* {} */", self.remarks.join(", ")),
        }
    }
}

/// Maximum indentation.
const DEEPEST_SHOWN: u32 = 100;

fn write_lines(
    session: &Session,
    batch: &RecordBatch,
    layout: Layout,
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
    let several = session.traces().len() > 1;
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
        let lengths = [value(durations), value(owns)];
        let mut line = layout.begin(&time, &cpu, &task, lengths);
        // One deeper than the enclosing call, if that is printed: the depths of several tracers each begin at 0.
        let trace = match &traces {
            Some(names) => session.forest().trace(names.value(row)).unwrap_or(0),
            None => 0,
        };
        let around = value(parents).and_then(|parent| indents[trace].get(parent));
        let depth = around.map_or(number(depths).unwrap_or(0).max(0) as u32, |depth| depth + 1);
        indents[trace].set(ids.value(row), depth);
        let args = match args.is_valid(row) {
            true => {
                let words = strings(&args.value(row))?;
                let words: Vec<_> = words.iter().flatten().map(harmless).collect();
                words.join(", ")
            }
            false => String::new(),
        };
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
        let call = Call {
            function: word(&functions).unwrap_or_else(|| "[unknown]".to_owned()),
            module: word(&modules),
            args,
            remarks,
        };
        layout.add_call(&mut line, depth, &call);
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
    fn calls_fit_the_terminal_and_keep_their_names() {
        let call = Call {
            function: "__alloc_pages_slowpath".to_owned(),
            module: Some("vmlinux".to_owned()),
            args: "gfp=0xcc0, order=3, preferred_nid=0".to_owned(),
            remarks: vec!["= -14".to_owned()],
        };
        let line = |width, depth| {
            let layout = Layout::of(width);
            let mut line =
                layout.begin("1.285942000", "0)", "kworker/u8:4-events-12", [Some(1); 2]);
            layout.add_call(&mut line, depth, &call);
            line
        };
        let whole = line(None, 20);
        assert!(whole.ends_with(
            "__alloc_pages_slowpath [vmlinux](gfp=0xcc0, order=3, preferred_nid=0); /* = -14 */"
        ));
        for width in [60, 80, 100, 120, 200] {
            for depth in [0, 3, 20, 100] {
                let line = line(Some(width), depth);
                assert!(line.contains("__alloc_pages_slowpath"), "{line}");
                let widest = line.lines().map(columns).max().unwrap_or(0);
                assert!(widest <= width.max(90), "{width}: {line}");
                assert!(
                    line.contains("kworker/u8:4-events-12") || width >= 140,
                    "{line}"
                );
            }
        }
        assert!(line(Some(200), 0).contains("[vmlinux](gfp=0xcc0"));
        assert!(
            line(Some(162), 0)
                .ends_with("slowpath(gfp=0xcc0, order=3, preferred_nid=0); /* = -14 */")
        );
        assert!(line(Some(80), 0).contains("slowpath(…);"));
    }

    #[test]
    fn kernel_threads_lose_only_their_work() {
        assert_eq!(
            without_work("kworker/u8:1-ext4-rsv-conversion-33"),
            "kworker/u8:1-…-33"
        );
        assert_eq!(without_work("kworker/0:1-events-7"), "kworker/0:1-events-7");
        let long = "a-program-with-a-long-name-12";
        assert_eq!(without_work(long), long);
    }

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
