//! Version 6 (trace-cmd before 3.0): all parts in a fixed order.
//!
//! ```text
//! format files, kallsyms, printk formats          as in perf's tracing data
//! u64 size, text                                  saved_cmdlines
//! u32 cpus
//! "options  \0" { u16 id, u32 size, data } u16 0  mostly
//! "flyrecord\0" { u64 offset, u64 size } per CPU  the top-level buffer; with a clock after it, if the options have one
//! "latency  \0" text                              instead: the text of `trace`
//! pages, from a multiple of the page size on
//! ```
//! The events of an instance have a separate table, at an offset given in a BUFFER option.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::{Cursor, Short};
use perfquet_events::event::Place;
use perfquet_events::scan::find_text;

use crate::trace_dat::head::{Buffer, CpuData, Head, Opened, Report};
use crate::trace_dat::options::{Options, current_clock};
use crate::trace_dat::regions::{DRIFT_MAX, drift};
use crate::trace_dat::reporter::Reporter;
use crate::tracing_data::TracingData;

const TAG_BYTES: u64 = 10;
/// Size of a table's row, one per CPU.
const TABLE_ROW_BYTES: u64 = 16;
/// Longer than any list of clocks.
const CLOCK_BYTES_MAX: u64 = 4096;

/// Parses a file. Damage is reported; the data before it is kept.
pub(super) fn open<'m>(
    bytes: &'m [u8],
    head: &Head<'m>,
    reporter: &mut Reporter<'_>,
) -> Result<Opened<'m>, Error> {
    let texts = TracingData::parse(bytes, 0).unwrap_or_else(|| {
        let rest = usize::try_from(head.length).ok();
        let rest = rest
            .and_then(|start| bytes.get(start..))
            .unwrap_or_default();
        TracingData::headless(rest, head.length, head.endian, head.long_size, head.version)
    });
    let mut opened = Opened {
        options: Options::default(),
        buffers: Vec::new(),
        reports: Vec::new(),
        drift: 0,
        packed_by: b"",
        texts,
    };
    let start = opened.texts.length;
    if let Some(damage) = opened.texts.damage.take() {
        reporter.problem(Place::Offset(start), "head", || damage)?;
    }
    let rest = usize::try_from(start)
        .ok()
        .and_then(|start| bytes.get(start..));
    let mut cursor = Cursor::new(rest.unwrap_or_default(), start, head.endian);
    let mut messages = Vec::new();
    let is_cut = opened.texts.is_cut;
    let mut result = match is_cut {
        true => Ok(()),
        false => read(&mut opened, bytes, head, &mut cursor, &mut messages),
    };
    if (is_cut || result.is_err() || opened.buffers.is_empty())
        && opened.reports.is_empty()
        && let Some(place) = find_tags(bytes)
    {
        messages.push((
            place as u64,
            "the page table was found by its name; the data before it is damaged".into(),
        ));
        opened.options = Options::default();
        opened.buffers.clear();
        let rest = bytes.get(place..).unwrap_or_default();
        let mut cursor = Cursor::new(rest, place as u64, head.endian);
        result = read_tags(&mut opened, bytes, head, &mut cursor, &mut messages);
    }
    for (offset, message) in messages {
        reporter.problem(Place::Offset(offset), "option", || message)?;
    }
    if let Err(short) = result {
        reporter.problem(Place::Offset(short.offset), "head", || short.to_string())?;
    }
    // The pages are the end of the file.
    let ends = opened.buffers.iter().flat_map(|buffer| &buffer.cpus);
    let ends = ends.filter(|cpu| cpu.size > 0);
    if let Some(end) = ends.map(|cpu| cpu.offset.saturating_add(cpu.size)).max() {
        opened.drift = drift(bytes.len() as u64, end);
    }
    Ok(opened)
}

fn read<'m>(
    opened: &mut Opened<'m>,
    bytes: &'m [u8],
    head: &Head<'m>,
    cursor: &mut Cursor<'m>,
    messages: &mut Vec<(u64, String)>,
) -> Result<(), Short> {
    let size = cursor.u64()?;
    opened.texts.saved_cmdlines = cursor.bytes(size)?;
    read_tags(opened, bytes, head, cursor, messages)
}

/// Offset of the number of CPUs, which precedes the options, if there are any, and the table.
fn find_tags(bytes: &[u8]) -> Option<usize> {
    let options = find_text(bytes, b"options  \0");
    let table = find_text(bytes, b"flyrecord\0")?;
    let first = options.filter(|&options| options < table).unwrap_or(table);
    first.checked_sub(4)
}

