//! Names of the procedure linkage table: the jumps through which a program calls its libraries.
//!
//! ```text
//! 1030: ff 25 e2 2f 00 00   jmp *0x2fe2(%rip)   # slot 0x4018, relocated to malloc  →  malloc@plt
//! ```
//! No symbol table names them. Each entry is decoded up to the slot of the global offset table through which it jumps;
//! the relocation of this slot names the function. This works for any order and kind of entries (`.plt`, `.plt.sec`,
//! `.plt.got`). x86-64 and aarch64.

use std::collections::HashMap;

use perfquet_events::bytes::{Endian, array_at};

use super::elf::{EM_AARCH64, EM_X86_64, Elf, Part, Relocation, Section};
use super::table::{Symbol, Table};

const R_X86_64_IRELATIVE: u32 = 37;
const R_AARCH64_IRELATIVE: u32 = 1032;

/// One jump: its start, its bytes, and its slot.
struct Jump {
    start: u64,
    bytes: u64,
    slot: u64,
}

/// The names of all jumps; `functions` names the local functions that some of them lead to.
pub(super) fn names(image: &Elf, functions: &Table) -> Table {
    let mut jumps = Vec::new();
    for name in [&b".plt"[..], b".plt.sec", b".plt.got", b".iplt"] {
        if let (Some(section), Some(code)) = (image.section(name), image.contents(name)) {
            match image.machine {
                EM_X86_64 => jumps_of_x86_64(section, &code, &mut jumps),
                EM_AARCH64 if image.endian() == Endian::Little => {
                    jumps_of_aarch64(section, &code, &mut jumps);
                }
                _ => {}
            }
        }
    }
    let slots = jumps.iter().map(|jump| jump.slot);
    let (Some(first), Some(last)) = (slots.clone().min(), slots.max()) else {
        return Table::empty();
    };
    let places = first..=last;
    let slots: HashMap<u64, Relocation> = [&b".rela.plt"[..], b".rela.dyn", b".rela.iplt"]
        .into_iter()
        .flat_map(|name| image.relocations(name, &places))
        .map(|relocation| (relocation.place, relocation))
        .collect();
    let mut text = Vec::new();
    let mut symbols = Vec::new();
    for jump in jumps {
        let Some(name) = slots
            .get(&jump.slot)
            .and_then(|relocation| target(image, functions, relocation))
        else {
            continue;
        };
        let (Ok(start), Ok(length)) = (u32::try_from(text.len()), u32::try_from(name.len() + 4))
        else {
            break;
        };
        text.extend_from_slice(&name);
        text.extend_from_slice(b"@plt");
        let end = jump.start.saturating_add(jump.bytes);
        symbols.push(Symbol::new(jump.start, end, start, length));
    }
    Table::new(symbols, Part::owned(text), |_, _, _| true)
}

fn target(image: &Elf, functions: &Table, relocation: &Relocation) -> Option<Vec<u8>> {
    let is_local = match image.machine {
        EM_X86_64 => relocation.kind == R_X86_64_IRELATIVE,
        _ => relocation.kind == R_AARCH64_IRELATIVE,
    };
    if is_local {
        let address = relocation.addend as u64;
        let function = functions.at(address).filter(|f| f.start == address)?;
        return Some(functions.name(function).to_vec());
    }
    image.dynamic_name(relocation.symbol).map(<[u8]>::to_vec)
}

/// `jmp *disp(%rip)`, `ff 25`, somewhere in each entry of 8 or 16 bytes.
fn jumps_of_x86_64(section: &Section, code: &[u8], jumps: &mut Vec<Jump>) {
    let entry_bytes = match section.entry_bytes {
        size @ (8 | 16) => size,
        _ if section.alignment == 8 => 8,
        _ => 16,
    };
    for (index, entry) in code.chunks(entry_bytes as usize).enumerate() {
        let Some(at) = entry.windows(2).position(|two| two == [0xff, 0x25]) else {
            continue;
        };
        let Some(displacement) = array_at(entry, at + 2) else {
            continue;
        };
        let displacement = i64::from(Endian::Little.i32(displacement));
        let start = section.address.wrapping_add(index as u64 * entry_bytes);
        let next = start.wrapping_add(at as u64 + 6);
        jumps.push(Jump {
            start,
            bytes: entry_bytes,
            slot: next.wrapping_add_signed(displacement),
        });
    }
}

/// `[bti c]; adrp x16, page; ldr x17, [x16, #offset]; add x16, …; br x17`
fn jumps_of_aarch64(section: &Section, code: &[u8], jumps: &mut Vec<Jump>) {
    const BTI_C: u32 = 0xd503_245f;
    let mut before = 0;
    let mut page: Option<(u64, u64)> = None;
    for (index, word) in code.chunks_exact(4).enumerate() {
        let word = Endian::Little.u32_at(word, 0).unwrap_or(0);
        let address = section.address.wrapping_add(index as u64 * 4);
        if word & 0x9f00_001f == 0x9000_0010 {
            let low = i64::from((word >> 29) & 3);
            // 19 bits, signed.
            let high = i64::from(((word >> 5) & 0x7_ffff) << 13) as i32 as i64 >> 13;
            let base = (address & !0xfff).wrapping_add_signed(((high << 2) | low) << 12);
            let start = if before == BTI_C {
                address.wrapping_sub(4)
            } else {
                address
            };
            page = Some((start, base));
        } else if word & 0xffc0_03ff == 0xf940_0211
            && let Some((start, base)) = page.take()
        {
            let offset = u64::from((word >> 10) & 0xfff) * 8;
            jumps.push(Jump {
                start,
                bytes: address.wrapping_add(12).wrapping_sub(start),
                slot: base.wrapping_add(offset),
            });
        }
        before = word;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_jumps_of_aarch64() {
        // adrp x16, +0x1f000; ldr x17, [x16, #0xfb0]; add x16, x16, #0xfb0; br x17 (from /bin/ls of Debian)
        let code: Vec<u8> = [
            0xd503_245f_u32,
            0xf000_00f0,
            0xf947_da11,
            0x913e_c210,
            0xd61f_0220,
        ]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
        let mut jumps = Vec::new();
        let section = Section::at(0x3_0000);
        jumps_of_aarch64(&section, &code, &mut jumps);
        let found: Vec<_> = jumps
            .iter()
            .map(|jump| (jump.start, jump.bytes, jump.slot))
            .collect();
        assert_eq!(found, [(0x3_0000, 20, 0x4_ffb0)]);
    }
}
