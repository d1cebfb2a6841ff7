//! `--to lake`: traces of a fleet as one directory of Parquet files, the table above its partitions.
//!
//! ```text
//! LAKE/samples/date=2026-11-22/host=h001/perf-1f0c6a….parquet
//! LAKE/events/sched/sched_switch/date=2026-11-22/host=h001/perf-1f0c6a….parquet
//! LAKE/traces/date=2026-11-22/host=h001/perf-1f0c6a….parquet          one row per trace, written last
//! ```
//! Every row has `trace`, `host` (in the path or in the file) and, with a time, `wall_time`. Files are rewritten, never linked:
//! those of a trace lack these columns, have types that differ by kernel, and columns that share bytes, which DuckDB rejects
//! in remote files. A table without rows has no file.
//!
//! A trace has a name by what was recorded. Publishing it again changes nothing; if it has been symbolized since, its files
//! are replaced.

mod columns;
mod compact;
mod description;
mod files;
mod merge;
mod partition;
mod store;
mod summaries;
#[cfg(test)]
mod summary_tests;
mod tables;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use arrow_schema::SchemaRef;
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::lake::{Change, Entry, EntryRows, MANIFESTS, Record, is_shared};
use perfquet_trace::remote::is_url;
use perfquet_trace::store::{ARCHIVE_ENDING, Directory, Manifest, folder_of};
use perfquet_trace::tables as declared;

pub(crate) use partition::Partition;

use super::{Exporter, Output};
use columns::Columns;
pub(super) use columns::{DATE, HOST};
use description::PublishedTable;
use files::{Lake, Stage};
use partition::Place;
pub(super) use store::administration;

/// `--to lake`
pub(super) const EXPORTER: Exporter = Exporter {
    name: "lake",
    about: "Parquet files by table, date and host, for the traces of a fleet, in a directory or object store",
    output: Output::Lake,
};

/// The table with a row per trace.
pub(super) const TRACES: &str = "traces";
/// Part of the checksum of a trace: a lake is rewritten when files are written differently.
const FORM: &str = "2";

/// What an export to a lake did.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) published: u64,
    pub(crate) unchanged: u64,
    pub(crate) removed: u64,
    pub(crate) files: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    /// Files that were merged.
    pub(crate) merged: u64,
    /// Files that they became.
    pub(crate) merged_into: u64,
    /// Files that could not be merged, as their columns differ in type.
    pub(crate) unmerged: u64,
    /// Partitions that another process changed at the same time.
    pub(crate) busy: u64,
    /// Traces older than `--retain` that a store keeps: their files have rows of others, or another process changed them.
    pub(crate) kept: u64,
    /// Files of killed writers that were removed from a store.
    pub(crate) abandoned: u64,
    /// Traces of a lake with summaries that have none, as they were published before.
    pub(crate) unsummarized: u64,
    /// Tables that no lake can have.
    pub(crate) omitted: Vec<String>,
}

impl Summary {
    /// `2 traces published, 1 trace unchanged, 52 files, 1,200 rows`
    pub(crate) fn sentence(&self) -> String {
        let mut parts = vec![format!("{} published", counted(self.published, "trace"))];
        if self.merged > 0 {
            let merged = counted(self.merged, "file");
            parts.push(format!(
                "{merged} merged into {}",
                grouped(self.merged_into)
            ));
        }
        if self.unmerged > 0 {
            let files = counted(self.unmerged, "file");
            parts.push(format!("{files} not merged, as types of columns differ"));
        }
        if self.busy > 0 {
            let partitions = counted(self.busy, "partition");
            parts.push(format!("{partitions} skipped, changed by another process"));
        }
        if self.unchanged > 0 {
            parts.push(format!("{} unchanged", counted(self.unchanged, "trace")));
        }
        if self.removed > 0 {
            parts.push(format!("{} removed", counted(self.removed, "trace")));
        }
        if self.kept > 0 {
            let traces = counted(self.kept, "trace");
            parts.push(format!(
                "{traces} kept, merged or changed by another process"
            ));
        }
        if self.abandoned > 0 {
            let files = counted(self.abandoned, "file");
            parts.push(format!("{files} of killed writers removed"));
        }
        if self.files > 0 {
            parts.push(counted(self.files, "file"));
        }
        if self.rows > 0 {
            parts.push(counted(self.rows, "row"));
        }
        parts.join(", ")
    }
}

