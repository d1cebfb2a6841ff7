//! The file: a sequence of packets, written in the order of arrival.

use std::io::Write;

use anyhow::Result;

use super::super::protobuf::Message;
use super::fields::{packet, sequence_flags, trace};

/// Size at which packets are written.
const BUFFER_BYTES: usize = 64 * 1024;

/// Packets of one sequence share interned data.
pub(super) type SequenceId = u32;

pub(super) struct Packets<'o> {
    out: &'o mut dyn Write,
    buffer: Message,
    /// The machine of the packets; 0 for the first.
    pub(super) machine: u64,
}

impl<'o> Packets<'o> {
    pub(super) fn new(out: &'o mut dyn Write) -> Packets<'o> {
        Packets {
            out,
            buffer: Message::default(),
            machine: 0,
        }
    }

    /// Adds a packet.
    pub(super) fn add(&mut self, write: impl FnOnce(&mut Message)) -> Result<()> {
        let machine = self.machine;
        self.buffer.message(trace::PACKET, |message| {
            if machine > 0 {
                message.uint(packet::MACHINE_ID, machine);
            }
            write(message);
        });
        if self.buffer.as_bytes().len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Adds a packet with a timestamp and the interned data of its sequence. `begins` clears the previous interned
    /// data.
    pub(super) fn add_to(
        &mut self,
        sequence: SequenceId,
        time: i64,
        begins: bool,
        interned: &mut Message,
        write: impl FnOnce(&mut Message),
    ) -> Result<()> {
        let flags = match begins {
            true => sequence_flags::CLEARED | sequence_flags::NEEDED,
            false => sequence_flags::NEEDED,
        };
        self.add(|message| {
            message.int(packet::TIMESTAMP, time);
            message.uint(packet::SEQUENCE_ID, u64::from(sequence));
            message.uint(packet::SEQUENCE_FLAGS, flags);
            if !interned.as_bytes().is_empty() {
                message.bytes(packet::INTERNED_DATA, interned.as_bytes());
            }
            write(message);
        })?;
        interned.clear();
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.out.write_all(self.buffer.as_bytes())?;
        self.buffer.clear();
        Ok(())
    }
}
