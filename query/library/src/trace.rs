//! The traces of a query: directories, given one by one or by a pattern, and those of lakes.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::Hash;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use perfquet_cli::glob_matches;
use perfquet_trace::lake::Address;
use perfquet_trace::recorded::{Recorded, is_of_recording};
use perfquet_trace::remote::is_url;
use perfquet_trace::store::{
    ARCHIVE_ENDING, Archive, ColumnSchema, Directory, FILE_NAME, JOURNAL, Part, Root, Source,
    State, TableEntry, TableSchema,
};

use crate::align::{self, Clock, Method, Placement};
use crate::published::Published;
use crate::remote;
use crate::unit::in_fitting_unit;

/// One trace directory with its manifest.
#[derive(Debug)]
pub struct Trace {
    /// Name in the column `trace`: the directory's, without `.pqt`; with its parents if not unique.
    pub name: String,
    /// Offset added to the IDs of its stacks, frames, calls and aggregates, so that they are unique among several traces. 0 for
    /// the first trace.
    pub id_offset: i64,
    /// What opens it: its directory, or `lake:DIR?trace=NAME`.
    pub path: PathBuf,
    /// What the paths of its parts begin in.
    pub(crate) root: Root,
    /// Its own name and that in the lake, if it is in a lake.
    pub(crate) published: Option<(String, String)>,
    /// "recording", "complete" or "recovered".
    pub state: String,
    /// Facts by name, in the manifest's order.
    pub facts: Vec<(String, String)>,
    /// Offset from `time` to nanoseconds since 1970 (UTC).
    pub wall_offset: Option<i64>,
    /// Its place on the timeline of the first of the opened traces; `None` if their clocks are not known to be related.
    pub placement: Option<Placement>,
    /// The inputs.
    pub sources: Vec<Source>,
    /// Tables in the order of the manifest.
    pub tables: Vec<TraceTable>,
}

/// Upper bound of the IDs of one trace: those of several traces stay distinct and readable.
pub(crate) const ID_STRIDE: i64 = 1_000_000_000_000;

/// A table of one trace.
#[derive(Debug)]
pub struct TraceTable {
    /// Name, columns, and what they mean.
    pub schema: Arc<TableSchema>,
    /// The columns of each form. Only events whose fields changed have more than one.
    pub forms: Vec<Arc<Vec<ColumnSchema>>>,
    /// How a lake stores each form; empty for a trace directory.
    pub(crate) published: Vec<Arc<Published>>,
    /// Its files.
    pub parts: Vec<TracePart>,
}

/// One Parquet file of a table.
#[derive(Debug)]
pub struct TracePart {
    /// Its entry in the manifest.
    pub entry: Part,
    /// Index of its form in the table.
    pub form: usize,
}

impl TracePart {
    /// First and last time in the part.
    pub fn time(&self) -> Option<(i64, i64)> {
        self.entry.time_min.zip(self.entry.time_max)
    }
}

impl Trace {
    /// Returns a table by its name in the manifest: "samples", "events/sched/sched_switch".
    pub fn table(&self, name: &str) -> Option<&TraceTable> {
        self.tables.iter().find(|table| table.schema.name == name)
    }

