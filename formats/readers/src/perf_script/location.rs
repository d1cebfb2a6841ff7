//! The fields after an event's name, in perf's order, each of them optional.
//!
//! ```text
//!  7f0012345678 buf (/x)  10268100142 |OP LOAD|LVL L1 hit   45   401186 main+0x3 (/x)   1f2d0c0   4K 4K  ABI:2 AX:0x30
//!  addr                   data_src                     weight    ip                     physical  pages  registers …
//! ```
//! Numbers have sixteen columns, except for those that are longer. This distinguishes them from symbols like `add`.
//! `tools/perf/builtin-script.c`, `process_event`.

use perfquet_events::event::NamedFrame;
use perfquet_events::scan::{bare_hex, decimal, find_text, rsplit_once, trim};

use super::frame;

/// `%16lx`, `%16lu`.
const WIDTH: usize = 16;
/// More numbers than perf prints.
const MAX_NUMBERS: usize = 8;

/// What a head's line says about the place of a sample.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Location<'a> {
    pub(super) addr: Option<u64>,
    pub(super) data_src: Option<u64>,
    pub(super) weight: Option<u64>,
    pub(super) frame: Option<NamedFrame<'a>>,
    pub(super) phys_addr: Option<u64>,
    pub(super) data_page_size: Option<u64>,
    pub(super) code_page_size: Option<u64>,
    /// Branches, registers and instructions.
    pub(super) tail: &'a [u8],
    /// The first text that is none of these.
    pub(super) unread: &'a [u8],
    /// Whether the first of several numbers has the digits of an address.
    pub(super) has_address: bool,
}

/// A number, and the text up to the next one.
#[derive(Debug, Clone, Copy, Default)]
struct Number<'a> {
    digits: &'a [u8],
    value: u64,
    text: &'a [u8],
}

impl Number<'_> {
    /// Whether the digits are those of an address: weights are decimal and smaller.
    fn is_address(&self) -> bool {
        self.digits.len() > 10 || self.digits.iter().any(|digit| !digit.is_ascii_digit())
    }

    fn is_data_src(&self) -> bool {
        self.text.starts_with(b"|")
    }
}

/// Parses the text after an event's name. `has_addr` states that other lines have an address in the first column, which
/// may be decimal by chance.
pub(super) fn location(text: &[u8], has_addr: bool) -> Location<'_> {
    let mut location = Location::default();
    let mut numbers = [Number::default(); MAX_NUMBERS];
    let count = numbers_of(text, &mut numbers, &mut location);
    let numbers = numbers.get_mut(..count).unwrap_or_default();
    if let Some(last) = numbers.last_mut() {
        last.text = page_sizes(last.text, &mut location);
    }
    let Some(at) = instruction(numbers) else {
        return location;
    };
    let (before, rest) = numbers.split_at(at);
    if let Some((ip, after)) = rest.split_first() {
        location.instruction(*ip);
        location.after(ip.text, after);
    }
    location.data(before, has_addr);
    location
}

/// Finds the numbers; the rest of the line from the first branch or register on becomes the tail.
fn numbers_of<'a>(
    text: &'a [u8],
    numbers: &mut [Number<'a>],
    location: &mut Location<'a>,
) -> usize {
    let (mut count, mut place, mut text_start) = (0, 0, 0);
    let mut after_number = false;
    let mut end = text.len();
    while let Some((start, stop)) = next_word(text, place) {
        let word = text.get(start..stop).unwrap_or_default();
        if is_tail(word) {
            end = start;
            location.tail = text.get(start..).unwrap_or_default();
            break;
        }
        let is_wide = stop - place >= width_after(text.get(text_start..place).unwrap_or_default());
        // Pasted text may have lost its columns.
        let is_close = after_number && is_long(word);
        let number = bare_hex(word).filter(|_| count == 0 || is_wide || is_close);
        after_number = false;
        if let Some(value) = number
            && let Some(slot) = numbers.get_mut(count)
        {
            *slot = Number {
                digits: word,
                value,
                text: &[],
            };
            close(numbers, count, text, text_start, start, location);
            (count, text_start, after_number) = (count + 1, stop, true);
        }
        place = stop;
    }
    close(numbers, count, text, text_start, end, location);
    count
}

