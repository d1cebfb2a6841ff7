//! Converts the journal in place into a perf.data in file format.
//!
//! ```text
//! 0      "PERFILE2", size 104, sections of attrs and data, features      over the pipe's header and the first attr
//! …      HEADER_ATTR, HEADER_FEATURE, TRACING_DATA                       no longer part of anything but by the sections
//! data   EVENT_UPDATE, BUILD_ID, MMAP, …, the rings' bytes               as they were
//! end    sections of the features, features, attrs, ids                  new
//! ```
//! The records stay in place, so the conversion needs one pass and no space. The header is written last: until then, or
//! if the recorder is killed, the file has pipe format, which perf and perfquet-convert read as well.
//! (tools/perf/Documentation/perf.data-file-format.txt, tools/perf/util/header.c)
//!
//! perf sorts the records of a round together with those of the previous round only. On a busy host, a record may come
//! later; the ends of such rounds are replaced by records without effect (FINISHED_INIT), so that perf waits longer.

use std::collections::{BTreeMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use perfquet_events::bytes::{Endian, before_nul};
use perfquet_readers::perf_data::written_bytes;

use super::build_ids::add_build_id;
use super::header::{feature, update};
use super::record::{Records, TRAILER_BYTES, head, kind, lost, misc, trailer_time};
use super::walk::{Record, Walk};
use crate::sys::perf_event::abi;

/// Offset of `sample_type` in an attr.
const SAMPLE_TYPE: usize = 24;
const CALLCHAIN: u64 = abi::PERF_SAMPLE_CALLCHAIN as u64;
/// Offset of the number of events in a record of kind LOST.
const HEADER_BYTES: u64 = 104;
/// Size of the magic and the size field at the start of a pipe.
const PIPE_HEADER_BYTES: u64 = 16;
const IDENTIFIERS_MAX: usize = super::header::IDS_PER_ATTR;

/// An attr and the IDs of its events.
struct Event {
    attr: Vec<u8>,
    ids: Vec<u64>,
    name: String,
}

/// Records between two ends of rounds.
struct Round {
    /// Offset of the record that ends the round.
    end: Option<u64>,
    first: u64,
    last: u64,
}

impl Default for Round {
    fn default() -> Round {
        Round {
            end: None,
            first: u64::MAX,
            last: 0,
        }
    }
}

/// Everything that the header needs.
#[derive(Default)]
struct Contents {
    events: Vec<Event>,
    features: BTreeMap<u64, Vec<u8>>,
    /// Offset and size in bytes.
    tracing_data: Option<(u64, u64)>,
    data_begin: Option<u64>,
    data_end: u64,
    build_ids: Records,
    identified: HashSet<Vec<u8>>,
    rounds: Vec<Round>,
    /// Records with stale bytes after the part that the kernel wrote, and the size of that part.
    overlong: Vec<(Record, u16)>,
    samples: u64,
    /// Events that did not fit into a ring.
    lost: u64,
    first_sample: Option<u64>,
    last_sample: u64,
}

/// The numbers of a journal in file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Completed {
    pub(crate) samples: u64,
    /// Events that did not fit into a ring, as far as the journal reaches.
    pub(crate) lost: u64,
}

/// Converts the journal at `path` to file format.
pub(crate) fn complete(path: &Path) -> io::Result<Completed> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    let contents = Contents::read(&file)?;
    let pipe_bytes = file.metadata()?.len();
    let (header, tail) = contents.header_and_tail();
    let written = file.set_len(contents.data_end).and_then(|()| {
        file.write_all_at(&tail, contents.data_end)?;
        for void in contents.void_rounds() {
            file.write_all_at(&kind::FINISHED_INIT.to_ne_bytes(), void)?;
        }
        // perf expects the trailer at the end: turn the rest into a record without effect.
        for (record, written) in &contents.overlong {
            let rest = record.offset + u64::from(*written);
            file.write_all_at(&head(kind::FINISHED_INIT, 0, record.size - written), rest)?;
            file.write_all_at(&head(record.kind, record.misc, *written), record.offset)?;
        }
        file.write_all_at(&header, 0)
    });
    if let Err(error) = written {
        // On a full disk, restore the previous contents.
        let _ = file.set_len(contents.data_end.min(pipe_bytes));
        return Err(error);
    }
    Ok(Completed {
        samples: contents.samples,
        lost: contents.lost,
    })
}

