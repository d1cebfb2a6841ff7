//! Options: the recorder's description of the recording, and in version 7 the offsets of the sections.
//!
//! ```text
//! 04 00  43 00 00 00  "[local] global counter …\n\0"     u16 id, u32 size, data
//! ```
//! Both versions use the same IDs (trace-cmd's include/private/trace-cmd-private.h, enum of TRACECMD_OPTION_*).

use std::rc::Rc;

use perfquet_events::bytes::{Cursor, Endian, Short, before_nul};

use crate::trace_dat::budget::either_way;

/// IDs of options; sections use the same IDs.
pub(super) mod id {
    pub(in crate::trace_dat) const DONE: u16 = 0;
    pub(super) const DATE: u16 = 1;
    pub(super) const CPUSTAT: u16 = 2;
    pub(in crate::trace_dat) const BUFFER: u16 = 3;
    pub(super) const TRACECLOCK: u16 = 4;
    pub(super) const UNAME: u16 = 5;
    pub(super) const HOOK: u16 = 6;
    pub(super) const OFFSET: u16 = 7;
    pub(super) const CPUCOUNT: u16 = 8;
    pub(super) const VERSION: u16 = 9;
    pub(super) const PROCMAPS: u16 = 10;
    pub(super) const TRACEID: u16 = 11;
    pub(super) const TIME_SHIFT: u16 = 12;
    pub(super) const GUEST: u16 = 13;
    pub(super) const TSC2NSEC: u16 = 14;
    pub(in crate::trace_dat) const STRINGS: u16 = 15;
    pub(in crate::trace_dat) const HEADER_INFO: u16 = 16;
    pub(in crate::trace_dat) const FTRACE_EVENTS: u16 = 17;
    pub(in crate::trace_dat) const EVENT_FORMATS: u16 = 18;
    pub(in crate::trace_dat) const KALLSYMS: u16 = 19;
    pub(in crate::trace_dat) const PRINTK: u16 = 20;
    pub(in crate::trace_dat) const CMDLINES: u16 = 21;
    pub(in crate::trace_dat) const BUFFER_TEXT: u16 = 22;
    pub(super) const BTF_FILE: u16 = 23;
    pub(super) const LAST_BOOT_INFO: u16 = 24;
    pub(in crate::trace_dat) const MODULES_FILE: u16 = 25;
}

/// The contents of a file's options. Strings are kept as found, without their NUL. One struct, because each field is an option of the
/// format.
#[derive(Debug, Default)]
pub(super) struct Options<'s> {
    /// Wall time minus the trace's clock, in nanoseconds.
    pub(super) date: Option<i64>,
    /// Nanoseconds to add to each time.
    pub(super) offset: i64,
    /// The name in brackets in `trace_clock`.
    pub(super) clock: Option<Vec<u8>>,
    /// Whether there is a TRACECLOCK: then version 6 repeats the clock after the table of CPUs.
    pub(super) has_clock: bool,
    pub(super) uname: Option<Vec<u8>>,
    pub(super) version: Option<Vec<u8>>,
    pub(super) hooks: Vec<Vec<u8>>,
    pub(super) cpu_count: Option<u32>,
    /// `per_cpu/cpuN/stats`, concatenated, with `Buffer: NAME` before those of an instance.
    pub(super) cpu_stats: Vec<u8>,
    pub(super) proc_maps: Vec<Vec<u8>>,
    pub(super) trace_id: Option<u64>,
    pub(super) time_shift: Option<Rc<TimeShift>>,
    pub(super) guests: Vec<Guest>,
    pub(super) tsc: Option<Tsc>,
    pub(super) last_boot: Option<Vec<u8>>,
    /// Buffers: the option's offset and content.
    pub(super) buffers: Vec<(u64, std::borrow::Cow<'s, [u8]>)>,
    /// Texts in place of buffers.
    pub(super) texts: Vec<(u64, std::borrow::Cow<'s, [u8]>)>,
    /// Sections: ID and offset.
    pub(super) sections: Vec<(u16, u64)>,
}

/// Conversion of cycles to nanoseconds: `cycles * mult >> shift`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tsc {
    pub(super) mult: u32,
    pub(super) shift: u32,
    pub(super) offset: u64,
}

