//! `--compact`: the small files of a table and partition become larger ones.
//!
//! ```text
//! samples/date=2026-11-22/host=h001/a-1f….parquet, b-2c….parquet, …  ─►  samples/date=2026-11-22/host=h001/compact.7d….parquet
//! ```
//! The rows of a trace stay together; its record and its manifest say where they are. A trace that is published again, or removed, leaves such
//! a file: the rows of the others are written to a new one. Within a change the rows of `traces` disappear first and come back last.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::{Context, Result};
use perfquet_trace::lake::{Change, Entry, EntryRows, Record, SHARED, is_shared};
use perfquet_trace::store::{Manifest, PartRange};

use super::files::{Lake, Locked, Stage};
use super::merge::{Slice, merge};
use super::{Summary, TRACES, checksum, description};

/// Files are merged up to about this size: engines read several at once, and each has its own metadata.
const LARGEST: u64 = 256 << 20;

/// Merges the files of each table and partition, one partition after the other.
pub(super) fn compact(lake: &Lake, summary: &mut Summary) -> Result<()> {
    let records = lake.lock()?.records()?;
    let mut partitions: BTreeMap<String, Vec<Record>> = BTreeMap::new();
    for record in records {
        let traces = record.files.last().map(|entry| folder(&entry.path));
        let place = traces.and_then(|folder| folder.strip_prefix(TRACES));
        if let Some(place) = place {
            partitions.entry(place.to_owned()).or_default().push(record);
        }
    }
    for records in partitions.into_values().filter(|records| records.len() > 1) {
        compact_partition(lake, records, summary)?;
    }
    Ok(())
}

fn compact_partition(lake: &Lake, records: Vec<Record>, summary: &mut Summary) -> Result<()> {
    let mut stage = lake.stage()?;
    crate::interrupt::remove_when_interrupted(stage.path())?;
    // Without the lock, so that others can write meanwhile: files that they replace may disappear.
    let merged = merged(lake, &stage, records.clone());
    let locked = lake.lock()?;
    for record in &records {
        // Another process published, removed or compacted it.
        if lake.record(&record.trace)?.as_ref() != Some(record) || !lake.is_whole(record) {
            summary.busy += 1;
            return Ok(());
        }
    }
    let (change, counts) = merged?;
    summary.unmerged += counts.unmerged;
    if change.moves.is_empty() {
        return Ok(());
    }
    locked.commit(&change, Some(&mut stage))?;
    summary.merged += counts.merged;
    summary.merged_into += counts.merged_into;
    summary.bytes += counts.bytes;
    Ok(())
}

/// Merges the files of these traces into files of the stage. Returns the change that publishes these.
fn merged(lake: &Lake, stage: &Stage, records: Vec<Record>) -> Result<(Change, Summary)> {
    let mut counts = Summary::default();
    let mut rewrite = Rewrite::new(lake, stage, records, 0);
    for files in rewrite.tables() {
        for files in bins(files) {
            if !rewrite.replace(&files)? {
                counts.unmerged += files.len() as u64;
            }
        }
    }
    counts.merged = rewrite.merged;
    counts.merged_into = rewrite.into;
    counts.bytes = rewrite.bytes;
    Ok((rewrite.finish()?, counts))
}

/// Groups of files that are merged into one: small ones, in order.
fn bins(files: Vec<(String, u64)>) -> Vec<BTreeSet<String>> {
    let (mut bins, mut size) = (vec![BTreeSet::new()], 0u64);
    for (path, bytes) in files {
        if size > 0 && size.saturating_add(bytes) > LARGEST {
            bins.push(BTreeSet::new());
            size = 0;
        }
        if let Some(bin) = bins.last_mut() {
            bin.insert(path);
        }
        size = size.saturating_add(bytes);
    }
    bins.retain(|bin| bin.len() > 1);
    bins
}

/// Adds what removes these traces from the files that they share with others. `number` is that of the first unused file of the stage.
pub(super) fn detach(
    lake: &Lake,
    locked: &Locked<'_>,
    stage: &Stage,
    number: usize,
    gone: &[Record],
    change: &mut Change,
) -> Result<()> {
    let entries = gone.iter().flat_map(|record| &record.files);
    let shared = entries.filter(|entry| is_shared(&entry.path));
    let shared: BTreeSet<String> = shared.map(|entry| entry.path.clone()).collect();
    if shared.is_empty() {
        return Ok(());
    }
    let mut others = locked.records()?;
    others.retain(|record| gone.iter().all(|gone| gone.trace != record.trace));
    let mut rewrite = Rewrite::new(lake, stage, others, number);
    for path in shared {
        let name = path.clone();
        if !rewrite.replace(&BTreeSet::from([path]))? {
            // No other trace has rows in it.
            change.deletes.push(name);
        }
    }
    let rewritten = rewrite.finish()?;
    change.first.extend(rewritten.first);
    change.moves.extend(rewritten.moves);
    change.records.extend(rewritten.records);
    Ok(())
}

/// Files whose rows get another file.
struct Rewrite<'l> {
    lake: &'l Lake,
    stage: &'l Stage,
    /// Number of the next file of the stage.
    number: usize,
    records: Vec<Record>,
    /// By index of the record and former path.
    moved: HashMap<(usize, String), Moved>,
    /// Files to remove first, that of `traces` before others.
    first: Vec<String>,
    moves: Vec<(String, String)>,
    merged: u64,
    into: u64,
    bytes: u64,
}