impl Contents {
    fn read(file: &File) -> io::Result<Contents> {
        let mut contents = Contents {
            data_end: PIPE_HEADER_BYTES,
            ..Contents::default()
        };
        let mut walk = Walk::new(file, PIPE_HEADER_BYTES)?;
        // Whether a sample's address precedes its time.
        let mut with_address = HashSet::new();
        let mut round = Round::default();
        while let Some(record) = walk.next()? {
            match record.kind {
                kind::HEADER_ATTR => {
                    contents.add_attr(&walk.body()?);
                    if let Some(event) = contents.events.last() {
                        let sample_type = number_at(&event.attr, SAMPLE_TYPE).unwrap_or(0);
                        if sample_type & 1 != 0 {
                            with_address.extend(event.ids.iter().copied());
                        }
                    }
                }
                kind::HEADER_FEATURE => {
                    let body = walk.body()?;
                    if let Some((number, body)) = body.split_first_chunk() {
                        let number = u64::from_ne_bytes(*number);
                        contents.features.insert(number, body.to_vec());
                    }
                }
                kind::TRACING_DATA => {
                    let begin = record.offset + u64::from(record.size);
                    contents.tracing_data = Some((begin, record.extra_bytes));
                }
                _ => {
                    contents.data_begin.get_or_insert(record.offset);
                    let time = contents.take(&mut walk, record, &with_address)?;
                    if let Some(time) = time.filter(|time| *time != 0) {
                        round.first = round.first.min(time);
                        round.last = round.last.max(time);
                    }
                    if record.kind == kind::FINISHED_ROUND {
                        round.end = Some(record.offset);
                        contents.rounds.push(std::mem::take(&mut round));
                    }
                }
            }
            contents.data_end = walk.offset();
        }
        contents.rounds.push(round);
        Ok(contents)
    }

    /// Joins the pieces of one event.
    fn add_attr(&mut self, body: &[u8]) {
        let size = body.get(4..8).and_then(|size| size.first_chunk());
        let size = size.map_or(0, |size| u32::from_ne_bytes(*size)) as usize;
        let Some((attr, ids)) = body.split_at_checked(size) else {
            return;
        };
        let ids = numbers(ids);
        match self.events.last_mut() {
            Some(event) if event.attr == attr && event.ids.len() % IDENTIFIERS_MAX == 0 => {
                event.ids.extend(ids);
            }
            _ => self.events.push(Event {
                attr: attr.to_vec(),
                ids,
                name: String::new(),
            }),
        }
    }

    /// Handles a record of the data; returns its time, if it has one.
    fn take(
        &mut self,
        walk: &mut Walk<'_>,
        record: Record,
        with_address: &HashSet<u64>,
    ) -> io::Result<Option<u64>> {
        match record.kind {
            kind::SAMPLE => {
                self.samples += 1;
                let front = walk.front::<32>()?;
                let id = number_at(&front, 0).unwrap_or(0);
                let place = if with_address.contains(&id) { 24 } else { 16 };
                let time = number_at(&front, place).unwrap_or(0);
                self.first_sample = Some(self.first_sample.map_or(time, |first| first.min(time)));
                self.last_sample = self.last_sample.max(time);
                Ok(Some(time))
            }
            kind::EVENT_UPDATE => {
                self.add_name(&walk.body()?);
                Ok(None)
            }
            kind::BUILD_ID => {
                let body = walk.body()?;
                let path = before_nul(body.get(28..).unwrap_or_default()).to_vec();
                if self.identified.insert(path) {
                    self.build_ids
                        .add(kind::BUILD_ID, record.misc, |records| records.raw(&body));
                }
                Ok(None)
            }
            kind::MMAP2 if record.misc & misc::MMAP_BUILD_ID != 0 => {
                let body = walk.body()?;
                self.add_mapped(record.misc, &body);
                Ok(trailer_time(&body))
            }
            // Records of the kernel end with the common trailer; those of tools, from 64 on, have none.
            1..64 => {
                let mut bytes = walk.whole()?;
                let written = written_bytes(&bytes, TRAILER_BYTES, Endian::Little);
                if record.kind == kind::LOST {
                    self.lost += lost(&bytes).unwrap_or(0);
                }
                if written < bytes.len() {
                    self.overlong.push((record, written as u16));
                    bytes.truncate(written);
                }
                Ok(trailer_time(&bytes))
            }
            _ => Ok(None),
        }
    }

    fn add_name(&mut self, body: &[u8]) {
        let (Some(update::NAME), Some(id)) = (number_at(body, 0), number_at(body, 8)) else {
            return;
        };
        let name = before_nul(body.get(16..).unwrap_or_default());
        let mut events = self.events.iter_mut();
        if let Some(event) = events.find(|event| event.ids.contains(&id)) {
            event.name = String::from_utf8_lossy(name).into_owned();
        }
    }

