//! Views: one SQL file each, over the tables, passes and functions of the session and over other views.
//!
//! ```text
//! -- names: Names of aggregates.
//! SELECT name, value{, trace} FROM aggregates     the text in braces is kept if several traces are opened
//! ```
//! A view is planned when a query names it. The head of its file describes it: header.rs.

mod function;
mod header;
mod schema;

use std::sync::{Arc, LazyLock};

use perfquet_cli::glob_matches;

pub(crate) use function::register;
pub(crate) use header::ViewColumn;
pub(crate) use schema::{Planner, SchemaWithViews};

use header::Header;

/// The SQL files of this directory.
const FILES: &[(&str, &str)] = &[
    ("allocations", include_str!("allocations.sql")),
    ("ancestors", include_str!("ancestors.sql")),
    ("block_io", include_str!("block_io.sql")),
    ("calls_with_context", include_str!("calls_with_context.sql")),
    ("cpu_frequency", include_str!("cpu_frequency.sql")),
    ("cpu_idle", include_str!("cpu_idle.sql")),
    ("cpu_utilization", include_str!("cpu_utilization.sql")),
    ("critical_path", include_str!("critical_path.sql")),
    ("descendants", include_str!("descendants.sql")),
    ("distributions", include_str!("distributions.sql")),
    ("events", include_str!("events.sql")),
    ("irqs", include_str!("irqs.sql")),
    ("latest_aggregates", include_str!("latest_aggregates.sql")),
    ("locks", include_str!("locks.sql")),
    ("off_cpu", include_str!("off_cpu.sql")),
    ("page_faults", include_str!("page_faults.sql")),
    ("process_tree", include_str!("process_tree.sql")),
    ("processes", include_str!("processes.sql")),
    ("recorded_events", include_str!("recorded_events.sql")),
    ("runqueue_lengths", include_str!("runqueue_lengths.sql")),
    ("runqueue_waits", include_str!("runqueue_waits.sql")),
    ("syscall_errors", include_str!("syscall_errors.sql")),
    ("syscalls", include_str!("syscalls.sql")),
    ("thread_states", include_str!("thread_states.sql")),
    ("thread_utilization", include_str!("thread_utilization.sql")),
    ("wakeups", include_str!("wakeups.sql")),
];

/// Every view of this program.
pub(crate) static VIEWS: LazyLock<Vec<Arc<View>>> = LazyLock::new(|| {
    let views = FILES.iter().map(|(name, sql)| View::new(name, sql));
    views.map(Arc::new).collect()
});

/// A view and its SQL.
#[derive(Debug)]
pub(crate) struct View {
    pub(crate) name: String,
    header: Header,
    sql: String,
    /// The file and the line before its SQL, if a user wrote it.
    source: Option<Source>,
}

/// Where the SQL of a user's view begins.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) lines_before: usize,
}

impl Source {
    /// The file with a line of the SQL, from 1.
    pub(crate) fn at(&self, line: usize) -> String {
        format!("{}: line {}", self.path, self.lines_before + line)
    }
}

impl View {
    /// The name of the file is that of the view.
    pub(crate) fn new(name: &str, sql: &str) -> View {
        View {
            name: name.to_owned(),
            header: header::parse(sql),
            sql: sql.to_owned(),
            source: None,
        }
    }

    /// A view that a user wrote. In its SQL, only `{, trace}` is kept for several traces alone.
    pub(crate) fn of_user(name: &str, sql: &str, source: Source) -> View {
        let mut view = View::new(name, sql);
        if view.header.about.is_empty() {
            view.header.about = format!("View of {}.", source.path);
        }
        view.source = Some(source);
        view
    }

    pub(crate) fn source(&self) -> Option<&Source> {
        self.source.as_ref()
    }

    pub(crate) fn about(&self) -> &str {
        &self.header.about
    }

    /// The described columns.
    pub(crate) fn columns(&self) -> &[ViewColumn] {
        &self.header.columns
    }

    /// Arguments of a view that is called: `cpu_utilization(step)`.
    pub(crate) fn arguments(&self) -> &[ViewColumn] {
        &self.header.arguments
    }

    /// Name and arguments.
    pub(crate) fn usage(&self) -> String {
        let arguments: Vec<&str> = (self.arguments().iter())
            .map(|argument| argument.name.as_str())
            .collect();
        match arguments.is_empty() {
            true => self.name.clone(),
            false => format!("{}({})", self.name, arguments.join(", ")),
        }
    }

    /// Lists missing events, and how to record them; `None` if `events`, as `system:event`, suffice.
    pub(crate) fn missing(&self, events: &[&str]) -> Option<String> {
        let is_there = |need: &String| {
            let need = need.as_str();
            events.iter().any(|event| glob_matches(need, event))
        };
        let is_missing = |either: &&Vec<String>| !either.iter().any(is_there);
        let missing = self.header.needs.iter().filter(is_missing);
        let missing: Vec<String> = missing.map(|either| either.join(" or ")).collect();
        if missing.is_empty() {
            return None;
        }
        let hint = match &self.header.record {
            Some(record) => format!("\nhint: record them with: perfquet-record {record}"),
            None => String::new(),
        };
        let (name, missing) = (&self.name, missing.join(", "));
        Some(format!(
            "{name} needs events that were not recorded: {missing}{hint}"
        ))
    }

    /// The SQL for one trace, or for several, whose rows are distinguished by the column `trace`.
    pub(crate) fn sql(&self, several: bool) -> String {
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
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/views");
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
    }
}
