//! perf.data: the format of `perf record`, `perf stat record`, simpleperf and perfquet-record.
//!
//! ```text
//! 50 45 52 46 49 4c 45 32  68 00 …     "PERFILE2", header of 104 bytes: a file; features follow the data
//! 50 45 52 46 49 4c 45 32  10 00 …     header of 16 bytes: a pipe; everything is a record
//! 09 00 00 00  02 40  a8 00 …          a record: u32 type 9 (sample), u16 misc, u16 size
//! ```
//! | file | what |
//! | --- | --- |
//! | `header.rs`, `head.rs` | the header, the sections, the list of events; where they are in a damaged file |
//! | `attr.rs`, `record.rs`, `sample.rs`, `usual.rs` | the layout of an event's description, of the kernel's records, of samples |
//! | `read.rs`, `stretch.rs`, `pipe.rs` | reading records from a mapped file, many at once, or from a stream |
//! | `source.rs`, `resync.rs`, `compressed.rs` | where the bytes come from; where a record begins, past damage; zstd |
//! | `order.rs`, `lag.rs` | the order of time; how long records wait |
//! | `buffers.rs`, `arena.rs`, `runs.rs` | where they wait, in bounded memory |
//! | `progress.rs` | progress of reading |
//! | `catalog.rs`, `ids.rs`, `formats.rs` | the events of the recording; owners of IDs; formats of tracepoints |
//! | `declare.rs`, `names.rs` | an event's declaration; its name |
//! | `emit.rs`, `emit_sample.rs`, `emit_usual.rs`, `losses.rs` | records → events: state, samples, losses |
//! | `emit_recorder.rs`, `recorder.rs`, `stat.rs` | reports of perf and the kernel about the recording, as events |
//! | `wire.rs` | records of perfquet-record and its BPF programs |
//! | `tool.rs`, `update.rs`, `features.rs`, `simpleperf.rs` | perf's records, features, Android's additions |
//! | `output.rs` | the sink, problems, counts of undecoded records |
//!
//! The parts have separate state: the source does not know events, the catalog no sample bytes, the emission no files.
//! `read.rs` connects them.
//!
//! Specification: include/uapi/linux/perf_event.h, tools/perf/util/header.{h,c}, tools/lib/perf/include/perf/event.h of
//! Linux; perf.data-file-format.txt there stops at feature 21. Known: perf 3.2 to 6.19, attrs of 64 to 4096 bytes
//! (newer members are passed over), both byte orders, files, pipes, directories (`perf record --threads`). Version 1
//! (`PERFFILE`, 2009–2010) is refused.

mod arena;
mod attr;
mod buffers;
mod catalog;
mod compressed;
mod declare;
mod emit;
mod emit_recorder;
mod emit_sample;
mod emit_usual;
mod emit_wire;
mod entry;
mod execs;
mod features;
mod formats;
mod head;
mod header;
mod ids;
mod lag;
mod losses;
mod names;
mod order;
mod output;
mod pipe;
mod progress;
mod read;
mod record;
mod recorder;
mod resync;
mod runs;
mod sample;
mod simpleperf;
mod sniff;
mod source;
mod stat;
mod stretch;
#[cfg(test)]
mod tests;
mod tool;
mod update;
mod usual;
mod values;
mod wire;

use std::sync::Arc;

use perfquet_events::bytes::{Cursor, Endian};
use perfquet_events::event::{Place, Sink};
use perfquet_events::input::Map;
use perfquet_events::{Error, Format, Input};

use crate::perf_data::catalog::Catalog;
use crate::perf_data::head::Head;
use crate::perf_data::header::{Header, PIPE_HEADER_BYTES};
use crate::perf_data::output::Output;
use crate::perf_data::read::Reading;
use crate::perf_data::source::Source;

pub use record::written_bytes;

/// perf.data in all its forms.
pub const PERF_DATA: Format = Format {
    name: "perf.data",
    about: "perf record, perf stat record, simpleperf: files, pipes, directories",
    main_file: Some("data"),
    has_lines: false,
    sniff: sniff::sniff,
    read_file: read,
};

/// Whether the records of a mapped file show that it is one, though nothing of its first page does.
pub fn has_damaged_front(file: &[u8]) -> bool {
    sniff::endian_of_second_page(file).is_some()
}

fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(endian) = sniff::endian_of(input.head()) else {
        let second = input
            .mapped()
            .and_then(|map| sniff::endian_of_second_page(&map));
        return match sniff::endian_of_records(input.head()).or(second) {
            Some(endian) if !input.head().starts_with(sniff::MAGIC_VERSION_1) => {
                read_mapped(input, sink, None, endian)
            }
            _ => Err(refuse(input)),
        };
    };
    let header = Header::parse(input.head(), endian).map_err(|short| Error::Damaged {
        input: input.name().to_owned(),
        place: Place::Offset(short.offset),
        message: format!("truncated header: {short}"),
    })?;
    if header.is_pipe() && input.mapped().is_none() {
        let source = Source::stream(endian, input.temporary_bytes_max());
        let mut reading = Reading::new(source, endian, sink);
        if input.is_prompt() {
            reading.source.queue.hurry();
        }
        pipe::skip_header(input, PIPE_HEADER_BYTES)?;
        reading.walk_stream(input, PIPE_HEADER_BYTES)?;
        return reading.finish();
    }
    read_mapped(input, sink, Some(header), endian)
}

