//! The file `metadata`: text, or packets of text.
//!
//! ```text
//! 57 1d d1 75 uuid[16] checksum content_size packet_size compression encryption checksum_scheme major minor | /* CTF 1.8 */ trace {
//! ```
//! Sizes are in bits and include the head. A declaration may begin in one packet and end in the next.

use perfquet_events::bytes::{Cursor, Endian, Short};

use super::lexer::Flaw;
use super::schema::Metadata;
use super::{json, parser};

const MAGIC: u32 = 0x75d1_1d57;
const HEAD_BYTES: u64 = 37;
/// Longest metadata. That of a kernel with all events has two megabytes.
const TEXT_BYTES_MAX: usize = 64 << 20;

/// Whether these are packets.
pub(super) fn is_packets(head: &[u8]) -> bool {
    packet_endian(head).is_some()
}

fn packet_endian(head: &[u8]) -> Option<Endian> {
    let orders = [Endian::Little, Endian::Big];
    orders
        .into_iter()
        .find(|endian| endian.u32_at(head, 0) == Some(MAGIC))
}

/// Whether this is a text of version 1.8.
pub(super) fn is_plain(head: &[u8]) -> bool {
    let text = head.trim_ascii_start();
    let rest = text.strip_prefix(b"/*").map(<[u8]>::trim_ascii_start);
    rest.is_some_and(|rest| rest.starts_with(b"CTF 1."))
}

/// Whether this is JSON of version 2.
pub(super) fn is_json(head: &[u8]) -> bool {
    let text = head.trim_ascii_start();
    let text = text.strip_prefix(b"\x1e").unwrap_or(text);
    let start = text.get(..1000.min(text.len())).unwrap_or_default();
    text.starts_with(b"{") && memchr::memmem::find(start, b"\"preamble\"").is_some()
}

/// Parses a metadata file.
pub(super) fn parse(file: &[u8]) -> Result<Metadata, Flaw> {
    let joined;
    let text = match packet_endian(file) {
        Some(endian) => {
            joined = join(file, endian)?;
            &joined
        }
        None => file,
    };
    if text.len() > TEXT_BYTES_MAX {
        return Err(Flaw {
            line: 0,
            message: format!("expected at most {TEXT_BYTES_MAX} bytes"),
        });
    }
    let is_json = is_json(text);
    let text = String::from_utf8_lossy(text);
    let mut metadata = match is_json {
        true => json::parse(&text)?,
        false => parser::parse(&text)?,
    };
    if let (None, Some(endian)) = (metadata.endian, packet_endian(file)) {
        metadata.endian = Some(endian);
    }
    Ok(metadata)
}

/// Joins the contents of packets.
fn join(file: &[u8], endian: Endian) -> Result<Vec<u8>, Flaw> {
    let mut text = Vec::new();
    let mut rest = Cursor::new(file, 0, endian);
    while !rest.is_empty() {
        let offset = rest.offset();
        let flaw = |message: String| Flaw {
            line: 0,
            message: format!("packet at byte {offset}: {message}"),
        };
        let short = |short: Short| flaw(short.to_string());
        let mut head = rest;
        if head.u32().map_err(short)? != MAGIC {
            return Err(flaw("expected its magic number".to_owned()));
        }
        head.bytes(20).map_err(short)?;
        let content = u64::from(head.u32().map_err(short)? / 8);
        let packet = u64::from(head.u32().map_err(short)? / 8);
        for scheme in ["compression", "encryption", "checksum"] {
            let number = head.u8().map_err(short)?;
            if number != 0 {
                return Err(flaw(format!("{scheme} {number} is not supported")));
            }
        }
        if content < HEAD_BYTES || content > packet {
            return Err(flaw(format!(
                "its content of {content} bytes is not between {HEAD_BYTES} and {packet}"
            )));
        }
        head.bytes(2).map_err(short)?;
        text.extend_from_slice(head.bytes(content - HEAD_BYTES).map_err(short)?);
        // The padding of the last one may be missing.
        rest.bytes(packet.min(rest.left())).map_err(short)?;
    }
    Ok(text)
}
