//! Recognizes a perf.data by its first eight bytes.

use crate::Guess;
use crate::bytes::Endian;

/// `u64` in the recorder's byte order.
pub(super) const MAGIC_LITTLE: &[u8] = b"PERFILE2";
pub(super) const MAGIC_BIG: &[u8] = b"2ELIFREP";
/// Version 1, perf of 2009 and 2010.
pub(super) const MAGIC_VERSION_1: &[u8] = b"PERFFILE";

pub(super) fn sniff(head: &[u8]) -> Guess {
    if endian_of(head).is_some() || head.starts_with(MAGIC_VERSION_1) {
        Guess::Certain
    } else {
        Guess::No
    }
}

/// Byte order of a file that begins so; `None`: it is no perf.data of version 2.
pub(super) fn endian_of(head: &[u8]) -> Option<Endian> {
    if head.starts_with(MAGIC_LITTLE) {
        Some(Endian::Little)
    } else if head.starts_with(MAGIC_BIG) {
        Some(Endian::Big)
    } else {
        None
    }
}
