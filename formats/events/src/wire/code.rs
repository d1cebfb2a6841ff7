//! The code of a function.
//!
//! ```text
//! i32 pid (-1: the kernel), u32 machine, u64 start, u64 address, u64 size, text module, text build ID, u32 bytes, code
//! ```

use super::{Kind, begin, put, put_text, text};
use crate::bytes::{Cursor, Short};
use crate::event::KeptCode;

/// Kept code; the record has the time at which it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeRecord<'a>(pub KeptCode<'a>);

impl<'a> CodeRecord<'a> {
    /// Returns the payload.
    pub fn encode(&self) -> Vec<u8> {
        let kept = &self.0;
        let mut payload = begin(Kind::Code);
        payload.extend(kept.pid.unwrap_or(-1).to_ne_bytes());
        put(&mut payload, kept.machine.into());
        for number in [kept.start, kept.address, kept.size] {
            payload.extend(number.to_ne_bytes());
        }
        put_text(&mut payload, kept.module);
        put_text(&mut payload, kept.build_id.unwrap_or_default());
        put(&mut payload, kept.code.len() as u32);
        payload.extend(kept.code);
        payload
    }

    /// Decodes the part after the head. The result has no time.
    pub fn decode(mut body: Cursor<'a>) -> Result<CodeRecord<'a>, Short> {
        let (pid, machine) = (body.i32()?, body.u32()?);
        let (start, address, size) = (body.u64()?, body.u64()?, body.u64()?);
        let (module, build_id) = (text(&mut body)?, text(&mut body)?);
        let bytes = body.u32()?;
        Ok(CodeRecord(KeptCode {
            time: None,
            pid: (pid >= 0).then_some(pid),
            module,
            build_id: (!build_id.is_empty()).then_some(build_id),
            start,
            address,
            size,
            machine: u16::try_from(machine).unwrap_or_default(),
            code: body.bytes(bytes.into())?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{NATIVE, open};

    #[test]
    fn encoding_round_trips() {
        let generated = KeptCode {
            time: None,
            pid: Some(42),
            module: b"/tmp/perf-42.map",
            build_id: None,
            start: 0x7f00_0000_1000,
            address: 0x7f00_0000_1000,
            size: 5000,
            machine: 62,
            code: &[0xc3; 100],
        };
        let of_kernel = KeptCode {
            pid: None,
            module: b"[kernel.kallsyms]",
            build_id: Some(&[1; 20]),
            code: &[],
            ..generated
        };
        for kept in [generated, of_kernel] {
            let record = CodeRecord(kept);
            let payload = record.encode();
            let (kind, body) = open(&payload, NATIVE).unwrap();
            assert_eq!(Kind::of_number(kind), Some(Kind::Code));
            assert_eq!(CodeRecord::decode(body), Ok(record));
            for end in 8..payload.len() {
                let (_, body) = open(&payload[..end], NATIVE).unwrap();
                assert!(CodeRecord::decode(body).is_err());
            }
        }
    }
}
