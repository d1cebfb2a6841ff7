//! Reads a file: first its description, then its events.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;
use perfquet_events::bytes::Cursor;
use perfquet_events::event::{Event, Place, Problem, Sink};
use perfquet_events::input::Map;
use perfquet_events::{Error, Input};

use crate::ftrace_text::FTRACE_TEXT;
use crate::trace_dat::budget::Budget;
use crate::trace_dat::clock::Clock;
use crate::trace_dat::declare::{Extras, Types};
use crate::trace_dat::emit::{Emitter, Named};
use crate::trace_dat::formats::Formats;
use crate::trace_dat::head::{Buffer, CpuData, Head, Opened};
use crate::trace_dat::kallsyms::Kallsyms;
use crate::trace_dat::merge::merge;
use crate::trace_dat::page::{Layout, runs};
use crate::trace_dat::printk::Printk;
use crate::trace_dat::regions::{first_moved, score_of_pages};
use crate::trace_dat::reporter::Reporter;
use crate::trace_dat::stream::{Ring, Stream, are_chunks, shift_of_chunks};
use crate::trace_dat::unpack::{Packing, Unpacker};
use crate::trace_dat::version7::Sections;
use crate::trace_dat::{facts, restore, version6};
use crate::tracing_data::{TRACING_MAGIC, printk_formats};

/// The kernel's largest sub-buffer has 64 KiB; this leaves room for others.
pub(super) const PAGE_BYTES_MAX: u64 = 1 << 26;

/// Reads a file.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let name = input.name().to_owned();
    let damaged = |place, message: String| Error::Damaged {
        input: name.clone(),
        place,
        message,
    };
    let Some(map) = input.whole()? else {
        return Err(damaged(
            Place::Offset(0),
            "expected \"tracing\", found nothing".into(),
        ));
    };
    let head = Head::parse(&map).map_err(|short| {
        damaged(
            Place::Offset(short.offset),
            format!("truncated header: {short}"),
        )
    })?;
    let mut reporter = Reporter::new(sink, &map);
    if head.is_guessed || !map.starts_with(TRACING_MAGIC) {
        reporter.problem(Place::Offset(0), "head", || {
            "expected \"tracing\" and a version, found something else; what follows is read as far as it can be found".into()
        })?;
    }
    let found = match head.version {
        b"6" => {
            let opened = version6::open(&map, &head, &mut reporter)?;
            read_opened(input, &map, &head, opened, &mut reporter)?
        }
        b"7" => {
            let mut sections = Sections::load(&map, &head, &mut reporter)?;
            let options = sections.take_options();
            let mut opened = sections.opened(&mut reporter)?;
            opened.options = options;
            read_opened(input, &map, &head, opened, &mut reporter)?
        }
        version => {
            return Err(Error::Unsupported {
                input: name,
                message: format!(
                    "trace.dat of version {:?}, expected 6 or 7",
                    String::from_utf8_lossy(version)
                ),
            });
        }
    };
    reporter.finish()?;
    for map in reporter.further_maps() {
        input.watch(format!("{name}: an adjacent file"), map);
    }
    if !found {
        let place = Place::Offset(map.len() as u64);
        let message = "expected the events of a ring buffer, found none".to_owned();
        return Err(damaged(place, message));
    }
    Ok(())
}

