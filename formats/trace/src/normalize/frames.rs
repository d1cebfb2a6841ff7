//! Distinct code locations: a frame is a module and an offset, so that a thousand processes of one binary share it.
//!
//! ```text
//! 40: 0x55d3c0001234 → frame 1: /bin/sh + 0x1234        41: 0x561200001234 → frame 1
//! 40: 0x55d3c0001234 as a return address → frame 2      (the call is the preceding instruction)
//! kernel: 0xffffffff81000042 → frame 3: [kernel.kallsyms], absolute
//! ```
//! Frames that come with names (text formats) are distinguished by all their members, including the chain of functions
//! inlined into them.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};
use perfquet_events::bytes::Endian;
use perfquet_events::event::{NamedFrame, Space};

use super::limits::Limits;
use super::mappings::{AddressMap, Range};
use super::modules::{ModuleId, Modules, Placing};
use super::texts::{TextId, Texts};

/// Slots of the cache in front of the hash table.
const RECENT: usize = 4096;

/// ID of a frame, as in `frames.frame_id`.
pub(crate) type FrameId = u32;

/// The identity of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Frame {
    /// An offset in a module's file.
    Offset(ModuleId, u64),
    /// An absolute address in a module.
    Address(ModuleId, u64),
    /// An absolute address without a known module.
    Unmapped(u64),
    /// A frame named by its format.
    Named(TextId),
}

/// A frame with its space and whether it is a return address, in 16 bytes: there are millions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameKey {
    place: u64,
    module: u32,
    kind: Kind,
    pub(crate) space: Space,
    pub(crate) return_address: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Offset,
    Address,
    Unmapped,
    Named,
}

impl FrameKey {
    fn new(frame: Frame, space: Space, return_address: bool) -> FrameKey {
        let (kind, module, place) = match frame {
            Frame::Offset(module, offset) => (Kind::Offset, module.0, offset),
            Frame::Address(module, address) => (Kind::Address, module.0, address),
            Frame::Unmapped(address) => (Kind::Unmapped, 0, address),
            Frame::Named(id) => (Kind::Named, id.0, 0),
        };
        FrameKey {
            place,
            module,
            kind,
            space,
            return_address,
        }
    }

    /// The identity of the frame.
    pub(crate) fn frame(&self) -> Frame {
        match self.kind {
            Kind::Offset => Frame::Offset(ModuleId(self.module), self.place),
            Kind::Address => Frame::Address(ModuleId(self.module), self.place),
            Kind::Unmapped => Frame::Unmapped(self.place),
            Kind::Named => Frame::Named(TextId(self.module)),
        }
    }

    fn hash(&self, hasher: &DefaultHashBuilder) -> u64 {
        let rest = u64::from(self.module) << 8
            | (self.kind as u64) << 5
            | (self.space as u64) << 1
            | u64::from(self.return_address);
        hasher.hash_one((self.place, rest))
    }
}

/// One frame of a group: an inlined frame and its outer frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupFrame {
    pub(crate) function: Vec<u8>,
    pub(crate) module: Vec<u8>,
    pub(crate) build_id: Vec<u8>,
    pub(crate) file: Vec<u8>,
    pub(crate) function_offset: Option<u64>,
    pub(crate) module_offset: Option<u64>,
    pub(crate) address: Option<u64>,
    pub(crate) line: Option<u64>,
}

#[derive(Clone, Copy, Default)]
struct Recent {
    address: u64,
    /// Generation of the map, space and direction; 0 if free.
    tag: u64,
    id: FrameId,
}

/// A frame in the table: half of its hash nearly always decides without reading the frame.
#[derive(Clone, Copy)]
struct Indexed {
    hash: u32,
    index: u32,
}

