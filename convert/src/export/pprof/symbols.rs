//! Locations, functions, mappings and strings that the samples of a profile refer to.
//!
//! A location is an address with all functions inlined there. Readers reject the whole file if an ID is missing or
//! duplicated.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anyhow::Result;

use super::super::paths::{FunctionId, PathId, Paths};
use super::super::protobuf::Message;
use super::super::stacks::{Frame, FrameId, Stacks, TextId};
use super::profile;

/// First ID of the locations of calls, above those of frames.
const CALLS: u64 = 1 << 32;
/// The location of samples without a stack.
const NO_STACK: u64 = CALLS << 1;

/// The strings of a profile with their numbers; 0 is the empty string.
pub(super) struct Strings {
    numbers: HashMap<String, u64>,
    all: Vec<String>,
}

impl Strings {
    pub(super) fn new() -> Strings {
        let mut strings = Strings {
            numbers: HashMap::new(),
            all: Vec::new(),
        };
        strings.number("");
        strings
    }

    pub(super) fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = self.all.len() as u64;
        self.numbers.insert(text.to_owned(), number);
        self.all.push(text.to_owned());
        number
    }

    pub(super) fn all(&self) -> &[String] {
        &self.all
    }
}

/// The symbols that samples have referred to so far.
pub(super) struct Symbols<'t> {
    stacks: &'t Stacks,
    /// The outermost frame of each location.
    frames: BTreeSet<FrameId>,
    calls: BTreeSet<FunctionId>,
    /// Whether a sample had no stack.
    no_stack: bool,
    /// How often each module was the root of a user stack: the main program has the highest number.
    roots: HashMap<TextId, u64>,
    buffer: Vec<FrameId>,
}

/// Module and build ID.
type MappingKey = (Option<TextId>, Option<TextId>, bool);