fn read_tags<'m>(
    opened: &mut Opened<'m>,
    bytes: &'m [u8],
    head: &Head<'m>,
    cursor: &mut Cursor<'m>,
    messages: &mut Vec<(u64, String)>,
) -> Result<(), Short> {
    let mut cpus = cursor.u32()?;
    let mut tag = cursor.bytes(TAG_BYTES)?;
    if tag.starts_with(b"options") {
        let mut reporter = |offset, message| messages.push((offset, message));
        let start = *cursor;
        if opened.options.take_all(cursor, &mut reporter).is_err()
            || !cursor.is_empty() && !starts_with_tag(cursor.rest())
        {
            // Damaged options do not lead to the table.
            let Some(table) = find_text(start.rest(), b"flyrecord\0") else {
                return Err(Short {
                    offset: start.offset(),
                    wanted: TAG_BYTES,
                    left: start.left(),
                });
            };
            reporter(start.offset(), "the options are damaged".into());
            *cursor = start;
            cursor.bytes(table as u64)?;
        }
        if cursor.is_empty() {
            return Ok(()); // a head alone: the events are in adjacent files
        }
        tag = cursor.bytes(TAG_BYTES)?;
    }
    cpus = opened.options.cpu_count.unwrap_or(cpus);
    opened.options.cpu_count = Some(cpus);
    let page_size = u64::from(head.page_size);
    // Places of the tables that belong to a buffer.
    let mut tables = vec![cursor.offset().saturating_sub(TAG_BYTES)];
    if tag.starts_with(b"latency") {
        opened.reports.push(Report {
            offset: cursor.offset(),
            text: cursor.rest().into(),
        });
    } else if tag.starts_with(b"flyrecord") {
        let mut top = table(cursor, cpus, page_size, &mut opened.options);
        let is_usable = (top.as_ref()).is_ok_and(|top| is_possible(top, bytes, page_size));
        if !is_usable
            && let Some((place, other)) =
                other_table(bytes, *cursor, cpus, page_size, &mut opened.options)
        {
            messages.push((
                cursor.offset(),
                format!(
                    "expected the offsets of the pages, found others; those at {place:#x} are read"
                ),
            ));
            tables = vec![place];
            top = Ok(other);
        }
        opened.buffers.push(top?);
    } else {
        let message = format!(
            "expected \"flyrecord\" or \"latency\", found {:?}",
            String::from_utf8_lossy(tag)
        );
        messages.push((cursor.offset().saturating_sub(TAG_BYTES), message));
    }
    read_buffers(opened, bytes, head, tables, messages)
}

/// Reads the tables of the other buffers, which the options name; `tables` are the places of those read already.
fn read_buffers(
    opened: &mut Opened<'_>,
    bytes: &[u8],
    head: &Head<'_>,
    mut tables: Vec<u64>,
    messages: &mut Vec<(u64, String)>,
) -> Result<(), Short> {
    let cpus = opened.options.cpu_count.unwrap_or_default();
    let page_size = u64::from(head.page_size);
    // Tables do not overlap: many options with the same offset must not cause repeated reads.
    let mut room = bytes.len() as u64 / TABLE_ROW_BYTES;
    let mut places: HashMap<Vec<u8>, usize> = (opened.buffers.iter().enumerate())
        .map(|(place, buffer)| (buffer.name.clone(), place))
        .collect();
    for (offset, option) in std::mem::take(&mut opened.options.buffers) {
        room = match room.checked_sub(u64::from(cpus).max(1)) {
            Some(left) => left,
            None => {
                messages.push((offset, "more buffers than the file has room for".into()));
                break;
            }
        };
        let mut option = Cursor::new(&option, offset, head.endian);
        let (start, name) = (option.u64()?, option.text_to_nul());
        let found = find_table(bytes, start, &tables);
        tables.extend(found);
        if found != Some(start) {
            let name = String::from_utf8_lossy(name);
            let found = found.map_or(
                "no table of its CPUs; the pages from there on are read".to_owned(),
                |found| format!("them at {found:#x}"),
            );
            messages.push((
                start,
                format!("expected the events of buffer {name:?}, found {found}"),
            ));
        }
        let Some(start) = found else {
            let pages = without_table(bytes, start, name, page_size);
            opened.buffers.extend(pages);
            continue;
        };
        let rest = usize::try_from(start)
            .ok()
            .and_then(|start| bytes.get(start..));
        let mut cursor = Cursor::new(rest.unwrap_or_default(), start, head.endian);
        cursor.bytes(TAG_BYTES)?;
        let mut buffer = table(&mut cursor, cpus, page_size, &mut opened.options)?;
        buffer.name = name.to_vec();
        // A file converted from the top-level buffer alone names that buffer in a second table.
        let known = places.get(name);
        match known.and_then(|&place| opened.buffers.get_mut(place)) {
            Some(known) if known.cpus.iter().all(|cpu| cpu.size == 0) => *known = buffer,
            Some(known) if known.cpus == buffer.cpus => {}
            _ => {
                places.entry(name.to_vec()).or_insert(opened.buffers.len());
                opened.buffers.push(buffer);
            }
        }
    }
    Ok(())
}

