//! The code cache of one process.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use perfquet_events::bytes::{Endian, before_nul};
use perfquet_trace::symbols::limits::CODE_CACHE_RULES_MAX;
use perfquet_trace::symbols::{GeneratedCode, GeneratedRule};

use super::super::interpreters::{Mapped, Memory};
use super::layout::{Code, Flags, Layout, Variables};
use crate::sys::procfs::{self, Map};

/// Heaps of a code cache: at most 3.
const HEAPS_MAX: u64 = 16;
/// Bytes of a block and its blob that have the wanted members.
const HEAD_BYTES: u64 = 160;
/// Bytes of a name.
const NAME_MAX: u64 = 32;
/// Names that are known.
const NAMES_MAX: usize = 1 << 12;
/// The table has addresses of 32 bits.
const CACHE_BYTES_MAX: u64 = 1 << 31;
/// Words of a frame.
const FRAME_WORDS_MAX: i64 = 4096;
/// Power of two of the size of a segment.
const SEGMENT_BITS_MAX: u32 = 20;

/// A JVM's code cache.
pub(super) struct Heap {
    memory: Memory,
    layout: Layout,
    low: u64,
    high: u64,
    /// What a blob is, by the address of its name.
    kinds: HashMap<u64, Kind>,
    /// Whether all code has them.
    keeps_frame_pointers: bool,
    /// Of what was read last.
    hash: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Interpreter,
    /// Several stubs, which keep frame pointers.
    Stubs,
    Other,
}

impl Heap {
    /// Opens the code cache of a process. `variables` is read once: a JVM that starts is looked at again and again.
    pub(super) fn of(pid: i32, variables: &mut Option<Variables>) -> Result<Heap, String> {
        let variables = match variables {
            Some(known) => known,
            None => {
                let mut maps = Vec::new();
                procfs::read_maps(pid, &mut maps);
                let maps: Vec<Map<'_>> = procfs::parse_maps(&maps).collect();
                let is_jvm = |map: &&Map<'_>| super::is_jvm(map.path);
                let first = maps.iter().find(is_jvm).ok_or("it has ended")?;
                variables.insert(Variables::of(&Mapped::of(pid, first, &maps)?))
            }
        };
        let memory = Memory::of(pid)?;
        let layout = Layout::of(variables, &memory)?;
        let is_kept = |flags: Flags| flags.is_set("PreserveFramePointer", &memory);
        let keeps_frame_pointers = layout.flags.and_then(is_kept).unwrap_or(false);
        let mut heap = Heap {
            memory,
            layout,
            low: 0,
            high: 0,
            kinds: HashMap::new(),
            keeps_frame_pointers,
            hash: 0,
        };
        match heap.measure() {
            Some(()) => Ok(heap),
            None => Err("its code cache cannot be read".to_owned()),
        }
    }

    /// Finds the range of all heaps: they are created one after the other.
    fn measure(&mut self) -> Option<()> {
        let layout = self.layout;
        let (mut low, mut high) = (u64::MAX, 0);
        for space in self.spaces()? {
            low = low.min(self.word(space, layout.low_boundary)?);
            high = high.max(self.word(space, layout.high_boundary)?);
        }
        let bytes = high.checked_sub(low)?;
        if !(1..=CACHE_BYTES_MAX).contains(&bytes) {
            return None;
        }
        (self.low, self.high) = (low, high);
        Some(())
    }

