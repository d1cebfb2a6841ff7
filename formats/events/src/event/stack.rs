//! Call stacks, of addresses or of names.
//!
//! ```text
//! Addresses { space: User, addresses: [0x401136, 0x401160, 0x7f2d0a1b3d90] }      leaf first
//! Named([NamedFrame { function: "step", … }, NamedFrame { function: "main", … }])
//! ```

use super::Space;

/// A stack, leaf first.
#[derive(Debug, Clone, Copy, Default)]
pub enum Stack<'a> {
    /// Not recorded.
    #[default]
    None,
    /// Addresses: the first is the current instruction, the others are return addresses.
    Addresses {
        /// Address space of all frames.
        space: Space,
        /// Leaf first, without context markers.
        addresses: &'a [u64],
        /// Whether outer frames are known to be missing.
        is_cut: bool,
        /// Whether the callers are from unwind information or the CPU. Frame pointers may lead to data.
        is_unwound: bool,
    },
    /// Named frames, in text formats.
    Named(&'a [NamedFrame<'a>]),
    /// ID of an earlier [`super::Event::Stack`].
    Id(u64),
}

impl<'a> Stack<'a> {
    /// A stack of addresses from frame pointers, or as the input states them.
    pub fn of(space: Space, addresses: &'a [u64]) -> Stack<'a> {
        Stack::Addresses {
            space,
            addresses,
            is_cut: false,
            is_unwound: false,
        }
    }
}

/// A stack that later events reference by ID. Passed while its addresses can be resolved.
#[derive(Debug, Clone, Copy)]
pub struct StackDefinition<'a> {
    /// ID of the stack.
    pub id: u64,
    /// Time of the event.
    pub time: Option<i64>,
    /// ID of its process.
    pub pid: Option<i32>,
    /// The stack.
    pub stack: Stack<'a>,
}

/// A named frame. Empty strings are unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamedFrame<'a> {
    /// Function name.
    pub function: &'a [u8],
    /// Offset from the function's start in bytes.
    pub function_offset: Option<u64>,
    /// Module.
    pub module: &'a [u8],
    /// Build ID of the module, hexadecimal.
    pub build_id: &'a [u8],
    /// Offset of the instruction in the module's file.
    pub module_offset: Option<u64>,
    /// Absolute address.
    pub address: Option<u64>,
    /// Source file.
    pub file: &'a [u8],
    /// Line in the source file, from 1.
    pub line: Option<u32>,
    /// Address space.
    pub space: Space,
    /// Inlined into the next frame.
    pub inlined: bool,
}