/// Reads a mapped file, with the further data files of a directory.
fn read_mapped(
    input: &mut Input,
    sink: &mut dyn Sink,
    header: Option<Header>,
    endian: Endian,
) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Err(refuse(input));
    };
    let parts = parts(input)?;
    let maps: Vec<_> = std::iter::once(&map).chain(&parts).collect();
    let files: Vec<&[u8]> = maps.iter().map(|map| &map[..]).collect();
    let kept = maps.iter().map(|&map| Arc::clone(map)).collect();
    let source = Source::mapped(files, kept, endian, input.temporary_bytes_max());
    let mut reading = Reading::new(source, endian, sink);
    let out = &mut reading.emission.out;
    if header.is_none() {
        reading.catalog.is_damaged = true;
        out.problem(Place::Offset(0), "header", || {
            "expected \"PERFILE2\", found something else; the records are read that can be found"
                .into()
        })?;
    }
    if header.is_some_and(|header| header.is_pipe()) {
        reading.walk(0, PIPE_HEADER_BYTES, map.len() as u64)?;
    } else {
        let head = Head::find(header, &map, endian);
        let header = head.header;
        unread(head.end(), &map, out)?;
        read_head(head, &map, &mut reading.catalog, out)?;
        let end = data_end(&header, &map, out)?;
        reading.walk(0, header.data.offset, end)?;
    }
    for (index, part) in parts.iter().enumerate() {
        let source = u16::try_from(index + 1).unwrap_or(u16::MAX);
        reading.walk(source, 0, part.len() as u64)?;
    }
    reading.finish()
}

/// Maps the further files of `perf record --threads`: `data.N`, one per recording thread.
fn parts(input: &mut Input) -> Result<Vec<Arc<Map>>, Error> {
    let mut numbered: Vec<(u32, String)> = input
        .files()
        .iter()
        .filter_map(|name| Some((name.strip_prefix("data.")?.parse().ok()?, name.clone())))
        .collect();
    numbered.sort_unstable();
    let mut parts = Vec::new();
    for (_, name) in numbered {
        parts.extend(input.map_file(&name)?);
    }
    Ok(parts)
}

/// Reads events and features of a file.
fn read_head(
    head: Head,
    file: &[u8],
    catalog: &mut Catalog,
    out: &mut Output<'_>,
) -> Result<(), Error> {
    let (header, endian) = (head.header, catalog.endian);
    for (offset, damage) in head.damages {
        out.problem(Place::Offset(offset), "header", || damage)?;
    }
    for (attr, ids) in head.attrs {
        catalog.add(attr, ids, out)?;
    }
    let section = header.event_types;
    let mut event_types = Cursor::new(section.of(file), section.offset, endian);
    while let Ok(entry) = event_types.part(72) {
        let _ = tool::header_event_type(entry, catalog);
    }
    // A killed recorder sets the bits but writes no index.
    if header.data.size == 0 {
        return Ok(());
    }
    for (bit, section) in head.features {
        let bytes = section.of(file);
        if (bytes.len() as u64) < section.size {
            out.problem(Place::Offset(section.offset), "feature", || {
                format!(
                    "header feature {bit}: expected {} bytes, found {}",
                    section.size,
                    bytes.len()
                )
            })?;
        }
        let body = Cursor::new(bytes, section.offset, endian);
        if !bytes.is_empty() {
            features::feature(bit, body, catalog, out)?;
        }
    }
    Ok(())
}

/// Reports bytes after the last section: files that were concatenated.
fn unread(end: Option<u64>, file: &[u8], out: &mut Output<'_>) -> Result<(), Error> {
    let rest = end.and_then(|end| file.get(usize::try_from(end).ok()?..));
    let (Some(end), Some(rest)) = (end, rest.filter(|rest| rest.iter().any(|byte| *byte != 0)))
    else {
        return Ok(());
    };
    out.problem(Place::Offset(end), "rest", || {
        let what = match sniff::endian_of(rest) {
            Some(_) => "another perf.data; import each apart",
            None => "no part of the file",
        };
        format!(
            "{} bytes after the last section are not read: {what}",
            rest.len()
        )
    })
}

/// Returns the end of the records; reports a truncated file.
fn data_end(header: &Header, file: &[u8], out: &mut Output<'_>) -> Result<u64, Error> {
    let length = file.len() as u64;
    let data = header.data;
    if data.size == 0 && data.offset < length {
        out.problem(Place::Offset(40), "killed", || {
            "the recorder was killed before it closed the file: read to the end, names and host unknown"
                .into()
        })?;
        return Ok(length);
    }
    if data.end() > length {
        out.problem(Place::Offset(length), "cut short", || {
            format!(
                "expected records up to {:#x}, found the end of the file",
                data.end()
            )
        })?;
    }
    Ok(data.end().min(length))
}

fn refuse(input: &Input) -> Error {
    let name = input.name().to_owned();
    if input.head().starts_with(sniff::MAGIC_VERSION_1) {
        return Error::Unsupported {
            input: name,
            message: "perf.data of version 1 (perf of 2009 and 2010), expected version 2\n\
                      hint: perf script of that time reads it, and its text can be imported"
                .into(),
        };
    }
    Error::Damaged {
        input: name,
        place: Place::Offset(0),
        message: "expected \"PERFILE2\", found something else".into(),
    }
}
