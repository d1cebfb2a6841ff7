//! Functions whose code will be gone after the recording: generated code, files that were removed or replaced, the kernel's.
//!
//! ```text
//! sample at 0x7f2c4a3b1040 of process 4711   →  /tmp/perf-4711.map: 420 bytes from 0x7f2c4a3b1000 on, in its memory
//! sample in /srv/app, which was removed      →  102 bytes from the file that the recorder holds open
//! ```
//! Generated code is asked for at any time, since it changes. Files and the kernel are asked for once, at the end: only then it is
//! known which of them can still be read by others.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use perfquet_events::Error;
use perfquet_events::event::Space;

use super::super::frames::{Frame, FrameKey};
use super::super::modules::ModuleId;
use super::super::names;
use super::Interval;
use super::tally::Place;
use crate::symbols::limits::{KEPT_FUNCTION_BYTES_MAX, KEPT_PLACES_MAX};
use crate::symbols::{
    CodePlace, CodeReader, FirstMapped, KERNEL, Machine, Options, Symbolizer, generated_module,
    is_dump, is_generated,
};

/// A sampled function whose code is to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledFunction {
    /// Process whose code it is; `None` for the kernel.
    pub pid: Option<i32>,
    /// Path of the module, or a name in brackets.
    pub module: String,
    /// Its build ID.
    pub build_id: Option<Vec<u8>>,
    /// Start in the terms of frames: an offset in the module's file, or an address.
    pub start: u64,
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes, as its process says.
    pub size: u64,
    /// The beginning of the code with its instruction set, if a file has it; otherwise, it is in memory.
    pub code: Option<(Machine, Vec<u8>)>,
    /// Time of the last sample in it, on the clock of the recording.
    pub sampled: i64,
}

/// Finds functions to keep among sampled places.
pub struct CodeFinder {
    options: Options,
    symbolizer: Option<Symbolizer>,
    /// Generated code without a file, by process and address: the last sample and the first mapping.
    generated: BTreeMap<(i32, u64), (i64, FirstMapped)>,
    /// Code in files, by module and offset: the process of the last sample, and its time.
    files: BTreeMap<(ModuleId, u64), (i32, i64)>,
    /// The kernel's code by address.
    kernel: BTreeMap<u64, (ModuleId, i64)>,
    /// Places beyond the limit.
    beyond: u64,
}

impl CodeFinder {
    /// Knows no places yet. Names are found with these options.
    pub fn new(options: Options) -> CodeFinder {
        CodeFinder {
            options,
            symbolizer: None,
            generated: BTreeMap::new(),
            files: BTreeMap::new(),
            kernel: BTreeMap::new(),
            beyond: 0,
        }
    }

    /// Number of sampled places that were not noted, since there were too many.
    pub fn beyond(&self) -> u64 {
        self.beyond
    }

    /// Notes the places of an interval. Returns whether there is generated code among those that are new.
    pub fn add(&mut self, interval: &Interval) -> Result<bool, Error> {
        // The facts that it needs precede the first sample.
        if self.symbolizer.is_none() && !interval.places.is_empty() {
            self.symbolizer = Some(Symbolizer::new(
                self.options.clone(),
                interval.kernel.clone(),
                interval.origin.clone(),
            )?);
        }
        if let Some(symbolizer) = &mut self.symbolizer {
            interval.input.pass_to(symbolizer);
        }
        let before = self.generated.len();
        for (key, place) in &interval.places {
            self.note(key, *place, &interval.modules);
        }
        Ok(self.generated.len() > before)
    }

    fn note(&mut self, key: &FrameKey, place: Place, modules: &[names::Module]) {
        let count = self.generated.len() + self.files.len() + self.kernel.len();
        let has_room = (count as u64) < KEPT_PLACES_MAX;
        let module = |id: ModuleId| modules.get(id.0 as usize);
        let is_noted = match (key.space, key.frame()) {
            (Space::User, Frame::Address(id, address)) if place.pid > 0 => {
                let Some(module) = module(id).filter(|module| is_generated(module.path())) else {
                    return;
                };
                let noted = (place.time, module.first_mapped());
                put(&mut self.generated, (place.pid, address), noted, has_room)
            }
            (Space::User, Frame::Offset(id, offset)) => {
                let noted = (place.pid, place.time);
                put(&mut self.files, (id, offset), noted, has_room)
            }
            (Space::Kernel, Frame::Address(id, address)) => {
                put(&mut self.kernel, address, (id, place.time), has_room)
            }
            _ => return,
        };
        self.beyond += u64::from(!is_noted);
    }

    /// The generated functions of all places, as their processes name them now.
    pub fn generated(&mut self) -> Vec<SampledFunction> {
        let Some(symbolizer) = &mut self.symbolizer else {
            return Vec::new();
        };
        symbolizer.reread_generated();
        let mut functions: Vec<SampledFunction> = Vec::new();
        let mut known: HashMap<(i32, u64), usize> = HashMap::new();
        for (&(pid, address), &(sampled, first_mapped)) in &self.generated {
            let Some((start, end)) = symbolizer.generated_range(pid, address, first_mapped) else {
                continue;
            };
            let next = functions.len();
            let index = *known.entry((pid, start)).or_insert(next);
            match functions.get_mut(index) {
                Some(function) => function.sampled = function.sampled.max(sampled),
                None => functions.push(SampledFunction {
                    pid: Some(pid),
                    module: generated_module(pid),
                    build_id: None,
                    start,
                    address: start,
                    size: end - start,
                    code: None,
                    sampled,
                }),
            }
        }
        functions
    }

