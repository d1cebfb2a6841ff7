//! The prefix tree of all stacks: a node is a frame and, through its parent, its callers.
//!
//! ```text
//! main ← parse ← read        node 1: main         node 2: parse, parent 1      node 3: read, parent 2
//! main ← parse ← skip        node 4: skip, parent 2
//! ```
//! Nodes are numbered from 1 in the order of arrival, so that a parent's ID is always smaller; 0 is the empty stack.
//! They become rows immediately; only the index is kept.
//!
//! Most chains are repeated: a single hash finds the whole chain. Most others share their outer part with the preceding
//! chain, found by comparison. The rest is usually a run of new nodes, each a child of the previous one. Such a child
//! directly follows its parent; only other nodes are in a hash table.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use perfquet_events::event::{NamedFrame, Space};

use super::frames::{FrameId, Frames};
use super::limits::Limits;
use super::mappings::AddressMap;
use super::modules::Modules;
use super::named_chains::NamedChains;

/// ID of a node, as in `stacks.stack_id`.
pub(crate) type StackId = u32;

/// A row of `stacks`; its ID follows from its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) parent: StackId,
    pub(crate) frame: FrameId,
    pub(crate) depth: u32,
    /// Callers of this outermost frame are missing.
    pub(crate) is_cut: bool,
}

/// A chain of addresses, and the context that resolves them.
#[derive(Clone, Copy)]
pub(crate) struct Chain<'a> {
    /// Leaf first.
    pub(crate) addresses: &'a [u64],
    pub(crate) space: Space,
    pub(crate) map: &'a AddressMap,
    pub(crate) modules: &'a Modules,
    /// Outer frames are known to be missing.
    pub(crate) is_cut: bool,
    /// The callers are from unwind information or the CPU, not from frame pointers.
    pub(crate) is_unwound: bool,
}

/// Below the kernel's default for the lowest mapping, and above the addresses of all processes.
const CODE_MIN: u64 = 1 << 16;
const CODE_MAX: u64 = 1 << 56;

impl<'a> Chain<'a> {
    /// Returns the chain up to the first caller that is no code, if the mappings of the process are known. Code without
    /// frame pointers keeps data in that register, and a caller read through it is no code address.
    ///
    /// A caller outside all mappings remains if the next one is code: then its mapping is missing. Unwinders stop at data
    /// themselves; to them, code may be in any mapping, as that of Android's interpreter is in read-only ones. The outermost
    /// `known` callers are those of an earlier chain that was whole.
    fn within_code(self, known: usize) -> Chain<'a> {
        if self.space != Space::User || self.map.is_empty() {
            return self;
        }
        let place_of = |address: u64| match self.map.find(address.wrapping_sub(1)) {
            Some(range) if range.executable || self.is_unwound => Place::Code,
            None if (CODE_MIN..CODE_MAX).contains(&address) => Place::Unmapped,
            Some(_) | None => Place::Data,
        };
        let mut callers = self.addresses.iter().skip(1).peekable();
        let unknown = self.addresses.len().saturating_sub(1 + known);
        let mut inner = 0;
        let is_whole = loop {
            if inner == unknown {
                break true;
            }
            let Some(&caller) = callers.next() else {
                break true;
            };
            match place_of(caller) {
                Place::Code => inner += 1,
                Place::Unmapped => match callers.peek() {
                    Some(&&next) if place_of(next) == Place::Code => inner += 1,
                    Some(_) | None => break false,
                },
                Place::Data => break false,
            }
        };
        match Some(inner).filter(|_| !is_whole) {
            Some(inner) => Chain {
                addresses: self.addresses.get(..inner + 1).unwrap_or(self.addresses),
                is_cut: true,
                ..self
            },
            None => self,
        }
    }
}

/// What is at the address of a caller.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Code,
    /// Nothing that is known.
    Unmapped,
    Data,
}

/// Bits of a chain's tag before the generation of its mappings.
const TAG_BITS: u32 = 5;

/// Parent of the outermost frames of stacks whose callers are missing; IDs have 31 bits.
const CUT: StackId = 1 << 31;

/// The tree.
#[derive(Default)]
pub(crate) struct Stacks {
    /// At the limits, the tree is reset with higher IDs: stacks stay right, but one that recurs gets a second ID.
    limits: Limits,
    /// Parent and frame of the kept nodes, in order.
    nodes: Vec<(StackId, FrameId)>,
    /// Nodes that do not directly follow their parent. The table contains them as a whole, so that a lookup costs one
    /// cache miss.
    branches: HashTable<Branch>,
    /// ID of the last node.
    last: StackId,
    /// Number of times the tree was reset.
    epoch: u32,
    /// Nodes not written yet: the last ones.
    fresh: Vec<Node>,
    cache: Cache,
    named: NamedChains,
    by_id: StacksById,
    kernel_trail: Trail,
    /// By process: samples of several CPUs alternate between as many.
    user_trails: [Trail; USER_TRAILS],
    hasher: DefaultHashBuilder,
}

