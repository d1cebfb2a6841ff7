//! An event that has been read, while it waits for its stacks.

use perfquet_events::event::NamedFrame;

use super::head::Head;
use crate::lines::Line;

/// An event that may still be extended.
pub(super) struct Item<'a> {
    pub(super) head: Head<'a>,
    pub(super) body: Body<'a>,
    /// Offset of the body's text in the input, so that it can be extended.
    pub(super) start: usize,
    /// Another event of the same CPU has followed.
    pub(super) is_closed: bool,
    pub(super) kernel: Option<Vec<NamedFrame<'a>>>,
    pub(super) user: Option<Vec<NamedFrame<'a>>>,
    pub(super) line: Line<'a>,
}

/// The part of a line after its head.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body<'a> {
    Payload(&'a [u8]),
    Graph {
        duration: Option<i64>,
        depth: u32,
        text: &'a [u8],
        in_interrupt: bool,
    },
    /// Numeric type of a raw record.
    Raw(&'a [u8]),
    /// Device, and the rest after the thread.
    Blk(&'a [u8], &'a [u8]),
    /// The whole line.
    Mmio,
}
