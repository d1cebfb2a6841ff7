//! Code that linkers and compilers add to a file without call frame information: stubs of the procedure linkage table (in
//! files rewritten by BOLT), and GCC's code for the start and end of a library. Every process runs the latter.
//!
//! ```text
//! .plt   ff 25 …           jmp *…        CFA = rsp+8
//!        68 02 00 00 00    push 2        CFA = rsp+8
//!        e9 …              jmp .plt      CFA = rsp+16
//! .init  48 83 ec 08       sub rsp, 8    CFA = rsp+8
//!        …                               CFA = rsp+16
//! .text  80 3d … 75 …      __do_global_dtors_aux: cmpb …; jne …
//!        55 … 48 89 e5     push rbp; …; mov rbp, rsp
//! ```

use std::ops::Range;

use super::super::elf::Elf;
use super::rule::{Frame, RBP, RSP, Rbp, Rule};

const PLT_ENTRY_BYTES: u64 = 16;
const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const SUB_RSP: [u8; 4] = [0x48, 0x83, 0xec, 8];
const ADD_RSP_RET: [u8; 5] = [0x48, 0x83, 0xc4, 8, 0xc3];
const MOV_RBP_RSP: [u8; 3] = [0x48, 0x89, 0xe5];

/// Bytes of uncovered code that are searched for GCC's functions: they are at the start of `.text`, after `.plt`.
const GAP_SEARCHED_BYTES: usize = 64 << 10;
/// Gaps of a file that are searched.
const GAPS_SEARCHED: usize = 64;
/// A function is looked for in gaps of at least this size; smaller ones are padding.
const GAP_LEAST_BYTES: u64 = 64;
/// Bytes of `deregister_tm_clones` and `register_tm_clones`, which precede `__do_global_dtors_aux`.
const CLONES_BYTES: usize = 0x70;
/// Bytes of `__do_global_dtors_aux`, at most.
const DESTRUCTORS_BYTES: usize = 80;

/// Bytes of the code where a program begins, at most. glibc's loader has 80, without call frame information.
pub(super) const ENTRY_BYTES: u64 = 128;

/// Code with its rules, by first address.
pub(super) struct Stub {
    pub(super) code: Range<u64>,
    pub(super) rules: Vec<(u64, Rule)>,
}

impl Stub {
    /// The rule at an address of its code.
    pub(super) fn rule_at(&self, address: u64) -> Rule {
        let next = self.rules.partition_point(|(start, _)| *start <= address);
        let rule = next.checked_sub(1).and_then(|last| self.rules.get(last));
        rule.map_or(Rule::Gap, |(_, rule)| *rule)
    }
}

/// Finds the stubs of a file, sorted by address, in code outside of its functions. `functions` are the addresses of these,
/// sorted by their starts.
pub(super) fn stubs_of(image: &Elf, functions: &[Range<u64>]) -> Vec<Stub> {
    let mut stubs = stubs_in_sections(image, &|address| covers(functions, address));
    let known: Vec<Range<u64>> = stubs.iter().map(|stub| stub.code.clone()).collect();
    for gap in gaps(image, functions, GAP_LEAST_BYTES).take(GAPS_SEARCHED) {
        if let Some(code) = image.code_at(gap.start) {
            let bytes = usize::try_from(gap.end - gap.start).unwrap_or(usize::MAX);
            let code = code.get(..bytes.min(GAP_SEARCHED_BYTES)).unwrap_or(code);
            let found = end_of_library(gap.start, code);
            let is_new = |stub: &Stub| !known.iter().any(|range| overlap(range, &stub.code));
            stubs.extend(found.filter(is_new));
        }
    }
    stubs.sort_by_key(|stub| stub.code.start);
    stubs
}

/// Finds those stubs that have a section of their own. `is_function` returns whether a function is at an address.
pub(super) fn stubs_in_sections(image: &Elf, is_function: &dyn Fn(u64) -> bool) -> Vec<Stub> {
    let mut stubs = Vec::new();
    for (name, read) in [
        (&b".plt"[..], lazy_stubs as fn(u64, &[u8]) -> Option<Stub>),
        (b".plt.got", direct_stubs),
        (b".plt.sec", direct_stubs),
        (b".init", init_or_fini),
        (b".fini", init_or_fini),
    ] {
        let section = image.section(name).map(|section| section.addresses());
        let Some(addresses) = section else { continue };
        let Some(code) = image.code_at(addresses.start) else {
            continue;
        };
        let size = usize::try_from(addresses.end - addresses.start).unwrap_or(0);
        let is_free = !is_function(addresses.start);
        if let Some(code) = code.get(..size).filter(|_| is_free) {
            stubs.extend(read(addresses.start, code));
        }
    }
    stubs.sort_by_key(|stub| stub.code.start);
    stubs
}

/// The code at the entry point, which no function covers, up to the next function: the outermost frame.
pub(super) fn entry_of(start: u64, next: Option<u64>) -> Option<Stub> {
    let end = start.saturating_add(ENTRY_BYTES);
    let end = next.map_or(end, |next| next.min(end));
    (start > 0).then(|| Stub {
        code: start..end,
        rules: vec![(start, Rule::Root)],
    })
}