    /// Adds a file that was mapped during the recording.
    fn add_mapped(&mut self, bits: u16, body: &[u8]) {
        let path = before_nul(body.get(64..).unwrap_or_default());
        let length = usize::from(body.get(32).copied().unwrap_or(0));
        let Some(id) = body.get(36..36 + length.min(20)) else {
            return;
        };
        if path.starts_with(b"/") && !id.is_empty() && self.identified.insert(path.to_vec()) {
            let space = bits & (misc::KERNEL | misc::USER);
            add_build_id(&mut self.build_ids, space, path, id);
        }
    }

    /// Returns the ends of rounds that later records violate.
    fn void_rounds(&self) -> Vec<u64> {
        let mut oldest_after = vec![u64::MAX; self.rounds.len()];
        let mut oldest = u64::MAX;
        for (place, round) in oldest_after.iter_mut().zip(&self.rounds).rev() {
            *place = oldest;
            oldest = oldest.min(round.first);
        }
        let mut void = Vec::new();
        // At the end of a round, perf emits the records that are not newer than the newest one of the previous rounds.
        let (mut handed_out, mut youngest) = (0, 0);
        for (round, oldest) in self.rounds.iter().zip(oldest_after) {
            youngest = youngest.max(round.last);
            let Some(end) = round.end else { continue };
            if oldest < handed_out {
                void.push(end);
            } else {
                handed_out = youngest;
            }
        }
        void
    }

    /// Returns the header, and the part after the data.
    fn header_and_tail(&self) -> (Vec<u8>, Vec<u8>) {
        let mut features = self.features.clone();
        features.insert(feature::BUILD_ID, self.build_ids.bytes().to_vec());
        features.insert(feature::EVENT_DESC, self.event_descriptions());
        if let Some(first) = self.first_sample {
            let times = [first, self.last_sample];
            features.insert(feature::SAMPLE_TIME, words(&times));
        }
        features.retain(|_, body| !body.is_empty());
        let mut sections: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        if let Some(section) = self.tracing_data {
            sections.insert(feature::TRACING_DATA, section);
        }
        let count = (features.len() + sections.len()) as u64;
        let mut place = self.data_end + 16 * count;
        for (number, body) in &features {
            sections.insert(*number, (place, body.len() as u64));
            place += body.len() as u64;
        }
        let mut tail = Vec::new();
        for (offset, bytes) in sections.values() {
            tail.extend(words(&[*offset, *bytes]));
        }
        tail.extend(features.values().flatten());
        let mut attrs = Vec::new();
        for event in &self.events {
            let bytes = 8 * event.ids.len() as u64;
            tail.extend(words(&event.ids));
            attrs.extend(self.attr_of(event));
            attrs.extend(words(&[place, bytes]));
            place += bytes;
        }
        let attrs_section = (place, attrs.len() as u64);
        tail.extend(attrs);
        let begin = self.data_begin.unwrap_or(self.data_end);
        let mut header = words(&[
            super::header::MAGIC,
            HEADER_BYTES,
            self.attr_bytes() as u64 + 16,
            attrs_section.0,
            attrs_section.1,
            begin,
            self.data_end - begin,
            0,
            0,
        ]);
        let mut bits = [0u64; 4];
        for number in sections.keys() {
            if let Some(word) = bits.get_mut((number / 64) as usize) {
                *word |= 1 << (number % 64);
            }
        }
        header.extend(words(&bits));
        (header, tail)
    }

    /// Returns the size of all attrs in the file.
    fn attr_bytes(&self) -> usize {
        let sizes = self.events.iter().map(|event| event.attr.len());
        sizes.max().unwrap_or(0)
    }

    /// Returns the attr as the file has it.
    ///
    /// perf's reports show call chains only if every event has them, even one that never samples, and perf writes them
    /// so.
    fn attr_of(&self, event: &Event) -> Vec<u8> {
        let mut attr = event.attr.clone();
        attr.resize(self.attr_bytes(), 0);
        let sample_type = |event: &Event| number_at(&event.attr, SAMPLE_TYPE).unwrap_or(0);
        let has_chains = |event: &Event| sample_type(event) & CALLCHAIN != 0;
        if is_dummy(event)
            && self.events.iter().any(has_chains)
            && let Some(place) = attr.get_mut(SAMPLE_TYPE..SAMPLE_TYPE + 8)
        {
            place.copy_from_slice(&(sample_type(event) | CALLCHAIN).to_ne_bytes());
        }
        let size = attr.len() as u32;
        if let Some(place) = attr.get_mut(4..8) {
            place.copy_from_slice(&size.to_ne_bytes());
        }
        attr
    }