    /// The functions in files that others will not find, and those of the kernel, one by one until `keep` returns false.
    pub fn others(&mut self, interval: &Interval, keep: &mut dyn FnMut(SampledFunction) -> bool) {
        let mut lasting = CodeReader::new(
            &Options {
                roots: Default::default(),
                lines: None,
                ..self.options.clone()
            },
            interval.origin.clone(),
        );
        let mut reader = CodeReader::new(
            &Options {
                lines: None,
                ..self.options.clone()
            },
            interval.origin.clone(),
        );
        let modules: BTreeSet<ModuleId> = self.files.keys().map(|(module, _)| *module).collect();
        for id in modules {
            let Some(module) = interval.modules.get(id.0 as usize) else {
                continue;
            };
            let of_module = (id, 0)..=(id, u64::MAX);
            let places = self.files.range(of_module);
            let places = places.map(|(&(_, offset), &noted)| (offset, noted));
            let goes_on = match is_dump(module.path()) {
                true => match &mut self.symbolizer {
                    Some(symbolizer) => dumped(symbolizer, module.path(), places, keep),
                    None => true,
                },
                false => in_file((&mut lasting, &mut reader), module, places, keep),
            };
            if !goes_on {
                return;
            }
        }
        self.of_kernel(&mut lasting, &interval.modules, keep);
    }

    fn of_kernel(
        &mut self,
        lasting: &mut CodeReader,
        modules: &[names::Module],
        keep: &mut dyn FnMut(SampledFunction) -> bool,
    ) {
        let Some(symbolizer) = &mut self.symbolizer else {
            return;
        };
        let mut until = 0;
        for (&address, &(id, sampled)) in &self.kernel {
            if address < until {
                continue;
            }
            let Some(module) = modules.get(id.0 as usize) else {
                continue;
            };
            let is_lasting = module.path() == KERNEL
                && lasting.has_file(&CodePlace {
                    offset: address,
                    ..module.code_place(address)
                });
            if is_lasting {
                continue;
            }
            let Some((start, end)) = symbolizer.kernel_range(address) else {
                continue;
            };
            until = end;
            let goes_on = keep(SampledFunction {
                pid: None,
                module: module.path().to_owned(),
                build_id: module.build_id().map(<[u8]>::to_vec),
                start,
                address: start,
                size: end - start,
                code: None,
                sampled,
            });
            if !goes_on {
                return;
            }
        }
    }
}

/// Notes a place; returns false if there is no room for a new one.
fn put<K: Ord, V>(places: &mut BTreeMap<K, V>, key: K, noted: V, has_room: bool) -> bool {
    match places.get_mut(&key) {
        Some(known) => *known = noted,
        None if has_room => {
            places.insert(key, noted);
        }
        None => return false,
    }
    true
}

/// Functions of a file, unless others will find it.
fn in_file(
    (lasting, reader): (&mut CodeReader, &mut CodeReader),
    module: &names::Module,
    places: impl Iterator<Item = (u64, (i32, i64))>,
    keep: &mut dyn FnMut(SampledFunction) -> bool,
) -> bool {
    // Frames have no inode, by which the recorder finds a file without a build ID.
    let is_lasting = lasting.has_file(&CodePlace {
        file: None,
        first_mapped: None,
        ..module.code_place(0)
    });
    if is_lasting {
        return true;
    }
    let mut until = 0;
    for (offset, (pid, sampled)) in places {
        if offset < until {
            continue;
        }
        let Ok(code) = reader.function(&module.code_place(offset)) else {
            continue;
        };
        let start = code.offset_of(code.address);
        until = start.saturating_add(code.size);
        let mut bytes = code.bytes;
        bytes.truncate(KEPT_FUNCTION_BYTES_MAX as usize);
        let goes_on = keep(SampledFunction {
            pid: Some(pid).filter(|&pid| pid >= 0),
            module: module.path().to_owned(),
            build_id: module.build_id().map(<[u8]>::to_vec),
            start,
            address: code.address,
            size: code.size,
            code: Some((code.machine, bytes)),
            sampled,
        });
        if !goes_on {
            return false;
        }
    }
    reader.forget();
    lasting.forget();
    true
}

/// Functions of a jitdump, which has their code.
fn dumped(
    symbolizer: &mut Symbolizer,
    module: &str,
    places: impl Iterator<Item = (u64, (i32, i64))>,
    keep: &mut dyn FnMut(SampledFunction) -> bool,
) -> bool {
    let mut until = 0;
    for (offset, (pid, sampled)) in places {
        if offset < until {
            continue;
        }
        let Some(found) = symbolizer.dumped_code(module, offset) else {
            continue;
        };
        until = found.start.saturating_add(found.size);
        let goes_on = keep(SampledFunction {
            pid: Some(pid).filter(|&pid| pid >= 0),
            module: module.to_owned(),
            build_id: None,
            start: found.start,
            address: found.address,
            size: found.size,
            code: Some((Machine::of_number(found.machine), found.code)),
            sampled,
        });
        if !goes_on {
            return false;
        }
    }
    true
}