    /// What it says of its clock.
    pub fn clock(&self) -> Clock<'_> {
        Clock {
            trace: &self.name,
            facts: &self.facts,
            wall_offset: self.wall_offset,
            start: self.time_range().map(|(start, _)| start),
        }
    }

    /// Returns a fact by its name.
    pub fn fact(&self, name: &str) -> Option<&str> {
        align::fact(&self.facts, name)
    }

    /// Whether the events of some threads only were recorded, as its recorder or perf's command line says.
    pub fn is_of_threads(&self) -> bool {
        crate::passes::is_of_threads(&self.facts)
    }

    /// Whether the events of some CPUs only were recorded, as its recorder or perf's command line says.
    pub fn is_of_some_cpus(&self) -> bool {
        crate::passes::is_of_some_cpus(&self.facts)
    }

    /// First and last time of any event, and of the printouts of aggregates.
    pub fn time_range(&self) -> Option<(i64, i64)> {
        let tables = self.tables.iter();
        let tables = tables.filter(|table| is_of_recording(&table.schema.name));
        let ranges = tables.filter_map(TraceTable::time_range);
        ranges.reduce(|all, next| (all.0.min(next.0), all.1.max(next.1)))
    }

    /// When it was recorded: as its recorder says, or else from the first to the last event. `None` if no two times are known, or only
    /// those of the recorder's notes from its start.
    pub fn recorded(&self) -> Option<Recorded> {
        let tables = self.tables.iter();
        let tables = tables.map(|table| (table.schema.name.as_str(), table.time_range()));
        Recorded::of_tables(|name| self.fact(name), tables)
    }

    /// How long was recorded, as of [`Trace::recorded`].
    pub fn length(&self) -> Option<i64> {
        Some(self.recorded()?.length())
    }

    /// Its path, and all that says whether its content is still the same: the tables of its manifest, and size, times and number
    /// of each file.
    ///
    /// # Errors
    ///
    /// A file is missing.
    pub fn identity(&self) -> std::io::Result<(String, String)> {
        let version = match &self.root {
            Root::Directory(_) => None,
            // Its manifest has the sizes of its parts.
            Root::Remote(_) => Some(""),
            Root::Archive(archive) => archive.version(),
        };
        let root = match version {
            Some(_) => self.root.path().to_owned(),
            None => std::fs::canonicalize(self.root.path())?,
        };
        let path = format!("{:?} {:?}", root, self.published);
        let mut files = BTreeSet::from([root.clone()]);
        let mut text = format!("{} {:?} {:?}\n", self.state, self.facts, self.wall_offset);
        for table in &self.tables {
            text.push_str(&format!("{:?}\n", table.schema));
            for part in &table.parts {
                text.push_str(&format!("{:?} {}\n", part.entry, part.form));
                if let Root::Directory(_) = self.root {
                    files.insert(root.join(&part.entry.file));
                }
            }
        }
        if let Some(version) = version {
            text.push_str(version);
            files.clear();
        }
        for file in files {
            let found = std::fs::metadata(&file)?;
            if found.is_dir() {
                // Files may come and go beside those of the trace.
                continue;
            }
            text.push_str(&format!(
                "{file:?} {} {} {} {:?} {} {}\n",
                found.dev(),
                found.ino(),
                found.len(),
                found.modified()?,
                found.ctime(),
                found.ctime_nsec(),
            ));
        }
        Ok((path, text))
    }

    /// Whether its writer has finished.
    pub fn is_complete(&self) -> bool {
        self.state != State::Recording.as_str()
    }

    /// Returns a note about what an incomplete trace lacks; `None` if the trace is complete.
    pub fn incompleteness(&self) -> Option<String> {
        let path = self.path.display();
        if self.is_complete() {
            let all = perfquet_trace::tables::all().into_iter();
            let missing = all.filter(|schema| self.table(&schema.name).is_none());
            let missing: Vec<String> = missing.map(|schema| schema.name).collect();
            return (!missing.is_empty()).then(|| {
                format!(
                    "{path}: missing and treated as empty: {}",
                    missing.join(", ")
                )
            });
        }
        let names = perfquet_trace::tables::all()
            .into_iter()
            .map(|schema| schema.name);
        let is_empty = |name: &String| self.table(name).is_none_or(|table| table.parts.is_empty());
        let missing: Vec<String> = names.filter(is_empty).collect();
        let missing = match missing.is_empty() {
            true => String::new(),
            false => format!("; not written yet: {}", missing.join(", ")),
        };
        let length = self.time_range().map(|(start, end)| {
            let length = in_fitting_unit(end.saturating_sub(start) as f64);
            format!(", up to {length} after the first event")
        });
        Some(format!(
            "{path}: incomplete: still being written, or its writer was killed; reading complete parts \
             only{}{missing}\nhint: after a killed recording, run: perfquet-convert {path}",
            length.unwrap_or_default()
        ))
    }

    fn of(directory: &Directory, path: PathBuf, shared: &mut Shared) -> Trace {
        let manifest = directory.manifest();
        let mut table = |(name, table): (&str, &TableEntry)| {
            let (mut forms, mut published, mut parts) = (Vec::new(), Vec::new(), Vec::new());
            for (form, of_form) in table.forms().into_iter().enumerate() {
                let Some(first) = of_form.first() else {
                    continue;
                };
                let columns = table.columns_of(first);
                if first.range.is_some() {
                    let columns = Published::of(first, &columns);
                    published.push(Shared::once(&mut shared.published, columns));
                }
                forms.push(Shared::once(&mut shared.forms, columns));
                parts.extend(of_form.into_iter().map(|part| TracePart {
                    entry: part.clone(),
                    form,
                }));
            }
            TraceTable {
                schema: Shared::once(&mut shared.schemas, table.schema(name)),
                forms,
                published,
                parts,
            }
        };
        Trace {
            name: String::new(),
            id_offset: 0,
            path,
            root: directory.root().clone(),
            published: None,
            state: manifest.state.as_str().to_owned(),
            facts: manifest.facts.by_name(),
            sources: manifest.facts.sources.clone(),
            wall_offset: manifest.facts.wall_offset,
            placement: None,
            tables: directory.tables().map(&mut table).collect(),
        }
    }
}

