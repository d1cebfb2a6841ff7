//! The packets of all streams, from their heads: where they are, in which order, and what is missing between them.
//!
//! ```text
//! file:  | head, context, events … padding | head, context, events … |          content_size ≤ packet_size
//! ```
//! A stream may have several files (rotation), and a packet may be in several files (snapshots). Packets are in the order of their sequence
//! numbers, else of the times at which they begin. A counter of discarded events that grew, and a gap in the sequence numbers, are losses.

use hashbrown::HashMap;
use perfquet_events::Error;
use perfquet_events::bytes::Endian;
use perfquet_events::event::{Place, Sink};

use super::decode::Decoder;
use super::layout::{Layout, StreamLayout};
use crate::problems::Problems;

const MAGIC: u32 = 0xc1fc_1fc1;
/// Pages are released after this many bytes.
pub(super) const RELEASED_BYTES: usize = 64 << 20;

/// A packet of a stream.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    /// Trace and stream in its layout.
    pub(super) trace: usize,
    pub(super) stream: usize,
    pub(super) file: usize,
    /// Offset in the file, and size as far as the file has it.
    pub(super) offset: usize,
    pub(super) bytes: usize,
    /// Size without padding.
    pub(super) content_bits: u64,
    pub(super) begin: Option<u64>,
    pub(super) end: Option<u64>,
    sequence: Option<u64>,
    discarded: Option<u64>,
    discarded_bits: u32,
    /// Events that were discarded since the packet before.
    pub(super) lost: u64,
    /// Packets that are missing before this one.
    pub(super) lost_packets: u64,
}

/// Identifies a stream in the traces of an input.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Key {
    /// Traces with one UUID are parts of one.
    group: usize,
    id: u64,
    instance: Option<u64>,
    /// Without an instance: the file.
    file: Option<usize>,
}

/// The streams of all traces, each with its packets.
#[derive(Debug, Default)]
pub(super) struct Streams {
    packets: HashMap<Key, Vec<Packet>>,
}

/// A file of a stream.
pub(super) struct StreamFile<'a> {
    pub(super) trace: usize,
    pub(super) group: usize,
    pub(super) file: usize,
    pub(super) name: &'a str,
    pub(super) bytes: &'a [u8],
    pub(super) layout: &'a Layout,
    pub(super) endian: Endian,
    /// Releases the pages of all files.
    pub(super) release: &'a dyn Fn(),
}

/// What the head of a packet says.
enum Head {
    Packet(Key, Packet),
    /// The packet cannot be read: the reason.
    Broken(String),
}

impl Streams {
    /// Adds the packets of a file.
    pub(super) fn add(
        &mut self,
        file: &StreamFile<'_>,
        problems: &mut Problems,
        sink: &mut dyn Sink,
    ) -> Result<(), Error> {
        let (mut offset, mut released) = (0, 0);
        let mut decoder = Decoder::new(file.layout.registers, file.layout.columns);
        while let Some(rest) = file.bytes.get(offset..)
            && !rest.is_empty()
        {
            if offset - released >= RELEASED_BYTES {
                released = offset;
                (file.release)();
            }
            let place = Place::Offset(offset as u64);
            match head(file, offset, &mut decoder) {
                Head::Packet(key, packet) => {
                    let declared = packet.bytes;
                    let mut packet = packet;
                    if declared > rest.len() {
                        packet.bytes = rest.len();
                        packet.content_bits = packet.content_bits.min(rest.len() as u64 * 8);
                        problems.report(sink, place, "cut packet", || {
                            format!(
                                "{}: expected a packet of {declared} bytes, found {}",
                                file.name,
                                rest.len()
                            )
                        })?;
                    }
                    offset += packet.bytes;
                    self.packets.entry(key).or_default().push(packet);
                }
                Head::Broken(reason) => {
                    let next = next_magic(file, offset + 1);
                    let skipped = next.unwrap_or(file.bytes.len()) - offset;
                    problems.report(sink, place, "damaged packet", || {
                        format!("{}: {reason}; {skipped} bytes are skipped", file.name)
                    })?;
                    offset += skipped;
                }
            }
        }
        Ok(())
    }

    /// The streams in a fixed order, their packets in order and with their losses.
    pub(super) fn finish(self) -> Vec<Vec<Packet>> {
        let mut streams: Vec<(Key, Vec<Packet>)> = self.packets.into_iter().collect();
        streams.sort_by(|(one, _), (other, _)| one.cmp(other));
        let ordered = |(key, mut packets): (Key, Vec<Packet>)| {
            if packets.iter().all(|packet| packet.sequence.is_some()) {
                packets.sort_by_key(|packet| (packet.sequence, packet.begin));
            } else if packets.iter().all(|packet| packet.begin.is_some()) {
                packets.sort_by_key(|packet| packet.begin);
            }
            // Snapshots overlap.
            packets.dedup_by(|packet, before| {
                packet.sequence.is_some()
                    && packet.file != before.file
                    && (packet.sequence, packet.begin) == (before.sequence, before.begin)
            });
            losses(&mut packets, key.instance.is_some());
            packets
        };
        streams.into_iter().map(ordered).collect()
    }
}

