//! The outermost boxes of stacks: programs, threads, CPUs.
//!
//! ```text
//! key of a row: `17 \x1e ls \x1f CPU 1`      its boxes: `ls`, `CPU 1`
//! ```

use std::collections::HashMap;

use anyhow::{Result, bail};
use arrow::array::{Array, AsArray};
use arrow::datatypes::Int32Type;
use clap::ValueEnum;

use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet::stacks::strings;

use super::labels::clean;
use crate::reports::folding::{Folded, Weighted};
use crate::reports::stored_aggregates::PARTS;

/// A key by which stacks are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::reports) enum By {
    /// Name of the process
    Process,
    /// Thread name
    Comm,
    /// Process ID
    Pid,
    /// Thread ID
    Tid,
    /// CPU
    Cpu,
    /// Trace
    Trace,
    /// No grouping
    None,
}

/// Separator of a process ID and the name of its first thread.
const NAME: char = '\u{1e}';

impl By {
    /// The key as SQL text, never NULL; a process has to be named by [`Groups`].
    fn sql(self) -> String {
        let text = |value: &str| format!("coalesce(CAST({value} AS VARCHAR), '[unknown]')");
        match self {
            By::Process => format!(
                "concat(coalesce(CAST(pid AS VARCHAR), ''), chr({}), CASE WHEN pid IS NULL OR pid = tid THEN coalesce(comm, '') ELSE '' END)",
                NAME as u32
            ),
            By::Comm => text("comm"),
            By::Pid => text("pid"),
            By::Tid => text("tid"),
            By::Cpu => text("'CPU ' || cpu"),
            By::Trace | By::None => "''".to_owned(),
        }
    }
}

/// The keys of stacks, as a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reports) struct Groups {
    pub(in crate::reports) keys: Vec<By>,
    /// Whether they are the default: then a single program has no box.
    are_usual: bool,
}

impl Groups {
    /// The groups of `--by`; without, the process if there are several programs.
    pub(in crate::reports) fn new(by: &[By]) -> Result<Groups> {
        if by.len() > 1 && by.contains(&By::None) {
            bail!(Misuse(
                "--by none: cannot be combined with other keys".to_owned()
            ));
        }
        Ok(match by {
            [] => Groups {
                keys: vec![By::Process],
                are_usual: true,
            },
            keys => Groups {
                keys: keys
                    .iter()
                    .copied()
                    .filter(|&key| key != By::None)
                    .collect(),
                are_usual: false,
            },
        })
    }

    /// The key of a row as SQL; `None` without groups.
    pub(in crate::reports) fn sql(&self) -> Option<String> {
        let parts: Vec<String> = self.keys.iter().map(|key| key.sql()).collect();
        match parts.as_slice() {
            [] => None,
            [part] => Some(format!("arrow_cast({part}, 'Utf8View')")),
            _ => Some(self.sql_with(&[])),
        }
    }

    /// The key with further parts at its end.
    pub(in crate::reports) fn sql_with(&self, more: &[String]) -> String {
        let parts: Vec<String> = self.keys.iter().map(|key| key.sql()).collect();
        format!(
            "arrow_cast(concat_ws(chr({}), {}), 'Utf8View')",
            PARTS as u32,
            [parts.as_slice(), more].concat().join(", ")
        )
    }

    /// The boxes below the stacks of each row: names by the row's index. A single usual program has none.
    pub(in crate::reports) fn names(
        &self,
        session: &Session,
        folded: &Folded,
    ) -> Result<Vec<Vec<String>>> {
        let processes = match self.keys.contains(&By::Process) {
            true => process_names(session)?,
            false => HashMap::new(),
        };
        let mut known: HashMap<(usize, u32), Vec<String>> = HashMap::new();
        let names = |row: &Weighted| {
            let names = known.entry((row.trace, row.key)).or_insert_with(|| {
                let key = folded.keys.get(row.key as usize).map_or("", String::as_str);
                let parts = self.keys.iter().zip(key.split(PARTS));
                let name = |(&by, part): (&By, &str)| match by {
                    By::Trace => clean(session.forest().name(row.trace)),
                    By::Process => clean(&process_name(part, row.trace, &processes)),
                    _ => clean(part),
                };
                parts.map(name).collect()
            });
            names.clone()
        };
        let all: Vec<Vec<String>> = folded.rows.iter().map(names).collect();
        let is_alone = |names: &Vec<String>| Some(names) == all.first();
        if self.are_usual && all.iter().all(is_alone) {
            return Ok(vec![Vec::new(); folded.rows.len()]);
        }
        Ok(all)
    }
}

/// The process of a row, if its key begins with one.
pub(in crate::reports) fn pid(key: &str) -> Option<i32> {
    key.split_once(NAME)?.0.parse().ok()
}

/// Name of a process: that of its first thread at the time, else its last one.
fn process_name(part: &str, trace: usize, processes: &HashMap<(usize, i32), String>) -> String {
    let (number, name) = part.split_once(NAME).unwrap_or((part, ""));
    let pid = number.parse::<i32>().ok();
    match (pid, name) {
        // Every CPU has an idle thread, swapper/0 and so on.
        (Some(0), _) => "swapper (idle)".to_owned(),
        (Some(pid), "") => match processes.get(&(trace, pid)) {
            Some(name) => name.clone(),
            None => format!("process {pid}"),
        },
        (None, "") => "[unknown]".to_owned(),
        (_, name) => name.to_owned(),
    }
}

/// Last name of each process's first thread.
fn process_names(session: &Session) -> Result<HashMap<(usize, i32), String>> {
    let mut names = HashMap::new();
    let trace = if session.traces().len() > 1 {
        ", trace"
    } else {
        ""
    };
    let sql = format!(
        "SELECT pid, comm{trace} FROM threads WHERE pid = tid AND comm IS NOT NULL ORDER BY start_time"
    );
    for batch in session.collect(&sql)? {
        let pids = arrow::compute::cast(batch.column(0), &arrow::datatypes::DataType::Int32)?;
        let pids = pids.as_primitive::<Int32Type>();
        let comms = strings(batch.column(1))?;
        let traces = batch.column_by_name("trace").map(strings).transpose()?;
        for row in (0..batch.num_rows()).filter(|&row| pids.is_valid(row)) {
            let trace = traces
                .as_ref()
                .and_then(|traces| session.forest().trace(traces.value(row)));
            names.insert(
                (trace.unwrap_or(0), pids.value(row)),
                comms.value(row).to_owned(),
            );
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_named_after_their_first_thread() {
        let known = HashMap::from([((0, 7), "java".to_owned())]);
        let name = |part: &str| process_name(part, 0, &known);
        assert_eq!(name("7\u{1e}"), "java");
        assert_eq!(name("7\u{1e}sh"), "sh");
        assert_eq!(name("8\u{1e}"), "process 8");
        assert_eq!(name("0\u{1e}swapper/1"), "swapper (idle)");
        assert_eq!(name("\u{1e}"), "[unknown]");
        assert_eq!(pid("7\u{1e}sh"), Some(7));
        assert_eq!(pid("sh"), None);
    }

    #[test]
    fn none_stands_alone() {
        assert!(Groups::new(&[By::None, By::Pid]).is_err());
        assert_eq!(Groups::new(&[By::None]).unwrap().sql(), None);
    }
}