/// Declarations, which most traces have in common, once in memory.
#[derive(Default)]
struct Shared {
    schemas: HashSet<Arc<TableSchema>>,
    forms: HashSet<Arc<Vec<ColumnSchema>>>,
    published: HashSet<Arc<Published>>,
}

impl Shared {
    fn once<T: Hash + Eq>(known: &mut HashSet<Arc<T>>, value: T) -> Arc<T> {
        if let Some(known) = known.get(&value) {
            return Arc::clone(known);
        }
        let value = Arc::new(value);
        known.insert(Arc::clone(&value));
        value
    }
}

impl TraceTable {
    /// Whether this is the table of an event type, below `events/`.
    pub fn is_event(&self) -> bool {
        self.schema.name.starts_with("events/")
    }

    /// First and last time of its rows.
    pub fn time_range(&self) -> Option<(i64, i64)> {
        let ranges = self.parts.iter().filter_map(TracePart::time);
        ranges.reduce(|all, next| (all.0.min(next.0), all.1.max(next.1)))
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        let rows = self.parts.iter().map(|part| part.entry.rows);
        rows.fold(0, u64::saturating_add)
    }

    /// Size of its files in bytes.
    pub fn bytes(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| part.entry.bytes);
        bytes.fold(0, u64::saturating_add)
    }
}

/// Opened traces: their manifests, without their rows.
#[derive(Debug, Clone)]
pub struct Traces {
    each: Arc<Vec<Trace>>,
    repeated: Vec<PathBuf>,
    notes: Vec<String>,
}

impl Traces {
    /// Opens every trace that matches `patterns`. The path of a directory is used literally; otherwise `*`, `?` and `[…]`
    /// are expanded, so a quoted pattern is equivalent to one expanded by the shell. `lake:DIR?host=h0*&date=2026-11-2*` opens the traces of a
    /// lake whose host and date match; `host` and `date` are optional, and `trace` selects by name. Traces and lakes may be in object stores and
    /// behind HTTP: `s3://bucket/*.pqt`, `https://host/a.pqtz`, `lake:s3://bucket/lake`; this function waits for their manifests. A file `*.align.json` opens the traces of
    /// an alignment, with their placements; it must be the first of `patterns`.
    ///
    /// # Errors
    ///
    /// A path is no trace, a pattern matches none, or a manifest is unreadable.
    pub fn open(patterns: &[impl AsRef<Path>]) -> Result<Traces> {
        perfquet_remote::install();
        let mut traces = Vec::new();
        let mut opened = HashSet::new();
        let (mut repeated, mut notes) = (Vec::new(), Vec::new());
        let mut shared = Shared::default();
        let mut placements = Vec::new();
        let mut all: Vec<PathBuf> = Vec::new();
        for (number, pattern) in patterns.iter().enumerate() {
            let pattern = pattern.as_ref();
            if !align::file::is_alignment(pattern) {
                all.push(pattern.to_owned());
                continue;
            }
            if number > 0 {
                bail!(
                    "{}: only the first trace may be an alignment: it determines the timeline",
                    pattern.display()
                );
            }
            placements = align::file::read(pattern)?;
            if let Some((nested, _)) = placements
                .iter()
                .find(|(path, _)| align::file::is_alignment(path))
            {
                bail!(
                    "{}: expected traces, found another alignment: {}",
                    pattern.display(),
                    nested.display()
                );
            }
            all.extend(placements.iter().map(|(path, _)| path.clone()));
        }
        for pattern in &all {
            if let Some(address) = Address::parse(pattern, glob_matches) {
                let address = address?;
                notes.extend(address.open(|record, directory| {
                    let path = address.path_of(&record.trace);
                    if !opened.insert(directory.path().join(&record.trace)) {
                        repeated.push(path);
                        return;
                    }
                    let mut trace = Trace::of(&directory, path, &mut shared);
                    trace.published = Some((record.name, record.trace));
                    traces.push(trace);
                })?);
                continue;
            }
            for path in matching(pattern)? {
                let place = path.canonicalize().unwrap_or_else(|_| path.clone());
                match opened.insert(place) {
                    true => {
                        let directory = Directory::open(&path)?;
                        traces.push(Trace::of(&directory, path, &mut shared));
                    }
                    // Otherwise its rows would count twice.
                    false => repeated.push(path),
                }
            }
        }
        name_all(&mut traces);
        for (number, trace) in traces.iter_mut().enumerate() {
            trace.id_offset = ID_STRIDE.saturating_mul(number as i64);
            let placed = placements.iter().find(|(path, _)| *path == trace.path);
            trace.placement = placed.and_then(|(_, placement)| *placement);
        }
        place(&mut traces);
        Ok(Traces {
            each: Arc::new(traces),
            repeated,
            notes,
        })
    }

