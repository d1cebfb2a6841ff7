//! Hardware breakpoints: accesses to an address, as perf writes them.
//!
//! ```text
//! mem:0x404028        reads and writes of the four bytes there
//! mem:0x404028/8:w    writes of eight bytes
//! mem:0x401136:x:u    executions of the instruction in user space
//! ```

use super::{Kind, Probe, event_attr, modifiers};
use crate::failure::{Failure, misuse};
use crate::sys::perf_event::abi;

/// What such an event begins with.
pub(super) const PREFIX: &str = "mem:";
/// Bytes of a data breakpoint, by default.
const USUAL_BYTES: u64 = 4;

/// Parses `mem:ADDR[/LEN][:rwx[:MODIFIERS]]`.
pub(super) fn parse(event: &str) -> Result<Probe, Failure> {
    let wrong = |found: &str, expected: &str| {
        misuse(format!("{event}: expected {expected}, found \"{found}\""))
            .hint("write it as mem:ADDR[/LEN][:rwx], for example mem:0x404028/8:w")
    };
    let rest = event.strip_prefix(PREFIX).unwrap_or(event);
    let (place, access) = rest.split_once(':').unwrap_or((rest, "rw"));
    let (access, modifiers) = access.split_once(':').unwrap_or((access, ""));
    let (address, bytes) = match place.split_once('/') {
        Some((address, bytes)) => (address, Some(bytes)),
        None => (place, None),
    };
    let mut kinds = 0;
    for letter in access.chars() {
        kinds |= match letter {
            'r' => abi::HW_BREAKPOINT_R,
            'w' => abi::HW_BREAKPOINT_W,
            'x' => abi::HW_BREAKPOINT_X,
            _ => return Err(wrong(access, "accesses out of r, w and x")),
        };
    }
    if kinds == 0 {
        return Err(wrong(access, "accesses out of r, w and x"));
    }
    let digits = address.strip_prefix("0x").unwrap_or(address);
    let address =
        u64::from_str_radix(digits, 16).map_err(|_| wrong(address, "a hexadecimal address"))?;
    let bytes = match bytes {
        // The kernel wants the size of a long for instructions.
        None if kinds == abi::HW_BREAKPOINT_X => size_of::<usize>() as u64,
        None => USUAL_BYTES,
        Some(text) => match text.parse() {
            Ok(bytes @ (1 | 2 | 4 | 8)) => bytes,
            _ => return Err(wrong(text, "a length of 1, 2, 4 or 8 bytes")),
        },
    };
    let mut attr = event_attr::breakpoint(kinds, address, bytes);
    modifiers::apply(event, modifiers, &mut attr)?;
    Ok(Probe {
        name: event.to_owned(),
        attr,
        kind: Kind::Sampled,
        filter: None,
        wants_precision: false,
        pattern: None,
        members: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lengths_and_accesses() {
        let check = |text: &str, expected: (u32, u64, u64)| {
            let attr = parse(text).unwrap().attr;
            assert_eq!(
                (attr.bp_type, attr.config1, attr.config2),
                expected,
                "{text}"
            );
        };
        check("mem:0x1000", (3, 0x1000, 4));
        check("mem:1000/8:w", (2, 0x1000, 8));
        check("mem:0x1000:x", (4, 0x1000, 8));
        check("mem:0x1000:w:u", (2, 0x1000, 4));
        let attr = parse("mem:0x1000:w:u").unwrap().attr;
        assert_eq!((attr.exclude_user(), attr.exclude_kernel()), (0, 1));
        for wrong in [
            "mem:",
            "mem:main",
            "mem:0x1:",
            "mem:0x1:q",
            "mem:0x1/3",
            "mem:0x1/",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
