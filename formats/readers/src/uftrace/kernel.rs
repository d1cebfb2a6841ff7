//! Functions and events of the kernel, in pages of its ring buffer.
//!
//! ```text
//! kernel_header     PAGE_SIZE: 4096
//!                   LONG_SIZE: 8
//!                   ENDIAN: LE
//!                   TRACEFS: events/header_page: 205
//!                   <205 bytes>TRACEFS: events/ftrace/funcgraph_entry/format: 438
//!                   <438 bytes>…
//! kallsyms          ffffffff81445d50 T vfs_write
//! kernel-cpu0.dat   [page][page]…
//! ```
//! Written by uftrace's `utils/kernel.c`, with the clock of the other files. A function of the kernel is inside the user functions that
//! are open in its thread.

use perfquet_events::Error;
use perfquet_events::bytes::Endian;
use perfquet_events::event::{Enter, Event, EventId, Leave, Place, Problem, Sample, Sink};

use super::emit::Emitter;
use crate::lines::unsigned;
use crate::problems::Problems;
use crate::trace_dat::pages::Pages;
use crate::tracing_data::TracingData;

const HEADER: &str = "kernel_header";
const CPU: &str = "kernel-cpu";
/// Formats in a header; a kernel has some thousand.
const FORMATS_MAX: usize = 1 << 16;

/// The files of all CPUs.
pub(super) struct Kernel<'f> {
    pages: Pages<'f>,
    /// The CPU of each file.
    cpus: Vec<u32>,
    /// Event types of the pages, by their own numbers.
    ids: Vec<EventId>,
}

/// The CPU of a file.
pub(super) fn cpu_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(CPU)?.strip_suffix(".dat")?;
    u32::try_from(unsigned(digits.as_bytes())?).ok()
}

impl<'f> Kernel<'f> {
    /// The pages of these CPUs. `None` if they cannot be read, which is reported.
    pub(super) fn open(
        cpus: &[(u32, &'f [u8])],
        file: impl Fn(&str) -> &'f [u8],
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<Option<Kernel<'f>>, Error> {
        let size: usize = cpus.iter().map(|(_, bytes)| bytes.len()).sum();
        if size == 0 {
            return Ok(None);
        }
        let header = file(HEADER);
        let (mut texts, is_whole) = texts(header);
        texts.lacks_formats = !is_whole;
        texts.kallsyms = file("kallsyms");
        let pages = match texts.ftrace.is_empty() && texts.events.is_empty() {
            true => None,
            false => Pages::new(&texts, cpus, sink)?,
        };
        let found = match (header, is_whole, &pages) {
            ([], ..) => Some("none"),
            (_, _, None) => Some("one without pages or formats"),
            (_, false, _) => Some("a cut one"),
            (_, true, Some(_)) => None,
        };
        if let Some(found) = found {
            let rest = match pages {
                Some(_) => "events whose format is missing are kept as bytes".to_owned(),
                None => format!("{size} bytes of functions and events are not read"),
            };
            problems.report(sink, Place::Whole, "kernel", || {
                format!("expected the file {HEADER} of the kernel's data, found {found}; {rest}")
            })?;
        }
        Ok(pages.map(|pages| Kernel {
            pages,
            cpus: cpus.iter().map(|(cpu, _)| *cpu).collect(),
            ids: Vec::new(),
        }))
    }

    /// The time of the next record of a CPU, by its place, and the bytes read so far.
    pub(super) fn advance(
        &mut self,
        place: usize,
        sink: &mut dyn Sink,
    ) -> Result<Option<(u64, u64)>, Error> {
        let cpu = self.cpus.get(place).copied().unwrap_or(0);
        let next = self.pages.advance(place, &mut InFile { cpu, sink })?;
        Ok(next.map(|(time, bytes)| (u64::try_from(time).unwrap_or(0), bytes)))
    }

    /// Emits the record of a CPU.
    pub(super) fn emit(
        &mut self,
        place: usize,
        emitter: &mut Emitter<'_>,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let mut sink = InThreads {
            ids: &mut self.ids,
            emitter,
            sink,
        };
        self.pages.emit(place, &mut sink)
    }

    pub(super) fn finish(self, sink: &mut dyn Sink) -> Result<(), Error> {
        self.pages.finish(sink)
    }
}

/// The texts of a header, and whether it is whole.
fn texts(header: &[u8]) -> (TracingData<'_>, bool) {
    let mut texts = TracingData {
        long_size: 8,
        ..TracingData::default()
    };
    let mut rest = header;
    for _ in 0..FORMATS_MAX {
        let Some(end) = memchr::memchr(b'\n', rest) else {
            break;
        };
        let (line, after) = rest.split_at(end + 1);
        let line = line.trim_ascii_end();
        rest = after;
        let Some(of_file) = line.strip_prefix(b"TRACEFS: ") else {
            let Some((name, value)) = pair(line) else {
                return (texts, false);
            };
            let number = unsigned(value).and_then(|value| u32::try_from(value).ok());
            match (name, number) {
                (b"PAGE_SIZE", Some(bytes)) => texts.page_size = bytes,
                (b"LONG_SIZE", Some(4)) => texts.long_size = 4,
                (b"ENDIAN", _) if value == b"BE" => texts.endian = Endian::Big,
                _ => {}
            }
            continue;
        };
        let size = pair(of_file).and_then(|(name, size)| Some((name, unsigned(size)?)));
        let Some((name, size)) = size else {
            return (texts, false);
        };
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let Some((text, after)) = rest.split_at_checked(size) else {
            return (texts, false);
        };
        rest = after;
        let mut parts = name.split(|&byte| byte == b'/').skip(1);
        match (parts.next(), parts.next()) {
            (Some(b"header_page"), None) => texts.header_page = text,
            (Some(b"ftrace"), Some(_)) => texts.ftrace.push(text),
            (Some(system), Some(_)) => texts.events.push((system, text)),
            _ => {}
        }
    }
    (texts, rest.is_empty())
}

/// `name: value`
fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memrchr(b':', line)?;
    Some((line.get(..colon)?, line.get(colon + 1..)?.trim_ascii()))
}