/// Maximum number of stacks remembered by the IDs of the input, 16 bytes each.
const STACKS_BY_ID_MAX: usize = 1 << 20;

/// Stacks that events reference by an ID of the input. Their nodes stay valid when the tree is reset.
#[derive(Default)]
struct StacksById {
    known: HashMap<u64, StackId>,
    given_up: u64,
}

#[derive(Debug, Clone, Copy)]
struct Branch {
    parent: StackId,
    frame: FrameId,
    id: StackId,
}

/// Chains of different processes whose callers are kept.
const USER_TRAILS: usize = 32;

/// The callers of the preceding chain, outermost first.
#[derive(Default)]
struct Trail {
    tag: u64,
    callers: Vec<(u64, StackId)>,
}

impl Trail {
    /// Number of outermost callers of a chain, leaf first, that are these.
    fn shared(&self, addresses: &[u64]) -> usize {
        let callers = addresses.get(1..).unwrap_or_default();
        let pairs = callers.iter().rev().zip(&self.callers);
        pairs
            .take_while(|(address, (before, _))| *address == before)
            .count()
    }
}

impl Stacks {
    /// An empty tree, whose first node gets this ID.
    pub(crate) fn starting_at(first: StackId, limits: Limits) -> Stacks {
        Stacks {
            limits,
            last: first.saturating_sub(1),
            ..Stacks::default()
        }
    }

    /// An empty tree that continues another, whose nodes are all written.
    pub(crate) fn starting_after(former: &mut Stacks) -> Stacks {
        Stacks {
            epoch: former.epoch + 1,
            by_id: std::mem::take(&mut former.by_id),
            ..Stacks::starting_at(former.next_id(), former.limits)
        }
    }

    /// The ID of the next node.
    pub(crate) fn next_id(&self) -> StackId {
        self.last + 1
    }

    /// Changes when the tree is reset: earlier nodes must not be reused.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The node of a chain; `None` if IDs are exhausted.
    #[inline]
    pub(crate) fn of(&mut self, chain: Chain<'_>, frames: &mut Frames) -> Option<StackId> {
        if chain.addresses.is_empty() {
            return Some(0);
        }
        let tag = chain.map.generation << TAG_BITS
            | u64::from(chain.is_unwound) << 4
            | (chain.space as u64) << 1
            | u64::from(chain.is_cut);
        let hash = self.hasher.hash_one((tag, chain.addresses));
        if let Some(stack) = self.cache.find(hash, tag, chain.addresses) {
            return Some(stack);
        }
        self.make_room()?;
        let within = chain.within_code(self.known_callers(&chain, tag));
        let stack = self.walk(within, tag | u64::from(within.is_cut), frames);
        let most = self.limits.chain_words;
        self.cache.insert(hash, tag, chain.addresses, stack, most);
        Some(stack)
    }

