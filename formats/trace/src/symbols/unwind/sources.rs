//! Sources of unwind rules in a file: call frame information, Go's own tables, and known code without either.

use std::ops::Range;

use super::super::files::Found;
use super::cfi::{CallFrames, Function, Scratch};
use super::go::{GoFrames, GoFunction};
use super::rule::Rule;
use super::stubs::{Stub, stubs_of};

/// Rules that are evaluated for Go's functions, in multiples of their number: 6 in Go's own compiler.
const GO_WORK_MAX: usize = 256;

/// Bytes of the code where a program begins, at most. glibc's loader has 80, without call frame information.
pub(super) const ENTRY_BYTES: u64 = 128;

/// The sources of a file's rules.
pub(super) struct Sources {
    frames: Option<CallFrames>,
    go: Option<GoFrames>,
    /// Code outside of all functions, by address.
    stubs: Vec<Stub>,
    scratch: Scratch,
}

enum Source<'a> {
    Stub(&'a Stub),
    Frames(&'a Function),
    Go(&'a GoFunction),
}

/// An item passed by [`Sources::each`].
pub(super) enum Item {
    /// A rule and the first address that it applies to.
    Rule(u64, Rule),
    /// The end of a function that began there. Go's functions all keep frame pointers.
    End { start: u64, end: u64, is_go: bool },
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
        functions.sort_by_key(|function| function.start);
        let mut stubs = stubs_of(&found.image, &functions);
        stubs.extend(entry_of(found.image.entry, &functions));
        stubs.sort_by_key(|stub| stub.code.start);
        Sources {
            frames,
            go,
            stubs,
            scratch: Scratch::default(),
        }
    }

    /// Size of the call frame information that was read.
    pub(super) fn bytes(&self) -> u64 {
        self.frames.as_ref().map_or(0, CallFrames::bytes)
    }

    /// The rule at an address of the file.
    pub(super) fn rule_at(&mut self, address: u64) -> Rule {
        let Sources {
            frames,
            go,
            stubs,
            scratch,
        } = self;
        let of_frames = frames
            .as_ref()
            .map(|frames| frames.rule_at(address, scratch));
        let of_functions = match (of_frames, go) {
            (None | Some(Rule::Gap), Some(go)) => go.rule_at(address),
            (rule, _) => rule.unwrap_or(Rule::Gap),
        };
        if of_functions != Rule::Gap {
            return of_functions;
        }
        let next = stubs.partition_point(|stub| stub.code.start <= address);
        let stub = next.checked_sub(1).and_then(|last| stubs.get(last));
        let stub = stub.filter(|stub| stub.code.contains(&address));
        stub.map_or(Rule::Gap, |stub| stub.rule_at(address))
    }

    /// Passes the rules of all functions, by address.
    pub(super) fn each(&mut self, each: &mut dyn FnMut(Item)) {
        let Sources {
            frames,
            go,
            stubs,
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
        let functions = of_frames.chain(of_go).chain(of_stubs);
        let mut functions: Vec<(u64, Source<'_>)> = functions.collect();
        functions.sort_by_key(|(start, _)| *start);
        let mut last_cie = None;
        for (start, source) in functions {
            let (end, is_go) = match (source, &*frames, &*go) {
                (Source::Frames(function), Some(frames), _) => {
                    let state = (&mut last_cie, &mut *scratch);
                    frames.rules_of(function, state, &mut |address, rule| {
                        each(Item::Rule(address, rule));
                    });
                    (function.end, false)
                }
                (Source::Go(function), _, Some(go)) => {
                    go.rules_of(function, &mut |address, rule| {
                        each(Item::Rule(address, rule));
                        go_work = go_work.saturating_sub(1);
                        go_work > 0
                    });
                    (function.end, true)
                }
                (Source::Stub(stub), ..) => {
                    for (address, rule) in &stub.rules {
                        each(Item::Rule(*address, *rule));
                    }
                    (stub.code.end, false)
                }
                _ => continue,
            };
            each(Item::End { start, end, is_go });
        }
    }
}

/// The code at the entry point, if no function covers it: the outermost frame.
fn entry_of(start: u64, functions: &[Range<u64>]) -> Option<Stub> {
    let next = functions.partition_point(|function| function.start <= start);
    let before = next.checked_sub(1).and_then(|last| functions.get(last));
    if start == 0 || before.is_some_and(|function| start < function.end) {
        return None;
    }
    let end = start.saturating_add(ENTRY_BYTES);
    let next = functions.get(next).map_or(end, |next| next.start.min(end));
    Some(Stub {
        code: start..next,
        rules: vec![(start, Rule::Root)],
    })
}