/// Conversion of a guest's clock to the host's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct TimeShift {
    /// Trace ID of the host's file.
    pub(super) peer: u64,
    /// Bit 0: the offset changes linearly between two samples.
    pub(super) flags: u32,
    /// Samples of each CPU, in time order.
    pub(super) cpus: Vec<Vec<Shift>>,
}

/// A sample of the difference of two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shift {
    /// On the guest's clock.
    pub(super) time: u64,
    pub(super) offset: i64,
    pub(super) scaling: u64,
    /// Fractional bits of `scaling`.
    pub(super) fraction: u64,
}

/// A guest that was traced together with its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Guest {
    pub(super) name: Vec<u8>,
    pub(super) trace_id: u64,
    /// Virtual CPU and the host's thread that runs it.
    pub(super) cpus: Vec<(u32, u32)>,
}

/// The result of parsing one option.
enum Taken {
    Option,
    /// The end, with the value of DONE.
    Done(Option<u64>),
}

impl<'s> Options<'s> {
    /// Parses options up to DONE. Returns the value of DONE (version 7: offset of the next options).
    pub(super) fn take_all(
        &mut self,
        cursor: &mut Cursor<'_>,
        report: &mut dyn FnMut(u64, String),
    ) -> Result<Option<u64>, Short> {
        loop {
            if let Taken::Done(next) = self.take_one(cursor, report)? {
                return Ok(next);
            }
        }
    }

    fn take_one(
        &mut self,
        cursor: &mut Cursor<'_>,
        report: &mut dyn FnMut(u64, String),
    ) -> Result<Taken, Short> {
        let offset = cursor.offset();
        let option = cursor.u16()?;
        // Version 6 ends with an ID alone; a tag of letters follows, never a size of 8.
        if option == id::DONE && (cursor.left() < 4 || !is_done_with_offset(*cursor)) {
            return Ok(Taken::Done(None));
        }
        let size = cursor.u32()?;
        let mut data = cursor.part(size.into())?;
        if option == id::DONE {
            return Ok(Taken::Done(Some(data.u64()?)));
        }
        if let Err(message) = self.take(option, data, offset) {
            report(offset, message);
        }
        Ok(Taken::Option)
    }

    /// Parses the options of a section of version 7, which should have `size` bytes, and those after a damaged option
    /// too. Returns the offset of the next options, or the offset of the damage if no options follow it.
    pub(super) fn take_section(
        &mut self,
        mut body: Cursor<'_>,
        size: u64,
        report: &mut dyn FnMut(u64, String),
    ) -> Result<u64, Short> {
        let end = body.offset().saturating_add(size);
        let mut last = body;
        loop {
            let here = body;
            let short = match self.take_one(&mut body, report) {
                Ok(Taken::Option) => {
                    last = here;
                    continue;
                }
                Ok(Taken::Done(Some(next))) => return Ok(next),
                // Only version 6 ends without an offset.
                Ok(Taken::Done(None)) => Short {
                    offset: here.offset(),
                    wanted: DONE_BYTES as u64,
                    left: here.left(),
                },
                Err(short) => short,
            };
            // The preceding option may have lost a byte, and taken one from the next.
            let before = here.offset().saturating_sub(SHIFT_MAX as u64);
            let from = before.max(last.offset() + 1);
            body = last;
            body.bytes(from - last.offset())?;
            let skipped = find_options_before(body, end).ok_or(short)?;
            body.bytes(skipped)?;
            last = body;
            report(here.offset(), {
                let further = body.offset() as i64 - here.offset() as i64;
                format!("expected an option, found the next one {further} bytes further on")
            });
        }
    }

