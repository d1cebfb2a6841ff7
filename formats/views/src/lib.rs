//! Views: one SQL file each, over the tables, passes and functions of perfquet-query and over other views.
//!
//! ```text
//! -- names: Names of aggregates.
//! SELECT name, value{, trace} FROM aggregates     the text in braces is kept if several traces are opened
//! ```
//! The head of a file describes the view: header.rs. Other engines get the same views in their dialect: duckdb.rs. This
//! crate depends on no engine, so that exports have the views without DataFusion.

mod header;

use std::sync::{Arc, LazyLock};

use perfquet_cli::glob_matches;

pub use header::{UNITS, ViewColumn};

use header::Header;

/// Names of SQL files in a folder, each with its text.
macro_rules! files {
    ($folder:literal: $($name:ident)*) => {
        &[$((stringify!($name), include_str!(concat!($folder, "/", stringify!($name), ".sql")))),*]
    };
}

pub mod duckdb;

#[rustfmt::skip]
const FILES: &[(&str, &str)] = files!("sql":
    allocations
    ancestors
    block_io
    calls_with_context
    cpu_frequency
    cpu_idle
    cpu_utilization
    critical_path
    descendants
    distributions
    events
    irqs
    latest_aggregates
    locks
    off_cpu
    page_faults
    process_tree
    processes
    recorded_events
    runqueue_lengths
    runqueue_waits
    syscall_errors
    syscalls
    thread_states
    thread_utilization
    wakeups
);

/// Columns of tables that hold times; others in nanoseconds hold durations.
pub const TIMES: [&str; 4] = ["time", "since", "start_time", "end_time"];

/// Every view of this program.
pub static VIEWS: LazyLock<Vec<Arc<View>>> = LazyLock::new(|| {
    let views = FILES.iter().map(|(name, sql)| View::new(name, sql));
    views.map(Arc::new).collect()
});

/// A view and its SQL.
#[derive(Debug)]
pub struct View {
    /// Its name in SQL.
    pub name: String,
    header: Header,
    sql: String,
    /// The file and the line before its SQL, if a user wrote it.
    source: Option<Source>,
}

/// Where the SQL of a user's view begins.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file.
    pub path: String,
    /// Number of lines before the SQL.
    pub lines_before: usize,
}

impl Source {
    /// The file with a line of the SQL, from 1.
    pub fn at(&self, line: usize) -> String {
        format!("{}: line {}", self.path, self.lines_before + line)
    }
}

/// The table of what was aggregated while recording.
const AGGREGATES: &str = "aggregates";

impl View {
    /// The name of the file is that of the view.
    pub fn new(name: &str, sql: &str) -> View {
        View {
            name: name.to_owned(),
            header: header::parse(sql),
            sql: sql.to_owned(),
            source: None,
        }
    }

    /// A view that a user wrote. In its SQL, only `{, trace}` is kept for several traces alone.
    pub fn of_user(name: &str, sql: &str, source: Source) -> View {
        let mut view = View::new(name, sql);
        if view.header.about.is_empty() {
            view.header.about = format!("View of {}.", source.path);
        }
        view.source = Some(source);
        view
    }

    /// Where a user's view is.
    pub fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    /// What one row is.
    pub fn about(&self) -> &str {
        &self.header.about
    }

    /// The described columns.
    pub fn columns(&self) -> &[ViewColumn] {
        &self.header.columns
    }

    /// Arguments of a view that is called: `cpu_utilization(step)`.
    pub fn arguments(&self) -> &[ViewColumn] {
        &self.header.arguments
    }

    /// Name and arguments.
    pub fn usage(&self) -> String {
        let arguments: Vec<&str> = (self.arguments().iter())
            .map(|argument| argument.name.as_str())
            .collect();
        match arguments.is_empty() {
            true => self.name.clone(),
            false => format!("{}({})", self.name, arguments.join(", ")),
        }
    }

