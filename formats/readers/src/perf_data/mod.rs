//! perf.data: what `perf record`, `perf stat record`, simpleperf and our own recorder write.
//!
//! ```text
//! 50 45 52 46 49 4c 45 32  68 00 …     "PERFILE2", header of 104 bytes: a file; features lie after the data
//! 50 45 52 46 49 4c 45 32  10 00 …     header of 16 bytes: a pipe; everything is a record
//! 09 00 00 00  02 40  a8 00 …          a record: u32 type 9 (sample), u16 misc, u16 size
//! ```
//! | file | what |
//! | --- | --- |
//! | `header.rs`, `head.rs` | the header, the sections, the list of events; where they are in a damaged file |
//! | `attr.rs`, `ids.rs`, `names.rs`, `declare.rs` | how an event was opened; its counters; what it is called; its declaration |
//! | `read.rs`, `pipe.rs`, `resync.rs` | the way through a mapped file; through a stream; past damage |
//! | `order.rs` | the order of time, in bounded memory |
//! | `record.rs`, `sample.rs` | the layout of the kernel's records |
//! | `emit.rs`, `recorder.rs` | records → events; what perf tells about itself as events |
//! | `own.rs` | what perfquet-record's programs in the kernel tell |
//! | `tool.rs`, `features.rs`, `simpleperf.rs`, `compressed.rs` | perf's records, features, Android's additions, zstd |
//!
//! Specification: include/uapi/linux/perf_event.h, tools/perf/util/header.{h,c}, tools/lib/perf/include/perf/event.h of
//! Linux; perf.data-file-format.txt there stops at feature 21. Known: perf 3.2 to 6.19, attrs of 64 to 4096 bytes
//! (newer members are passed over), both byte orders, files, pipes, directories (`perf record --threads`). Version 1
//! (`PERFFILE`, 2009–2010) is refused.

mod attr;
mod compressed;
mod declare;
mod emit;
mod features;
mod head;
mod header;
mod ids;
mod lag;
mod losses;
mod names;
mod order;
mod own;
mod pipe;
mod read;
mod record;
mod recorder;
mod resync;
mod sample;
mod simpleperf;
mod sniff;
#[cfg(test)]
mod tests;
mod tool;

use std::sync::Arc;

use perfquet_events::event::{Place, Sink};
use perfquet_events::{Error, Format, Input};

use crate::perf_data::head::Head;
use crate::perf_data::header::{Header, PIPE_HEADER_BYTES};
use crate::perf_data::read::Session;

pub use record::written_bytes;

/// perf.data in all its forms.
pub const PERF_DATA: Format = Format {
    name: "perf.data",
    about: "perf record, perf stat record, simpleperf: files, pipes, directories",
    sniff: sniff::sniff,
    read,
};

fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(endian) = sniff::endian_of(input.head()) else {
        return match sniff::endian_of_records(input.head()) {
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
        let mut session = Session::new(sink, endian, Vec::new());
        let max = input.temporary_bytes_max();
        session.queue.set_temporary_bytes_max(max);
        pipe::skip_header(input, PIPE_HEADER_BYTES)?;
        session.walk_stream(input, PIPE_HEADER_BYTES)?;
        return session.finish();
    }
    read_mapped(input, sink, Some(header), endian)
}

/// Reads a file that lies mapped before us, with the further data files of a directory.
fn read_mapped(
    input: &mut Input,
    sink: &mut dyn Sink,
    header: Option<Header>,
    endian: perfquet_events::bytes::Endian,
) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Err(refuse(input));
    };
    let parts = input.parts()?;
    let mut sources: Vec<&[u8]> = vec![&map];
    sources.extend(parts.iter().map(|(_, map)| &map[..]));
    let mut session = Session::new(sink, endian, sources);
    let max = input.temporary_bytes_max();
    session.queue.set_temporary_bytes_max(max);
    session.maps.push(Arc::clone(&map));
    let further = parts.iter().map(|(_, part)| Arc::clone(part));
    session.maps.extend(further);
    session.has_rounds = parts.is_empty();
    session.total_bytes = Some(map.len() as u64);
    if let Some(reason) = input.damage() {
        session.problem(Place::Offset(map.len() as u64), "input", || {
            reason.to_owned()
        })?;
    }
    if header.is_none() {
        session.is_head_damaged = true;
        session.problem(Place::Offset(0), "header", || {
            "expected \"PERFILE2\", found something else; the records are read that can be found".into()
        })?;
    }
    if header.is_some_and(|header| header.is_pipe()) {
        session.walk(0, PIPE_HEADER_BYTES, map.len() as u64)?;
    } else {
        let head = Head::find(header, &map, endian);
        let header = head.header;
        session.read_head(head, &map)?;
        let end = session.data_end(&header, &map)?;
        session.walk(0, header.data.offset, end)?;
    }
    for (index, (_, part)) in parts.iter().enumerate() {
        let source = u16::try_from(index + 1).unwrap_or(u16::MAX);
        session.total_bytes = Some(part.len() as u64);
        session.walk(source, 0, part.len() as u64)?;
    }
    session.finish()
}

impl Session<'_, '_> {
    /// Events and features of a file.
    fn read_head(&mut self, head: Head, file: &[u8]) -> Result<(), Error> {
        let header = head.header;
        for (offset, damage) in head.damages {
            self.problem(Place::Offset(offset), "header", || damage)?;
        }
        for (attr, ids) in head.attrs {
            self.add_attr(attr, ids)?;
        }
        let mut event_types = perfquet_events::bytes::Cursor::new(
            header.event_types.of(file),
            header.event_types.offset,
            self.endian,
        );
        while let Ok(entry) = event_types.part(72) {
            let _ = self.header_event_type(entry);
        }
        // A killed recorder sets the bits and writes no index.
        if header.data.size == 0 {
            return Ok(());
        }
        for (bit, section) in head.features {
            let bytes = section.of(file);
            if (bytes.len() as u64) < section.size {
                self.problem(Place::Offset(section.offset), "feature", || {
                    format!(
                        "header feature {bit}: expected {} bytes, found {}",
                        section.size,
                        bytes.len()
                    )
                })?;
            }
            let body = perfquet_events::bytes::Cursor::new(bytes, section.offset, self.endian);
            if !bytes.is_empty() {
                self.feature(bit, body)?;
            }
        }
        Ok(())
    }

    /// Where the records end; tells if the file does not end as it should.
    fn data_end(&mut self, header: &Header, file: &[u8]) -> Result<u64, Error> {
        let length = file.len() as u64;
        let data = header.data;
        if data.size == 0 && data.offset < length {
            self.problem(Place::Offset(40), "killed", || {
                "the recorder was killed before it closed the file: read to the end, names and host unknown"
                    .into()
            })?;
            return Ok(length);
        }
        if data.end() > length {
            self.problem(Place::Offset(length), "cut short", || {
                format!(
                    "expected records up to {:#x}, found the end of the file",
                    data.end()
                )
            })?;
        }
        Ok(data.end().min(length))
    }
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
