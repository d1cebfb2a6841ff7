//! The tables, views and functions of a trace as SQL statements for DuckDB, over the Parquet files of the trace.
//!
//! ```text
//! CREATE OR REPLACE VIEW "samples" AS SELECT * FROM read_parquet(['/tmp/a.pqt/samples/00000.parquet'], union_by_name = true);
//! CREATE OR REPLACE VIEW "sched"."sched_switch" AS …
//! CREATE OR REPLACE VIEW recorded_events AS …
//! ```
//! Names are those of perfquet-query: each event in the schema of its system and, if no other event has its name, without
//! it. A fixed table that has no rows, or lacks columns of this version, is completed, so that queries run on every trace.
//! Views that cannot be expressed are listed with the reason, in a comment and in the closing lines.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use anyhow::{Context, Result};
use perfquet_trace::recorded::Recorded;
use perfquet_trace::store::{ColumnSchema, ColumnType, Directory, unite};
use perfquet_trace::tables;
use perfquet_views::duckdb::{self, identifier, literal};
use perfquet_views::{VIEWS, View};

use super::super::source::{Source, first_time};
use super::super::{Exporter, Output, Tally, printable};
use super::duckdb_shared::{MAIN, PARTS, UNSIGNED_ORDER, refuse_backslash, without_patterns};
use super::{lake_of_duckdb, shell_word};

/// `--to ddl=duckdb`
pub(in super::super) const EXPORTER: Exporter = Exporter {
    name: "ddl=duckdb",
    about: "statements that create the tables of a lake or trace in DuckDB, and views of a trace",
    output: Output::Reference {
        write,
        write_lake: lake_of_duckdb::write,
    },
};

fn write(source: &Source<'_>, out: &mut dyn Write, tally: &mut Tally) -> Result<()> {
    let trace = source.trace;
    let path = trace.path();
    let path = path
        .canonicalize()
        .with_context(|| format!("cannot open {}", path.display()))?;
    let path = path
        .to_str()
        .with_context(|| format!("{}: expected a path in UTF-8", path.display()))?;
    if without_patterns(path) != path {
        refuse_backslash(path)?;
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let mut statements = Statements {
        trace,
        path,
        name: name.strip_suffix(".pqt").unwrap_or(name),
        taken: BTreeSet::new(),
        out,
        tally,
    };
    statements.head()?;
    statements.fixed_tables()?;
    statements.events()?;
    statements.trace_info()?;
    statements.parts_of_views()?;
    statements.functions()?;
    let mut present = BTreeSet::new();
    for event in source.event_types().filter(|event| event.is_sampled()) {
        present.insert(format!("{}:{}", event.system, event.name));
    }
    statements.views(present)
}

struct Statements<'s> {
    trace: &'s Directory,
    path: &'s str,
    /// Value of the column `trace`.
    name: &'s str,
    /// Names of tables so far, in lower case: DuckDB ignores case.
    taken: BTreeSet<(String, String)>,
    out: &'s mut dyn Write,
    tally: &'s mut Tally,
}