impl<'t> Symbols<'t> {
    pub(super) fn new(stacks: &'t Stacks) -> Symbols<'t> {
        Symbols {
            stacks,
            frames: BTreeSet::new(),
            calls: BTreeSet::new(),
            no_stack: false,
            roots: HashMap::new(),
            buffer: Vec::new(),
        }
    }

    /// Adds the locations of a stack, leaf first.
    pub(super) fn locations_of(&mut self, stack: Option<i32>, locations: &mut Vec<u64>) {
        self.buffer.clear();
        self.stacks.frames_of(stack, &mut self.buffer);
        let mut root = None;
        for id in &self.buffer {
            let Some(frame) = self.stacks.frame(*id) else {
                continue;
            };
            // Inlined frames are lines of the location into which they are inlined.
            if frame.inlined_into.is_none() {
                self.frames.insert(*id);
                locations.push(u64::from(*id) + 1);
                root = Some(frame);
            }
        }
        if let Some(module) = root
            .filter(|root| !root.is_kernel)
            .and_then(|root| root.module)
        {
            *self.roots.entry(module).or_default() += 1;
        }
    }

    /// Adds the locations of a chain of calls, leaf first.
    pub(super) fn locations_of_calls(
        &mut self,
        paths: &Paths,
        path: PathId,
        locations: &mut Vec<u64>,
    ) {
        self.buffer.clear();
        paths.functions_of(path, &mut self.buffer);
        self.calls.extend(&self.buffer);
        locations.extend(
            self.buffer
                .iter()
                .map(|function| CALLS + u64::from(*function)),
        );
    }

    /// Returns the location of samples without a stack: pprof drops samples without a location, and their values with them.
    pub(super) fn no_stack(&mut self) -> u64 {
        self.no_stack = true;
        NO_STACK
    }

    /// Writes mappings, locations and functions.
    pub(super) fn write(
        &self,
        strings: &mut Strings,
        paths: &Paths,
        message: &mut Message,
        mut flush: impl FnMut(&mut Message) -> Result<()>,
    ) -> Result<()> {
        let mappings = self.mappings();
        let mut numbers: HashMap<MappingKey, u64> = HashMap::new();
        for (index, (key, ranges)) in mappings.into_iter().enumerate() {
            let number = index as u64 + 1;
            numbers.insert(key, number);
            let (module, build_id, _) = key;
            let path = strings.number(self.stacks.text(module).unwrap_or("[unknown]"));
            let build_id = strings.number(self.stacks.text(build_id).unwrap_or_default());
            message.message(profile::MAPPING, |message| {
                message.uint(1, number);
                message.uint(2, ranges.0);
                message.uint(3, ranges.1);
                message.uint(5, path);
                message.uint(6, build_id);
                // has_functions, has_filenames, has_line_numbers, has_inline_frames: without them, pprof looks up
                // missing names in the files of the host where it runs.
                for flag in 7..=10 {
                    message.bool(flag, true);
                }
            });
        }
        let mut functions: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let mut chain = Vec::new();
        for id in &self.frames {
            let Some(outer) = self.stacks.frame(*id) else {
                continue;
            };
            chain.clear();
            self.stacks.inlined_chain(*id, &mut chain);
            let lines: Vec<(u64, Option<i32>)> = chain
                .iter()
                .filter_map(|id| self.stacks.frame(*id))
                .map(|frame| {
                    let name = strings.number(&self.stacks.label(frame));
                    let file = strings.number(self.stacks.text(frame.file).unwrap_or_default());
                    let next = functions.len() as u64 + 1;
                    (*functions.entry((name, file)).or_insert(next), frame.line)
                })
                .collect();
            let mapping = numbers.get(&key_of(outer)).copied().unwrap_or(0);
            message.message(profile::LOCATION, |message| {
                message.uint(1, u64::from(*id) + 1);
                message.uint(2, mapping);
                message.uint(3, address(outer));
                for (function, line) in lines {
                    message.message(4, |message| {
                        message.uint(1, function);
                        if let Some(line) = line {
                            message.int(2, i64::from(line));
                        }
                    });
                }
            });
            if message.as_bytes().len() > 1 << 16 {
                flush(message)?;
            }
        }
        for id in &self.calls {
            let (name, module) = paths.function(*id);
            let (name, module) = (
                strings.number(name),
                strings.number(module.unwrap_or_default()),
            );
            let next = functions.len() as u64 + 1;
            let function = *functions.entry((name, module)).or_insert(next);
            message.message(profile::LOCATION, |message| {
                message.uint(1, CALLS + u64::from(*id));
                message.message(4, |message| message.uint(1, function));
            });
        }
        if self.no_stack {
            let next = functions.len() as u64 + 1;
            let key = (strings.number("[no stack]"), strings.number(""));
            let function = *functions.entry(key).or_insert(next);
            message.message(profile::LOCATION, |message| {
                message.uint(1, NO_STACK);
                message.message(4, |message| message.uint(1, function));
            });
        }
        for ((name, file), number) in functions {
            message.message(profile::FUNCTION, |message| {
                message.uint(1, number);
                message.uint(2, name);
                message.uint(3, name);
                message.uint(4, file);
            });
        }
        flush(message)
    }

    /// Returns the mappings with their ranges, the main program first: pprof prints the first mapping as the profile's
    /// file.
    fn mappings(&self) -> Vec<(MappingKey, (u64, u64))> {
        let mut ranges: HashMap<MappingKey, (u64, u64)> = HashMap::new();
        for frame in self.frames.iter().filter_map(|id| self.stacks.frame(*id)) {
            let address = address(frame);
            let range = ranges.entry(key_of(frame)).or_insert((address, address));
            range.0 = range.0.min(address);
            range.1 = range.1.max(address.saturating_add(1));
        }
        // File offsets begin at 0; kernel addresses do not.
        for (key, range) in &mut ranges {
            range.0 = if key.2 { range.0 & !0xfff } else { 0 };
        }
        let mut mappings: Vec<(MappingKey, (u64, u64))> = ranges.into_iter().collect();
        mappings.sort_by_key(|(key, _)| {
            let roots = key.0.and_then(|module| self.roots.get(&module)).copied();
            (std::cmp::Reverse(roots.unwrap_or(0)), *key)
        });
        mappings
    }
}

fn key_of(frame: &Frame) -> MappingKey {
    (frame.module, frame.build_id, frame.offset.is_none())
}

fn address(frame: &Frame) -> u64 {
    frame.offset.or(frame.address).unwrap_or(0)
}