/// Whether a table of the top-level buffer states pages that the file may have. Those of a compressed or foreign file are not
/// aligned.
fn is_possible(buffer: &Buffer, bytes: &[u8], page_size: u64) -> bool {
    let most = (bytes.len() as u64).saturating_add(DRIFT_MAX as u64);
    (buffer.cpus.iter()).all(|cpu| {
        let end = cpu.offset.checked_add(cpu.size);
        let is_aligned = page_size == 0 || cpu.offset.is_multiple_of(page_size);
        cpu.size == 0 || is_aligned && end.is_some_and(|end| end <= most)
    })
}

/// The first possible table after a damaged one, and its place: of two copies of a doubled piece, one is whole. Those of
/// instances are stated in the options.
fn other_table(
    bytes: &[u8],
    damaged: Cursor<'_>,
    cpus: u32,
    page_size: u64,
    options: &mut Options<'_>,
) -> Option<(u64, Buffer)> {
    const TAG: &[u8] = b"flyrecord\0";
    let from = usize::try_from(damaged.offset()).ok()?;
    let end = from.saturating_add(DRIFT_MAX as usize).min(bytes.len());
    let place = from + find_text(bytes.get(from..end)?, TAG)?;
    let stated = |(offset, option): &(u64, std::borrow::Cow<'_, [u8]>)| {
        let start = Cursor::new(option, *offset, damaged.endian()).u64();
        start.is_ok_and(|start| start == place as u64)
    };
    if options.buffers.iter().any(stated) {
        return None;
    }
    let rest = bytes.get(place..)?;
    let mut cursor = Cursor::new(rest, place as u64, damaged.endian());
    cursor.bytes(TAG_BYTES).ok()?;
    let buffer = table(&mut cursor, cpus, page_size, options).ok()?;
    is_possible(&buffer, bytes, page_size).then_some((place as u64, buffer))
}

/// An instance whose table is lost: its pages follow that, up to the end of the file. Other buffers' pages among them are those of the
/// first that claims them.
fn without_table(bytes: &[u8], start: u64, name: &[u8], page_size: u64) -> Option<Buffer> {
    let size = (bytes.len() as u64).checked_sub(start)?;
    let pages = CpuData {
        cpu: None,
        file: 0,
        offset: start,
        size,
        packed: false,
    };
    (size >= page_size).then(|| Buffer {
        name: name.to_vec(),
        page_size,
        cpus: vec![pages],
        ..Buffer::default()
    })
}

/// Offset of the table expected at `start`, or of the nearest one in a file that has lost or gained bytes. Those taken belong to
/// other buffers.
fn find_table(bytes: &[u8], start: u64, taken: &[u64]) -> Option<u64> {
    const TAG: &[u8] = b"flyrecord\0";
    let stated = usize::try_from(start).ok()?;
    let there = bytes.get(stated..).unwrap_or_default();
    if there.starts_with(TAG) {
        return Some(start);
    }
    let mut from = stated.saturating_sub(DRIFT_MAX as usize).min(bytes.len());
    let until = stated.saturating_add(DRIFT_MAX as usize).min(bytes.len());
    let mut nearest: Option<usize> = None;
    while let Some(place) = find_text(bytes.get(from..until)?, TAG) {
        let found = from + place;
        let is_free = !taken.contains(&(found as u64));
        if is_free && nearest.is_none_or(|known| found.abs_diff(stated) < known.abs_diff(stated)) {
            nearest = Some(found);
        }
        from = found + TAG.len();
    }
    nearest.map(|nearest| nearest as u64)
}

fn starts_with_tag(bytes: &[u8]) -> bool {
    bytes.starts_with(b"flyrecord") || bytes.starts_with(b"latency")
}

/// Offset and size for each CPU, and the clock if the options announce one.
fn table(
    cursor: &mut Cursor<'_>,
    cpus: u32,
    page_size: u64,
    options: &mut Options<'_>,
) -> Result<Buffer, Short> {
    let mut buffer = Buffer {
        page_size,
        ..Buffer::default()
    };
    for cpu in 0..cpus {
        buffer.cpus.push(CpuData {
            cpu: Some(cpu),
            file: 0,
            offset: cursor.u64()?,
            size: cursor.u64()?,
            packed: false,
        });
    }
    if options.has_clock {
        // Some versions of trace-cmd write other data here.
        let mut ahead = *cursor;
        let size = ahead.u64().unwrap_or(0).min(CLOCK_BYTES_MAX);
        if let Some(clock) = ahead.bytes(size).ok().and_then(current_clock) {
            buffer.clock = clock.to_vec();
        }
    }
    if buffer.clock.is_empty() {
        buffer.clock = options.clock.clone().unwrap_or_default();
    }
    Ok(buffer)
}