fn overlap(left: &Range<u64>, right: &Range<u64>) -> bool {
    left.start < right.end && right.start < left.end
}

fn covers(functions: &[Range<u64>], address: u64) -> bool {
    let next = functions.partition_point(|function| function.start <= address);
    let last = next.checked_sub(1).and_then(|last| functions.get(last));
    last.is_some_and(|function| address < function.end)
}

/// Returns the gaps of executable code between functions, without those shorter than `least_bytes`.
pub(super) fn gaps<'a>(
    image: &'a Elf,
    functions: &'a [Range<u64>],
    least_bytes: u64,
) -> impl Iterator<Item = Range<u64>> + 'a {
    let codes = image.code_addresses().into_iter();
    codes.flat_map(move |code| {
        let first = functions.partition_point(|function| function.end <= code.start);
        let inside = functions.get(first..).unwrap_or_default().iter();
        let end = code.end;
        let inside = inside
            .take_while(move |function| function.start < end)
            .cloned();
        let mut from = code.start;
        inside
            .chain(std::iter::once(end..end))
            .filter_map(move |function| {
                let gap = from..function.start;
                from = from.max(function.end);
                (gap.end > gap.start && gap.end - gap.start >= least_bytes).then_some(gap)
            })
    })
}

/// The rule of code that has moved rsp by some words since its entry.
fn at_rsp(words: i32) -> Rule {
    frame(RSP, 8 * (words + 1), Rbp::Same)
}

fn frame(base: u8, offset: i32, rbp: Rbp) -> Rule {
    Rule::Frame(Frame::at(base, offset, rbp))
}

/// `.plt`: a stub that calls the dynamic linker, then one per function.
fn lazy_stubs(start: u64, code: &[u8]) -> Option<Stub> {
    let pushed_from = match code.get(PLT_ENTRY_BYTES as usize..)? {
        [0xff, 0x25, _, _, _, _, 0x68, ..] => 11,
        [0xf3, 0x0f, 0x1e, 0xfa, 0x68, ..] => 9,
        _ => return None,
    };
    let stub = |offset, rule| (start.saturating_add(offset), rule);
    Some(Stub {
        code: start..start.saturating_add(code.len() as u64),
        rules: vec![
            stub(0, at_rsp(1)),
            stub(6, at_rsp(2)),
            stub(PLT_ENTRY_BYTES, Rule::Plt { pushed_from }),
        ],
    })
}

/// `.plt.got`, `.plt.sec`: stubs that only jump.
fn direct_stubs(start: u64, code: &[u8]) -> Option<Stub> {
    let jump = code.strip_prefix(&ENDBR).unwrap_or(code);
    let jump = jump.strip_prefix(&[0xf2]).unwrap_or(jump);
    jump.starts_with(&[0xff, 0x25]).then(|| Stub {
        code: start..start.saturating_add(code.len() as u64),
        rules: vec![(start, at_rsp(0))],
    })
}

/// `.init`, `.fini`: one function each.
fn init_or_fini(start: u64, code: &[u8]) -> Option<Stub> {
    let body = code.strip_prefix(&ENDBR).unwrap_or(code);
    if !body.starts_with(&SUB_RSP) || !code.ends_with(&ADD_RSP_RET) {
        return None;
    }
    let moved = start.saturating_add((code.len() - body.len() + SUB_RSP.len()) as u64);
    let end = start.saturating_add(code.len() as u64);
    Some(Stub {
        code: start..end,
        rules: vec![(start, at_rsp(0)), (moved, at_rsp(1)), (end - 1, at_rsp(0))],
    })
}