    /// The node of a chain named by its format, leaf first.
    pub(crate) fn of_named(
        &mut self,
        chain: &[NamedFrame<'_>],
        frames: &mut Frames,
    ) -> Option<StackId> {
        let (hash, known) = self.named.find(chain, &self.hasher);
        if known.is_some() {
            return known;
        }
        self.make_room()?;
        let mut parent = 0;
        let mut depth = 0;
        let mut is_new = false;
        let mut end = chain.len();
        while end > 0 {
            // A group: code with its own location, preceded by the functions inlined into it.
            let inlined = chain
                .get(..end - 1)
                .unwrap_or_default()
                .iter()
                .rev()
                .take_while(|frame| frame.inlined)
                .count();
            let start = end - 1 - inlined;
            let frame = frames.named(chain.get(start..end).unwrap_or_default(), start > 0);
            depth += 1;
            (parent, is_new) = self.child(parent, frame, depth, is_new);
            end = start;
        }
        self.named.insert(hash, parent, 8 * self.limits.chain_words);
        Some(parent)
    }

    /// Remembers a stack by an ID of the input.
    pub(crate) fn define(&mut self, id: u64, stack: StackId) {
        let StacksById { known, given_up } = &mut self.by_id;
        match known.len() < STACKS_BY_ID_MAX || known.contains_key(&id) {
            true => {
                known.insert(id, stack);
            }
            false => *given_up += 1,
        }
    }

    /// The stack of an ID of the input.
    #[inline]
    pub(crate) fn defined(&self, id: u64) -> Option<StackId> {
        self.by_id.known.get(&id).copied()
    }

    /// Number of stacks that were not remembered.
    pub(crate) fn given_up(&self) -> u64 {
        self.by_id.given_up
    }

    /// Nodes added since the last call, with the ID of the first.
    pub(crate) fn take_fresh(&mut self) -> (StackId, Vec<Node>) {
        let fresh = std::mem::take(&mut self.fresh);
        (self.last + 1 - fresh.len() as u32, fresh)
    }

    /// Number of nodes that wait to be written.
    #[inline]
    pub(crate) fn fresh_count(&self) -> usize {
        self.fresh.len()
    }

    /// Forgets all nodes when the frames are reset; new ones get higher IDs.
    pub(crate) fn restart(&mut self) {
        self.epoch += 1;
        self.nodes.clear();
        self.branches.clear();
        self.forget_chains();
    }

    /// Forgets chains found before the reset.
    fn forget_chains(&mut self) {
        self.cache = Cache::default();
        self.named.forget();
        self.kernel_trail = Trail::default();
        self.user_trails = Default::default();
    }

    /// Makes room for the longest chain; `None` if the IDs, which have 31 bits, are exhausted.
    fn make_room(&mut self) -> Option<()> {
        let Limits {
            nodes, branches, ..
        } = self.limits;
        if self.nodes.len() >= nodes || self.branches.len() >= branches {
            self.restart();
        }
        // No chain is longer than a record.
        (self.last < i32::MAX as u32 - (1 << 24)).then_some(())
    }

    /// Number of outermost callers that the preceding chain with this tag had, too.
    fn known_callers(&mut self, chain: &Chain<'_>, tag: u64) -> usize {
        let trail = self.trail_of(chain.space, tag);
        match trail.tag == tag {
            true => trail.shared(chain.addresses),
            false => 0,
        }
    }

    fn walk(&mut self, chain: Chain<'_>, tag: u64, frames: &mut Frames) -> StackId {
        let Chain {
            addresses,
            space,
            map,
            modules,
            is_cut,
            is_unwound: _,
        } = chain;
        let Some((&leaf, callers)) = addresses.split_first() else {
            return 0;
        };
        let mut trail = std::mem::take(self.trail_of(space, tag));
        if trail.tag != tag {
            trail.callers.clear();
            trail.tag = tag;
        }
        let shared = trail.shared(addresses);
        trail.callers.truncate(shared);
        let root = if is_cut { CUT } else { 0 };
        let mut parent = trail.callers.last().map_or(root, |&(_, stack)| stack);
        let mut is_new = false;
        for (above, &address) in callers.iter().rev().enumerate().skip(shared) {
            let frame = frames.at(address, true, space, map, modules);
            (parent, is_new) = self.child(parent, frame, above as u32 + 1, is_new);
            trail.callers.push((address, parent));
        }
        *self.trail_of(space, tag) = trail;
        let frame = frames.at(leaf, false, space, map, modules);
        self.child(parent, frame, addresses.len() as u32, is_new).0
    }

    fn trail_of(&mut self, space: Space, tag: u64) -> &mut Trail {
        match space {
            Space::Kernel | Space::GuestKernel | Space::Hypervisor => &mut self.kernel_trail,
            Space::User | Space::GuestUser | Space::Unknown => {
                let place = (tag >> TAG_BITS) as usize % USER_TRAILS;
                let trail = self.user_trails.get_mut(place);
                trail.unwrap_or(&mut self.kernel_trail)
            }
        }
    }

    /// The node of `frame` below `parent`, added if necessary, and whether it is new. Below a new node, all nodes are
    /// new.
    fn child(
        &mut self,
        parent: StackId,
        frame: FrameId,
        depth: u32,
        is_parent_new: bool,
    ) -> (StackId, bool) {
        let first = self.last + 1 - self.nodes.len() as u32;
        let after = (parent + 1).wrapping_sub(first) as usize;
        if !is_parent_new && self.nodes.get(after) == Some(&(parent, frame)) {
            return (parent + 1, false);
        }
        let id = self.last + 1;
        if id != parent + 1 {
            let hash = hash_node(&self.hasher, parent, frame);
            let is_it = |known: &Branch| known.parent == parent && known.frame == frame;
            if let Some(known) = self.branches.find(hash, is_it) {
                return (known.id, false);
            }
            let hasher = &self.hasher;
            self.branches
                .insert_unique(hash, Branch { parent, frame, id }, |known| {
                    hash_node(hasher, known.parent, known.frame)
                });
        }
        self.last = id;
        self.nodes.push((parent, frame));
        self.fresh.push(Node {
            parent: parent & !CUT,
            frame,
            depth,
            is_cut: parent == CUT,
        });
        (id, true)
    }
}

#[inline]
fn hash_node(hasher: &DefaultHashBuilder, parent: StackId, frame: FrameId) -> u64 {
    hasher.hash_one(u64::from(parent) << 32 | u64::from(frame))
}

/// Recently seen whole chains.
#[derive(Default)]
struct Cache {
    /// Tag and addresses of each stack, concatenated.
    words: Vec<u64>,
    chains: Vec<CachedChain>,
    index: HashTable<u32>,
}

#[derive(Clone, Copy)]
struct CachedChain {
    start: u32,
    length: u32,
    stack: StackId,
    /// The hash, to grow the table without reading the chains.
    hash: u64,
}

impl Cache {
    #[inline]
    fn find(&self, hash: u64, tag: u64, addresses: &[u64]) -> Option<StackId> {
        let found = self.index.find(hash, |&index| {
            self.chains.get(index as usize).is_some_and(|chain| {
                chain.hash == hash
                    && self
                        .words_of(chain)
                        .and_then(<[u64]>::split_first)
                        .is_some_and(|(&known, words)| known == tag && words == addresses)
            })
        });
        found
            .and_then(|&index| self.chains.get(index as usize))
            .map(|chain| chain.stack)
    }

