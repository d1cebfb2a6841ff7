//! Lines → samples, in two passes: the form of the counts, then the stacks.

use perfquet_events::event::{
    Event, EventId, EventKind, EventType, Fact, NamedFrame, Place, Problem, Progress, Sample, Sink,
    Space, Stack,
};
use perfquet_events::{Error, Input};

use super::line::{Count, split_count};
use crate::placeholder::module_of;

/// Far more frames than any recorded stack has; a line of `;` alone must not fill the memory.
const MAX_FRAMES: usize = 1 << 16;
/// More decimals would take too many digits from the largest count.
const MAX_DECIMALS: u32 = 9;
/// Bad lines reported individually; the rest are counted.
const MAX_REPORTED: u64 = 100;
/// Bytes quoted from a bad line.
const QUOTED_BYTES: usize = 60;
const PROGRESS_BYTES: u64 = 1 << 20;

/// Reads all lines.
pub(super) fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    let Some(map) = input.whole()? else {
        return Ok(());
    };
    let numbers = Numbers::of(&map);
    if numbers.lines_with_count == 0 {
        return Err(Error::Damaged {
            input: input.name().to_owned(),
            place: Place::Line(1),
            message: format!(
                "expected frames and a number (main;read 12), found {}",
                quoted(lines(&map).next().unwrap_or_default())
            ),
        });
    }
    numbers.declare(sink)?;
    let mut reader = Reader {
        numbers,
        frames: Vec::new(),
        problems: 0,
    };
    let total = map.len() as u64;
    let mut done = 0;
    let mut reported = 0;
    for (index, line) in lines(&map).enumerate() {
        reader.line(line, index as u64 + 1, sink)?;
        done += line.len() as u64 + 1;
        if done - reported >= PROGRESS_BYTES {
            reported = done;
            let total = Some(total);
            sink.event(Event::Progress(Progress { done, total }))?;
        }
    }
    reader.finish(sink)
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&byte| byte == b'\n')
}

/// The form of the counts in a file.
struct Numbers {
    lines_with_count: u64,
    /// Two counts per line: a comparison.
    two: bool,
    /// Decimals that represent every count exactly.
    decimals: u32,
    /// Whether the facts in comments are austin's.
    austin: bool,
}

impl Numbers {
    fn of(bytes: &[u8]) -> Numbers {
        let austin = bytes.starts_with(b"# austin: ");
        let (mut one_or_two, mut only_two, mut decimals, mut first_decimals) = (0u64, 0u64, 0, 0);
        for line in lines(bytes) {
            let Some((stack, last)) = split_count(line).filter(|_| !is_comment(austin, line))
            else {
                continue;
            };
            one_or_two += 1;
            decimals = decimals.max(last.decimals);
            if let Some((_, first)) = split_count(stack) {
                only_two += 1;
                first_decimals = first_decimals.max(first.decimals);
            }
        }
        let two = one_or_two > 0 && only_two * 10 >= one_or_two * 9;
        if two {
            decimals = decimals.max(first_decimals);
        }
        Numbers {
            lines_with_count: one_or_two,
            two,
            decimals: decimals.min(MAX_DECIMALS),
            austin,
        }
    }

    /// Declares `count`, or `before` and `after`.
    fn declare(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        let names: &[&str] = if self.two {
            &["before", "after"]
        } else {
            &["count"]
        };
        for name in names {
            let unit = match self.decimals {
                0 => String::new(),
                decimals => format!("/{}", 10u64.pow(decimals)),
            };
            sink.event(Event::Type(&EventType {
                system: "folded".into(),
                name: format!("{name}{unit}"),
                kind: EventKind::Counter,
                ..EventType::default()
            }))?;
        }
        Ok(())
    }
}

/// Whether `line` is a comment, as austin and others write before the stacks: `# mode: wall`, `# interval: 100`.
pub(super) fn is_comment(austin: bool, line: &[u8]) -> bool {
    line.starts_with(b"# ") && (austin || !line.contains(&b';'))
}

struct Reader<'a> {
    numbers: Numbers,
    /// Frames of the current line, leaf first.
    frames: Vec<NamedFrame<'a>>,
    /// Number of bad lines so far.
    problems: u64,
}

impl<'a> Reader<'a> {
    fn line(&mut self, line: &'a [u8], number: u64, sink: &mut dyn Sink) -> Result<(), Error> {
        if is_comment(self.numbers.austin, line) {
            return fact(line, self.numbers.austin, sink);
        }
        if line.trim_ascii().is_empty() && split_count(line).is_none() {
            return Ok(());
        }
        match self.sample(line, sink)? {
            Ok(()) => Ok(()),
            Err(message) => self.problem(message, line, number, sink),
        }
    }