/// New place of a trace's rows of a file.
struct Moved {
    path: String,
    former_first: u64,
    range: PartRange,
}

impl<'l> Rewrite<'l> {
    fn new(lake: &'l Lake, stage: &'l Stage, records: Vec<Record>, number: usize) -> Rewrite<'l> {
        Rewrite {
            lake,
            stage,
            number,
            records,
            moved: HashMap::new(),
            first: Vec::new(),
            moves: Vec::new(),
            merged: 0,
            into: 0,
            bytes: 0,
        }
    }

    /// The files of each table, with their sizes, in the order of the traces.
    fn tables(&self) -> Vec<Vec<(String, u64)>> {
        let mut tables: BTreeMap<&str, Vec<(String, u64)>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for entry in self.records.iter().flat_map(|record| &record.files) {
            if entry.rows.is_some() && seen.insert(entry.path.as_str()) {
                let files = tables.entry(folder(&entry.path)).or_default();
                files.push((entry.path.clone(), entry.bytes));
            }
        }
        tables.into_values().collect()
    }

    /// Writes the rows that the traces have in some files of one table to a new file. Returns whether there is one: there is none without
    /// rows, and if their columns do not fit.
    fn replace(&mut self, files: &BTreeSet<String>) -> Result<bool> {
        let mut slices = Vec::new();
        let mut places = Vec::new();
        let mut next = 0;
        for (number, record) in self.records.iter().enumerate() {
            for (index, entry) in record.files.iter().enumerate() {
                let Some(rows) = entry.rows.filter(|_| files.contains(&entry.path)) else {
                    continue;
                };
                slices.push(Slice {
                    path: self.lake.inside(&entry.path)?,
                    rows,
                });
                places.push((number, index, rows, next));
                next += rows.count;
            }
        }
        let Some(&(first, index, ..)) = places.first() else {
            return Ok(false);
        };
        let (staged, from) = self.stage.file(self.number);
        let Some(file_rows) = merge(&slices, &staged)? else {
            return Ok(false);
        };
        self.number += 1;
        let file_bytes = staged.metadata()?.len();
        let words = places.iter().map(|(number, index, ..)| {
            let record = &self.records[*number];
            format!(
                "{} {} {}",
                record.trace, record.content, record.files[*index].path
            )
        });
        let words: Vec<String> = words.collect();
        let name = checksum(words.iter().map(String::as_str));
        let table = folder(&self.records[first].files[index].path).to_owned();
        let path = format!("{table}/{SHARED}{name:016x}.parquet");
        for (number, index, rows, next) in places {
            let entry = &mut self.records[number].files[index];
            let moved = Moved {
                path: path.clone(),
                former_first: rows.first,
                range: PartRange {
                    first_row: next,
                    file_rows,
                    file_bytes,
                },
            };
            self.moved.insert((number, entry.path.clone()), moved);
            *entry = Entry {
                path: path.clone(),
                bytes: file_bytes,
                rows: Some(EntryRows {
                    first: next,
                    count: rows.count,
                }),
            };
        }
        self.merged += files.len() as u64;
        self.into += 1;
        self.bytes += file_bytes;
        let is_traces = table.starts_with(TRACES);
        let place = if is_traces { 0 } else { self.first.len() };
        self.first.splice(place..place, files.iter().cloned());
        let place = if is_traces { self.moves.len() } else { 0 };
        self.moves.insert(place, (from, path));
        Ok(true)
    }

    /// Returns the change, with the records and manifests of all traces whose rows have another place.
    fn finish(mut self) -> Result<Change> {
        let changed: BTreeSet<usize> = self.moved.keys().map(|(number, _)| *number).collect();
        let mut change = Change {
            first: std::mem::take(&mut self.first),
            ..Change::default()
        };
        for number in changed {
            let record = &mut self.records[number];
            let name = record.manifest();
            let manifest: Option<Manifest> = self.lake.read(&name)?;
            let mut manifest =
                manifest.with_context(|| format!("{}: no manifest", record.trace))?;
            for part in manifest
                .tables
                .values_mut()
                .flat_map(|table| &mut table.parts)
            {
                let Some(moved) = self.moved.get(&(number, part.file.clone())) else {
                    continue;
                };
                let former = part.range.map_or(0, |range| range.first_row);
                let inside = former.checked_sub(moved.former_first);
                let inside = inside.with_context(|| format!("{name}: {}", part.file))?;
                part.range = Some(PartRange {
                    first_row: moved.range.first_row + inside,
                    ..moved.range
                });
                let bytes = u128::from(moved.range.file_bytes) * u128::from(part.rows);
                let share = bytes / u128::from(moved.range.file_rows.max(1));
                part.bytes = u64::try_from(share).unwrap_or(moved.range.file_bytes);
                part.file.clone_from(&moved.path);
            }
            let (staged, from) = self.stage.file(self.number);
            self.number += 1;
            let bytes = description::write(&manifest, &staged)?;
            for entry in record.files.iter_mut().filter(|entry| entry.path == name) {
                entry.bytes = bytes;
            }
            // Before the rows of `traces`.
            self.moves.insert(0, (from, name));
            change.records.push(record.clone());
        }
        change.moves = self.moves;
        Ok(change)
    }
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}
