//! Sources of unwind rules in a file: call frame information, and Go's own tables.

use std::ops::Range;

use super::super::files::Found;
use super::cfi::{CallFrames, Function, Scratch};
use super::go::{GoFrames, GoFunction};
use super::rule::Rule;

/// Rules that are evaluated for Go's functions, in multiples of their number: 6 in Go's own compiler.
const GO_WORK_MAX: usize = 256;

/// Bytes of the code where a program begins, at most. glibc's loader has 80, without call frame information.
const ENTRY_BYTES: u64 = 128;

/// The sources of a file's rules.
pub(super) struct Sources {
    frames: Option<CallFrames>,
    go: Option<GoFrames>,
    /// The code at the entry point, if no other source marks it as the outermost frame.
    entry: Option<Range<u64>>,
    scratch: Scratch,
}

enum Source<'a> {
    Entry(u64),
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
        let mut sources = Sources {
            frames: CallFrames::of(&found.image, found.debug.as_deref()),
            go: GoFrames::of(&found.image),
            entry: None,
            scratch: Scratch::default(),
        };
        let start = found.image.entry;
        if start > 0 && sources.rule_at(start) == Rule::Gap {
            let of_frames = sources.frames.iter().flat_map(CallFrames::functions);
            let of_go = sources.go.iter().flat_map(GoFrames::functions);
            let starts = of_frames.map(|function| function.start);
            let starts = starts.chain(of_go.map(|function| function.start));
            let next = starts.filter(|&other| other > start).min();
            let end = start.saturating_add(ENTRY_BYTES);
            sources.entry = Some(start..next.map_or(end, |next| next.min(end)));
        }
        sources
    }

    /// The rule at an address of the file.
    pub(super) fn rule_at(&mut self, address: u64) -> Rule {
        let Sources {
            frames,
            go,
            entry,
            scratch,
        } = self;
        if entry.as_ref().is_some_and(|entry| entry.contains(&address)) {
            return Rule::Root;
        }
        let of_frames = frames
            .as_ref()
            .map(|frames| frames.rule_at(address, scratch));
        match (of_frames, go) {
            (None | Some(Rule::Gap), Some(go)) => go.rule_at(address),
            (rule, _) => rule.unwrap_or(Rule::Gap),
        }
    }

    /// Passes the rules of all functions, by address.
    pub(super) fn each(&mut self, each: &mut dyn FnMut(Item)) {
        let Sources {
            frames,
            go,
            entry,
            scratch,
        } = self;
        let of_frames = frames.iter().flat_map(CallFrames::functions);
        let of_go = go.iter().flat_map(GoFrames::functions);
        let go_count = go.as_ref().map_or(0, |go| go.functions().len());
        let mut go_work = go_count.saturating_mul(GO_WORK_MAX);
        let of_frames = of_frames.map(|function| (function.start, Source::Frames(function)));
        let of_go = of_go.map(|function| (function.start, Source::Go(function)));
        let entry = entry
            .iter()
            .map(|entry| (entry.start, Source::Entry(entry.end)));
        let mut functions: Vec<(u64, Source<'_>)> = of_frames.chain(of_go).chain(entry).collect();
        functions.sort_by_key(|(start, _)| *start);
        for (start, source) in functions {
            let (end, is_go) = match (source, &*frames, &*go) {
                (Source::Frames(function), Some(frames), _) => {
                    frames.rules_of(function, scratch, &mut |address, rule| {
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
                (Source::Entry(end), ..) => {
                    each(Item::Rule(start, Rule::Root));
                    (end, false)
                }
                _ => continue,
            };
            each(Item::End { start, end, is_go });
        }
    }
}
