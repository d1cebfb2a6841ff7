//! Sources of unwind rules in a file: call frame information, Go's own tables, known code without either, and the instructions of
//! other code.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;

use super::super::elf::Elf;
use super::super::files::Found;
use super::super::limits::INSTRUCTION_BYTES_MAX;
use super::cfi::{CallFrames, Function, LastCie, Scratch};
use super::flow::{has_prologues as prologues_in, rules_of};
use super::go::{GoFrames, GoFunction};
use super::rule::Rule;
use super::stubs::{Stub, entry_of, gaps, stubs_of};

/// Rules that are evaluated for Go's functions, in multiples of their number: 6 in Go's own compiler.
const GO_WORK_MAX: usize = 256;

/// Bytes of code whose instructions are read, at least: shorter code is padding.
const INSTRUCTIONS_MIN: u64 = 16;
/// Rules from instructions take at most this many bytes for each byte of code; usually one for ten bytes.
const RULE_BYTES_MAX: u64 = 2;
/// Bytes of code that are in memory as instructions, up to 170 times as large, together.
const PIECE_BYTES: u64 = 128 << 10;
/// Different rules from instructions; code with more has none.
const DISTINCT_RULES_MAX: usize = 1 << 14;

/// The sources of a file's rules.
pub(super) struct Sources {
    frames: Option<CallFrames>,
    go: Option<GoFrames>,
    /// Code outside of all functions, by address.
    stubs: Vec<Stub>,
    rest: Rest,
    scratch: Scratch,
}

/// Code outside of all functions and stubs.
struct Rest {
    image: Arc<Elf>,
    /// Pieces by address.
    pieces: Vec<Piece>,
    /// Whether it has frame pointers, once needed.
    has_prologues: Option<bool>,
    distinct: Vec<Rule>,
    indices: HashMap<Rule, u16>,
    /// Rules that may still be kept.
    left: u64,
}

