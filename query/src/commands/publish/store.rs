//! A lake in an object store, written by several processes at once, any of which may be killed.
//!
//! ```text
//! record (claim: writer 9a3c…, its files) ─► files, `traces` last ─► record (these files) ─► former files are removed
//! ```
//! Files have the name of their writer, so none is ever replaced. Only the record is, on the condition that it is still the one that was
//! read: a reader sees all former files of a trace, or all new ones. A process that claims a trace which another has claimed removes the
//! files of that one, which can no longer replace the record; if it lives, it waits, and finds the trace published, or starts again.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use perfquet::failure::Misuse;
use perfquet_remote::{Content, Place, Upload, Version};
use perfquet_trace::lake::{
    Claim, HEAD, Head, LOCK, MANIFESTS, OWN, PENDING, RECORDS, Record, VERSION, is_shared,
    is_trace_name,
};
use perfquet_trace::remote::RemotePlace as _;
use perfquet_trace::store::Manifest;
use serde::de::DeserializeOwned;

/// Attempts to publish a trace that others publish at the same time.
const ATTEMPTS: u32 = 8;
/// Attempts in which another writer gets the time to end.
const PATIENT: u32 = 4;
/// Age of a claim, or of a file without a trace, whose writer is gone.
const ABANDONED_S: u64 = 86_400;
/// Age of a claim whose writer gives up, long before others remove its files.
const LATE_S: u64 = 43_200;
/// Records that are read at once.
const AT_ONCE: usize = 1_000;
/// Maximum size of a file of the administration.
const LARGEST: u64 = 256 << 20;

/// What was done.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) published: u64,
    pub(super) unchanged: u64,
    pub(super) removed: u64,
    /// Traces to remove whose files have rows of others, or which another process changed at the same time.
    pub(super) kept: u64,
    /// Files that were uploaded.
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Files of killed writers that were removed.
    pub(super) abandoned: u64,
    /// Files without a trace that may be those of a writer at work.
    pub(super) young: u64,
    /// Files that no lake has.
    pub(super) foreign: u64,
}

/// A lake in an object store.
pub(super) struct Store {
    place: Place,
    /// `None` if there is nothing yet.
    keys: Option<Vec<String>>,
    /// Whether traces are published with summaries.
    summaries: bool,
    /// Traces that had no record.
    unknown: HashSet<String>,
}

impl Store {
    /// Opens a lake, or a place where there is nothing yet.
    pub(super) fn open(url: &str) -> Result<Store> {
        let place = Place::open(url).with_context(|| url.to_owned())?;
        let shown = place.shown().to_owned();
        if !place.is_writable() {
            bail!(Misuse(format!(
                "{shown}: a lake cannot be written over HTTP\nhint: use s3://, gs:// or az://, with the endpoint in the environment"
            )));
        }
        let mut store = Store {
            place,
            keys: None,
            summaries: false,
            unknown: HashSet::new(),
        };
        let Some((head, _)) = store.read::<Head>(HEAD)? else {
            if let Some(found) = store.place.names("")?.first() {
                bail!("{shown}: expected a lake or nothing, found {found}\nhint: use another URL");
            }
            return Ok(store);
        };
        if head.version > VERSION {
            bail!(
                "{shown}: unsupported version {} of a lake; the latest supported version is {VERSION}\nhint: use a newer perfquet",
                head.version
            );
        }
        if store.read::<serde_json::Value>(PENDING)?.is_some() {
            bail!(
                "{shown}: the lake was copied while a process changed it\nhint: copy it again, after perfquet-convert --to lake has completed the change"
            );
        }
        store.keys = Some(head.partition);
        store.summaries = head.summaries;
        Ok(store)
    }

    /// The keys of the partition; `None` if there is no lake yet.
    pub(super) fn keys(&self) -> Option<&[String]> {
        self.keys.as_deref()
    }

    /// Whether traces are published with summaries.
    pub(super) fn has_summaries(&self) -> bool {
        self.summaries
    }