/// All frames not written yet.
pub(crate) struct Frames {
    keys: Vec<FrameKey>,
    /// Maximum number of frames kept.
    most: usize,
    /// ID of the first of `keys`.
    first: FrameId,
    index: HashTable<Indexed>,
    /// The range of the last address, and its map's generation.
    last_range: (u64, Option<Range>),
    recent: Box<[Recent; RECENT]>,
    named: Texts,
    scratch: Vec<u8>,
    hasher: DefaultHashBuilder,
}

impl Default for Frames {
    fn default() -> Self {
        Frames {
            keys: Vec::new(),
            most: Limits::IMPORT.frames,
            first: 1,
            index: HashTable::new(),
            last_range: (0, None),
            recent: Box::new([Recent::default(); RECENT]),
            named: Texts::default(),
            scratch: Vec::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl Frames {
    /// An empty set of frames, whose first gets this ID.
    pub(crate) fn starting_at(first: FrameId, limits: Limits) -> Frames {
        Frames {
            first,
            most: limits.frames,
            ..Frames::default()
        }
    }

    /// The frame at an address of a map.
    #[inline]
    pub(crate) fn at(
        &mut self,
        address: u64,
        return_address: bool,
        space: Space,
        map: &AddressMap,
        modules: &Modules,
    ) -> FrameId {
        let tag = map.generation << 4 | (space as u64) << 1 | u64::from(return_address);
        let place = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52) as usize;
        if let Some(recent) = self.recent.get(place)
            && recent.address == address
            && recent.tag == tag
        {
            return recent.id;
        }
        let frame = self.frame_at(address, return_address, map, modules);
        let id = self.intern(FrameKey::new(frame, space, return_address));
        if let Some(slot) = self.recent.get_mut(place) {
            *slot = Recent { address, tag, id };
        }
        id
    }

    /// The frame named by a format: the code that ran, then the functions that it was inlined into.
    pub(crate) fn named(&mut self, group: &[NamedFrame<'_>], return_address: bool) -> FrameId {
        self.scratch.clear();
        for frame in group {
            append_frame(&mut self.scratch, frame);
        }
        let text = self.named.intern(&self.scratch);
        let space = group.first().map_or(Space::Unknown, |frame| frame.space);
        self.intern(FrameKey::new(Frame::Named(text), space, return_address))
    }

    /// Members of a named frame, innermost first.
    pub(crate) fn group(&self, id: TextId) -> Vec<GroupFrame> {
        let mut rest = self.named.get(id);
        let mut group = Vec::new();
        while let Some(frame) = take_group_frame(&mut rest) {
            group.push(frame);
        }
        group
    }

    /// Whether the frames must be written before more come.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.keys.len() >= self.most
    }

    /// The frames kept, and the ID of the first.
    pub(crate) fn kept(&self) -> (FrameId, &[FrameKey]) {
        (self.first, &self.keys)
    }

    /// Forgets all frames; the next gets the ID `next`.
    pub(crate) fn restart(&mut self, next: FrameId) {
        self.keys.clear();
        self.index.clear();
        self.recent.fill(Recent::default());
        self.named = Texts::default();
        self.first = next;
    }

    fn intern(&mut self, key: FrameKey) -> FrameId {
        let half = (key.hash(&self.hasher) >> 16) as u32;
        let hash = spread(half);
        let keys = &self.keys;
        let known = self.index.find(hash, |known| {
            known.hash == half && keys.get(known.index as usize) == Some(&key)
        });
        let index = match known {
            Some(known) => known.index,
            None => {
                let index = keys.len() as u32;
                let new = Indexed { hash: half, index };
                self.index
                    .insert_unique(hash, new, |known| spread(known.hash));
                self.keys.push(key);
                index
            }
        };
        self.first.wrapping_add(index)
    }

    fn frame_at(
        &mut self,
        address: u64,
        return_address: bool,
        map: &AddressMap,
        modules: &Modules,
    ) -> Frame {
        // The call may be the last instruction of its mapping: then the return address is past its end.
        let looked_up = address.saturating_sub(u64::from(return_address));
        let range = match self.last_range {
            (generation, Some(range))
                if generation == map.generation
                    && (range.start..range.end).contains(&looked_up) =>
            {
                Some(range)
            }
            _ => map.find(looked_up),
        };
        let Some(range) = range else {
            return Frame::Unmapped(address);
        };
        self.last_range = (map.generation, Some(range));
        match modules.placing(range.module) {
            Placing::Offset => Frame::Offset(
                range.module,
                address
                    .wrapping_sub(range.start)
                    .wrapping_add(range.file_offset),
            ),
            Placing::Address | Placing::Symbol { .. } => Frame::Address(range.module, address),
        }
    }
}

/// The half of a hash that is kept, spread for the table, which uses the lowest and the highest bits.
#[inline]
fn spread(half: u32) -> u64 {
    u64::from(half).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Appends all that identifies a frame, except for its space.
pub(super) fn append_frame(out: &mut Vec<u8>, frame: &NamedFrame<'_>) {
    append(out, frame.function);
    append(out, frame.module);
    append(out, frame.build_id);
    append(out, frame.file);
    append_number(out, frame.function_offset);
    append_number(out, frame.module_offset);
    append_number(out, frame.address);
    append_number(out, frame.line.map(u64::from));
}

fn append(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

fn append_number(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    out.extend_from_slice(&number.unwrap_or(0).to_le_bytes());
}

/// Decodes one frame of [`append_frame`]; `None` at the end.
fn take_group_frame(rest: &mut &[u8]) -> Option<GroupFrame> {
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at_checked(count)?;
        *rest = left;
        Some(taken)
    };
    let mut text = || {
        let length = Endian::Little.u32_at(take(4)?, 0)?;
        Some(take(length as usize)?.to_vec())
    };
    let (function, module, build_id, file) = (text()?, text()?, text()?, text()?);
    let mut number = || {
        let known = take(1)?.first() == Some(&1);
        let number = Endian::Little.u64_at(take(8)?, 0)?;
        Some(known.then_some(number))
    };
    Some(GroupFrame {
        function,
        module,
        build_id,
        file,
        function_offset: number()?,
        module_offset: number()?,
        address: number()?,
        line: number()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_without_a_mapping_differ_by_address_space_and_direction() {
        let mut frames = Frames::default();
        let (map, modules) = (AddressMap::default(), Modules::default());
        let mut at = |address, returned, space| frames.at(address, returned, space, &map, &modules);
        assert_eq!(at(1, false, Space::User), 1);
        assert_eq!(at(1, true, Space::User), 2);
        assert_eq!(at(1, false, Space::Kernel), 3);
        assert_eq!(at(2, false, Space::User), 4);
        assert_eq!(at(1, false, Space::User), 1);
        frames.restart(5);
        assert_eq!(frames.at(1, false, Space::User, &map, &modules), 5);
    }

    #[test]
    fn appended_frames_are_returned() {
        let mut frames = Frames::default();
        let inlined = NamedFrame {
            function: b"inner",
            inlined: true,
            ..NamedFrame::default()
        };
        let outer = NamedFrame {
            function: b"outer",
            module: b"/bin/a",
            function_offset: Some(4),
            address: Some(0x1234),
            file: b"a.c",
            line: Some(7),
            ..NamedFrame::default()
        };
        let group = [inlined, outer];
        assert_eq!(frames.named(&group, false), 1);
        assert_eq!(frames.named(&[outer], false), 2);
        assert_eq!(frames.named(&group, false), 1);
        let (_, keys) = frames.kept();
        let Frame::Named(id) = keys[0].frame() else {
            panic!("not a named frame")
        };
        let group = frames.group(id);
        assert_eq!(group.len(), 2);
        assert_eq!(group[0].function, b"inner");
        assert_eq!(group[1].module, b"/bin/a");
        assert_eq!(group[1].address, Some(0x1234));
        assert_eq!(
            (group[1].file.as_slice(), group[1].line),
            (&b"a.c"[..], Some(7))
        );
        assert_eq!(group[0].address, None);
    }
}
