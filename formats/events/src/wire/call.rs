//! A call: `struct call_record` in ebpf/src/calls.bpf.c.
//!
//! ```text
//! u32 function, u32 depth, u32 function of the caller, u32 has a caller, u64 entry, u64 exit, u64 entry of the caller,
//! u64 nanoseconds in others, u64 returned, u64 argument[6]
//! ```

use crate::bytes::{Cursor, Short};

/// A call whose entry and return were paired in the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRecord {
    /// ID of its [`CallFunction`](crate::event::CallFunction).
    pub function: u32,
    /// Number of enclosing calls.
    pub depth: u32,
    /// The enclosing call.
    pub caller: Option<Caller>,
    /// Time of the entry.
    pub entry: u64,
    /// Time of the return.
    pub exit: u64,
    /// Nanoseconds in nested calls.
    pub inside: u64,
    /// Register with the return value.
    pub returned: u64,
    /// Registers with the arguments.
    pub arguments: [u64; 6],
}

/// The enclosing call of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// ID of its function.
    pub function: u32,
    /// Time of its entry.
    pub entry: u64,
}

impl CallRecord {
    /// Decodes the part after the head.
    pub fn decode(mut body: Cursor<'_>) -> Result<CallRecord, Short> {
        let (function, depth, parent) = (body.u32()?, body.u32()?, body.u32()?);
        let has_parent = body.u32()? != 0;
        let (entry, exit, parent_entry) = (body.u64()?, body.u64()?, body.u64()?);
        let (inside, returned) = (body.u64()?, body.u64()?);
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = body.u64()?;
        }
        Ok(CallRecord {
            function,
            depth,
            caller: has_parent.then_some(Caller {
                function: parent,
                entry: parent_entry,
            }),
            entry,
            exit,
            inside,
            returned,
            arguments,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Kind, NATIVE, bpf_source, members_in_c, open};

    /// Encodes a call as the BPF program does.
    fn encode(call: &CallRecord) -> Vec<u8> {
        let caller = call.caller.unwrap_or(Caller {
            function: 0,
            entry: 0,
        });
        let numbers = [
            Kind::Call as u32,
            0,
            call.function,
            call.depth,
            caller.function,
            call.caller.is_some().into(),
        ];
        let words = [
            call.entry,
            call.exit,
            caller.entry,
            call.inside,
            call.returned,
        ];
        let numbers = numbers.iter().flat_map(|number| number.to_ne_bytes());
        let words = words.iter().chain(&call.arguments);
        numbers
            .chain(words.flat_map(|word| word.to_ne_bytes()))
            .collect()
    }

    #[test]
    fn members_match_the_bpf_program() {
        let Some(source) = bpf_source("calls.bpf.c") else {
            return;
        };
        let expected = [
            "u32 kind",
            "u32 unused",
            "u32 function",
            "u32 depth",
            "u32 parent",
            "u32 has_parent",
            "u64 entry",
            "u64 exit",
            "u64 parent_entry",
            "u64 inside",
            "u64 returned",
            "u64 arguments[MOST_ARGUMENTS]",
        ];
        assert_eq!(members_in_c(&source, "call_record"), expected);
        assert!(source.contains("#define MOST_ARGUMENTS 6\n"));
    }

    #[test]
    fn decodes_records_of_the_bpf_program() {
        let outer = CallRecord {
            function: 3,
            depth: 0,
            caller: None,
            entry: 1_000,
            exit: 9_000,
            inside: 500,
            returned: u64::MAX,
            arguments: [1, 2, 3, 4, 5, 6],
        };
        let caller = Some(Caller {
            function: 3,
            entry: 1_000,
        });
        for call in [outer, CallRecord { caller, ..outer }] {
            let payload = encode(&call);
            let (kind, body) = open(&payload, NATIVE).unwrap();
            assert_eq!(Kind::of_number(kind), Some(Kind::Call));
            assert_eq!(CallRecord::decode(body), Ok(call));
            let (_, body) = open(&payload[..payload.len() - 1], NATIVE).unwrap();
            assert!(CallRecord::decode(body).is_err());
        }
    }
}