    /// Which of these traces, given by name and checksum, the lake lacks or has in another state.
    pub(super) fn needed(&mut self, traces: &[(String, String)]) -> Result<Vec<bool>> {
        let mut needed = Vec::new();
        for traces in traces.chunks(AT_ONCE) {
            let names: Vec<String> = traces.iter().map(|(trace, _)| record_name(trace)).collect();
            let found = match self.keys {
                Some(_) => self.place.read_all(&names, LARGEST)?,
                None => vec![None; names.len()],
            };
            for (((trace, content), name), text) in traces.iter().zip(&names).zip(found) {
                let Some(text) = text else {
                    self.unknown.insert(trace.clone());
                    needed.push(true);
                    continue;
                };
                let record: Record = self.parsed(name, &text)?;
                let is_current = is_current(&record, content);
                if is_current
                    && !record.leftover.is_empty()
                    && let Some((record, version)) = self.record(trace)?
                {
                    self.remove_former(record, version)?;
                }
                needed.push(!is_current);
            }
        }
        Ok(needed)
    }

    /// Publishes the traces of a lake in a directory.
    pub(super) fn publish(
        &mut self,
        root: &Path,
        records: Vec<Record>,
        change: &mut Change,
    ) -> Result<()> {
        let head: Head = perfquet_trace::lake::read(root, HEAD)?.context(HEAD)?;
        for record in &records {
            if let Some(shared) = record.files.iter().find(|file| is_shared(&file.path)) {
                bail!(
                    "{}: expected files with rows of one trace, found {}, which --compact has merged\nhint: publish the traces themselves: perfquet-convert TRACE... --to lake -o {}",
                    root.display(),
                    shared.path,
                    self.place.shown()
                );
            }
        }
        self.create(head)?;
        for record in records {
            self.publish_trace(root, &record, change)
                .with_context(|| record.trace.clone())?;
        }
        Ok(())
    }

    /// Creates the lake unless it exists. Its keys must be these.
    fn create(&mut self, head: Head) -> Result<()> {
        if self.keys.is_none() {
            let new = Head {
                version: VERSION,
                partition: head.partition.clone(),
                summaries: head.summaries,
            };
            let written = self.place.replace(HEAD, serde_json::to_vec(&new)?, None)?;
            // Another process may have created it.
            let new = match written {
                Some(_) => new,
                None => self.head()?.0,
            };
            self.keys = Some(new.partition);
            self.summaries = new.summaries;
        }
        for _ in 0..ATTEMPTS {
            if self.summaries || !head.summaries {
                break;
            }
            let (known, version) = self.head()?;
            let new = Head {
                summaries: true,
                ..known
            };
            let text = serde_json::to_vec(&new)?;
            self.summaries = self.place.replace(HEAD, text, Some(version))?.is_some();
        }
        match &self.keys {
            Some(keys) if *keys != head.partition => bail!(
                "{}: expected a lake with the keys {}, found {}\nhint: use --partition {} or another URL",
                self.place.shown(),
                keys.join(","),
                head.partition.join(","),
                keys.join(",")
            ),
            _ => Ok(()),
        }
    }

    fn head(&self) -> Result<(Head, Version)> {
        self.read::<Head>(HEAD)?.context("the lake was removed")
    }