/// What an export to a lake does beside publishing traces.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Options<'o> {
    /// Keys and values; by default, the keys of the lake.
    pub(crate) partition: Option<&'o Partition>,
    /// Traces recorded before the last days are removed.
    pub(crate) retain: Option<Duration>,
    /// Small files are merged.
    pub(crate) compact: bool,
    /// Summaries are written from now on; a lake that has them keeps them without this, too.
    pub(crate) summaries: bool,
}

/// Publishes complete traces in a lake, one after the other, then removes those recorded before the last `retain`, and merges small files.
pub(crate) fn publish(traces: &[&Path], lake: &Path, options: Options<'_>) -> Result<Summary> {
    if let Some(url) = lake.to_str().filter(|text| is_url(text)) {
        return store::publish(traces, url, options);
    }
    let lake = Lake::open(lake, options.partition, options.summaries)?;
    // The lake stores the keys of its partition, not their values.
    let partition = options.partition.unwrap_or(&lake.partition);
    let mut summary = Summary::default();
    for trace in traces {
        publish_trace(trace, &lake, partition, &mut summary)?;
    }
    if let Some(retain) = options.retain {
        summary.removed = remove_before(&lake, &first_date(retain)?)?;
    }
    if options.compact {
        compact::compact(&lake, &mut summary)?;
    }
    if options.summaries {
        let records = lake.lock()?.records()?;
        let without = records.iter().filter(|record| !record.summaries);
        summary.unsummarized = without.count() as u64;
    }
    Ok(summary)
}

/// The first date of the last `retain`.
fn first_date(retain: Duration) -> Result<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let days = now.saturating_sub(retain).as_secs() / 86_400;
    Ok(partition::date_of(i64::try_from(days)?))
}

/// A trace to publish.
struct Plan {
    place: Place,
    /// Its own name.
    name: String,
    /// Its name in the lake.
    id: String,
    /// Checksum of the published content.
    content: String,
}

impl Plan {
    fn new(
        path: &Path,
        trace: &Directory,
        partition: &Partition,
        has_summaries: bool,
    ) -> Result<Plan> {
        let manifest = trace.manifest();
        let place = partition.place(&path.display().to_string(), manifest)?;
        let name = name_of(path)?;
        let id = identity(&name, manifest)?;
        let manifest = serde_json::to_string(manifest)?;
        let words = [FORM, &place.folder, &manifest].into_iter();
        let content = checksum(words.chain(has_summaries.then_some(summaries::FORM)));
        Ok(Plan {
            place,
            name,
            id,
            content: format!("{content:016x}"),
        })
    }
}

fn publish_trace(
    path: &Path,
    lake: &Lake,
    partition: &Partition,
    summary: &mut Summary,
) -> Result<()> {
    let trace = Directory::open(path)?;
    let manifest = trace.manifest();
    let shown = path.display().to_string();
    let Plan {
        place,
        name,
        id,
        content,
    } = Plan::new(path, &trace, partition, lake.summaries)?;
    let is_published = |record: &Record| record.content == content && lake.is_whole(record);
    if lake.record(&id)?.as_ref().is_some_and(is_published) {
        summary.unchanged += 1;
        return Ok(());
    }
    let host = place.host.as_deref().filter(|_| !partition.has(HOST));
    let mut stage = lake.stage()?;
    crate::interrupt::remove_when_interrupted(stage.path())?;
    let mut files = Files::new(&stage, &place.folder, &id);
    let (tables, omitted) = tables_of(&trace);
    summary.omitted.extend(omitted.iter().cloned());
    let facts = &manifest.facts;
    let mut published = Vec::new();
    for (table, _) in &tables {
        let entry = trace.table(table).context("a table of the manifest")?;
        let schema = entry.schema(table);
        let columns = Columns::new(table, &schema.columns, &id, host, facts.wall_offset);
        let metadata = tables::metadata(&id, table, facts, &schema.columns);
        let written = tables::write(&trace, table, &columns, metadata, &files.next());
        let written = written.with_context(|| format!("{shown}: table {table}"))?;
        published.push(files.add(table, written, columns.renamed())?);
    }
    let mut summarized = Vec::new();
    if lake.summaries {
        for table in summaries::of(&trace).with_context(|| format!("{shown}: summaries"))? {
            let (name, declared) = (&table.schema.name, &table.schema.columns);
            let columns = Columns::new(name, declared, &id, host, None);
            let metadata = tables::metadata(&id, name, facts, declared);
            tables::write_summary(&table, &columns, metadata, &files.next())?;
            let file = files.add(name, table.rows(), columns.renamed())?;
            summarized.push((table.schema, file));
        }
    }
    let row = tables::trace_row(&trace, &id, &name, host, lake.summaries)?;
    tables::write_trace_row(&trace, &id, &row, &files.next())?;
    files.add(TRACES, 1, Vec::new())?;
    let mut description = description::manifest(manifest, &place, &published, &omitted);
    if lake.summaries {
        description::add_summaries(&mut description, summarized);
    }
    let (rows, bytes) = (files.rows, files.bytes);
    let (change, entries) = files.described(&description)?;
    let count = entries.len();
    let record = Record {
        trace: id,
        name,
        content,
        date: place.date,
        host: place.host,
        files: entries,
        summaries: lake.summaries,
        claim: None,
        leftover: Vec::new(),
    };
    if !commit(lake, record, change, &mut stage, count)? {
        summary.unchanged += 1;
        return Ok(());
    }
    summary.published += 1;
    summary.files += count as u64 - 1;
    summary.rows += rows;
    summary.bytes += bytes;
    Ok(())
}