    /// Adds a chain; forgets all others if there would be more than `most` words.
    fn insert(&mut self, hash: u64, tag: u64, addresses: &[u64], stack: StackId, most: usize) {
        if self.words.len() + addresses.len() >= most {
            self.words.clear();
            self.chains.clear();
            self.index.clear();
        }
        let chain = CachedChain {
            start: self.words.len() as u32,
            length: addresses.len() as u32 + 1,
            stack,
            hash,
        };
        self.words.push(tag);
        self.words.extend_from_slice(addresses);
        let (index, chains) = (self.chains.len() as u32, &self.chains);
        self.index.insert_unique(hash, index, |&index| {
            chains.get(index as usize).map_or(0, |chain| chain.hash)
        });
        self.chains.push(chain);
    }

    #[inline]
    fn words_of(&self, chain: &CachedChain) -> Option<&[u64]> {
        let start = chain.start as usize;
        self.words.get(start..start + chain.length as usize)
    }
}

#[cfg(test)]
mod tests {
    use perfquet_events::event::Mapping;
    use proptest::prelude::*;

    use super::super::frames::Frame;
    use super::super::mappings::Mappings;
    use super::*;

    #[derive(Default)]
    struct Forest {
        stacks: Stacks,
        frames: Frames,
        map: AddressMap,
        modules: Modules,
        rows: Vec<Node>,
    }

    impl Forest {
        fn add(&mut self, addresses: &[u64], space: Space) -> StackId {
            let chain = Chain {
                addresses,
                space,
                map: &self.map,
                modules: &self.modules,
                is_cut: false,
                is_unwound: false,
            };
            let stack = self.stacks.of(chain, &mut self.frames).unwrap();
            let (first, fresh) = self.stacks.take_fresh();
            assert!(fresh.is_empty() || first as usize == self.rows.len() + 1);
            self.rows.extend(fresh);
            stack
        }

        /// Addresses from the leaf to the root, read back from the rows.
        fn chain(&self, mut stack: StackId) -> Vec<u64> {
            let mut addresses = Vec::new();
            let mut depth = None;
            while stack != 0 {
                let node = self.rows[stack as usize - 1];
                assert!(node.parent < stack);
                assert!(depth.is_none_or(|below| below == node.depth + 1));
                depth = Some(node.depth);
                let (first, keys) = self.frames.kept();
                let key = keys[(node.frame - first) as usize];
                let Frame::Unmapped(address) = key.frame() else {
                    panic!("mapped")
                };
                assert_eq!(key.return_address, !addresses.is_empty());
                addresses.push(address);
                stack = node.parent;
            }
            assert!(depth.is_none_or(|depth| depth == 1));
            addresses
        }
    }

