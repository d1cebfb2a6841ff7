//! Stacks: lines below an event.
//!
//! ```text
//!               dd-311     [000] .....     5.445711: <stack trace>
//!  => vfs_read
//!  => ksys_read
//! ```
//! A stack belongs to the preceding event of the same CPU and thread.

use perfquet_events::Error;
use perfquet_events::event::{NamedFrame, Space};
use perfquet_events::scan::{bare_hex, split_once, trim, trim_start};

use super::head::Head;
use super::item::Item;
use super::open_stack::OpenStack;
use super::read::Session;
use super::symbol;

/// Maximum number of frames in a stack; the kernel prints at most a few hundred.
const MAX_FRAMES: usize = 1024;

impl<'a> Session<'a, '_> {
    pub(super) fn begin_stack(
        &mut self,
        head: Head<'a>,
        is_user: bool,
        rest: &'a [u8],
    ) -> Result<(), Error> {
        self.emission.counts.data += 1;
        self.entries += 1;
        self.has_stacks = true;
        let mut frames = Vec::new();
        if let Some(frame) = rest.strip_prefix(b"=>") {
            frames.extend(symbol::frame(frame, is_user));
        } else if let Some((_, array)) = split_once(rest, b"ARRAY[") {
            frames_of_array(array, is_user, &mut frames);
        }
        self.stack = Some(OpenStack {
            head,
            is_user,
            frames,
        });
        Ok(())
    }

    /// Reads a line of a stack. Returns false if the stack has ended before it.
    pub(super) fn frame(&mut self, text: &'a [u8]) -> Result<bool, Error> {
        let Some(stack) = &mut self.stack else {
            return Ok(false);
        };
        if let Some(frame) = trim_start(text).strip_prefix(b"=>") {
            self.emission.counts.data += 1;
            if stack.frames.len() < MAX_FRAMES {
                stack.frames.extend(symbol::frame(frame, stack.is_user));
            }
            return Ok(true);
        }
        self.end_stack()?;
        Ok(false)
    }

    /// Attaches the stack to the preceding event of the same CPU and thread.
    pub(super) fn end_stack(&mut self) -> Result<(), Error> {
        let Some(stack) = self.stack.take() else {
            return Ok(());
        };
        let is_owner = |item: &&mut Item<'_>| {
            item.head.cpu == stack.head.cpu
                && (item.head.tid == stack.head.tid || item.head.tid.is_none())
        };
        if let Some(item) = self.waiting.iter_mut().rev().find(is_owner) {
            let place = match stack.is_user {
                true => &mut item.user,
                false => &mut item.kernel,
            };
            if place.is_none() {
                *place = Some(stack.frames);
                return Ok(());
            }
        }
        self.flush()?;
        self.emission
            .emit_stack(&stack.head, stack.is_user, &stack.frames)
    }
}

/// `20, 0f, 21, 90, ff, ff, ff, ff, …]`: addresses in little-endian bytes.
fn frames_of_array<'a>(array: &'a [u8], is_user: bool, frames: &mut Vec<NamedFrame<'a>>) {
    let bytes = array.strip_suffix(b"]").unwrap_or(array);
    let mut address = 0u64;
    for (index, byte) in bytes.split(|&byte| byte == b',').enumerate() {
        let Some(byte) = bare_hex(trim(byte)).filter(|byte| *byte < 256) else {
            return;
        };
        address |= byte << (8 * (index % 8));
        if index % 8 == 7 {
            if address != 0 && address != u64::MAX && frames.len() < MAX_FRAMES {
                frames.push(NamedFrame {
                    address: Some(address),
                    space: if is_user { Space::User } else { Space::Kernel },
                    ..NamedFrame::default()
                });
            }
            address = 0;
        }
    }
}
