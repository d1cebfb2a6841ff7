//! Registers of a sample (`-F iregs,uregs`).
//!
//! ```text
//! ABI:2    AX:0x30    BX:0xffffff800000007c    SP:0xffffc90007273bb8    IP:0xffffffff81637cf4
//! ABI:2    x0:0x0    lr:0xffff9a1c    sp:0xffffdb50    pc:0xffff9a20
//! ```
//! perf prints those of the interrupt first, with nothing that tells them from those of user space.

use perfquet_events::event::Registers;
use perfquet_events::scan::{decimal, prefixed_hex, split_once};

use crate::lines::words;

/// One group.
#[derive(Debug, Default)]
pub(super) struct Group {
    abi: u64,
    mask: u64,
    values: Vec<u64>,
    ip: Option<u64>,
    /// Whether some register has an unknown name.
    is_strange: bool,
}

impl Group {
    fn registers(&self) -> Option<Registers<'_>> {
        let is_known = !self.values.is_empty() && !self.is_strange;
        is_known.then_some(Registers {
            mask: self.mask,
            abi: self.abi,
            values: &self.values,
        })
    }

    fn add(&mut self, name: &[u8], value: u64) {
        let bit = bit(name).filter(|bit| self.mask >> bit == 0);
        let Some(bit) = bit else {
            self.is_strange = true;
            return;
        };
        self.mask |= 1 << bit;
        self.values.push(value);
        if matches!(name, b"IP" | b"pc") {
            self.ip = Some(value);
        }
    }
}

/// The groups of one sample.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
}

impl Groups {
    /// Parses a text with registers. Returns false if some of them cannot be stored.
    pub(super) fn add(&mut self, text: &[u8]) -> bool {
        let mut is_known = true;
        for word in words(text) {
            let Some((name, value)) = split_once(word, b":") else {
                continue;
            };
            if name == b"ABI" {
                // perf prints at most two.
                if self.groups.len() < 2 {
                    self.groups.push(Group {
                        abi: decimal(value).unwrap_or_default(),
                        ..Group::default()
                    });
                }
            } else if let (Some(group), Some(value)) = (self.groups.last_mut(), prefixed_hex(value))
            {
                group.add(name, value);
                is_known &= !group.is_strange;
            }
        }
        is_known
    }

    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.groups.clear();
    }

    /// Registers at the interrupt and in user space, given the sample's address. A single group with another
    /// instruction pointer is that of user space.
    pub(super) fn both(&self, ip: Option<u64>) -> (Option<Registers<'_>>, Option<Registers<'_>>) {
        match self.groups.as_slice() {
            [] => (None, None),
            [group] if group.ip.is_some() && group.ip == ip => (group.registers(), None),
            // Without an instruction pointer in both, either is possible.
            [group] if group.ip.is_none() || ip.is_none() => (None, None),
            [group] => (None, group.registers()),
            [interrupt, user, ..] => (interrupt.registers(), user.registers()),
        }
    }
}

/// Number of a register in `perf_regs.h` of x86 or arm64.
fn bit(name: &[u8]) -> Option<u32> {
    const X86: [&[u8]; 24] = [
        b"AX", b"BX", b"CX", b"DX", b"SI", b"DI", b"BP", b"SP", b"IP", b"FLAGS", b"CS", b"SS",
        b"DS", b"ES", b"FS", b"GS", b"R8", b"R9", b"R10", b"R11", b"R12", b"R13", b"R14", b"R15",
    ];
    let place = X86.iter().position(|known| *known == name);
    let place = place.and_then(|place| u32::try_from(place).ok());
    place.or_else(|| match name {
        b"lr" => Some(30),
        b"sp" => Some(31),
        b"pc" => Some(32),
        _ => {
            let number = decimal(name.strip_prefix(b"x")?)?;
            u32::try_from(number).ok().filter(|number| *number < 30)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, ip: u64, expected: [Option<(u64, &[u64])>; 2]) {
        let mut groups = Groups::default();
        groups.add(text.as_bytes());
        let (interrupt, user) = groups.both(Some(ip));
        let parts = |registers: Option<Registers<'_>>| {
            registers.map(|registers| (registers.mask, registers.values.to_vec()))
        };
        let expected = expected.map(|group| group.map(|(mask, values)| (mask, values.to_vec())));
        assert_eq!([parts(interrupt), parts(user)], expected);
    }

    #[test]
    fn groups() {
        check(
            "ABI:2    AX:0x30    IP:0xf0  ABI:2    AX:0x40    R8:0x7",
            0xf0,
            [Some((0x101, &[0x30, 0xf0])), Some((0x1_0001, &[0x40, 7]))],
        );
        check("ABI:2    IP:0xf0", 0xf0, [Some((0x100, &[0xf0])), None]);
        check("ABI:2    IP:0x10", 0xf0, [None, Some((0x100, &[0x10]))]);
        check("ABI:2    AX:0x10", 0xf0, [None, None]);
        check(
            "ABI:2    x29:0x1    pc:0xf0",
            0xf0,
            [Some((1 << 29 | 1 << 32, &[1, 0xf0])), None],
        );
        check("ABI:2    IP:0xf0    XMM:0x1", 0xf0, [None, None]);
    }
}