/// Gives the text before number `count` to the number before it.
fn close<'a>(
    numbers: &mut [Number<'a>],
    count: usize,
    text: &'a [u8],
    start: usize,
    end: usize,
    location: &mut Location<'a>,
) {
    let text = trim(text.get(start..end).unwrap_or_default());
    match count.checked_sub(1).and_then(|last| numbers.get_mut(last)) {
        Some(number) => number.text = text,
        None if !is_flags(text) => location.unread = text,
        None => {}
    }
}

/// The columns of a number after this text: after a data source or a module, fewer blanks tell it from a symbol.
fn width_after(text: &[u8]) -> usize {
    match trim(text) {
        [b'|', ..] | [.., b')'] => WIDTH / 2,
        _ => WIDTH,
    }
}

fn next_word(text: &[u8], place: usize) -> Option<(usize, usize)> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = place + text.get(place..)?.iter().position(|byte| !is_blank(byte))?;
    let length = text.get(start..)?.iter().position(is_blank);
    Some((start, length.map_or(text.len(), |length| start + length)))
}

/// Long enough for an address, and not a word like `facade`.
fn is_long(word: &[u8]) -> bool {
    word.len() > 4 && word.iter().any(u8::is_ascii_digit)
}

/// Flags of branches in instruction traces (`tools/perf/util/event.h`), or nothing.
fn is_flags(text: &[u8]) -> bool {
    const WORDS: [&[u8]; 23] = [
        b"call", b"return", b"jcc", b"jmp", b"int", b"iret", b"syscall", b"sysret", b"async",
        b"hw", b"tx", b"abrt", b"tr", b"strt", b"end", b"vmentry", b"vmexit", b"x", b"(x)", b"D",
        b"t", b"(D)", b"(t)",
    ];
    text.split(|byte| *byte == b' ')
        .all(|word| word.is_empty() || WORDS.contains(&word))
}