/// Reads the contents of a file. Returns `false` if it has neither events nor a place for them.
fn read_opened(
    input: &Input,
    map: &Arc<Map>,
    head: &Head<'_>,
    mut opened: Opened<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<bool, Error> {
    let texts = &opened.texts;
    let layout = Layout::parse(texts.header_page, head.endian, head.long_size);
    let mut maps = vec![Arc::clone(map)];
    if opened.buffers.iter().all(|buffer| buffer.cpus.is_empty())
        && let Some(path) = input.path()
    {
        let clock = opened.options.clock.clone().unwrap_or_default();
        let page_size = layout.page_size.max(head.page_size.into());
        let beside = restore::beside(path, &clock, page_size);
        beside.maps.iter().for_each(|map| reporter.add_map(map));
        maps.extend(beside.maps);
        opened.buffers.extend(beside.buffers);
        for message in beside.unreadable {
            reporter.problem(Place::Whole, "adjacent file", || message)?;
        }
    }
    facts::report(head, &opened, reporter)?;
    if opened.buffers.is_empty() && opened.reports.is_empty() {
        return Ok(false);
    }
    latency_texts(input, &opened, reporter)?;
    let named = facts::comms(opened.texts.saved_cmdlines, reporter)?;
    facts::mappings(&opened.options, reporter)?;
    let (kallsyms, bad_symbols) = Kallsyms::parse(opened.texts.kallsyms);
    let (printk, bad_formats) =
        Printk::parse(opened.texts.printk_formats, head.endian, layout.long_size);
    facts::symbols(&kallsyms, reporter)?;
    printk_formats::emit(opened.texts.printk_formats, reporter.sink)?;
    let (formats, unnumbered) = Formats::new(&opened.texts, layout.long_size);
    for (count, what) in [
        (bad_symbols, "kallsyms: lines without a symbol"),
        (bad_formats, "printk formats: invalid lines"),
        (unnumbered, "format files without an ID"),
    ] {
        counted_problem(count, what, reporter)?;
    }
    let ring = Ring {
        layout,
        common: formats.common(),
        known: formats.ids(),
        unpacker: RefCell::new(Unpacker::new(Packing::named(opened.packed_by))),
        budget: Budget::default(),
        unpacked_bytes: Cell::new(0),
    };
    let mut streams = streams(&opened, &maps, head, &ring, reporter)?;
    let extras = Extras {
        buffer: streams.iter().any(|stream| !stream.buffer_name.is_empty()),
        clock_value: streams.iter().any(|stream| !stream.clock.has_time()),
    };
    let types = Types::new(formats, head.endian, extras);
    let stack_fields = |id: Option<u32>| id.map(|id| types.stack_fields(id)).unwrap_or_default();
    let mut emitter = Emitter {
        kernel_stacks: stack_fields(ring.common.kernel_stack_id()),
        user_stacks: stack_fields(ring.common.user_stack_id()),
        types,
        kallsyms,
        printk,
        endian: head.endian,
        long_size: layout.long_size,
        named: Named::new(named),
        overruns: HashMap::new(),
        scratch: None,
    };
    merge(&mut streams, &ring, reporter, |stream, reporter| {
        emitter.emit(stream, reporter)
    })?;
    let mut counted = facts::counted_losses(&opened.options.cpu_stats);
    for stream in &streams {
        emitter.lost(None, stream.cpu, stream.lost_at_end(), reporter)?;
        if let Some(cpu) = stream.cpu
            && let Some(count) = counted.remove(&(stream.buffer_name.to_vec(), cpu))
        {
            facts::report_rest(cpu, count, stream.lost, reporter)?;
        }
    }
    let mut rest: Vec<_> = counted.into_iter().collect();
    rest.sort();
    for ((_, cpu), count) in rest {
        facts::report_rest(cpu, count, 0, reporter)?;
    }
    Ok(true)
}

/// Reads the texts of latency tracers.
fn latency_texts(
    input: &Input,
    opened: &Opened<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<(), Error> {
    for (index, report) in opened.reports.iter().enumerate() {
        // The text's events are numbered from 0, like those of a ring buffer, so a file can have only one of them.
        if index == 0 && opened.buffers.iter().all(|buffer| buffer.cpus.is_empty()) {
            let mut text = Input::from_bytes(input.name(), &report.text)?;
            FTRACE_TEXT.read(&mut text, reporter.sink)?;
            continue;
        }
        let bytes = report.text.len();
        reporter.problem(Place::Offset(report.offset), "text", || {
            format!("the text of a latency tracer ({bytes} bytes) among other events")
        })?;
    }
    Ok(())
}

/// Reports how many lines of a text are invalid.
fn counted_problem(
    count: u64,
    message: &'static str,
    reporter: &mut Reporter<'_>,
) -> Result<(), Error> {
    if count > 0 {
        reporter.sink.event(Event::Problem(Problem {
            place: Place::Whole,
            count,
            message,
        }))?;
    }
    Ok(())
}

/// Returns a stream for each CPU of each buffer that has pages.
fn streams<'m>(
    opened: &Opened<'_>,
    maps: &'m [Arc<Map>],
    head: &Head<'_>,
    ring: &Ring,
    reporter: &mut Reporter<'_>,
) -> Result<Vec<Stream<'m>>, Error> {
    let layout = &ring.layout;
    let packing = Packing::named(opened.packed_by);
    let cpus = opened.buffers.iter().flat_map(|buffer| &buffer.cpus);
    let with_pages = cpus.filter(|data| data.size > 0);
    let mut stated: Vec<(usize, u64)> = with_pages.map(|data| (data.file, data.offset)).collect();
    stated.sort_unstable();
    let mut streams = Vec::new();
    let moved = moved(opened, maps, head, ring);
    // Ends by file and start: overlapping pages would be read many times.
    let mut taken: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    for buffer in &opened.buffers {
        let Some(page_size) = page_size(buffer, head, layout) else {
            large_pages(buffer, reporter)?;
            continue;
        };
        let clock = Clock::new(&buffer.clock, &opened.options);
        let name: Rc<[u8]> = buffer.name.as_slice().into();
        for data in buffer.cpus.iter().filter(|data| data.size > 0) {
            let Some(map) = maps.get(data.file) else {
                continue;
            };
            let end = data.offset.saturating_add(data.size);
            let before = taken.range(..(data.file, end)).next_back();
            if before.is_some_and(|((file, _), &other)| *file == data.file && other > data.offset) {
                reporter.problem(Place::Offset(data.offset), "overlap", || {
                    let cpu = data.cpu.unwrap_or(0);
                    format!("the pages of CPU {cpu} belong to another CPU")
                })?;
                continue;
            }
            taken.insert((data.file, data.offset), end);
            let page_size = page_size as usize;
            // Bytes were lost or duplicated before the pages, or among them.
            let moved = moved
                .get(&(data.file, data.offset))
                .copied()
                .unwrap_or_default();
            let room = room_of(&stated, data);
            let shift = shift_of(map, data, (&moved, room), page_size, head, (ring, packing));
            report_moved(data, shift, &moved, page_size, reporter)?;
            let data = &CpuData {
                offset: data.offset.saturating_add_signed(shift),
                size: data.size.saturating_add_signed(moved.end - moved.start),
                ..*data
            };
            let bytes = pages(map, data, reporter)?;
            let cpu = data.cpu;
            if cpu.is_none() && !data.packed {
                let runs = runs(bytes, page_size, layout, &ring.budget, |payload| {
                    ring.is_known(payload)
                });
                // In version 6, a run for each CPU: they are in the order of their numbers.
                let cpus = opened.options.cpu_count.filter(|_| head.version == b"6");
                let is_one_each = cpus.is_some_and(|cpus| cpus as usize == runs.len());
                for (number, run) in (0..).zip(runs) {
                    let cpu = cpu.or(Some(number).filter(|_| is_one_each));
                    let at = data.offset + run.start as u64;
                    let pages = bytes.get(run).unwrap_or_default();
                    let clock = clock.clone();
                    streams.push(Stream::new(
                        Rc::clone(&name),
                        cpu,
                        clock,
                        page_size,
                        pages,
                        at,
                    ));
                }
                continue;
            }
            let stream = Stream::new(
                Rc::clone(&name),
                cpu,
                clock.clone(),
                page_size,
                bytes,
                data.offset,
            )
            .drifting(moved.end - moved.start);
            streams.push(if data.packed {
                // Some versions of trace-cmd do not count the word with the number of chunks in the size.
                let whole = usize::try_from(data.offset).ok();
                let whole = whole.and_then(|start| map.get(start..)).unwrap_or_default();
                let cursor = Cursor::new(whole, data.offset, head.endian);
                stream.packed(cursor, data.size, packing)
            } else {
                stream
            });
        }
    }
    Ok(streams)
}

