//! Recognizes a perf.data by its first eight bytes, and a damaged one by the records near its start.

use perfquet_events::Guess;
use perfquet_events::bytes::Endian;

use crate::perf_data::resync::{chain_in, plausible};

/// Number of records in a row that identify a file without magic.
const RECORDS_MIN: usize = 8;

/// `u64` in the recorder's byte order.
pub(super) const MAGIC_LITTLE: &[u8] = b"PERFILE2";
pub(super) const MAGIC_BIG: &[u8] = b"2ELIFREP";
/// Version 1, perf of 2009 and 2010.
pub(super) const MAGIC_VERSION_1: &[u8] = b"PERFFILE";

pub(super) fn sniff(head: &[u8]) -> Guess {
    if endian_of(head).is_some() || head.starts_with(MAGIC_VERSION_1) {
        Guess::Certain
    } else if endian_of_records(head).is_some() {
        Guess::Likely
    } else {
        Guess::No
    }
}

/// Returns the byte order of a file with a damaged start, from its records; `None` if there are none.
pub(super) fn endian_of_records(head: &[u8]) -> Option<Endian> {
    let is_it = |endian: &Endian| {
        let start = chain_in(head, *endian);
        let mut rest = start
            .and_then(|start| head.get(start..))
            .unwrap_or_default();
        let mut count = 0;
        while let Some(header) = plausible(rest, *endian) {
            count += 1;
            rest = rest.get(header.size..).unwrap_or_default();
        }
        count >= RECORDS_MIN
    };
    [Endian::Little, Endian::Big].into_iter().find(is_it)
}

/// Returns the byte order of a file whose first page is damaged, from the records of its second one.
pub(super) fn endian_of_second_page(file: &[u8]) -> Option<Endian> {
    const PAGE_BYTES: usize = 4096;
    let rest = file.get(PAGE_BYTES..)?;
    endian_of_records(rest.get(..PAGE_BYTES).unwrap_or(rest))
}

/// Returns the byte order of a file with this start; `None` if it is not a perf.data of version 2.
pub(super) fn endian_of(head: &[u8]) -> Option<Endian> {
    if head.starts_with(MAGIC_LITTLE) {
        Some(Endian::Little)
    } else if head.starts_with(MAGIC_BIG) {
        Some(Endian::Big)
    } else {
        None
    }
}