/// The number that is the instruction's address: the last one with a symbol, else the last one.
fn instruction(numbers: &[Number<'_>]) -> Option<usize> {
    let is_jump = |number: &Number<'_>| number.text.ends_with(b"=>");
    let is_named = |number: &Number<'_>| !number.text.is_empty() && !number.is_data_src();
    let jump = numbers.iter().position(is_jump);
    let named = || numbers.iter().rposition(is_named);
    let last = || numbers.iter().rposition(|number| !number.is_data_src());
    jump.or_else(named).or_else(last)
}

impl<'a> Location<'a> {
    /// Whether the text is a frame and nothing else.
    pub(super) fn has_frame_alone(&self) -> bool {
        let has_data = self.addr.is_some() || self.weight.is_some() || self.data_src.is_some();
        self.frame.is_some() && self.unread.is_empty() && !has_data
    }

    fn instruction(&mut self, number: Number<'a>) {
        let text = trim(number.text.strip_suffix(b"=>").unwrap_or(number.text));
        let (text, unread) = after_module(text);
        if !unread.is_empty() {
            self.unread = unread;
        }
        self.frame = Some(frame::located(number.value, text));
    }

    /// The target of a jump, or the physical address of the data.
    fn after(&mut self, text: &[u8], numbers: &[Number<'a>]) {
        let [first, others @ ..] = numbers else {
            return;
        };
        if text.ends_with(b"=>") {
            self.addr = Some(first.value);
        } else {
            self.phys_addr = Some(first.value);
        }
        if let Some(other) = others.first() {
            self.unread = other.digits;
        }
    }

    /// Data address, data source, weight; then latencies, which have no column.
    fn data(&mut self, numbers: &[Number<'a>], has_addr: bool) {
        let source = numbers.iter().position(Number::is_data_src);
        let mut rest = numbers;
        let addr = match (numbers.first(), source) {
            (Some(first), Some(source)) => (source > 0).then_some(first),
            (Some(first), None) => {
                self.has_address = first.is_address();
                let is_addr = has_addr || first.is_address() || !first.text.is_empty();
                is_addr.then_some(first)
            }
            (None, _) => None,
        };
        if let Some(addr) = addr {
            self.addr = Some(addr.value);
            rest = rest.get(1..).unwrap_or_default();
        }
        if source.is_some()
            && let [data_src, others @ ..] = rest
        {
            self.data_src = Some(data_src.value);
            rest = others;
        }
        if let [weight, ..] = rest {
            self.weight = decimal(weight.digits);
            if self.weight.is_none() {
                self.unread = weight.digits;
            }
        }
    }
}

/// Splits off the sizes of data page and code page at the end.
fn page_sizes<'a>(text: &'a [u8], location: &mut Location<'a>) -> &'a [u8] {
    let Some((other, code)) = split_page(text) else {
        return text;
    };
    let Some((other, data)) = split_page(other) else {
        // Which of the two is printed is not visible.
        return other;
    };
    (location.data_page_size, location.code_page_size) = (data, code);
    other
}

/// `4K`, `2M`, `1G`, `N/A`
fn split_page(text: &[u8]) -> Option<(&[u8], Option<u64>)> {
    let (before, word) = rsplit_once(text, b" ").unwrap_or((&[], text));
    let size = match word.split_last()? {
        (b'A', b"N/") => None,
        (unit, digits) => {
            let shift = match unit {
                b'K' => 10,
                b'M' => 20,
                b'G' => 30,
                _ => return None,
            };
            let count = decimal(digits).filter(|count| *count < 4096 && count.is_power_of_two())?;
            Some(count << shift)
        }
    };
    Some((trim(before), size))
}

/// Splits off text after a module.
fn after_module(text: &[u8]) -> (&[u8], &[u8]) {
    if text.ends_with(b")") || text.first() == Some(&b'|') {
        return (text, &[]);
    }
    let opens = find_text(text, b" (/").or_else(|| find_text(text, b" (["));
    let end = opens.and_then(|opens| {
        let close = find_text(text.get(opens..)?, b") ")?;
        Some(opens + close + 1)
    });
    match end.and_then(|end| text.split_at_checked(end)) {
        Some((text, unread)) => (text, trim(unread)),
        None => (text, &[]),
    }
}

/// Whether a word begins the fields after the place: branches, registers, instructions.
pub(super) fn is_tail(word: &[u8]) -> bool {
    let named: [&[u8]; 4] = [b"ABI:", b"insn:", b"ilen:", b"IPC:"];
    named.iter().any(|name| word.starts_with(name)) || is_branch(word)
}

/// `0x401186/0x4011a0/P/-/-/12`, also with symbols or modules in place of the addresses, and with more parts.
pub(super) fn is_branch(word: &[u8]) -> bool {
    if !word.contains(&b'/') {
        return false;
    }
    let is_flags = |parts: &[&[u8]; 3]| {
        matches!(
            parts,
            [b"M" | b"P" | b"-" | b"PN" | b"MN", b"X" | b"-", b"A" | b"-"]
        )
    };
    let mut last: [&[u8]; 3] = [&[]; 3];
    for (place, part) in word.split(|byte| *byte == b'/').enumerate() {
        let [_, second, third] = last;
        last = [second, third, part];
        if place >= 4 && is_flags(&last) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = location(text.as_bytes(), false);
        let number = |name: &str, value: Option<u64>| match value {
            Some(value) => format!("{name}={value:x} "),
            None => String::new(),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut line = number("addr", found.addr);
        line += &number("data_src", found.data_src);
        line += &number("weight", found.weight);
        if let Some(frame) = found.frame {
            line += &number("ip", frame.address);
            if !frame.function.is_empty() {
                line += &format!("{} in {} ", text(frame.function), text(frame.module));
            }
        }
        line += &number("phys", found.phys_addr);
        line += &number("data_page", found.data_page_size);
        line += &number("code_page", found.code_page_size);
        for (name, bytes) in [("tail", found.tail), ("unread", found.unread)] {
            if !bytes.is_empty() {
                line += &format!("{name}:{}", text(bytes));
            }
        }
        assert_eq!(line.trim_end(), expected);
    }

    #[test]
    fn places() {
        check(
            "ffffffff81775b9a f+0x28a ([kernel.kallsyms])",
            "ip=ffffffff81775b9a f in [kernel.kallsyms]",
        );
        check("7fea89f8921a", "ip=7fea89f8921a");
        check("401186 add (/x)", "ip=401186 add in /x");
        check(
            "401186 operator new(unsigned long) (/a b)",
            "ip=401186 operator new(unsigned long) in /a b",
        );
    }

    #[test]
    fn data_addresses() {
        check(
            "55acf46ce5c0 ffffffff81775b9a",
            "addr=55acf46ce5c0 ip=ffffffff81775b9a",
        );
        check(
            "7f0000001000           401186 main+0x3 (/w/a program)",
            "addr=7f0000001000 ip=401186 main in /w/a program",
        );
        check(
            "55acf46ce5c0 __progname (/usr/bin/ls) ffffffff81775b9a elf_load ([kernel.kallsyms])",
            "addr=55acf46ce5c0 ip=ffffffff81775b9a elf_load in [kernel.kallsyms]",
        );
        check(
            "7f9c949ac110 dl_close_state.2 (/a b/ld.so)               7 ffffffff81775b9a elf_load ([kernel.kallsyms])",
            "addr=7f9c949ac110 weight=7 ip=ffffffff81775b9a elf_load in [kernel.kallsyms]",
        );
    }

    #[test]
    fn memory_events() {
        check(
            "0 ffffffff81775b9a elf_load ([k])",
            "weight=0 ip=ffffffff81775b9a elf_load in [k]",
        );
        check(
            "1e05080021 |OP N/A|LVL N/A or N/A|SNP N/A|BLK  N/A ffffffff81775b9a elf_load ([k])",
            "data_src=1e05080021 ip=ffffffff81775b9a elf_load in [k]",
        );
        check(
            "7f0012345678        10268100142 |OP LOAD|LVL L1 hit|BLK  N/A             45                 0            401136 main (/p)        1f2d0c0 4K 2M",
            "addr=7f0012345678 data_src=10268100142 weight=2d ip=401136 main in /p phys=1f2d0c0 data_page=1000 code_page=200000",
        );
        check(
            "ffffffff81775b9a elf_load ([k])               0",
            "ip=ffffffff81775b9a elf_load in [k] phys=0",
        );
    }

    #[test]
    fn tails() {
        check(
            "ffffffff81637cf4 ABI:2    AX:0x30",
            "ip=ffffffff81637cf4 tail:ABI:2    AX:0x30",
        );
        check(
            "401186 f (/x)  0x1/0x2/P/-/-/1",
            "ip=401186 f in /x tail:0x1/0x2/P/-/-/1",
        );
        check(
            "401186 f+0x1 (/x) insn: 48 83",
            "ip=401186 f in /x tail:insn: 48 83",
        );
        check("f(int)+0x1/g+0x2/M/-/-/0", "tail:f(int)+0x1/g+0x2/M/-/-/0");
    }

    #[test]
    fn jumps_and_strange_text() {
        check(
            "jmp                   401186 f (/x) =>           4011a0 g (/x)",
            "addr=4011a0 ip=401186 f in /x",
        );
        check("  call   401186 f (/x)", "ip=401186 f in /x");
        check("hello world", "unread:hello world");
        check("401186 f (/x) y z", "ip=401186 f in /x unread:y z");
        check("", "");
    }
}