/// Reports a buffer that is not read.
fn large_pages(buffer: &Buffer, reporter: &mut Reporter<'_>) -> Result<(), Error> {
    reporter.problem(Place::Whole, "buffer", || {
        let name = String::from_utf8_lossy(&buffer.name);
        let size = buffer.page_size;
        format!("buffer {name:?}: expected pages of at most 64 MiB, found {size} bytes")
    })
}

/// Returns how far after their stated offset the pages of a CPU are.
fn shift_of(
    map: &Map,
    data: &CpuData,
    (moved, room): (&Moved, u64),
    page_size: usize,
    head: &Head<'_>,
    (ring, packing): (&Ring, Packing),
) -> i64 {
    let offset = data.offset.saturating_add_signed(moved.start);
    let further = match data.packed {
        true => shift_of_chunks(map, offset, (head.endian, packing), (room, &ring.budget)),
        false => ring.layout.shift(
            map,
            offset.min(map.len() as u64) as usize,
            page_size,
            (0, &ring.budget),
            |payload| ring.is_known(payload),
        ),
    };
    moved.start + further
}

/// Reports pages that are not where the file says, or not as many.
fn report_moved(
    data: &CpuData,
    shift: i64,
    moved: &Moved,
    page_size: usize,
    reporter: &mut Reporter<'_>,
) -> Result<(), Error> {
    let cpu = data.cpu.unwrap_or(0);
    if shift != 0 {
        reporter.problem(Place::Offset(data.offset), "cpu", || {
            format!("expected the pages of CPU {cpu}, found them {shift} bytes later")
        })?;
    }
    // Whole pages: no other page shows that they are missing.
    let more = moved.end - moved.start;
    if more != 0 && more % page_size as i64 == 0 {
        reporter.problem(Place::Offset(data.offset), "cpu", || {
            let found = data.size.saturating_add_signed(more);
            let expected = data.size;
            format!("expected {expected} bytes of pages of CPU {cpu}, found {found}")
        })?;
    }
    Ok(())
}