/// Problems with the name of their file.
struct InFile<'s> {
    cpu: u32,
    sink: &'s mut dyn Sink,
}

impl Sink for InFile<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Problem(problem) => self.sink.event(Event::Problem(Problem {
                message: &format!("{CPU}{}.dat: {}", self.cpu, problem.message),
                ..problem
            })),
            _ => self.sink.event(event),
        }
    }
}

/// Events of the kernel among those of uftrace: their types are numbered together, and their threads are known.
struct InThreads<'s, 'a> {
    ids: &'s mut Vec<EventId>,
    emitter: &'s mut Emitter<'a>,
    sink: &'s mut dyn Sink,
}

impl Sink for InThreads<'_, '_> {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Type(_) => {
                self.ids.push(self.emitter.next_type());
                self.sink.event(event)
            }
            Event::Sample(sample) => {
                let Some(&event) = self.ids.get(sample.event.0 as usize) else {
                    return Ok(());
                };
                let pid = sample.pid.or_else(|| self.emitter.pid(sample.tid));
                let sample = Sample {
                    event,
                    pid,
                    ..*sample
                };
                self.sink.event(Event::Sample(&sample))
            }
            Event::Enter(enter) => {
                let mut common = enter.common;
                common.pid = common.pid.or_else(|| self.emitter.pid(common.tid));
                let depth = self
                    .emitter
                    .kernel_depth(common.tid, enter.depth, |depth| depth + 1);
                self.sink.event(Event::Enter(&Enter {
                    common,
                    depth,
                    ..*enter
                }))
            }
            Event::Leave(leave) => {
                let mut common = leave.common;
                common.pid = common.pid.or_else(|| self.emitter.pid(common.tid));
                let depth = self
                    .emitter
                    .kernel_depth(common.tid, leave.depth, |depth| depth);
                self.sink.event(Event::Leave(&Leave {
                    common,
                    depth,
                    ..*leave
                }))
            }
            _ => self.sink.event(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: (u32, u8, usize, usize, bool)) {
        let (texts, is_whole) = texts(header.as_bytes());
        let found = (
            texts.page_size,
            texts.long_size,
            texts.ftrace.len(),
            texts.events.len(),
            is_whole,
        );
        assert_eq!(found, expected);
    }

    #[test]
    fn headers() {
        let head = "PAGE_SIZE: 4096\nLONG_SIZE: 4\nENDIAN: LE\nTRACEFS: events/header_page: 2\na\n";
        let formats = "TRACEFS: events/ftrace/funcgraph_entry/format: 3\nx:\nTRACEFS: events/sched/sched_switch/format: 1\ny";
        check(&format!("{head}{formats}"), (4096, 4, 1, 1, true));
        check(head, (4096, 4, 0, 0, true));
        check(
            &format!("{head}{}", &formats[..formats.len() - 1]),
            (4096, 4, 1, 0, false),
        );
        check(
            "TRACEFS: events/a/b/format: 18446744073709551615\n",
            (0, 8, 0, 0, false),
        );
        check("PAGE_SIZE\n", (0, 8, 0, 0, false));
        check("PAGE_SIZE: 99999999999\n", (0, 8, 0, 0, true));
        check("", (0, 8, 0, 0, true));
    }

    #[test]
    fn names() {
        assert_eq!(cpu_of("kernel-cpu12.dat"), Some(12));
        assert_eq!(cpu_of("kernel-cpu.dat"), None);
        assert_eq!(cpu_of("perf-cpu0.dat"), None);
    }
}