    fn publish_trace(&mut self, root: &Path, record: &Record, change: &mut Change) -> Result<()> {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                log::info!("{}: another process publishes it", record.trace);
                thread::sleep(pause(attempt));
            }
            let former = match self.unknown.remove(&record.trace) {
                true => None,
                false => self.record(&record.trace)?,
            };
            let (former, version) = former.unzip();
            if let (Some(former), Some(version)) = (&former, &version)
                && is_current(former, &record.content)
            {
                self.remove_former(former.clone(), version.clone())?;
                change.unchanged += 1;
                return Ok(());
            }
            let is_claimed = former.as_ref().is_some_and(|former| former.claim.is_some());
            if is_claimed && (1..PATIENT).contains(&attempt) {
                continue;
            }
            if self.write_trace(root, record, former, version, change)? {
                return Ok(());
            }
        }
        bail!("other processes publish the same trace again and again\nhint: publish it later")
    }

    /// Returns `false` if another process has claimed the trace in the meantime.
    fn write_trace(
        &mut self,
        root: &Path,
        record: &Record,
        former: Option<Record>,
        version: Option<Version>,
        change: &mut Change,
    ) -> Result<bool> {
        let writer = new_writer();
        let (new, first, last) = self.uploads(root, record, &writer)?;
        let former = former.unwrap_or_else(|| empty(&record.trace));
        let since = now_s();
        let claim = Record {
            claim: Some(Claim {
                writer,
                since,
                files: new.files.iter().map(|file| file.path.clone()).collect(),
            }),
            leftover: Vec::new(),
            ..former.clone()
        };
        let Some(version) = self.write(&claim, version)? else {
            return Ok(false);
        };
        // Their writer cannot replace the record any more.
        change.abandoned += self.remove_abandoned(&former)?;
        self.place.remove(&former.leftover)?;
        let bytes: u64 = new.files.iter().map(|file| file.bytes).sum();
        let count = new.files.len() as u64;
        let sent = self.place.upload(first);
        let sent = sent.and_then(|()| self.place.upload(last));
        if now_s().saturating_sub(since) > LATE_S {
            self.discard(&new);
            bail!("the upload took longer than {} hours", LATE_S / 3600);
        }
        if let Err(error) = sent {
            self.discard(&new);
            return Err(error.into());
        }
        let published = Record {
            leftover: former.files.into_iter().map(|file| file.path).collect(),
            ..new
        };
        let Some(version) = self.write(&published, Some(version))? else {
            self.discard(&published);
            return Ok(false);
        };
        change.published += 1;
        change.files += count;
        change.bytes += bytes;
        self.remove_former(published, version)?;
        Ok(true)
    }

    /// The record of the trace by this writer; the files to write first, and those after them.
    fn uploads(
        &self,
        root: &Path,
        record: &Record,
        writer: &str,
    ) -> Result<(Record, Vec<Upload>, Vec<Upload>)> {
        let manifest_path = record.manifest();
        let manifest: Option<Manifest> = perfquet_trace::lake::read(root, &manifest_path)?;
        let mut manifest = manifest.with_context(|| format!("no {manifest_path}"))?;
        for table in manifest.tables.values_mut() {
            for part in &mut table.parts {
                part.file = renamed(&part.file, writer);
            }
        }
        let mut new = record.clone();
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for file in &mut new.files {
            let is_manifest = file.path == manifest_path;
            let is_traces = file.path.starts_with("traces/");
            let content = match is_manifest {
                true => Content::Text(serde_json::to_vec(&manifest)?),
                false => Content::File(perfquet_trace::lake::inside(root, &file.path)?, file.bytes),
            };
            file.bytes = content.bytes();
            file.path = renamed(&file.path, writer);
            let upload = Upload {
                name: file.path.clone(),
                content,
            };
            match is_traces {
                true => last.push(upload),
                false => first.push(upload),
            }
        }
        Ok((new, first, last))
    }

    /// Removes the files of a failed upload, as far as the server does so. They are in the claim.
    fn discard(&self, record: &Record) {
        let files: Vec<String> = record.files.iter().map(|file| file.path.clone()).collect();
        if let Err(error) = self.place.remove(&files) {
            log::debug!("{error}");
        }
    }

    /// Removes the files of a killed or overtaken writer. Returns how many it may have written.
    fn remove_abandoned(&self, record: &Record) -> Result<u64> {
        let Some(claim) = &record.claim else {
            return Ok(0);
        };
        self.place.remove(&claim.files)?;
        Ok(claim.files.len() as u64)
    }

    /// Removes the files of a trace before it was published again, and notes that. The trace is published whatever happens here.
    fn remove_former(&mut self, mut record: Record, version: Version) -> Result<()> {
        if record.leftover.is_empty() {
            return Ok(());
        }
        let former = std::mem::take(&mut record.leftover);
        let own: Vec<String> = former.into_iter().filter(|path| !is_shared(path)).collect();
        self.place.remove(&own)?;
        // Another process may have claimed the trace; then it removes them again.
        self.write(&record, Some(version))?;
        Ok(())
    }

    /// Removes the traces recorded before a date, and what killed writers left of others.
    pub(super) fn retain(&mut self, date: &str, change: &mut Change) -> Result<()> {
        for record in self.records()? {
            let is_old = record.date.as_deref().is_some_and(|found| found < date);
            if record.is_published() && is_old {
                match self.remove_trace(&record)? {
                    true => change.removed += 1,
                    false => change.kept += 1,
                }
            } else {
                self.remove_late(&record, change)?;
            }
        }
        Ok(())
    }

    /// Removes files without a trace that are older than a day, and counts others.
    pub(super) fn clean(&mut self, change: &mut Change) -> Result<()> {
        if self.keys.is_none() {
            return Ok(());
        }
        // Before the records: whoever writes files has claimed them.
        let found = self.place.all()?;
        let records = self.records()?;
        for record in &records {
            self.remove_late(record, change)?;
        }
        let mut known: BTreeSet<&str> = BTreeSet::new();
        for record in &records {
            known.extend(record.files.iter().map(|file| file.path.as_str()));
            known.extend(record.leftover.iter().map(String::as_str));
            let claimed = record.claim.iter().flat_map(|claim| &claim.files);
            known.extend(claimed.map(String::as_str));
        }
        let mut strays = Vec::new();
        for file in &found {
            let is_own = file.name.starts_with(OWN) && !file.name.starts_with(MANIFESTS);
            if is_own || file.name == LOCK || known.contains(file.name.as_str()) {
                continue;
            }
            if !file.name.ends_with(".parquet") && !file.name.starts_with(MANIFESTS) {
                change.foreign += 1;
                continue;
            }
            let age = file.modified.elapsed().unwrap_or_default();
            match age.as_secs() > ABANDONED_S {
                true => strays.push(file.name.clone()),
                false => change.young += 1,
            }
        }
        self.place.remove(&strays)?;
        change.abandoned += strays.len() as u64;
        Ok(())
    }

    /// Returns `false` if another process changes the trace, or its files have rows of other traces.
    fn remove_trace(&mut self, read: &Record) -> Result<bool> {
        let Some((record, version)) = self.record(&read.trace)? else {
            return Ok(true);
        };
        let is_other = record.content != read.content || !record.is_published();
        if is_other || record.files.iter().any(|file| is_shared(&file.path)) {
            return Ok(false);
        }
        // The row in `traces` first.
        let files = record.files.iter().rev().map(|file| file.path.clone());
        let claimed = record.claim.iter().flat_map(|claim| claim.files.clone());
        let leftover = record.leftover.iter().cloned();
        let files: Vec<String> = files.chain(claimed).chain(leftover).collect();
        let gone = Record {
            claim: Some(Claim {
                writer: new_writer(),
                since: now_s(),
                files: files.clone(),
            }),
            ..empty(&record.trace)
        };
        if self.write(&gone, Some(version))?.is_none() {
            return Ok(false);
        }
        let (first, rest) = files.split_at(1.min(files.len()));
        self.place.remove(first)?;
        self.place.remove(rest)?;
        Ok(true)
    }

    /// Removes what a writer left that began more than a day ago. The record of a removed trace stays until then: somebody may have read it.
    fn remove_late(&mut self, read: &Record, change: &mut Change) -> Result<()> {
        let is_late = |record: &Record| {
            let claim = record.claim.as_ref();
            claim.is_some_and(|claim| now_s().saturating_sub(claim.since) > ABANDONED_S)
        };
        if !is_late(read) && read.leftover.is_empty() {
            return Ok(());
        }
        let Some((record, version)) = self.record(&read.trace)? else {
            return Ok(());
        };
        if !is_late(&record) {
            return self.remove_former(record, version);
        }
        change.abandoned += self.remove_abandoned(&record)?;
        if record.is_published() {
            let rest = Record {
                claim: None,
                ..record
            };
            if let Some(version) = self.write(&rest, Some(version))? {
                self.remove_former(rest, version)?;
            }
        } else {
            self.place.remove(&[record_name(&record.trace)])?;
        }
        Ok(())
    }

    /// Writes head, records and manifests of the lake to a directory, which then is a lake without rows. Returns the number of traces.
    pub(super) fn copy_administration(&self, folder: &Path) -> Result<u64> {
        let shown = self.place.shown();
        let Some(head) = self.place.read(HEAD, LARGEST)? else {
            bail!("{shown}: expected a lake, found no {HEAD}");
        };
        for directory in [RECORDS, MANIFESTS] {
            fs::create_dir_all(folder.join(directory))?;
        }
        fs::write(folder.join(HEAD), head)?;
        let mut records = self.records()?;
        records.retain(Record::is_published);
        for records in records.chunks(AT_ONCE) {
            let names: Vec<String> = records.iter().map(Record::manifest).collect();
            for (record, text) in records.iter().zip(self.place.read_all(&names, LARGEST)?) {
                // The writer of another state of the trace may have removed it a moment ago.
                let text = text.with_context(|| {
                    format!("{shown}/{}: not found\nhint: try again: another process may be changing the lake", record.manifest())
                })?;
                if !is_trace_name(&record.trace) {
                    bail!(
                        "{shown}: a record of {:?}: expected the name of a trace",
                        record.trace
                    );
                }
                // The manifest gets the name that one in a directory has: no path of the store is written to.
                let mut copied = record.clone();
                copied
                    .files
                    .retain(|file| !file.path.starts_with(MANIFESTS));
                fs::write(
                    folder.join(record_name(&copied.trace)),
                    serde_json::to_vec(&copied)?,
                )?;
                fs::write(folder.join(copied.manifest()), text)?;
            }
        }
        Ok(records.len() as u64)
    }

    /// All records, those of unpublished traces, too.
    fn records(&self) -> Result<Vec<Record>> {
        let names = self.place.names(RECORDS)?;
        let names = names.iter().filter(|name| name.ends_with(".json"));
        let names: Vec<String> = names.map(|name| format!("{RECORDS}/{name}")).collect();
        let mut records = Vec::new();
        for names in names.chunks(AT_ONCE) {
            for (name, text) in names.iter().zip(self.place.read_all(names, LARGEST)?) {
                let Some(text) = text else {
                    continue;
                };
                records.push(self.parsed(name, &text)?);
            }
        }
        Ok(records)
    }

    fn record(&self, trace: &str) -> Result<Option<(Record, Version)>> {
        self.read(&record_name(trace))
    }

    /// `None` if another process has written it since.
    fn write(&self, record: &Record, former: Option<Version>) -> Result<Option<Version>> {
        let text = serde_json::to_vec(record)?;
        Ok(self
            .place
            .replace(&record_name(&record.trace), text, former)?)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<(T, Version)>> {
        let Some((text, version)) = self.place.read_versioned(name)? else {
            return Ok(None);
        };
        Ok(Some((self.parsed(name, &text)?, version)))
    }

    fn parsed<T: DeserializeOwned>(&self, name: &str, text: &[u8]) -> Result<T> {
        serde_json::from_slice(text)
            .with_context(|| format!("{}/{name}: damaged", self.place.shown()))
    }
}