impl Statements<'_> {
    fn head(&mut self) -> Result<()> {
        let path = printable(self.path);
        writeln!(
            self.out,
            "-- The trace {path} for DuckDB: duckdb -init FILE, or .read FILE.\n\
             -- Statements refer to its files: create them again when the trace moves.\n\
             -- Addresses are the bits of a signed integer: address(x) formats them, ORDER BY unsigned_order(x) sorts them."
        )?;
        Ok(())
    }

    fn fixed_tables(&mut self) -> Result<()> {
        let in_every_trace = tables::all();
        for schema in tables::declared() {
            let parts = self.trace.table(&schema.name);
            if parts.is_none() && !in_every_trace.iter().any(|every| every.name == schema.name) {
                continue;
            }
            let columns = match parts {
                Some(table) => {
                    let forms = table.parts.iter().map(|part| table.columns_of(part));
                    let forms: Vec<Vec<ColumnSchema>> = forms.collect();
                    let declared = [schema.columns.as_slice()];
                    unite(declared.into_iter().chain(forms.iter().map(Vec::as_slice)))
                }
                None => schema.columns.clone(),
            };
            self.table(MAIN, &schema.name, &schema.name, &columns)?;
        }
        Ok(())
    }

    /// The events, as `system.event`, and as `event` if the name is unique.
    fn events(&mut self) -> Result<()> {
        let events = events(self.trace);
        for (table, system, event) in &events {
            if [MAIN, PARTS].contains(&system.as_str()) {
                continue;
            }
            let system_name = identifier(system);
            writeln!(self.out, "CREATE SCHEMA IF NOT EXISTS {system_name};")?;
            let columns = self.trace.table(table).map(|entry| entry.schema(table));
            let columns = columns.map(|schema| schema.columns).unwrap_or_default();
            self.table(system, event, table, &columns)?;
        }
        for (table, system, event) in &events {
            let is_unique = events.iter().filter(|(_, _, other)| other == event).count() == 1;
            let is_view = VIEWS.iter().any(|view| view.name == *event);
            if !is_unique || is_view || event == TRACE_INFO || self.is_taken(MAIN, event) {
                continue;
            }
            if system == MAIN {
                let columns = self.trace.table(table).map(|entry| entry.schema(table));
                let columns = columns.map(|schema| schema.columns).unwrap_or_default();
                self.table(MAIN, event, table, &columns)?;
                continue;
            }
            self.take(MAIN, event);
            let (name, system) = (identifier(event), identifier(system));
            writeln!(
                self.out,
                "CREATE OR REPLACE VIEW {name} AS FROM {system}.{name};"
            )?;
        }
        Ok(())
    }

    fn is_taken(&self, schema: &str, name: &str) -> bool {
        let key = (schema.to_lowercase(), name.to_lowercase());
        self.taken.contains(&key)
    }

    /// Returns whether the name was free.
    fn take(&mut self, schema: &str, name: &str) -> bool {
        self.taken
            .insert((schema.to_lowercase(), name.to_lowercase()))
    }

    /// One table of the trace with these columns.
    fn table(
        &mut self,
        schema: &str,
        name: &str,
        table: &str,
        columns: &[ColumnSchema],
    ) -> Result<()> {
        if !self.take(schema, name) {
            self.tally.note(format!(
                "{schema}.{name} omitted: another event differs from it only by case"
            ));
            return Ok(());
        }
        let full = match schema {
            MAIN => identifier(name),
            schema => format!("{}.{}", identifier(schema), identifier(name)),
        };
        let rows = self.rows(table, columns);
        writeln!(self.out, "CREATE OR REPLACE VIEW {full} AS {rows};")?;
        self.tally.wrote("table", 1);
        Ok(())
    }

    /// A query of all rows of a table, which has the columns whatever its files have.
    fn rows(&self, table: &str, columns: &[ColumnSchema]) -> String {
        let Some(files) = self.files(table) else {
            return empty(columns);
        };
        let entry = self.trace.table(table);
        let stored: BTreeSet<String> = entry
            .iter()
            .flat_map(|entry| entry.parts.iter().map(|part| entry.columns_of(part)))
            .flatten()
            .map(|column| column.name)
            .collect();
        let mut renamed = Vec::new();
        if self.trace.manifest().version < 2 {
            for (former, today) in tables::former_names(table) {
                renamed.push(format!("{} AS {}", identifier(former), identifier(today)));
            }
        }
        let renamed = match renamed.is_empty() {
            true => String::new(),
            false => format!(" RENAME ({})", renamed.join(", ")),
        };
        let missing = columns
            .iter()
            .filter(|column| !stored.contains(&column.name));
        let missing: String = missing
            .map(|column| format!(", {}", typed_null(column)))
            .collect();
        format!("SELECT *{renamed}{missing} FROM {files}")
    }

    /// `read_parquet` of the parts of a table; `None` if it has none.
    fn files(&self, table: &str) -> Option<String> {
        let entry = self
            .trace
            .table(table)
            .filter(|entry| !entry.parts.is_empty())?;
        let files = entry.parts.iter().map(|part| {
            let path = without_patterns(&format!("{}/{}", self.path, part.file));
            literal(&path)
        });
        let files: Vec<String> = files.collect();
        Some(format!(
            "read_parquet([{}], union_by_name = true)",
            files.join(", ")
        ))
    }

    fn trace_info(&mut self) -> Result<()> {
        let manifest = self.trace.manifest();
        let given = self.trace.path().display().to_string();
        let mut facts = vec![
            ("path".to_owned(), given),
            ("state".to_owned(), manifest.state.as_str().to_owned()),
        ];
        if let Some((start, end)) = time_range(self.trace) {
            facts.push(("start".to_owned(), start.to_string()));
            facts.push(("end".to_owned(), end.to_string()));
        }
        let tables = self.trace.tables();
        let tables = tables.map(|(name, table)| (name, table.time_range()));
        let fact = |name: &str| manifest.facts.other.get(name).map(String::as_str);
        if let Some(recorded) = Recorded::of_tables(fact, tables) {
            let known_by = recorded.known_by.words().to_owned();
            facts.push(("length".to_owned(), recorded.length().to_string()));
            facts.push(("length.known_by".to_owned(), known_by));
        }
        facts.extend(manifest.facts.by_name());
        let rows = facts.iter();
        let rows: Vec<String> = rows
            .map(|(name, value)| format!("({}, {})", literal(name), literal(value)))
            .collect();
        self.take(MAIN, TRACE_INFO);
        writeln!(
            self.out,
            "CREATE OR REPLACE VIEW {TRACE_INFO} AS FROM (VALUES {}) AS facts(name, value);",
            rows.join(", ")
        )?;
        Ok(())
    }

    /// The common columns of all samples and of all events, for the view `events`.
    fn parts_of_views(&mut self) -> Result<()> {
        writeln!(self.out, "CREATE SCHEMA IF NOT EXISTS {PARTS};")?;
        let offset = self.trace.manifest().facts.wall_offset;
        let offset = offset.map_or("NULL".to_owned(), |offset| offset.to_string());
        let constants = format!(
            "CAST({offset} AS BIGINT) AS wall_offset, {} AS trace",
            literal(self.name)
        );
        let common = tables::common::columns();
        let rows = |table: &str, has: &dyn Fn(&str) -> bool, event: &str| {
            let columns = common.iter().map(|column| match has(&column.name) {
                true => identifier(&column.name),
                false => typed_null(column),
            });
            let columns: Vec<String> = columns.collect();
            format!(
                "SELECT {}, {event}, {constants} FROM {table}",
                columns.join(", ")
            )
        };
        let samples = rows("samples", &|_| true, "event");
        writeln!(
            self.out,
            "CREATE OR REPLACE VIEW {PARTS}.sample_rows AS {samples};"
        )?;
        let events = events(self.trace);
        let mut union = Vec::new();
        for (table, system, event) in &events {
            let Some(files) = self.files(table) else {
                continue;
            };
            let is_unique = events.iter().filter(|(_, _, other)| other == event).count() == 1;
            let name = match is_unique {
                true => event.clone(),
                false => format!("{system}.{event}"),
            };
            let entry = self.trace.table(table);
            let has = |name: &str| {
                entry.is_some_and(|entry| entry.columns.iter().any(|own| own.name == name))
            };
            let event = format!("{} AS event", literal(&name));
            union.push(rows(&files, &has, &event));
        }
        if union.is_empty() {
            let none = rows("samples", &|_| true, "event");
            union.push(format!("{none} WHERE false"));
        }
        writeln!(
            self.out,
            "CREATE OR REPLACE VIEW {PARTS}.event_rows AS\n{};",
            union.join("\nUNION ALL ")
        )?;
        Ok(())
    }

    fn functions(&mut self) -> Result<()> {
        let or_null =
            |value: Option<i64>| value.map_or("NULL".to_owned(), |value| value.to_string());
        let start = or_null(first_time(self.trace));
        let offset = or_null(self.trace.manifest().facts.wall_offset);
        writeln!(
            self.out,
            "CREATE OR REPLACE MACRO address(x) AS '0x' || lower(hex(x));\n\
             CREATE OR REPLACE MACRO since_start(t) AS (t - CAST({start} AS BIGINT)) / 1e9;\n\
             CREATE OR REPLACE MACRO wall_time(t) AS make_timestamp_ns(t + CAST({offset} AS BIGINT));\n\
             {UNSIGNED_ORDER}"
        )?;
        self.tally.wrote("function", 4);
        Ok(())
    }

    /// The views whose events were recorded. `present` are the recorded samples, as `system:event`.
    fn views(&mut self, mut present: BTreeSet<String>) -> Result<()> {
        for (_, system, event) in events(self.trace) {
            present.insert(format!("{system}:{event}"));
        }
        for (name, table) in self.trace.tables() {
            if table.rows() > 0 {
                present.insert(name.to_owned());
            }
        }
        let present: Vec<&str> = present.iter().map(String::as_str).collect();
        let mut absent: BTreeMap<&str, Vec<&View>> = BTreeMap::new();
        let mut unrecorded = Vec::new();
        let mut last = Vec::new();
        for view in VIEWS.iter() {
            match (view.missing_events(&present), duckdb::statement(view)) {
                (Some(missing), _) => {
                    unrecorded.push(view.name.as_str());
                    writeln!(
                        self.out,
                        "-- No view {}: not recorded: {missing}",
                        view.usage()
                    )?;
                }
                (None, Ok(statement)) => match duckdb::needs_views(view, &statement) {
                    true => last.push((view, statement)),
                    false => self.view(view, &statement)?,
                },
                (None, Err(reason)) => absent.entry(reason).or_default().push(view),
            }
        }
        for (view, statement) in last {
            self.view(view, &statement)?;
        }
        for (reason, views) in absent {
            for view in &views {
                self.absent(view, reason)?;
            }
            let names: Vec<&str> = views.iter().map(|view| view.name.as_str()).collect();
            self.tally
                .note(format!("no view {}: {reason}", names.join(", ")));
        }
        if !unrecorded.is_empty() {
            let names = unrecorded.join(", ");
            self.tally
                .note(format!("no view {names}: events not recorded"));
        }
        Ok(())
    }

    fn view(&mut self, view: &View, statement: &str) -> Result<()> {
        writeln!(self.out, "-- {}: {}\n{statement}", view.name, view.about())?;
        self.tally.wrote("view", 1);
        Ok(())
    }

    /// How to have the rows of a view that only perfquet-query computes.
    fn absent(&mut self, view: &View, reason: &str) -> Result<()> {
        let name = &view.name;
        let usage = view.usage();
        writeln!(self.out, "-- No view {usage}: {reason}. To have its rows:")?;
        writeln!(
            self.out,
            "--   perfquet-query sql {} 'SELECT * FROM {usage}' --format parquet > {name}.parquet\n\
             --   CREATE OR REPLACE VIEW {name} AS FROM '{name}.parquet';",
            printable(&shell_word(self.path))
        )?;
        Ok(())
    }
}