/// Half of the distance to the nearest other pages in the file, as far as it is stated. `stated` is sorted.
fn room_of(stated: &[(usize, u64)], data: &CpuData) -> u64 {
    let own = (data.file, data.offset);
    let at = stated.partition_point(|place| *place < own);
    let before = at.checked_sub(1).and_then(|before| stated.get(before));
    let neighbors = [before, stated.get(at + 1)].into_iter().flatten();
    let neighbors = neighbors.filter(|(file, _)| *file == data.file);
    let distances = neighbors.map(|(_, offset)| offset.abs_diff(data.offset));
    distances.min().unwrap_or(u64::MAX) / 2
}

/// Distances by which the start and the end of a CPU's pages are moved.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    start: i64,
    end: i64,
}

/// The CPUs whose pages are not where the file states, by file and stated offset.
fn moved(
    opened: &Opened<'_>,
    maps: &[Arc<Map>],
    head: &Head<'_>,
    ring: &Ring,
) -> HashMap<(usize, u64), Moved> {
    let mut moved = HashMap::new();
    let Some(map) = maps.first().filter(|_| opened.drift != 0) else {
        return moved;
    };
    let packing = Packing::named(opened.packed_by);
    let sized = opened.buffers.iter().filter_map(|buffer| {
        let size = page_size(buffer, head, &ring.layout)?;
        Some((buffer, size as usize))
    });
    let mut regions: Vec<(CpuData, usize)> = sized
        .flat_map(|(buffer, size)| buffer.cpus.iter().map(move |cpu| (*cpu, size)))
        .filter(|(cpu, _)| cpu.file == 0 && cpu.size > 0 && cpu.cpu.is_some())
        .collect();
    regions.sort_by_key(|(cpu, _)| cpu.offset);
    let first = first_moved(regions.len(), opened.drift, |index, drift| {
        let Some((cpu, size)) = regions.get(index) else {
            return 0;
        };
        let start = cpu.offset.checked_add_signed(drift);
        match cpu.packed {
            true => 2 * i64::from(are_chunks(map, start, head.endian, packing)),
            false => {
                let known = |payload: &[u8]| ring.is_known(payload);
                score_of_pages(map, start, (*size, index == 0), &ring.layout, known)
            }
        }
    });
    for (index, (cpu, _)) in regions.iter().enumerate() {
        let drift_from = |first: usize| match index >= first {
            true => opened.drift,
            false => 0,
        };
        let region = Moved {
            start: drift_from(first),
            // The pages of the CPU before the first moved one have the damage.
            end: drift_from(first.saturating_sub(1)),
        };
        moved.insert((cpu.file, cpu.offset), region);
    }
    moved
}

/// Size of a buffer's pages in bytes, as stated by the buffer, the kernel, or the host's page size.
fn page_size(buffer: &Buffer, head: &Head<'_>, layout: &Layout) -> Option<u64> {
    let known = [buffer.page_size, layout.page_size, head.page_size.into()];
    let stated = known.into_iter().find(|&size| size > layout.data_start())?;
    // Version 6 states only the host's page size, though sub-buffers may be larger.
    let size = match head.version {
        b"6" => stated.max(layout.page_size),
        _ => stated,
    };
    (size <= PAGE_BYTES_MAX).then_some(size)
}

/// The bytes of a CPU's pages, as far as the file has them.
fn pages<'m>(map: &'m Map, data: &CpuData, reporter: &mut Reporter<'_>) -> Result<&'m [u8], Error> {
    let length = map.len() as u64;
    let end = data.offset.saturating_add(data.size);
    if end > length && !data.packed {
        let cpu = data.cpu.map_or("?".into(), |cpu| cpu.to_string());
        reporter.problem(Place::Offset(length), "cut short", || {
            format!("CPU {cpu}: expected pages up to {end:#x}, found the end of the file")
        })?;
    }
    let range = data.offset.min(length) as usize..end.min(length) as usize;
    Ok(map.get(range).unwrap_or_default())
}