/// Finds what is missing before each packet. Sequence numbers begin with 0 if the stream is known to be whole.
fn losses(packets: &mut [Packet], is_whole: bool) {
    let (mut discarded, mut expected) = (0, is_whole.then_some(0));
    for packet in packets {
        if let Some(count) = packet.discarded {
            packet.lost = match count.checked_sub(discarded) {
                Some(lost) => lost,
                // The counter has wrapped, or begins anew.
                None if packet.discarded_bits < 64 => {
                    count + (1 << packet.discarded_bits) - discarded
                }
                None => count,
            };
            discarded = count;
        }
        if let Some(sequence) = packet.sequence {
            let missing = expected.and_then(|expected| sequence.checked_sub(expected));
            packet.lost_packets = missing.unwrap_or(0);
            expected = sequence.checked_add(1);
        }
    }
}

/// The next packet of the byte order of the trace.
fn next_magic(file: &StreamFile<'_>, from: usize) -> Option<usize> {
    file.layout.magic?;
    let magic = match file.endian {
        Endian::Little => MAGIC.to_le_bytes(),
        Endian::Big => MAGIC.to_be_bytes(),
    };
    let rest = file.bytes.get(from..)?;
    memchr::memmem::find(rest, &magic).map(|place| from + place)
}

/// Decodes the header of a packet; returns the stream in the layout.
fn header<'l>(
    layout: &'l Layout,
    decoder: &mut Decoder<'l>,
) -> Result<(usize, &'l StreamLayout), String> {
    if let Some(header) = &layout.packet_header {
        decoder
            .decode(header)
            .map_err(|reason| format!("the header of a packet: {reason}"))?;
    }
    if let Some(magic) = layout.magic {
        let magic = decoder.register(magic);
        if magic != i128::from(MAGIC) {
            return Err(format!(
                "expected the magic number of a packet, found {magic:#x}"
            ));
        }
    }
    let id = layout.stream_id.map(|register| decoder.register(register));
    let mut streams = layout.streams.iter().enumerate();
    match id {
        Some(id) => streams.find(|(_, stream)| i128::from(stream.id) == id),
        None => streams.next(),
    }
    .ok_or_else(|| format!("the metadata has no stream {}", id.unwrap_or(0)))
}

/// Decodes the header and the context of a packet, after which its events begin.
pub(super) fn open<'l>(
    layout: &'l Layout,
    decoder: &mut Decoder<'l>,
) -> Result<(usize, &'l StreamLayout), String> {
    let (place, stream) = header(layout, decoder)?;
    if let Some(context) = &stream.packet_context {
        decoder
            .decode(context)
            .map_err(|reason| format!("the context of a packet: {reason}"))?;
    }
    decoder.keep();
    Ok((place, stream))
}

fn head<'l>(file: &StreamFile<'l>, offset: usize, decoder: &mut Decoder<'l>) -> Head {
    decoder.packet(file.bytes.get(offset..).unwrap_or_default());
    let (place, stream) = match open(file.layout, decoder) {
        Ok(opened) => opened,
        Err(reason) => return Head::Broken(reason),
    };
    let roles = &stream.roles;
    let value = |register: Option<u32>| {
        register.and_then(|register| u64::try_from(decoder.register(register)).ok())
    };
    let whole = decoder.end;
    let content = value(roles.content_size);
    let packet = value(roles.packet_size);
    let packet_bits = packet.or(content).unwrap_or(whole);
    let content_bits = content.unwrap_or(packet_bits);
    if !packet_bits.is_multiple_of(8) && packet.is_some() {
        return Head::Broken(format!("a packet of {packet_bits} bits"));
    }
    if packet_bits < decoder.at || content_bits < decoder.at || packet_bits == 0 {
        return Head::Broken(format!(
            "a packet of {packet_bits} bits with {content_bits} bits of content, less than its head has"
        ));
    }
    if content_bits > packet_bits {
        return Head::Broken(format!(
            "a packet of {packet_bits} bits with {content_bits} bits of content"
        ));
    }
    let Ok(bytes) = usize::try_from(packet_bits.div_ceil(8)) else {
        return Head::Broken(format!("a packet of {packet_bits} bits"));
    };
    let instance = value(roles.instance);
    let key = Key {
        group: file.group,
        id: stream.id,
        instance,
        file: instance.is_none().then_some(file.file),
    };
    let packet = Packet {
        trace: file.trace,
        stream: place,
        file: file.file,
        offset,
        bytes,
        content_bits,
        begin: value(roles.begin),
        end: value(roles.end),
        sequence: value(roles.sequence),
        discarded: value(roles.discarded),
        discarded_bits: roles.discarded_bits,
        lost: 0,
        lost_packets: 0,
    };
    Head::Packet(key, packet)
}
