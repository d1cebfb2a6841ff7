//! What the recorder found out about a process.
//!
//! ```text
//! i32 pid, u32 flags (bit 0: command line; bit 1: cgroup; bit 2: exit status), i32 exit status, u32 0, text cmdline, text cgroup
//! ```

use super::{Kind, begin, put, put_text, text};
use crate::bytes::{Cursor, Short};
use crate::event::ProcessState;

const HAS_CMDLINE: u32 = 1;
const HAS_CGROUP: u32 = 2;
const HAS_EXIT_CODE: u32 = 4;

/// The state of a process; the record has its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessRecord<'a>(pub ProcessState<'a>);

impl<'a> ProcessRecord<'a> {
    /// Returns the payload.
    pub fn encode(&self) -> Vec<u8> {
        let state = &self.0;
        let mut payload = begin(Kind::Process);
        payload.extend(state.pid.to_ne_bytes());
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        put(
            &mut payload,
            flag(state.cmdline.is_some(), HAS_CMDLINE)
                | flag(state.cgroup.is_some(), HAS_CGROUP)
                | flag(state.exit_code.is_some(), HAS_EXIT_CODE),
        );
        payload.extend(state.exit_code.unwrap_or_default().to_ne_bytes());
        put(&mut payload, 0);
        for words in [state.cmdline, state.cgroup] {
            put_text(&mut payload, words.unwrap_or_default());
        }
        payload
    }

    /// Decodes the part after the head. The result has no time.
    pub fn decode(mut body: Cursor<'a>) -> Result<ProcessRecord<'a>, Short> {
        let (pid, flags, exit_code) = (body.i32()?, body.u32()?, body.i32()?);
        body.u32()?;
        let (cmdline, cgroup) = (text(&mut body)?, text(&mut body)?);
        Ok(ProcessRecord(ProcessState {
            time: None,
            pid,
            cmdline: (flags & HAS_CMDLINE != 0).then_some(cmdline),
            cgroup: (flags & HAS_CGROUP != 0).then_some(cgroup),
            exit_code: (flags & HAS_EXIT_CODE != 0).then_some(exit_code),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{NATIVE, open};

    #[test]
    fn encoding_round_trips() {
        let whole = ProcessState {
            pid: 42,
            cmdline: Some(b"cc -c a.c"),
            cgroup: Some(b"/"),
            exit_code: Some(137),
            ..ProcessState::default()
        };
        let empty = ProcessState {
            pid: -1,
            ..ProcessState::default()
        };
        for state in [whole, empty] {
            let record = ProcessRecord(state);
            let payload = record.encode();
            let (kind, body) = open(&payload, NATIVE).unwrap();
            assert_eq!(Kind::of_number(kind), Some(Kind::Process));
            assert_eq!(ProcessRecord::decode(body), Ok(record));
            for end in 8..payload.len() {
                let (_, body) = open(&payload[..end], NATIVE).unwrap();
                assert!(ProcessRecord::decode(body).is_err());
            }
        }
    }
}
