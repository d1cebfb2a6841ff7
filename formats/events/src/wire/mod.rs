//! Records that perfquet-record writes for itself: payloads (PERF_SAMPLE_RAW) of `bpf-output` events named
//! `perfquet:…`, and types of EVENT_UPDATE.
//!
//! ```text
//! 02 00 00 00  00 00 00 00  00 00 00 00  01 00 00 00 …      kind 2 (aggregate), 0, action 0 (count), flags 1, …
//! ```
//! Every payload begins with its [`Kind`] (u32) and a zero u32, and ends with up to seven bytes of padding. Numbers
//! have the byte order of the recording host. A string is its length in bytes (u32) and the bytes.
//!
//! | kind | written by | here |
//! | --- | --- | --- |
//! | stack | BPF programs: ebpf/src/stacks.h | [`StackRecord`] |
//! | aggregate | perfquet-record, at the end | [`AggregateRecord`] |
//! | loss | perfquet-record, at the end | [`LossRecord`] |
//! | call | a BPF program: ebpf/src/calls.bpf.c | [`CallRecord`] |
//! | count | perfquet-record, with `--stat` | [`CountRecord`] |
//! | pause | perfquet-record, with `--control` | [`PauseRecord`] |
//! | rate | perfquet-record, with `--max-cpu` | [`RateRecord`] |
//! | process | perfquet-record, for each process that it sees | [`ProcessRecord`] |
//! | files | perfquet-record, with system calls | [`FilesRecord`] |
//! | code | perfquet-record, with `--keep-code` | [`CodeRecord`] |
//!
//! Numbers and layouts shared with C code are compared with its source in the tests.

mod aggregate;
mod call;
mod code;
mod count;
mod files;
mod loss;
mod pause;
mod process;
mod rate;
mod stack;
pub mod update;

use crate::bytes::{Cursor, Endian, Short};

pub use aggregate::AggregateRecord;
pub use call::{CallRecord, Caller};
pub use code::CodeRecord;
pub use count::CountRecord;
pub use files::FilesRecord;
pub use loss::LossRecord;
pub use pause::PauseRecord;
pub use process::ProcessRecord;
pub use rate::RateRecord;
pub use stack::StackRecord;

/// Prefix of the event names.
pub const PREFIX: &str = "perfquet:";

/// Name of the event of the recorder's records that are of no event of the kernel.
pub const RECORDER: &str = "perfquet:recorder";

/// Maximum length of a written string in bytes; BPF programs truncate theirs far below.
const TEXT_BYTES_MAX: usize = 4096;

/// Kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A stack, at its first occurrence.
    Stack = 1,
    /// One key of an aggregation.
    Aggregate = 2,
    /// A loss.
    Loss = 3,
    /// A call with paired entry and return.
    Call = 4,
    /// The recording was paused or resumed.
    Pause = 5,
    /// The value of a counter.
    Count = 6,
    /// The sampling rate of an event was changed.
    Rate = 7,
    /// Command line, cgroup and exit status of a process.
    Process = 8,
    /// Files that are open in a process.
    Files = 9,
    /// The code of a function.
    Code = 10,
}

impl Kind {
    /// Returns the kind with this number.
    pub fn of_number(number: u32) -> Option<Kind> {
        let all = [
            Kind::Stack,
            Kind::Aggregate,
            Kind::Loss,
            Kind::Call,
            Kind::Pause,
            Kind::Count,
            Kind::Rate,
            Kind::Process,
            Kind::Files,
            Kind::Code,
        ];
        all.into_iter().find(|kind| *kind as u32 == number)
    }

    /// Whether the record is the recorder's, and of no event.
    pub fn is_of_recorder(self) -> bool {
        match self {
            Kind::Pause | Kind::Count | Kind::Rate | Kind::Process | Kind::Files | Kind::Code => {
                true
            }
            Kind::Stack | Kind::Aggregate | Kind::Loss | Kind::Call => false,
        }
    }
}

/// Splits a payload into the number of its kind and the rest.
pub fn open(payload: &[u8], endian: Endian) -> Result<(u32, Cursor<'_>), Short> {
    let mut body = Cursor::new(payload, 0, endian);
    let kind = body.u32()?;
    body.u32()?;
    Ok((kind, body))
}

/// Begins a payload.
fn begin(kind: Kind) -> Vec<u8> {
    let mut payload = Vec::new();
    put(&mut payload, kind as u32);
    put(&mut payload, 0);
    payload
}

fn put(payload: &mut Vec<u8>, number: u32) {
    payload.extend(number.to_ne_bytes());
}

fn put_text(payload: &mut Vec<u8>, text: &[u8]) {
    let text = text.get(..TEXT_BYTES_MAX).unwrap_or(text);
    put(payload, text.len() as u32);
    payload.extend(text);
}

fn text<'a>(body: &mut Cursor<'a>) -> Result<&'a [u8], Short> {
    let bytes = body.u32()?;
    body.bytes(bytes.into())
}

/// A source of the BPF programs; `None` in a published package, which lacks them.
#[cfg(test)]
fn bpf_source(name: &str) -> Option<String> {
    let sources = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ebpf/src");
    let text = || std::fs::read_to_string(sources.join(name)).unwrap();
    sources.is_dir().then(text)
}

/// Byte order of written records.
#[cfg(test)]
const NATIVE: Endian = if cfg!(target_endian = "big") {
    Endian::Big
} else {
    Endian::Little
};

/// Returns the members of a struct in C, without comments: `u32 kind`.
#[cfg(test)]
fn members_in_c(source: &str, name: &str) -> Vec<String> {
    let start = source.find(&format!("struct {name} {{\n")).unwrap();
    let lines = source[start..].lines().skip(1);
    let lines = lines.take_while(|line| !line.starts_with('}'));
    lines
        .filter_map(|line| Some(line.split_once(';')?.0.trim().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_numbers_match_the_bpf_programs() {
        let sources = (bpf_source("program.h"), bpf_source("calls.bpf.c"));
        if let (Some(program), Some(calls)) = sources {
            assert!(program.contains(&format!("#define RECORD_STACK {}\n", Kind::Stack as u32)));
            assert!(calls.contains(&format!("#define RECORD_CALL {}\n", Kind::Call as u32)));
        }
        for number in 0..12 {
            let kind = Kind::of_number(number);
            assert_eq!(kind.is_some(), (1..=10).contains(&number));
            assert!(kind.is_none_or(|kind| kind as u32 == number));
        }
    }

    #[test]
    fn payload_begins_with_its_kind() {
        let payload = begin(Kind::Loss);
        let (kind, body) = open(&payload, NATIVE).unwrap();
        assert_eq!((kind, body.offset(), body.is_empty()), (3, 8, true));
        assert!(open(&payload[..7], NATIVE).is_err());
    }

    #[test]
    fn long_strings_are_truncated() {
        let mut payload = Vec::new();
        put_text(&mut payload, &[b'x'; TEXT_BYTES_MAX + 1]);
        let mut body = Cursor::new(&payload, 0, NATIVE);
        assert_eq!(text(&mut body).unwrap().len(), TEXT_BYTES_MAX);
        assert!(body.is_empty());
    }
}