/// `deregister_tm_clones`, `register_tm_clones`, `__do_global_dtors_aux` and `frame_dummy` of GCC's crtbegin.o: all
/// functions but the third are leaves.
fn end_of_library(start: u64, code: &[u8]) -> Option<Stub> {
    let starts = code.windows(11).position(|window| {
        matches!(
            window,
            [0x80, 0x3d, _, _, _, _, 0, 0x75, _, 0x55, 0x48 | 0xe8]
        )
    });
    let compared = starts?;
    let body = code.get(compared..)?;
    let body = body.get(..DESTRUCTORS_BYTES).unwrap_or(body);
    let pushed = 10;
    let has_frame = MOV_RBP_RSP.len() + find(body, &MOV_RBP_RSP)?;
    let popped = 1 + find(body, &[0x5d, 0xc3])?;
    let skipped = 9 + usize::from(*body.get(8)?);
    if has_frame < pushed || popped < has_frame || skipped < popped || skipped > body.len() {
        return None;
    }
    let is_marked = compared >= ENDBR.len() && code.get(..compared)?.ends_with(&ENDBR);
    let entry = compared - if is_marked { ENDBR.len() } else { 0 };
    let clones = entry.checked_sub(CLONES_BYTES).filter(|&clones| {
        let code = code.get(clones..).unwrap_or_default();
        matches!(code, [0x48, 0x8d, 0x3d, ..] | [0xb8, ..])
    });
    // frame_dummy is a jump, after padding.
    let rest = compared + skipped + 1;
    let aligned = rest + (start as usize).wrapping_add(rest).wrapping_neg() % 16;
    let dummy = code.get(aligned..).unwrap_or_default();
    let jump = dummy.strip_prefix(&ENDBR).unwrap_or(dummy);
    let end = match jump {
        [0xe9 | 0xeb, ..] => aligned + (dummy.len() - jump.len()) + 5,
        _ => rest,
    };
    let at = |offset: usize| start.saturating_add(offset as u64);
    let saved = Rbp::AtCfa(-16);
    let first = clones.unwrap_or(entry);
    Some(Stub {
        code: at(first)..at(end),
        rules: vec![
            (at(first), at_rsp(0)),
            (at(compared + pushed), frame(RSP, 16, saved)),
            (at(compared + has_frame), frame(RBP, 16, saved)),
            (at(compared + popped), at_rsp(0)),
        ],
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stub: Option<Stub>, expected: &[(u64, Rule)]) {
        let stub = stub.unwrap();
        for (address, rule) in expected {
            assert!(stub.code.contains(address), "{address:#x}");
            assert_eq!(stub.rule_at(*address), *rule, "{address:#x}");
        }
    }

    #[test]
    fn lazy_stubs_push_before_their_last_jump() {
        let mut code = vec![
            0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0, 0x0f, 0x1f, 0x40, 0,
        ];
        code.extend([0xff, 0x25, 0, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0]);
        let expected = [
            (0x1000, at_rsp(1)),
            (0x1006, at_rsp(2)),
            (0x1010, Rule::Plt { pushed_from: 11 }),
            (0x101b, Rule::Plt { pushed_from: 11 }),
        ];
        check(lazy_stubs(0x1000, &code), &expected);
        assert!(lazy_stubs(0x1000, &code[..16]).is_none());
        assert!(lazy_stubs(0x1000, &[0x90; 64]).is_none());
    }

    #[test]
    fn init_moves_the_stack_pointer() {
        // As in a library of Debian 12.
        let code = [
            0x48, 0x83, 0xec, 8, 0x48, 0x8b, 5, 1, 2, 3, 4, 0x48, 0x85, 0xc0, 0x74, 2, 0xff, 0xd0,
            0x48, 0x83, 0xc4, 8, 0xc3,
        ];
        let expected = [
            (0x1000, at_rsp(0)),
            (0x1004, at_rsp(1)),
            (0x1012, at_rsp(1)),
            (0x1016, at_rsp(0)),
        ];
        check(init_or_fini(0x1000, &code), &expected);
        assert!(init_or_fini(0x1000, &code[4..]).is_none());
    }

    #[test]
    fn destructors_of_a_library_have_a_frame_pointer() {
        // libz.so.1 of Debian 12, from its .text.
        let mut code = vec![0x90; 0x40];
        let start = code.len();
        code.extend([0x48, 0x8d, 0x3d, 0x41, 0xae, 0x01, 0]);
        code.resize(start + CLONES_BYTES, 0xc3);
        code.extend(ENDBR);
        code.extend([0x80, 0x3d, 0xcd, 0xad, 0x01, 0, 0, 0x75, 0x2b, 0x55]);
        code.extend([
            0x48, 0x83, 0x3d, 0x12, 0xac, 0x01, 0, 0, 0x48, 0x89, 0xe5, 0x74, 0x0c,
        ]);
        code.extend([
            0x48, 0x8b, 0x3d, 0xae, 0xad, 0x01, 0, 0xe8, 0x59, 0xff, 0xff, 0xff,
        ]);
        code.extend([
            0xe8, 0x64, 0xff, 0xff, 0xff, 0xc6, 0x05, 0xa5, 0xad, 0x01, 0, 1, 0x5d, 0xc3,
        ]);
        code.extend([0x0f, 0x1f, 0, 0xc3, 0x0f, 0x1f, 0x80, 0, 0, 0, 0]);
        code.extend(ENDBR);
        code.extend([0xe9, 0x77, 0xff, 0xff, 0xff]);
        let saved = Rbp::AtCfa(-16);
        let expected = [
            (0x3340, at_rsp(0)),
            (0x33b0, at_rsp(0)),
            (0x33bd, at_rsp(0)),
            (0x33be, frame(RSP, 16, saved)),
            (0x33c9, frame(RBP, 16, saved)),
            (0x33d7, frame(RBP, 16, saved)),
            (0x33e3, frame(RBP, 16, saved)),
            (0x33e4, at_rsp(0)),
            (0x33e8, at_rsp(0)),
            (0x33f8, at_rsp(0)),
        ];
        check(end_of_library(0x3300, &code), &expected);
        for length in 0..code.len() {
            let _ = end_of_library(0x3300, &code[..length]);
        }
    }
}