    fn take(&mut self, option: u16, mut data: Cursor<'_>, offset: u64) -> Result<(), String> {
        let text = before_nul(data.rest());
        let short = |short: Short| format!("option {option}: {short}");
        match option {
            // Microseconds.
            id::DATE => self.date = Some(number(text)?.wrapping_mul(1000)),
            id::OFFSET => self.offset = self.offset.wrapping_add(number(text)?),
            id::CPUSTAT => {
                self.cpu_stats.extend_from_slice(text);
                self.cpu_stats.push(b'\n');
            }
            id::BUFFER => self.buffers.push((offset, data.rest().to_vec().into())),
            id::BUFFER_TEXT => self.texts.push((offset, data.rest().to_vec().into())),
            id::TRACECLOCK => {
                self.has_clock = true;
                self.clock = current_clock(text).map(<[u8]>::to_vec);
            }
            id::UNAME => self.uname = Some(text.to_vec()),
            id::VERSION => self.version = Some(text.to_vec()),
            id::HOOK => self.hooks.push(text.to_vec()),
            id::CPUCOUNT => self.cpu_count = Some(data.u32().map_err(short)?),
            id::PROCMAPS => self.proc_maps.push(text.to_vec()),
            id::TRACEID => self.trace_id = Some(data.u64().map_err(short)?),
            id::TIME_SHIFT => self.time_shift = Some(Rc::new(time_shift(data).map_err(short)?)),
            id::GUEST => self.guests.push(guest(data).map_err(short)?),
            id::TSC2NSEC => {
                self.tsc = Some(Tsc {
                    mult: data.u32().map_err(short)?,
                    shift: data.u32().map_err(short)?,
                    offset: data.u64().map_err(short)?,
                });
            }
            id::LAST_BOOT_INFO => self.last_boot = Some(text.to_vec()),
            id::STRINGS => {}
            id::HEADER_INFO..=id::CMDLINES | id::MODULES_FILE => {
                let section = data.u64().map_err(short)?;
                self.sections.push((option, section));
            }
            // BTF of the kernel: not used.
            id::BTF_FILE => {}
            _ => return Err(format!("option {option} is not known here")),
        }
        Ok(())
    }
}

/// Distance from `body` to the next options that lead to `end`, or to a few bytes before or after it, if a byte is lost
/// or duplicated.
fn find_options_before(body: Cursor<'_>, end: u64) -> Option<u64> {
    let shifts = either_way(1..=SHIFT_MAX);
    let mut ends = std::iter::once(0)
        .chain(shifts)
        .filter_map(|shift| end.checked_add_signed(shift)?.checked_sub(body.offset()));
    ends.find_map(|length| {
        let bytes = body.rest().get(..usize::try_from(length).ok()?)?;
        find_options(bytes, body.endian()).map(|skipped| skipped as u64)
    })
}

/// Maximum distance of a section from its expected offset, in bytes.
pub(super) const SHIFT_MAX: i64 = 8;
/// Bytes searched for options: the largest contain the mappings of a few processes.
const SEARCHED_BYTES_MAX: usize = 4 << 20;
/// `u16 id, u32 size`
const OPTION_HEAD_BYTES: usize = 6;
/// DONE with its offset.
const DONE_BYTES: usize = OPTION_HEAD_BYTES + 8;

/// Offset in `bytes` of the first option of a sequence up to DONE that ends where `bytes` end. Random bytes may look
/// like an option, but hardly ever form a sequence to exactly that offset.
pub(super) fn find_options(bytes: &[u8], endian: Endian) -> Option<usize> {
    let begin = bytes.len().saturating_sub(SEARCHED_BYTES_MAX);
    let bytes = bytes.get(begin..)?;
    let done = bytes.len().checked_sub(DONE_BYTES)?;
    let head = |offset: usize| {
        let option = endian.u16_at(bytes, offset)?;
        let size = endian.u32_at(bytes, offset + 2)?;
        Some((option, usize::try_from(size).ok()?))
    };
    if head(done) != Some((id::DONE, 8)) {
        return None;
    }
    // Going backwards visits each offset once.
    let mut leads_to_done = vec![false; done + 1];
    *leads_to_done.last_mut()? = true;
    let mut first = done;
    for offset in (0..done).rev() {
        let Some((option @ id::DATE..=id::MODULES_FILE, size)) = head(offset) else {
            continue;
        };
        let next = (offset + OPTION_HEAD_BYTES).saturating_add(size);
        if leads_to_done.get(next) == Some(&true) && is_sized(option, size) {
            first = offset;
            if let Some(leads) = leads_to_done.get_mut(offset) {
                *leads = true;
            }
        }
    }
    Some(begin + first)
}