/// Name of the table of facts.
const TRACE_INFO: &str = "trace_info";

/// Tables of events: name in the manifest, system, event.
fn events(trace: &Directory) -> Vec<(String, String, String)> {
    let events = trace.tables().filter_map(|(table, _)| {
        let (system, event) = table.strip_prefix("events/")?.split_once('/')?;
        Some((table.to_owned(), system.to_owned(), event.to_owned()))
    });
    events.collect()
}

fn time_range(trace: &Directory) -> Option<(i64, i64)> {
    let has_times = |name: &str| {
        [tables::samples::NAME, tables::calls::NAME].contains(&name) || name.starts_with("events/")
    };
    let tables = trace.tables().filter(|(name, _)| has_times(name));
    let ranges = tables.filter_map(|(_, table)| table.time_range());
    ranges.reduce(|all, next| (all.0.min(next.0), all.1.max(next.1)))
}

/// A query without rows.
fn empty(columns: &[ColumnSchema]) -> String {
    let columns: Vec<String> = columns.iter().map(typed_null).collect();
    format!("SELECT {} WHERE false", columns.join(", "))
}

fn typed_null(column: &ColumnSchema) -> String {
    let kind = type_name(column.kind);
    format!("CAST(NULL AS {kind}) AS {}", identifier(&column.name))
}

/// The type that DuckDB reads from a part.
fn type_name(kind: ColumnType) -> &'static str {
    match kind {
        ColumnType::Bool => "BOOLEAN",
        ColumnType::Int8 => "TINYINT",
        ColumnType::Int16 => "SMALLINT",
        ColumnType::Int32 => "INTEGER",
        ColumnType::Int64 | ColumnType::Bits => "BIGINT",
        ColumnType::UInt8 => "UTINYINT",
        ColumnType::UInt16 => "USMALLINT",
        ColumnType::UInt32 => "UINTEGER",
        ColumnType::UInt64 => "UBIGINT",
        ColumnType::Int128 => "HUGEINT",
        ColumnType::Float64 => "DOUBLE",
        ColumnType::Text => "VARCHAR",
        ColumnType::Binary => "BLOB",
        ColumnType::Int64List | ColumnType::BitsList => "BIGINT[]",
        ColumnType::UInt64List => "UBIGINT[]",
        ColumnType::TextList => "VARCHAR[]",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_no_patterns_and_no_second_line() {
        assert_eq!(without_patterns("/a[1]*?/b"), "/a[[]1][*][?]/b");
        assert_eq!(printable("/a\nDROP TABLE x;"), "/a?DROP TABLE x;");
    }
}