    /// Returns messages about incomplete traces, about traces given twice, and about what of a lake is left out.
    pub fn notes(&self) -> Vec<String> {
        let repeated = self.repeated.iter();
        let repeated = repeated.map(|path| format!("{}: given twice, opened once", path.display()));
        let incomplete = self.each.iter().filter_map(Trace::incompleteness);
        let lakes = self.notes.iter().cloned();
        repeated.chain(lakes).chain(incomplete).collect()
    }

    /// Gives the only trace a place on a timeline.
    pub(crate) fn placed(mut self, placement: Option<Placement>) -> Traces {
        if let Some([trace]) = Arc::get_mut(&mut self.each).map(Vec::as_mut_slice) {
            trace.placement = placement;
        }
        self
    }

    pub(crate) fn shared(&self) -> Arc<Vec<Trace>> {
        Arc::clone(&self.each)
    }
}

impl std::ops::Deref for Traces {
    type Target = [Trace];

    fn deref(&self) -> &[Trace] {
        &self.each
    }
}

/// Places traces on the timeline of the first by what they say of their clocks. Traces that have a place keep it.
fn place(traces: &mut [Trace]) {
    let Some((reference, others)) = traces.split_first_mut() else {
        return;
    };
    reference
        .placement
        .get_or_insert(Placement::shifted(0, Method::Reference, Some(0)));
    for trace in others.iter_mut().filter(|trace| trace.placement.is_none()) {
        trace.placement = align::by_facts(&reference.clock(), &trace.clock()).ok();
    }
}

/// Gives every trace the shortest unique name.
fn name_all(traces: &mut [Trace]) {
    let parts = |trace: &Trace, count: usize| {
        if let Some((own, in_lake)) = &trace.published {
            return if count == 1 { own } else { in_lake }.clone();
        }
        let parts: Vec<_> = trace
            .path
            .components()
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        let name = parts[parts.len().saturating_sub(count)..].join("/");
        let endings = [".pqt", ARCHIVE_ENDING].into_iter();
        let stem = endings
            .filter_map(|ending| name.strip_suffix(ending))
            .next();
        stem.unwrap_or(&name).to_owned()
    };
    let mut pending: Vec<usize> = (0..traces.len()).collect();
    for count in 1..=32 {
        let mut names: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for &index in &pending {
            let name = parts(&traces[index], count);
            traces[index].name.clone_from(&name);
            names.entry(name).or_default().push(index);
        }
        pending = names
            .into_values()
            .filter(|same| same.len() > 1)
            .flatten()
            .collect();
    }
    // The remaining patterns are several spellings of one name.
    for (number, &index) in pending.iter().enumerate() {
        let name = format!("{}#{}", traces[index].name, number + 1);
        traces[index].name = name;
    }
}