/// Whether options of version 7 begin here, and DONE ends where the bytes end.
pub(super) fn are_options(mut body: Cursor<'_>) -> bool {
    // No recorder writes more; a hostile file has many places that begin like options.
    const COUNT_MAX: usize = 1 << 10;
    for _ in 0..COUNT_MAX {
        let (Ok(option), Ok(size)) = (body.u16(), body.u32()) else {
            return false;
        };
        if option == id::DONE {
            return size == 8 && body.left() == 8;
        }
        let is_one = option <= id::MODULES_FILE && is_sized(option, size as usize);
        if !is_one || body.bytes(size.into()).is_err() {
            return false;
        }
    }
    false
}

/// Whether an option may have this many bytes of data.
fn is_sized(option: u16, size: usize) -> bool {
    match option {
        id::CPUCOUNT => size == 4,
        id::TRACEID | id::STRINGS..=id::CMDLINES | id::MODULES_FILE => size == 8,
        _ => size > 0,
    }
}

/// Whether DONE is followed by a size of 8 and an offset, as in version 7.
fn is_done_with_offset(mut cursor: Cursor<'_>) -> bool {
    cursor.u32().is_ok_and(|size| size == 8)
}

/// Parses a number like strtoll: `0x60dd710211802`, `-5`.
fn number(text: &[u8]) -> Result<i64, String> {
    let text = String::from_utf8_lossy(text);
    let text = text.trim();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.trim_start_matches('+')),
    };
    let value = match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => digits.parse::<i64>(),
    };
    match value {
        Ok(value) if negative => Ok(-value),
        Ok(value) => Ok(value),
        Err(_) => Err(format!("expected a number, found {text:?}")),
    }
}

/// `local [mono] boot` → `mono`
pub(super) fn current_clock(text: &[u8]) -> Option<&[u8]> {
    let start = text.iter().position(|&byte| byte == b'[')? + 1;
    let rest = text.get(start..)?;
    let end = rest.iter().position(|&byte| byte == b']')?;
    rest.get(..end)
}

/// `u64 peer, u32 flags, u32 cpus; { u32 n, u64 times[n], i64 offsets[n], u64 scalings[n] }; { u64 fractions[n] }`;
/// only newer files have the last part.
fn time_shift(mut data: Cursor<'_>) -> Result<TimeShift, Short> {
    let mut shift = TimeShift {
        peer: data.u64()?,
        flags: data.u32()?,
        cpus: Vec::new(),
    };
    for _ in 0..data.u32()? {
        let count = u64::from(data.u32()?);
        let mut column = || data.part(count * 8);
        let (mut times, mut offsets, mut scalings) = (column()?, column()?, column()?);
        let mut samples = Vec::new();
        while let (Ok(time), Ok(offset), Ok(scaling)) = (times.u64(), offsets.i64(), scalings.u64())
        {
            samples.push(Shift {
                time,
                offset,
                scaling,
                fraction: 0,
            });
        }
        shift.cpus.push(samples);
    }
    for sample in shift.cpus.iter_mut().flatten() {
        match data.u64() {
            Ok(fraction) => sample.fraction = fraction,
            Err(_) => break,
        }
    }
    for samples in &mut shift.cpus {
        samples.sort_by_key(|sample| sample.time);
        samples.dedup_by_key(|sample| sample.time);
    }
    Ok(shift)
}