/// A piece of code. It may have a rule for each byte, of few kinds.
struct Piece {
    addresses: Range<u64>,
    /// Offset of the first byte, and index of the rule; once needed.
    rules: Option<Vec<(u32, u16)>>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Stub(&'a Stub),
    Frames(&'a Function),
    Go(&'a GoFunction),
    Instructions(&'a Piece),
}

/// An item passed by [`Sources::each`].
pub(super) enum Item {
    /// A rule and the first address that it applies to.
    Rule(u64, Rule),
    /// The end of a function that began there.
    End {
        start: u64,
        end: u64,
        origin: RuleOrigin,
    },
}

/// The source of a function's rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleOrigin {
    /// Call frame information, or known code.
    Frames,
    /// Go's tables. Go's functions all keep frame pointers.
    Go,
    /// Instructions, of several functions together.
    Instructions,
}

impl Sources {
    /// Reads the file's lists of functions.
    pub(super) fn of(found: &Found) -> Sources {
        let frames = CallFrames::of(&found.image, found.debug.as_deref());
        let go = GoFrames::of(&found.image);
        let of_frames = frames.iter().flat_map(CallFrames::functions);
        let of_go = go.iter().flat_map(GoFrames::functions);
        let of_frames = of_frames.map(|function| function.start..function.end);
        let of_go = of_go.map(|function| function.start..function.end);
        let mut functions: Vec<Range<u64>> = of_frames.chain(of_go).collect();
        functions.sort_unstable_by_key(|function| function.start);
        let mut stubs = stubs_of(&found.image, &functions);
        let entry = found.image.entry;
        let next = functions.partition_point(|function| function.start <= entry);
        let before = next.checked_sub(1).and_then(|last| functions.get(last));
        if before.is_none_or(|function| function.end <= entry) {
            stubs.extend(entry_of(entry, functions.get(next).map(|next| next.start)));
        }
        stubs.sort_by_key(|stub| stub.code.start);
        functions.extend(stubs.iter().map(|stub| stub.code.clone()));
        functions.sort_unstable_by_key(|function| function.start);
        let rest = Rest::between(&functions, &found.image);
        Sources {
            frames,
            go,
            stubs,
            rest,
            scratch: Scratch::default(),
        }
    }

    /// Size of the call frame information that was read.
    pub(super) fn frame_bytes(&self) -> u64 {
        self.frames.as_ref().map_or(0, CallFrames::bytes)
    }

    /// The same, with the rules that replace it elsewhere.
    pub(super) fn bytes(&self) -> u64 {
        self.frame_bytes()
            .saturating_add(self.rest.code_bytes() * RULE_BYTES_MAX)
    }

    /// The rule at an address of the file.
    pub(super) fn rule_at(&mut self, address: u64) -> Rule {
        let Sources {
            frames,
            go,
            stubs,
            rest,
            scratch,
        } = self;
        let of_frames = frames
            .as_ref()
            .map(|frames| frames.rule_at(address, scratch));
        let of_functions = match (of_frames, &*go) {
            (None | Some(Rule::Gap), Some(go)) => go.rule_at(address),
            (rule, _) => rule.unwrap_or(Rule::Gap),
        };
        if of_functions != Rule::Gap {
            return of_functions;
        }
        let next = stubs.partition_point(|stub| stub.code.start <= address);
        let stub = next.checked_sub(1).and_then(|last| stubs.get(last));
        let stub = stub.filter(|stub| stub.code.contains(&address));
        match stub.map_or(Rule::Gap, |stub| stub.rule_at(address)) {
            Rule::Gap if rest.contains(address) => {
                let begins = |address| begins(frames.as_ref(), go.as_ref(), stubs, address);
                rest.rule_at(address, &begins)
            }
            rule => rule,
        }
    }

    /// Passes the rules of all functions, by address.
    pub(super) fn each(&mut self, each: &mut dyn FnMut(Item)) {
        let Sources {
            frames,
            go,
            stubs,
            rest,
            scratch,
        } = self;
        let of_frames = frames.iter().flat_map(CallFrames::functions);
        let of_go = go.iter().flat_map(GoFrames::functions);
        let go_count = go.as_ref().map_or(0, |go| go.functions().len());
        let mut go_work = go_count.saturating_mul(GO_WORK_MAX);
        let of_frames = of_frames.map(|function| (function.start, Source::Frames(function)));
        let of_go = of_go.map(|function| (function.start, Source::Go(function)));
        let of_stubs = stubs
            .iter()
            .map(|stub| (stub.code.start, Source::Stub(stub)));
        let begins = |address| begins(frames.as_ref(), go.as_ref(), stubs, address);
        rest.derive_all(&begins);
        let of_rest = rest.pieces.iter();
        let of_rest = of_rest.map(|piece| (piece.addresses.start, Source::Instructions(piece)));
        let mut sources = Merged {
            frames: of_frames.peekable(),
            go: of_go.peekable(),
            stubs: of_stubs.peekable(),
            rest: of_rest.peekable(),
        };
        let mut last_cie = LastCie::default();
        while let Some((start, source)) = sources.next() {
            let (end, origin) = match (source, &*frames, &*go) {
                (Source::Frames(function), Some(frames), _) => {
                    let state = (&mut last_cie, &mut *scratch);
                    frames.rules_of(function, state, &mut |address, rule| {
                        each(Item::Rule(address, rule));
                    });
                    (function.end, RuleOrigin::Frames)
                }
                (Source::Go(function), _, Some(go)) => {
                    go.rules_of(function, &mut |address, rule| {
                        each(Item::Rule(address, rule));
                        go_work = go_work.saturating_sub(1);
                        go_work > 0
                    });
                    (function.end, RuleOrigin::Go)
                }
                (Source::Stub(stub), ..) => {
                    for (address, rule) in &stub.rules {
                        each(Item::Rule(*address, *rule));
                    }
                    (stub.code.end, RuleOrigin::Frames)
                }
                (Source::Instructions(piece), ..) => {
                    for (offset, rule) in piece.rules.iter().flatten() {
                        let address = start.saturating_add(u64::from(*offset));
                        each(Item::Rule(address, rest.rule(*rule)));
                    }
                    (piece.addresses.end, RuleOrigin::Instructions)
                }
                _ => continue,
            };
            each(Item::End { start, end, origin });
        }
    }
}

/// Sources by their starts, from iterators that are sorted: a list of all of them would have 32 bytes for each function.
struct Merged<F: Iterator, G: Iterator, S: Iterator, R: Iterator> {
    frames: Peekable<F>,
    go: Peekable<G>,
    stubs: Peekable<S>,
    rest: Peekable<R>,
}

impl<'a, F, G, S, R> Merged<F, G, S, R>
where
    F: Iterator<Item = (u64, Source<'a>)>,
    G: Iterator<Item = (u64, Source<'a>)>,
    S: Iterator<Item = (u64, Source<'a>)>,
    R: Iterator<Item = (u64, Source<'a>)>,
{
    fn next(&mut self) -> Option<(u64, Source<'a>)> {
        let starts = [
            self.frames.peek().map(|(start, _)| *start),
            self.go.peek().map(|(start, _)| *start),
            self.stubs.peek().map(|(start, _)| *start),
            self.rest.peek().map(|(start, _)| *start),
        ];
        let places = starts.iter().zip(0..);
        let starts = places.filter_map(|(start, place)| Some(((*start)?, place)));
        match starts.min()?.1 {
            0 => self.frames.next(),
            1 => self.go.next(),
            2 => self.stubs.next(),
            _ => self.rest.next(),
        }
    }
}

/// Whether a function or a stub begins at an address.
fn begins(
    frames: Option<&CallFrames>,
    go: Option<&GoFrames>,
    stubs: &[Stub],
    address: u64,
) -> bool {
    let in_frames = frames.is_some_and(|frames| {
        let found = frames
            .functions()
            .binary_search_by_key(&address, |function| function.start);
        found.is_ok()
    });
    let in_go = || {
        go.is_some_and(|go| {
            let found = go
                .functions()
                .binary_search_by_key(&address, |function| function.start);
            found.is_ok()
        })
    };
    let in_stubs = || {
        let next = stubs.partition_point(|stub| stub.code.start <= address);
        let stub = next.checked_sub(1).and_then(|last| stubs.get(last));
        stub.is_some_and(|stub| stub.code.contains(&address))
    };
    in_frames || in_go() || in_stubs()
}

impl Rest {
    /// The code between functions and stubs, which are sorted by their starts.
    fn between(covered: &[Range<u64>], image: &Arc<Elf>) -> Rest {
        let mut left = INSTRUCTION_BYTES_MAX;
        let mut pieces = Vec::new();
        for gap in gaps(image, covered, INSTRUCTIONS_MIN) {
            let mut start = gap.start;
            while start < gap.end && left > 0 {
                let end = gap.end.min(start.saturating_add(PIECE_BYTES.min(left)));
                left -= end - start;
                pieces.push(Piece {
                    addresses: start..end,
                    rules: None,
                });
                start = end;
            }
            if left == 0 {
                break;
            }
        }
        let mut rest = Rest {
            image: Arc::clone(image),
            pieces,
            has_prologues: None,
            distinct: vec![Rule::Gap],
            indices: HashMap::from_iter([(Rule::Gap, 0)]),
            left: 0,
        };
        rest.left = rest.code_bytes() * RULE_BYTES_MAX / 8;
        rest
    }

    fn code_bytes(&self) -> u64 {
        let addresses = self.pieces.iter().map(|piece| &piece.addresses);
        addresses.map(|piece| piece.end - piece.start).sum()
    }

    /// The place of the piece with an address.
    fn place_of(&self, address: u64) -> Option<usize> {
        let next = self
            .pieces
            .partition_point(|piece| piece.addresses.start <= address);
        let place = next.checked_sub(1)?;
        let piece = self.pieces.get(place)?;
        piece.addresses.contains(&address).then_some(place)
    }

    fn contains(&self, address: u64) -> bool {
        self.place_of(address).is_some()
    }

    /// The rule at an address. Only its piece is read.
    fn rule_at(&mut self, address: u64, begins: &dyn Fn(u64) -> bool) -> Rule {
        let Some(place) = self.place_of(address) else {
            return Rule::Gap;
        };
        self.derive(place, begins);
        let Some(piece) = self.pieces.get(place) else {
            return Rule::Gap;
        };
        let offset = address - piece.addresses.start;
        let rules = piece.rules.as_deref().unwrap_or_default();
        let next = rules.partition_point(|(first, _)| u64::from(*first) <= offset);
        let rule = next.checked_sub(1).and_then(|last| rules.get(last));
        rule.map_or(Rule::Gap, |(_, rule)| self.rule(*rule))
    }

    fn derive_all(&mut self, begins: &dyn Fn(u64) -> bool) {
        for place in 0..self.pieces.len() {
            self.derive(place, begins);
        }
    }

    /// Finds the rules of a piece.
    fn derive(&mut self, place: usize, begins: &dyn Fn(u64) -> bool) {
        let Rest {
            image,
            pieces,
            has_prologues,
            distinct,
            indices,
            left,
        } = self;
        // V8's builtins leave by jumps that no return follows, but they all have frame pointers.
        let has_prologues = *has_prologues.get_or_insert_with(|| {
            let codes = pieces.iter().map(|piece| code_of(image, &piece.addresses));
            prologues_in(codes)
        });
        let Some(piece) = pieces.get_mut(place).filter(|piece| piece.rules.is_none()) else {
            return;
        };
        let mut rules = Vec::new();
        let found = match has_prologues {
            true => Vec::new(),
            false => {
                let code = code_of(image, &piece.addresses);
                rules_of(piece.addresses.start, code, begins)
            }
        };
        for (address, mut rule) in found {
            if *left == 0 {
                rule = Rule::Gap;
            }
            let next = distinct.len();
            let index = match indices.get(&rule) {
                Some(index) => *index,
                None if next < DISTINCT_RULES_MAX => {
                    distinct.push(rule);
                    indices.insert(rule, next as u16);
                    next as u16
                }
                None => 0,
            };
            let offset = address.saturating_sub(piece.addresses.start);
            rules.push((u32::try_from(offset).unwrap_or(u32::MAX), index));
            if *left == 0 {
                break;
            }
            *left -= 1;
        }
        rules.shrink_to_fit();
        piece.rules = Some(rules);
    }

    fn rule(&self, index: u16) -> Rule {
        let rule = self.distinct.get(usize::from(index));
        rule.copied().unwrap_or(Rule::Gap)
    }
}

fn code_of<'a>(image: &'a Elf, addresses: &Range<u64>) -> &'a [u8] {
    let code = image.code_at(addresses.start).unwrap_or_default();
    let bytes = usize::try_from(addresses.end - addresses.start).unwrap_or(usize::MAX);
    code.get(..bytes).unwrap_or(code)
}