/// The files of a trace that is being published.
struct Files<'s> {
    stage: &'s Stage,
    /// Folders of the partition.
    place: &'s str,
    trace: &'s str,
    change: Change,
    entries: Vec<Entry>,
    rows: u64,
    bytes: u64,
}

impl<'s> Files<'s> {
    fn new(stage: &'s Stage, place: &'s str, trace: &'s str) -> Files<'s> {
        Files {
            stage,
            place,
            trace,
            change: Change::default(),
            entries: Vec::new(),
            rows: 0,
            bytes: 0,
        }
    }

    /// The path of the next file.
    fn next(&self) -> PathBuf {
        self.stage.file(self.entries.len()).0
    }

    /// Adds the next file, which has been written.
    fn add(
        &mut self,
        table: &str,
        rows: u64,
        renamed: Vec<(String, String)>,
    ) -> Result<PublishedTable> {
        let (staged, from) = self.stage.file(self.entries.len());
        let bytes = staged.metadata()?.len();
        let folder = folder_of(table);
        let path = format!("{folder}/{}/{}.parquet", self.place, self.trace);
        self.change.moves.push((from, path.clone()));
        self.entries.push(Entry {
            path: path.clone(),
            bytes,
            rows: Some(EntryRows {
                first: 0,
                count: rows,
            }),
        });
        self.rows += rows;
        self.bytes += bytes;
        Ok(PublishedTable {
            name: table.to_owned(),
            path,
            rows,
            bytes,
            renamed,
        })
    }

    /// Writes the manifest, which comes first. Returns the change, and all files.
    fn described(mut self, manifest: &Manifest) -> Result<(Change, Vec<Entry>)> {
        let (staged, from) = self.stage.file(self.entries.len());
        let bytes = description::write(manifest, &staged)?;
        let path = format!("{MANIFESTS}/{}.json", self.trace);
        self.change.moves.insert(0, (from, path.clone()));
        let described = Entry {
            path,
            bytes,
            rows: None,
        };
        self.entries.insert(0, described);
        Ok((self.change, self.entries))
    }
}

/// Adds the staged files of a trace to a lake in place of its former ones; `next_file` is the number of the next staged file.
/// Returns `false` if another process has published the same trace in the meantime.
fn commit(
    lake: &Lake,
    record: Record,
    mut change: Change,
    stage: &mut Stage,
    next_file: usize,
) -> Result<bool> {
    let locked = lake.lock()?;
    let former = lake.record(&record.trace)?;
    if former
        .as_ref()
        .is_some_and(|former| former.content == record.content && lake.is_whole(former))
    {
        return Ok(false);
    }
    let is_replaced = |entry: &Entry| record.files.iter().any(|new| new.path == entry.path);
    let former: Vec<Record> = former.into_iter().collect();
    let entries = former.iter().flat_map(|former| &former.files);
    let entries = entries.filter(|entry| !is_replaced(entry) && !is_shared(&entry.path));
    change.deletes = entries.map(|entry| entry.path.clone()).collect();
    compact::detach(lake, &locked, stage, next_file, &former, &mut change)?;
    change.records.push(record);
    locked.commit(&change, Some(stage))?;
    Ok(true)
}

/// The tables with rows and their folders in a lake: what others refer to comes first.
/// Also returns the tables that no lake can have.
fn tables_of(trace: &Directory) -> (Vec<(String, String)>, Vec<String>) {
    let fixed = declared::declared();
    let (mut found, mut omitted) = (Vec::new(), Vec::new());
    for (name, table) in trace.tables().filter(|(_, table)| table.rows() > 0) {
        let folder = folder_of(name);
        let is_fixed = fixed.iter().any(|schema| schema.name == name);
        // No event's folder may be above that of another.
        let is_event = name.starts_with("events/") && folder.split('/').count() == 3;
        match is_fixed || is_event {
            true => found.push((name.to_owned(), folder)),
            false => omitted.push(name.to_owned()),
        }
        log::debug!("{name}: {} rows", table.rows());
    }
    let has_rows_in_time = |name: &str| {
        name == declared::samples::NAME
            || name == declared::calls::NAME
            || name.starts_with("events/")
    };
    found.sort_by_key(|(name, _)| has_rows_in_time(name));
    (found, omitted)
}

/// Tables of a trace of a lake: name, folder, columns of its files. `keys` are those of the lake's partition.
pub(super) fn published(
    record: &Record,
    trace: &Directory,
    keys: &[String],
) -> Result<Vec<(String, String, SchemaRef)>> {
    let host = record.host.as_deref();
    let host = host.filter(|_| !keys.iter().any(|key| key == HOST));
    let (tables, _) = tables_of(trace);
    let mut found = Vec::new();
    for (table, folder) in tables {
        let entry = trace.table(&table).context("a table of the manifest")?;
        let columns = entry.schema(&table).columns;
        let columns = Columns::new(&table, &columns, &record.trace, host, None);
        found.push((table, folder, columns.schema));
    }
    let summaries = record.summaries;
    let row = tables::trace_row(trace, &record.trace, &record.name, host, summaries)?;
    found.push((TRACES.to_owned(), TRACES.to_owned(), row.schema()));
    Ok(found)
}

/// Removes the traces recorded before a date. Returns their number.
fn remove_before(lake: &Lake, date: &str) -> Result<u64> {
    let mut stage = lake.stage()?;
    crate::interrupt::remove_when_interrupted(stage.path())?;
    let locked = lake.lock()?;
    let mut change = Change::default();
    let mut gone = locked.records()?;
    gone.retain(|record| {
        record
            .date
            .as_deref()
            .is_some_and(|recorded| recorded < date)
    });
    for record in &gone {
        // The row in `traces` first.
        let files = record.files.iter().rev();
        let own = files.filter(|entry| !is_shared(&entry.path));
        change.deletes.extend(own.map(|entry| entry.path.clone()));
        change.forget.push(record.trace.clone());
    }
    compact::detach(lake, &locked, &stage, 0, &gone, &mut change)?;
    if !change.forget.is_empty() {
        locked.commit(&change, Some(&mut stage))?;
    }
    Ok(change.forget.len() as u64)
}

/// The name of a trace without its ending.
fn name_of(path: &Path) -> Result<String> {
    let path = path
        .canonicalize()
        .with_context(|| format!("cannot open {}", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let endings = [".pqt", ARCHIVE_ENDING].into_iter();
    let stem = endings
        .filter_map(|ending| name.strip_suffix(ending))
        .next();
    Ok(stem.unwrap_or(&name).to_owned())
}

/// The name of a trace in lakes: its own and a checksum of what was recorded. Symbolizing it again does not change it.
fn identity(name: &str, manifest: &Manifest) -> Result<String> {
    let mut recorded = vec![name.to_owned(), serde_json::to_string(&manifest.facts)?];
    for (table, entry) in &manifest.tables {
        if table != declared::frames::NAME {
            let range = entry.time_range();
            recorded.push(format!("{table} {} {range:?}", entry.rows()));
        }
    }
    let checksum = checksum(recorded.iter().map(String::as_str));
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
    let plain = name.chars().take(80);
    let plain: String = plain
        .map(|letter| if is_plain(letter) { letter } else { '_' })
        .collect();
    // Engines skip files whose names begin with `_`, `.`.
    let first = if plain.starts_with('_') { "x" } else { "" };
    Ok(format!("{first}{plain}-{checksum:016x}"))
}

/// FNV-1a of all words: equal in every version and on every host.
fn checksum<'w>(words: impl IntoIterator<Item = &'w str>) -> u64 {
    let bytes = words
        .into_iter()
        .flat_map(|word| word.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