/// `name NUL, u64 trace id, u32 n, { u32 virtual CPU, u32 thread of the host }`
fn guest(mut data: Cursor<'_>) -> Result<Guest, Short> {
    let mut guest = Guest {
        name: data.text_to_nul().to_vec(),
        trace_id: data.u64()?,
        cpus: Vec::new(),
    };
    for _ in 0..data.u32()? {
        guest.cpus.push((data.u32()?, data.u32()?));
    }
    Ok(guest)
}

/// The pages of one CPU, from a BUFFER option of version 7.
pub(super) struct BufferCpu {
    pub(super) cpu: u32,
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// A BUFFER option of version 7, or a BUFFER_TEXT, which ends after the clock.
pub(super) struct BufferOption<'a> {
    pub(super) section: u64,
    pub(super) name: &'a [u8],
    pub(super) clock: &'a [u8],
    pub(super) page_size: u32,
    pub(super) cpus: Vec<BufferCpu>,
}

/// Parses a BUFFER option of version 7.
pub(super) fn buffer_option<'a>(
    bytes: &'a [u8],
    offset: u64,
    endian: Endian,
    is_text: bool,
) -> Result<BufferOption<'a>, Short> {
    let mut data = Cursor::new(bytes, offset, endian);
    let mut buffer = BufferOption {
        section: data.u64()?,
        name: data.text_to_nul(),
        clock: data.text_to_nul(),
        page_size: 0,
        cpus: Vec::new(),
    };
    if is_text {
        return Ok(buffer);
    }
    buffer.page_size = data.u32()?;
    for _ in 0..data.u32()? {
        buffer.cpus.push(BufferCpu {
            cpu: data.u32()?,
            offset: data.u64()?,
            size: data.u64()?,
        });
    }
    Ok(buffer)
}

/// Returns the name of a section, for messages.
pub(super) fn section_name(section: u16) -> &'static str {
    match section {
        id::HEADER_INFO => "headers",
        id::FTRACE_EVENTS => "ftrace events",
        id::EVENT_FORMATS => "event formats",
        id::KALLSYMS => "kallsyms",
        id::PRINTK => "printk",
        id::CMDLINES => "command lines",
        id::MODULES_FILE => "modules",
        _ => "unknown",
    }
}

/// The head of a section of version 7.
#[derive(Clone, Copy)]
pub(super) struct SectionHead {
    pub(super) id: u16,
    pub(super) flags: u16,
    /// Offset of the name in the string section.
    pub(super) name: u32,
    pub(super) size: u64,
}