/// Whether the lake has a trace in this state.
fn is_current(record: &Record, content: &str) -> bool {
    record.is_published() && record.content == content
}

/// The record of a trace that is not in the lake.
fn empty(trace: &str) -> Record {
    Record {
        trace: trace.to_owned(),
        name: String::new(),
        content: String::new(),
        date: None,
        host: None,
        files: Vec::new(),
        summaries: false,
        claim: None,
        leftover: Vec::new(),
    }
}

fn record_name(trace: &str) -> String {
    format!("{RECORDS}/{trace}.json")
}

/// `samples/host=a/perf-1f.parquet` is `samples/host=a/perf-1f.9a3c.parquet` by this writer.
fn renamed(path: &str, writer: &str) -> String {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    // That of another writer is replaced: a copy of a lake in a store may be published again.
    let (trace, _) = name.split_once('.').unwrap_or((name, ""));
    let (_, ending) = name.rsplit_once('.').unwrap_or((name, ""));
    format!("{folder}/{trace}.{writer}.{ending}")
}

/// A name that no other writer has.
fn new_writer() -> String {
    // Each state has random keys of the system.
    let words = (std::process::id(), now_s());
    format!("{:016x}", RandomState::new().hash_one(words))
}

/// Between 0.5 and 1 times a duration that grows with the attempts.
fn pause(attempt: u32) -> Duration {
    let most_ms = 500 * u64::from(attempt).pow(2);
    let random = RandomState::new().hash_one(attempt);
    Duration::from_millis(most_ms / 2 + random % (most_ms / 2).max(1))
}

pub(super) fn now_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_the_name_of_their_writer() {
        let check = |path: &str, expected: &str| assert_eq!(renamed(path, "9a"), expected);
        check(
            "samples/host=a.b/p-1f.parquet",
            "samples/host=a.b/p-1f.9a.parquet",
        );
        check(
            "samples/host=a/p-1f.77.parquet",
            "samples/host=a/p-1f.9a.parquet",
        );
        check(
            "_perfquet/manifests/p-1f.json",
            "_perfquet/manifests/p-1f.9a.json",
        );
        assert_ne!(new_writer(), new_writer());
    }
}