    /// Lists missing events: `s:a, s:b or s:c*`; `None` if `events`, as `system:event`, suffice.
    pub fn missing_events(&self, events: &[&str]) -> Option<String> {
        let is_there = |need: &String| {
            let need = need.as_str();
            events.iter().any(|event| glob_matches(need, event))
        };
        let is_missing = |either: &&Vec<String>| !either.iter().any(is_there);
        let missing = self.header.needs.iter().filter(is_missing);
        let missing: Vec<String> = missing.map(|either| either.join(" or ")).collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }

    /// Lists missing events, and how to record them; `None` if `events`, as `system:event`, suffice. Where these include the table
    /// `aggregates`, the hint names the reports of what was aggregated in the kernel, which are no rows of a view.
    pub fn missing(&self, events: &[&str]) -> Option<String> {
        let missing = self.missing_events(events)?;
        let is_aggregated = events.contains(&AGGREGATES);
        let hint = match &self.header.record {
            Some(record) if is_aggregated => format!(
                "\nhint: the trace has sums and distributions, without single rows: see perfquet-query agg, hist or flamegraph; \
                 for {}, record the events with: perfquet-record {record}",
                self.name
            ),
            Some(record) => format!("\nhint: record them with: perfquet-record {record}"),
            None => String::new(),
        };
        let name = &self.name;
        Some(format!(
            "{name} needs events that were not recorded: {missing}{hint}"
        ))
    }

    /// The SQL for one trace, or for several, whose rows are distinguished by the column `trace`.
    pub fn sql(&self, several: bool) -> String {
        const TRACE: &str = ", trace";
        if self.source.is_some() {
            let kept = if several { TRACE } else { "" };
            return self.sql.replace(&format!("{{{TRACE}}}"), kept);
        }
        let mut sql = String::new();
        for piece in self.sql.split_inclusive('}') {
            match piece.split_once('{') {
                Some((before, kept)) => {
                    sql.push_str(before);
                    sql.push_str(if several {
                        kept.trim_end_matches('}')
                    } else {
                        ""
                    });
                }
                None => sql.push_str(piece),
            }
        }
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_hold_what_only_several_traces_need() {
        let view = View::new("v", "SELECT a{, trace} FROM t GROUP BY a{, trace} LIMIT 1");
        assert_eq!(view.sql(false), "SELECT a FROM t GROUP BY a LIMIT 1");
        assert_eq!(
            view.sql(true),
            "SELECT a, trace FROM t GROUP BY a, trace LIMIT 1"
        );
    }

    #[test]
    fn every_file_describes_its_view() {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sql");
        let files = std::fs::read_dir(directory).unwrap().map(|entry| {
            let name = entry.unwrap().file_name();
            name.to_string_lossy().into_owned()
        });
        let mut files: Vec<String> = files
            .filter_map(|name| name.strip_suffix(".sql").map(str::to_owned))
            .collect();
        files.sort();
        let listed: Vec<&str> = FILES.iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, files);
        for view in VIEWS.iter() {
            let name = &view.name;
            let header = &view.header;
            assert_eq!(&header.name, name);
            assert!(header.about.ends_with('.'), "{name}: {}", header.about);
            assert_eq!(header.needs.is_empty(), header.record.is_none(), "{name}");
            assert!(!header.columns.is_empty(), "{name}");
            for column in header.columns.iter().chain(&header.arguments) {
                assert!(column.doc.ends_with('.'), "{name}: {column:?}");
            }
        }
    }

    #[test]
    fn what_a_view_needs() {
        let view = View::new(
            "v",
            "-- v: x.\n-- needs: s:a, s:b | s:c*, t:d\n-- record: -e s:a\n",
        );
        let of = |events: &[&str]| view.missing(events);
        assert_eq!(of(&["s:a", "s:c1", "t:d", "x:y"]), None);
        assert_eq!(
            of(&["t:d"]).unwrap(),
            "v needs events that were not recorded: s:a, s:b or s:c*\nhint: record them with: perfquet-record -e s:a"
        );
        assert_eq!(
            of(&["t:d", "aggregates"]).unwrap(),
            "v needs events that were not recorded: s:a, s:b or s:c*\nhint: the trace has sums and distributions, without single rows: \
             see perfquet-query agg, hist or flamegraph; for v, record the events with: perfquet-record -e s:a"
        );
    }
}
