//! A stack: `u64 id, u32 process, u32 flags, u64 address…`, leaf first, to the end of the payload
//! (`struct stack_record` in ebpf/src/stacks.h).

use crate::bytes::{Cursor, Short};

const IS_USER: u32 = 1;
const IS_CUT: u32 = 2;
/// `PERF_CONTEXT_MAX`: the least marker.
const CONTEXT_MAX: u64 = -4095i64 as u64;

/// A stack, referenced by its ID in later records.
#[derive(Debug, Clone, Copy)]
pub struct StackRecord<'a> {
    /// ID of the stack; never 0.
    pub id: u64,
    /// ID of its process.
    pub process: u32,
    /// Whether it is a user stack.
    pub is_user: bool,
    /// Whether its outer frames are known to be missing.
    pub is_cut: bool,
    addresses: Cursor<'a>,
}

impl<'a> StackRecord<'a> {
    /// Decodes the part after the head.
    pub fn decode(mut body: Cursor<'a>) -> Result<StackRecord<'a>, Short> {
        let (id, process) = (body.u64()?, body.u32()?);
        let flags = body.u32()?;
        Ok(StackRecord {
            id,
            process,
            is_user: flags & IS_USER != 0,
            is_cut: flags & IS_CUT != 0,
            addresses: body,
        })
    }

    /// Iterates over the addresses, leaf first. The kernel's chain of a precise event has the markers of perf's records in it
    /// (`PERF_CONTEXT_KERNEL`, …), which are no addresses.
    pub fn addresses(mut self) -> impl Iterator<Item = u64> {
        std::iter::from_fn(move || self.addresses.u64().ok())
            .filter(|address| *address < CONTEXT_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Kind, NATIVE, bpf_source, members_in_c, open};

    /// Encodes a stack as the BPF programs do.
    fn encode(id: u64, process: u32, flags: u32, addresses: &[u64]) -> Vec<u8> {
        let words = [Kind::Stack as u32, 0].map(u32::to_ne_bytes).concat();
        let ids = [process, flags].map(u32::to_ne_bytes).concat();
        let addresses = addresses.iter().flat_map(|address| address.to_ne_bytes());
        let head = [words, id.to_ne_bytes().to_vec(), ids].concat();
        head.into_iter().chain(addresses).collect()
    }

    #[test]
    fn members_match_the_bpf_programs() {
        let Some(source) = bpf_source("stacks.h") else {
            return;
        };
        let expected = [
            "u32 kind",
            "u32 end",
            "u64 id",
            "u32 process",
            "u32 flags",
            "u64 addresses[MOST_FRAMES]",
        ];
        assert_eq!(members_in_c(&source, "stack_record"), expected);
        for line in [
            format!("#define STACK_IS_USER {IS_USER}\n"),
            format!("#define STACK_IS_CUT {IS_CUT} "),
        ] {
            assert!(source.contains(&line), "{line}");
        }
    }

    #[test]
    fn decodes_records_of_bpf_programs() {
        let mut payload = encode(1 << 40, 17, IS_USER | IS_CUT, &[0x401000, 0x402000]);
        payload.extend([0; 4]); // padding
        let (kind, body) = open(&payload, NATIVE).unwrap();
        assert_eq!(Kind::of_number(kind), Some(Kind::Stack));
        let stack = StackRecord::decode(body).unwrap();
        assert_eq!(
            (stack.id, stack.process, stack.is_user, stack.is_cut),
            (1 << 40, 17, true, true)
        );
        assert!(stack.addresses().eq([0x401000, 0x402000]));
        let (_, body) = open(&payload[..23], NATIVE).unwrap();
        assert!(StackRecord::decode(body).is_err());
    }
}