    /// Emits the line as samples; the inner error is the expectation that it does not meet.
    fn sample(
        &mut self,
        line: &'a [u8],
        sink: &mut dyn Sink,
    ) -> Result<Result<(), &'static str>, Error> {
        let Some((stack, last)) = split_count(line) else {
            return Ok(Err("a number after the last space"));
        };
        let (stack, first) = match (self.numbers.two, split_count(stack)) {
            (true, Some((stack, first))) => (stack, Some(first)),
            (true, None) => return Ok(Err("two numbers")),
            (false, _) => (stack, None),
        };
        let in_units = |count: Count| count.in_units(self.numbers.decimals);
        let Some(last) = in_units(last) else {
            return Ok(Err("a count of at most 19 digits, 9 of them decimals"));
        };
        let first = match first.map(in_units) {
            Some(None) => {
                return Ok(Err("counts of at most 19 digits, 9 of them decimals"));
            }
            Some(first) => first,
            None => None,
        };
        if !self.split_frames(stack) {
            return Ok(Err("at most 65536 frames"));
        }
        match first {
            None => self.emit(0, last, sink)?,
            // A stack absent from one side gives no sample for it; a stack absent from both is kept.
            Some(first) => {
                if first > 0 || last == 0 {
                    self.emit(0, first, sink)?;
                }
                if last > 0 {
                    self.emit(1, last, sink)?;
                }
            }
        }
        Ok(Ok(()))
    }

    /// Fills `frames`. Returns false if there are too many.
    fn split_frames(&mut self, stack: &'a [u8]) -> bool {
        self.frames.clear();
        if stack.is_empty() {
            return true;
        }
        let mut caller = Space::Unknown;
        for text in stack.split(|&byte| byte == b';') {
            if self.frames.len() >= MAX_FRAMES {
                return false;
            }
            let frame = frame(text, caller);
            caller = frame.space;
            self.frames.push(frame);
        }
        self.frames.reverse();
        true
    }

    fn emit(&self, event: u32, period: u64, sink: &mut dyn Sink) -> Result<(), Error> {
        // The kernel's frames are the leaves; a kernel frame followed by user frames keeps its position.
        let is_kernel = |frame: &&NamedFrame<'_>| frame.space == Space::Kernel;
        let kernel_count = self.frames.iter().take_while(is_kernel).count();
        let (kernel, user) = self
            .frames
            .split_at_checked(kernel_count)
            .unwrap_or_default();
        sink.event(Event::Sample(&Sample {
            period: Some(period),
            kernel_stack: match kernel {
                [] => Stack::None,
                frames => Stack::Named(frames),
            },
            user_stack: match (kernel, user) {
                ([_, ..], []) => Stack::None,
                (_, frames) => Stack::Named(frames),
            },
            ..Sample::of(EventId(event))
        }))
    }

    fn problem(
        &mut self,
        expected: &str,
        line: &[u8],
        number: u64,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        self.problems += 1;
        if self.problems > MAX_REPORTED {
            return Ok(());
        }
        let message = format!("expected {expected}, found {}", quoted(line));
        sink.event(Event::Problem(Problem {
            place: Place::Line(number),
            count: 1,
            message: &message,
        }))
    }

    /// Reports the number of bad lines that were not reported individually.
    fn finish(&self, sink: &mut dyn Sink) -> Result<(), Error> {
        match self.problems.saturating_sub(MAX_REPORTED) {
            0 => Ok(()),
            count => sink.event(Event::Problem(Problem {
                place: Place::Whole,
                count,
                message: "more lines without a stack and its count",
            })),
        }
    }
}

/// One frame; an inlined function runs in its caller's space.
fn frame(text: &[u8], caller: Space) -> NamedFrame<'_> {
    let (name, space, module, inlined): (_, _, &[u8], _) =
        if let Some(name) = text.strip_suffix(b"_[k]") {
            (name, Space::Kernel, b"", false)
        } else if let Some(name) = text.strip_suffix(b"_[i]") {
            (name, caller, b"", true)
        } else if let Some(name) = text.strip_suffix(b"_[j]") {
            (name, Space::User, b"[jit]", false)
        } else {
            (text, Space::Unknown, b"", false)
        };
    let bracketed = match module {
        b"" => module_of(name, space == Space::Kernel),
        _ => None,
    };
    let function = match bracketed {
        Some(_) => b"",
        None if name == b"[unknown]" => b"",
        None => name,
    };
    NamedFrame {
        function,
        module: bracketed.unwrap_or(module),
        space,
        inlined,
        ..NamedFrame::default()
    }
}

/// `# name: value`; other comments mean nothing here.
fn fact(line: &[u8], austin: bool, sink: &mut dyn Sink) -> Result<(), Error> {
    let text = String::from_utf8_lossy(line);
    let Some((name, value)) = text.trim_start_matches("# ").split_once(": ") else {
        return Ok(());
    };
    sink.event(Event::Fact(Fact::Other {
        name: &format!("{}.{name}", if austin { "austin" } else { "folded" }),
        value: value.trim(),
    }))
}

fn quoted(line: &[u8]) -> String {
    let shown = line.get(..QUOTED_BYTES).unwrap_or(line);
    format!("{:?}", String::from_utf8_lossy(shown))
}