    /// Returns the names of the events with their IDs.
    fn event_descriptions(&self) -> Vec<u8> {
        let mut records = Records::new();
        records.plain(|body| {
            body.u32(self.events.len() as u32);
            body.u32(self.attr_bytes() as u32);
            for event in &self.events {
                body.raw(&self.attr_of(event));
                body.u32(event.ids.len() as u32);
                body.header_text(&event.name);
                event.ids.iter().for_each(|id| body.u64(*id));
            }
        });
        records.into_bytes()
    }
}

/// Whether an event counts nothing: type and config of `PERF_COUNT_SW_DUMMY`.
fn is_dummy(event: &Event) -> bool {
    let type_ = event
        .attr
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes));
    type_ == Some(abi::PERF_TYPE_SOFTWARE)
        && number_at(&event.attr, 8) == Some(abi::PERF_COUNT_SW_DUMMY.into())
}

fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    let (number, _) = bytes.get(at..)?.split_first_chunk()?;
    Some(u64::from_ne_bytes(*number))
}

fn numbers(bytes: &[u8]) -> Vec<u64> {
    let words = bytes.chunks_exact(8);
    words.filter_map(|word| number_at(word, 0)).collect()
}

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(end: u64, first: u64, last: u64) -> Round {
        Round {
            end: Some(end),
            first,
            last,
        }
    }

    #[test]
    fn losses_in_rings_are_counted() {
        let mut bytes = b"PERFILE2\x10\0\0\0\0\0\0\0".to_vec();
        bytes.extend(head(kind::HEADER_ATTR, 0, 8 + 112));
        bytes.extend([[0; 4], [112, 0, 0, 0]].concat());
        bytes.resize(bytes.len() + 104, 0);
        for lost in [3, 40] {
            // Head, ID, number; trailer.
            bytes.extend(head(kind::LOST, 0, 8 + 16 + 32));
            bytes.extend(words(&[3, lost, 7 | 8 << 32, 50, 0, 3]));
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        std::fs::write(&path, bytes).unwrap();
        let expected = Completed {
            samples: 0,
            lost: 43,
        };
        assert_eq!(complete(&path).unwrap(), expected);
    }

    #[test]
    fn bytes_after_a_trailer_become_a_separate_record() {
        const KSYMBOL: u32 = 17;
        let mut bytes = b"PERFILE2\x10\0\0\0\0\0\0\0".to_vec();
        bytes.extend(head(kind::HEADER_ATTR, 0, 8 + 112));
        bytes.extend([[0; 4], [112, 0, 0, 0]].concat());
        bytes.resize(bytes.len() + 104, 0);
        let data = bytes.len() as u64;
        // Head, address, length, type, flags, name; trailer; stale bytes of the ring.
        bytes.extend(head(KSYMBOL, 0, 8 + 16 + 8 + 32 + 64));
        bytes.extend([1; 16]);
        bytes.extend(b"prog_12\0");
        bytes.extend(words(&[7 | 8 << 32, 50, 0, 3]));
        bytes.extend([0xee; 64]);
        bytes.extend(head(kind::FINISHED_ROUND, 0, 8));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("perf.data");
        std::fs::write(&path, bytes).unwrap();
        let file = File::open(&path).unwrap();
        let contents = Contents::read(&file).unwrap();
        assert_eq!(
            (contents.rounds[0].first, contents.rounds[0].last),
            (50, 50)
        );
        complete(&path).unwrap();
        let mut walk = Walk::new(&file, data).unwrap();
        let mut kinds = Vec::new();
        while let Ok(Some(record)) = walk.next() {
            kinds.push((record.kind, record.size));
        }
        assert_eq!(
            kinds[..3],
            [
                (KSYMBOL, 64),
                (kind::FINISHED_INIT, 64),
                (kind::FINISHED_ROUND, 8)
            ]
        );
    }

    #[test]
    fn violated_rounds_are_removed() {
        let void = |rounds| {
            let contents = Contents {
                rounds,
                ..Contents::default()
            };
            contents.void_rounds()
        };
        // In order, or late by one round, which perf tolerates.
        assert!(void(vec![round(1, 10, 20), round(2, 15, 30), round(3, 25, 40)]).is_empty());
        // 12 comes two rounds late: the end of round 2 emits records up to 20.
        assert_eq!(
            void(vec![round(1, 10, 20), round(2, 21, 30), round(3, 12, 40)]),
            [2]
        );
        // A round without records, and one record that is late for all rounds.
        assert_eq!(
            void(vec![
                round(1, 10, 20),
                round(2, u64::MAX, 0),
                round(3, 21, 30),
                round(4, 5, 6)
            ]),
            [2, 3]
        );
    }
}