/// Reads the head of a section.
pub(super) fn section_head(cursor: &mut Cursor<'_>) -> Result<SectionHead, Short> {
    let (id, flags) = (cursor.u16()?, cursor.u16()?);
    Ok(SectionHead {
        id,
        flags,
        name: cursor.u32()?,
        size: cursor.u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(id: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = id.to_le_bytes().to_vec();
        bytes.extend((data.len() as u32).to_le_bytes());
        bytes.extend(data);
        bytes
    }

    fn take(bytes: &[u8]) -> (Options<'static>, Option<u64>, Vec<String>) {
        let mut options = Options::default();
        let mut problems = Vec::new();
        let mut cursor = Cursor::new(bytes, 0, Endian::Little);
        let next = options
            .take_all(&mut cursor, &mut |_, message| problems.push(message))
            .unwrap();
        (options, next, problems)
    }

    #[test]
    fn numbers_and_clocks() {
        let mut bytes = option(id::DATE, b"0x60dd710211802\0");
        bytes.extend(option(id::OFFSET, b"-7\0"));
        bytes.extend(option(id::TRACECLOCK, b"local global [mono] x86-tsc\n\0"));
        bytes.extend(option(99, b"??"));
        bytes.extend(option(id::OFFSET, b"later\0"));
        bytes.extend(option(id::DONE, &77u64.to_le_bytes()));
        let (options, next, problems) = take(&bytes);
        assert_eq!(options.date, Some(0x0006_0dd7_1021_1802 * 1000));
        assert_eq!(options.offset, -7);
        assert_eq!(options.clock.as_deref(), Some(&b"mono"[..]));
        assert_eq!(next, Some(77));
        assert_eq!(problems.len(), 2, "{problems:?}");
        // Version 6: an ID alone, then a tag.
        let (options, next, _) =
            take(&[option(id::UNAME, b"Linux\0"), b"\0\0flyrec".to_vec()].concat());
        assert_eq!(
            (options.uname.as_deref(), next),
            (Some(&b"Linux"[..]), None)
        );
    }

    #[test]
    fn time_shifts_with_and_without_fractions() {
        let words =
            |words: &[u64]| -> Vec<u8> { words.iter().flat_map(|w| w.to_le_bytes()).collect() };
        let mut data = words(&[9]);
        data.extend(1u32.to_le_bytes());
        data.extend(1u32.to_le_bytes());
        data.extend(2u32.to_le_bytes());
        data.extend(words(&[200, 100, -5i64 as u64, 10, 1, 1]));
        let mut bytes = option(id::TIME_SHIFT, &data);
        data.extend(words(&[0, 3]));
        bytes.extend(option(id::DONE, &[0; 8]));
        let shift = take(&bytes).0.time_shift.unwrap();
        let times: Vec<_> = shift.cpus[0]
            .iter()
            .map(|s| (s.time, s.offset, s.fraction))
            .collect();
        assert_eq!(times, [(100, 10, 0), (200, -5, 0)]);
        let shift = time_shift(Cursor::new(&data, 0, Endian::Little)).unwrap();
        assert_eq!(shift.cpus[0][0].fraction, 3);
        let cut = time_shift(Cursor::new(&data[..40], 0, Endian::Little));
        assert!(cut.is_err());
    }

    #[test]
    fn options_after_damage_are_found() {
        let options = [
            option(id::DATE, b"0x60dd710211802\0"),
            option(id::TRACECLOCK, b"local [mono]\0"),
            option(id::KALLSYMS, &99u64.to_le_bytes()),
            option(id::CPUCOUNT, &2u32.to_le_bytes()),
            option(id::DONE, &77u64.to_le_bytes()),
        ];
        let bytes = options.concat();
        let whole = bytes.len() as u64;
        let taken = |bytes: &[u8]| {
            let mut options = Options::default();
            let body = Cursor::new(bytes, 0, Endian::Little);
            let next = options.take_section(body, whole, &mut |_, _| {});
            (options, next)
        };
        let sizes: Vec<usize> = options.iter().map(Vec::len).collect();
        for place in 0..bytes.len() - DONE_BYTES {
            for damage in 0..3 {
                let mut damaged = bytes.clone();
                match damage {
                    0 => drop(damaged.remove(place)),
                    1 => damaged.insert(place, bytes[place]),
                    _ => damaged[place] = !bytes[place],
                }
                let (options, next) = taken(&damaged);
                assert_eq!(next, Ok(77), "{place} {damage}");
                // Only the damaged option is lost.
                let before = sizes[0];
                if place >= before {
                    assert_eq!(options.date, Some(0x0006_0dd7_1021_1802 * 1000));
                }
                if !(before - 1..before + sizes[1]).contains(&place) {
                    assert_eq!(
                        options.clock.as_deref(),
                        Some(&b"mono"[..]),
                        "{place} {damage}"
                    );
                }
                if place < before + sizes[1] - 1 {
                    assert_eq!(options.sections, [(id::KALLSYMS, 99)]);
                    assert_eq!(options.cpu_count, Some(2));
                }
            }
        }
        // A page of zeros does not end the options.
        let zeros = [vec![0; sizes[0]], bytes[sizes[0]..].to_vec()].concat();
        let (options, next) = taken(&zeros);
        assert_eq!((options.cpu_count, next), (Some(2), Ok(77)));
        assert!(taken(&bytes[..bytes.len() - 1]).1.is_err());
        assert!(taken(&[]).1.is_err());
    }
}