    /// The callers that remain, with code at 0x10000 to 0x50000, data that follows it, and nothing else.
    #[track_caller]
    fn check_callers(addresses: &[u64], is_unwound: bool, expected: &[u64], is_cut: bool) {
        let mut mappings = Mappings::default();
        let mut modules = Modules::default();
        for (start, protection) in [(0x1_0000, 5), (0x5_0000, 1)] {
            let event = Mapping {
                time: None,
                pid: 7,
                tid: 7,
                space: Space::User,
                start,
                length: 0x4_0000,
                file_offset: 0,
                path: b"/bin/a",
                build_id: None,
                device: None,
                inode: None,
                protection: Some(protection),
                flags: None,
            };
            mappings.map(&event, &mut modules);
        }
        let chain = Chain {
            addresses,
            space: Space::User,
            map: mappings.of(Some(7), Space::User),
            modules: &modules,
            is_cut: false,
            is_unwound,
        };
        let within = chain.within_code(0);
        assert_eq!((within.addresses, within.is_cut), (expected, is_cut));
        // What an earlier whole chain had is not looked at again.
        for known in 0..if is_cut { 0 } else { addresses.len() } {
            let within = chain.within_code(known);
            assert_eq!((within.addresses, within.is_cut), (expected, is_cut));
        }
    }

    #[test]
    fn a_caller_without_a_mapping_stays_between_code() {
        const LOST: u64 = 0x7fe2_9a66_711e;
        let (a, b, data) = (0x1_0010, 0x1_0020, 0x5_0010);
        for is_unwound in [false, true] {
            check_callers(&[a, LOST, b, a], is_unwound, &[a, LOST, b, a], false);
            check_callers(&[LOST, a], is_unwound, &[LOST, a], false);
            // What follows is no code: neither is this.
            check_callers(&[a, b, LOST], is_unwound, &[a, b], true);
            check_callers(&[a, LOST, LOST, b], is_unwound, &[a], true);
            // Numbers and the kernel's addresses.
            check_callers(&[a, 0x3e8, b], is_unwound, &[a], true);
            check_callers(&[a, 0xffff_8881_0000_0000, b], is_unwound, &[a], true);
        }
        // An unwinder knows what it returns to, as an interpreter's code in a read-only mapping.
        check_callers(&[a, data, b], false, &[a], true);
        check_callers(&[a, data, b], true, &[a, data, b], false);
    }

    #[test]
    fn stacks_share_common_nodes() {
        let mut forest = Forest::default();
        assert_eq!(forest.add(&[3, 2, 1], Space::User), 3);
        assert_eq!(forest.add(&[4, 2, 1], Space::User), 4);
        assert_eq!(forest.add(&[3, 2, 1], Space::User), 3);
        assert_eq!(forest.add(&[], Space::User), 0);
        // As a leaf, the same address is another frame: there it is not a return address.
        assert_eq!(forest.add(&[2, 1], Space::User), 5);
        // The kernel's frames are separate too.
        assert_eq!(forest.add(&[2, 1], Space::Kernel), 7);
        assert_eq!(forest.rows.len(), 7);
    }

    #[test]
    fn reset_tree_continues_the_ids() {
        let mut forest = Forest::default();
        let old = forest.add(&[3, 2, 1], Space::User);
        forest.stacks.restart();
        let new = forest.add(&[3, 2, 1], Space::User);
        assert_eq!((old, new), (3, 6));
        assert_eq!(forest.chain(old), forest.chain(new));
    }

    #[test]
    fn inlined_frames_are_grouped() {
        let frame = |function: &'static str, inlined| NamedFrame {
            function: function.as_bytes(),
            inlined,
            ..NamedFrame::default()
        };
        let (mut stacks, mut frames) = (Stacks::default(), Frames::default());
        let chain = [
            frame("leaf", true),
            frame("outer", false),
            frame("main", false),
        ];
        assert_eq!(stacks.of_named(&chain, &mut frames), Some(2));
        assert_eq!(stacks.of_named(&chain[1..], &mut frames), Some(3));
        let (_, nodes) = stacks.take_fresh();
        let parents: Vec<u32> = nodes.iter().map(|node| node.parent).collect();
        assert_eq!(parents, [0, 1, 1]);
    }

    proptest! {
        #[test]
        fn every_chain_reads_back(chains in prop::collection::vec(
            (prop::collection::vec(0u64..6, 0..12), prop::bool::ANY), 0..200,
        )) {
            let mut forest = Forest::default();
            let mut stacks = Vec::new();
            for (chain, kernel) in &chains {
                let space = if *kernel { Space::Kernel } else { Space::User };
                stacks.push(forest.add(chain, space));
            }
            for ((chain, _), stack) in chains.iter().zip(stacks) {
                prop_assert_eq!(&forest.chain(stack), chain);
            }
        }
    }
}