/// Expands a path or pattern to trace directories, sorted by path; the address of a lake to those of its traces.
pub fn matching(pattern: &Path) -> Result<Vec<PathBuf>> {
    perfquet_remote::install();
    if let Some(address) = Address::parse(pattern, glob_matches) {
        let address = address?;
        let names = address.names()?.into_iter();
        return Ok(names.map(|name| address.path_of(&name)).collect());
    }
    if is_remote(pattern) {
        return remote::matching(pattern);
    }
    if is_trace(pattern) {
        return Ok(vec![pattern.to_owned()]);
    }
    if align::file::is_alignment(pattern) {
        let traces = align::file::read(pattern)?;
        return Ok(traces.into_iter().map(|(path, _)| path).collect());
    }
    if pattern.exists() {
        if pattern.is_dir() && pattern.join(JOURNAL).is_dir() {
            bail!(
                "{0}: incomplete recording\nhint: complete it with: perfquet-convert {0}",
                pattern.display()
            );
        }
        if pattern.is_dir() {
            bail!(
                "{0}: expected a trace directory, found no {FILE_NAME}\nhint: to open the traces inside, use '{0}/*.pqt'",
                pattern.display()
            );
        }
        bail!(
            "{0}: expected a trace directory, found a file\nhint: import it with: perfquet-convert {0} -o {1}.pqt",
            pattern.display(),
            pattern.with_extension("").display()
        );
    }
    let is_pattern = |text: &str| text.contains(['*', '?', '[']);
    if !is_pattern(&pattern.to_string_lossy()) {
        bail!("{}: no such trace", pattern.display());
    }
    let mut found = vec![PathBuf::new()];
    for part in pattern.components() {
        let text = part.as_os_str().to_string_lossy();
        if !is_pattern(&text) {
            found.iter_mut().for_each(|path| path.push(part));
            continue;
        }
        let mut next = Vec::new();
        for path in &found {
            let folder = if path.as_os_str().is_empty() {
                Path::new(".")
            } else {
                path
            };
            let Ok(entries) = std::fs::read_dir(folder) else {
                continue;
            };
            for entry in entries.flatten() {
                if remote::is_match(&text, &entry.file_name().to_string_lossy()) {
                    next.push(path.join(entry.file_name()));
                }
            }
        }
        found = next;
    }
    found.retain(|path| is_trace(path));
    found.sort();
    if found.is_empty() {
        bail!("{}: no matching traces", pattern.display());
    }
    Ok(found)
}

fn is_remote(path: &Path) -> bool {
    path.to_str().is_some_and(is_url)
}

/// Whether this is a trace directory or an archive.
fn is_trace(path: &Path) -> bool {
    path.join(FILE_NAME).exists() || (path.is_file() && Archive::is_archive(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use perfquet_trace::recorded::{KnownBy, RANGES};

    /// A table without rows but with times.
    fn table(name: &str, time: Option<(i64, i64)>) -> TraceTable {
        let entry = Part {
            file: "part-0.parquet".to_owned(),
            rows: 1,
            bytes: 1,
            sorted: true,
            time_min: time.map(|time| time.0),
            time_max: time.map(|time| time.1),
            time_nulls: Some(0),
            columns: Vec::new(),
            range: None,
        };
        let mut schema = perfquet_trace::tables::all().remove(0);
        schema.name = name.to_owned();
        TraceTable {
            schema: Arc::new(schema),
            forms: Vec::new(),
            published: Vec::new(),
            parts: vec![TracePart { entry, form: 0 }],
        }
    }

    fn trace(tables: Vec<TraceTable>) -> Trace {
        Trace {
            name: "a".to_owned(),
            id_offset: 0,
            path: PathBuf::from("a.pqt"),
            root: Root::Directory(Path::new("a.pqt").into()),
            published: None,
            state: "complete".to_owned(),
            facts: Vec::new(),
            wall_offset: None,
            placement: None,
            sources: Vec::new(),
            tables,
        }
    }

    #[test]
    fn aggregates_and_notes_of_the_recorder_do_not_make_a_short_recording() {
        let notes = || table("events/perf/namespaces", Some((100, 106)));
        let length = |tables: Vec<TraceTable>| trace(tables).length();
        assert_eq!(length(vec![]), None);
        assert_eq!(length(vec![notes()]), None);
        assert_eq!(length(vec![notes(), table("aggregates", None)]), None);
        let printed = table("aggregates", Some((1_100, 1_100)));
        assert_eq!(length(vec![notes(), printed]), Some(1_000));
        let threads = table("threads", Some((0, 90)));
        assert_eq!(length(vec![notes(), threads]), None);
        assert_eq!(length(vec![table("samples", Some((5, 5)))]), None);
        assert_eq!(
            length(vec![notes(), table("samples", Some((5, 50)))]),
            Some(101)
        );
    }

    #[test]
    fn a_recording_is_as_long_as_its_recorder_says() {
        let mut trace = trace(vec![table("samples", Some((5, 50)))]);
        let events = trace.recorded().unwrap();
        assert_eq!((events.length(), events.known_by), (45, KnownBy::Events));
        trace.facts = vec![(RANGES.to_owned(), "0..60 80..1000".to_owned())];
        let recorded = trace.recorded().unwrap();
        assert_eq!(
            (recorded.length(), recorded.known_by),
            (980, KnownBy::Recorder)
        );
        assert_eq!(
            (trace.length(), trace.time_range()),
            (Some(980), Some((5, 50)))
        );
    }
}