    /// Start and end of the memory for code.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.low, self.high)
    }

    /// Reads the blobs; `None` if they are the same as before.
    pub(super) fn read(&mut self) -> Option<GeneratedCode> {
        self.measure()?;
        let mut rules: Vec<(u32, u32, GeneratedRule)> = Vec::new();
        for space in self.spaces()? {
            self.read_blobs(space, &mut rules);
        }
        rules.sort_unstable_by_key(|(start, ..)| *start);
        let mut hasher = DefaultHasher::new();
        (self.low, self.high, &rules).hash(&mut hasher);
        let hash = hasher.finish();
        let is_same = std::mem::replace(&mut self.hash, hash) == hash;
        (!is_same && !rules.is_empty())
            .then(|| GeneratedCode::of(&rules, self.keeps_frame_pointers))
    }

    /// The memory of each heap.
    fn spaces(&self) -> Option<Vec<u64>> {
        let layout = &self.layout;
        let array = self.memory.u64_at(layout.heaps)?;
        let length = self
            .memory
            .read(array.checked_add(layout.array_length)?, 4)?;
        let length = u64::from(Endian::Little.u32_at(&length, 0)?);
        let data = self.word(array, layout.array_data)?;
        let heap = |number: u64| self.word(data, number * 8)?.checked_add(layout.memory);
        (0..length.min(HEAPS_MAX)).map(heap).collect()
    }

    fn word(&self, at: u64, offset: u64) -> Option<u64> {
        self.memory.u64_at(at.checked_add(offset)?)
    }

    /// Adds the rules of a heap's blobs: start and end from the start of all memory for code.
    fn read_blobs(&mut self, space: u64, rules: &mut Vec<(u32, u32, GeneratedRule)>) -> Option<()> {
        let layout = self.layout;
        let (low, high) = (
            self.word(space, layout.low)?,
            self.word(space, layout.high)?,
        );
        let heap = space.checked_sub(layout.memory)?;
        let bits = self.memory.read(heap.checked_add(layout.segment)?, 4)?;
        let bits = Endian::Little.u32_at(&bits, 0)?;
        if bits > SEGMENT_BITS_MAX {
            return None;
        }
        let mut at = low;
        // Each has a block at least, and there may be free ones without an end.
        for _ in 0..CODE_CACHE_RULES_MAX {
            if at >= high || rules.len() as u64 >= CODE_CACHE_RULES_MAX {
                break;
            }
            let head = self.memory.read_up_to(at, HEAD_BYTES)?;
            let length = u64::try_from(layout.block.length.of(&head)?).ok()?;
            let is_used = *head.get(usize::try_from(layout.block.used).ok()?)? != 0;
            if is_used {
                let blob = at.checked_add(layout.block.bytes)?;
                let body = head.get(usize::try_from(layout.block.bytes).ok()?..)?;
                rules.extend(self.rules_of(blob, body).into_iter().flatten());
            }
            at = at.checked_add(length.checked_mul(1 << bits).filter(|bytes| *bytes > 0)?)?;
        }
        Some(())
    }

    fn rules_of(&mut self, blob: u64, body: &[u8]) -> Option<Vec<(u32, u32, GeneratedRule)>> {
        let layout = self.layout.blob;
        let (start, end) = match layout.code {
            Code::Pointers(start, end) => (start.of(body)? as u64, end.of(body)? as u64),
            Code::Offsets(start, end) => (
                blob.checked_add_signed(start.of(body)?)?,
                blob.checked_add_signed(end.of(body)?)?,
            ),
        };
        if start < self.low || end > self.high || start >= end {
            return None;
        }
        let place = |address: u64| u32::try_from(address - self.low).ok();
        let (from, to) = (place(start)?, place(end)?);
        let words = layout.frame_words.of(body)?;
        let complete = layout.frame_complete.of(body)?;
        let kind = self.kind_of(layout.name.of(body)? as u64);
        let rule = match kind {
            Kind::Interpreter => GeneratedRule::Interpreter,
            Kind::Stubs => GeneratedRule::FramePointer,
            Kind::Other if words < 2 => GeneratedRule::Entry,
            Kind::Other if words <= FRAME_WORDS_MAX => {
                GeneratedRule::Frame(u16::try_from(words).ok()?)
            }
            Kind::Other => return None,
        };
        let complete = u32::try_from(complete).unwrap_or(0).min(to - from);
        Some(match rule {
            GeneratedRule::Frame(_) if complete > 0 => vec![
                (from, from + complete, GeneratedRule::Entry),
                (from + complete, to, rule),
            ],
            _ => vec![(from, to, rule)],
        })
    }

    fn kind_of(&mut self, name: u64) -> Kind {
        if let Some(&kind) = self.kinds.get(&name) {
            return kind;
        }
        let text = self.memory.read_up_to(name, NAME_MAX).unwrap_or_default();
        let kind = match before_nul(&text) {
            b"Interpreter" => Kind::Interpreter,
            text if text.starts_with(b"StubRoutines") => Kind::Stubs,
            text if text.ends_with(b" stubs") => Kind::Stubs,
            _ => Kind::Other,
        };
        if self.kinds.len() < NAMES_MAX {
            self.kinds.insert(name, kind);
        }
        kind
    }
}
