//! Machine code as instructions.
//!
//! ```text
//! 0x1189: 48 8d 04 37 75 f5   →   1189  lea     (%rdi,%rsi,1),%rax
//!                                 118d  jne     1184               a jump to 0x1184
//! ```
//! x86 by iced-x86, in the syntax of AT&T or Intel; 64-bit ARM by yaxpeax-arm.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Formatter, GasFormatter, Instruction as X86,
    IntelFormatter, OpKind,
};
use perfquet_trace::symbols::{Code, Machine};
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction as Arm, Opcode, Operand};

/// Width of mnemonics before their operands.
const MNEMONIC: usize = 8;

/// An instruction of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) text: String,
    /// Where a jump leads; calls are none.
    pub(super) jump: Option<u64>,
}

/// The syntax of x86.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Syntax {
    Att,
    Intel,
}

/// Disassembles a function.
///
/// # Errors
///
/// The instruction set is another one; the message names it.
pub(super) fn disassembled(code: &Code, syntax: Syntax) -> Result<Vec<Instruction>, String> {
    let named = |address: u64| code.name_at(address);
    match code.machine {
        Machine::X86 => Ok(x86(&code.bytes, code.address, 32, syntax, &named)),
        Machine::X86_64 => Ok(x86(&code.bytes, code.address, 64, syntax, &named)),
        Machine::Aarch64 => Ok(arm(&code.bytes, code.address, &named)),
        Machine::Other(number) => Err(format!(
            "only x86 and 64-bit ARM are disassembled, and it has ELF machine {number}"
        )),
    }
}

/// Looks up the function at an address, and the distance from its start.
type Named<'a> = &'a dyn Fn(u64) -> Option<(String, u64)>;

fn x86(
    bytes: &[u8],
    address: u64,
    bits: u32,
    syntax: Syntax,
    named: Named<'_>,
) -> Vec<Instruction> {
    let mut formatter: Box<dyn Formatter> = match syntax {
        Syntax::Att => Box::new(GasFormatter::new()),
        Syntax::Intel => Box::new(IntelFormatter::new()),
    };
    let options = formatter.options_mut();
    options.set_first_operand_char_index(MNEMONIC as u32);
    options.set_uppercase_hex(false);
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_small_hex_numbers_in_decimal(false);
    options.set_rip_relative_addresses(true);
    options.set_space_after_operand_separator(false);
    let mut decoder = Decoder::with_ip(bits, bytes, address, DecoderOptions::NONE);
    let own = code_range(bytes, address);
    let mut instruction = X86::default();
    let mut instructions = Vec::new();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let target = direct_target(&instruction);
        let mut text = String::new();
        match target {
            Some(target) => {
                formatter.format_mnemonic(&instruction, &mut text);
                text = with_target(&text, target, &own, named);
            }
            None => formatter.format(&instruction, &mut text),
        }
        if instruction.is_ip_rel_memory_operand() {
            text += &format!(" # {:x}", instruction.ip_rel_memory_address());
        }
        let is_jump = !matches!(
            instruction.flow_control(),
            FlowControl::Call | FlowControl::XbeginXabortXend
        );
        instructions.push(Instruction {
            address: instruction.ip(),
            bytes: instruction.len(),
            text,
            jump: target.filter(|_| is_jump),
        });
    }
    instructions
}

fn code_range(bytes: &[u8], address: u64) -> std::ops::Range<u64> {
    address..address.saturating_add(bytes.len() as u64)
}

/// Where a jump or call leads, if that is part of it.
fn direct_target(instruction: &X86) -> Option<u64> {
    let is_near = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    (instruction.op_count() == 1 && is_near).then(|| instruction.near_branch_target())
}

/// Formats a branch: the mnemonic, the target's address, and the target's function if it is another one.
fn with_target(
    mnemonic: &str,
    target: u64,
    own: &std::ops::Range<u64>,
    named: Named<'_>,
) -> String {
    let before = format!("{mnemonic:<width$} ", width = MNEMONIC - 1);
    with_address(&before, target, own, named)
}

/// Appends the target's address, and the target's function if it is another one.
fn with_address(before: &str, target: u64, own: &std::ops::Range<u64>, named: Named<'_>) -> String {
    let text = format!("{before}{target:x}");
    match named(target).filter(|_| !own.contains(&target)) {
        Some((name, 0)) => format!("{text} <{name}>"),
        Some((name, distance)) => format!("{text} <{name}+0x{distance:x}>"),
        None => text,
    }
}

fn arm(bytes: &[u8], address: u64, named: Named<'_>) -> Vec<Instruction> {
    let decoder = InstDecoder::default();
    let own = code_range(bytes, address);
    let words = bytes.chunks(4).enumerate().map(|(index, word)| {
        let address = address.wrapping_add(4 * index as u64);
        let decoded = decoder.decode(&mut U8Reader::new(word));
        let (text, jump) = match decoded {
            Ok(instruction) => arm_text(&instruction, address, &own, named),
            Err(_) => ("(bad)".to_owned(), None),
        };
        Instruction {
            address,
            bytes: word.len(),
            text,
            jump,
        }
    });
    words.collect()
}

/// The text of an instruction, and where a jump leads.
fn arm_text(
    instruction: &Arm,
    address: u64,
    own: &std::ops::Range<u64>,
    named: Named<'_>,
) -> (String, Option<u64>) {
    let text = instruction.to_string();
    let offset = instruction
        .operands
        .iter()
        .find_map(|operand| match operand {
            Operand::PCOffset(offset) => Some(*offset),
            _ => None,
        });
    let (Some(offset), Some((before, _))) = (offset, text.split_once('$')) else {
        return (aligned(&text), None);
    };
    let target = address.wrapping_add_signed(offset);
    let text = aligned(&with_address(before, target, own, named));
    let is_jump = matches!(
        instruction.opcode,
        Opcode::B | Opcode::Bcc(_) | Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ
    );
    (text, Some(target).filter(|_| is_jump))
}

/// The mnemonic, padded.
fn aligned(text: &str) -> String {
    match text.split_once(' ') {
        Some((mnemonic, operands)) => {
            format!("{mnemonic:<width$} {operands}", width = MNEMONIC - 1)
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(address: u64) -> Option<(String, u64)> {
        (0x2000..0x2100)
            .contains(&address)
            .then(|| ("other".to_owned(), address - 0x2000))
    }

    fn lines(instructions: &[Instruction]) -> Vec<String> {
        let line = |one: &Instruction| match one.jump {
            Some(jump) => format!("{:x} {} → {jump:x}", one.address, one.text),
            None => format!("{:x} {}", one.address, one.text),
        };
        instructions.iter().map(line).collect()
    }

    #[test]
    fn x86_in_both_syntaxes() {
        // lea (%rdi,%rsi,1),%rax; jne -6; call 0x2000; mov 0x10(%rip),%eax; jmp 0x2010; (bad)
        let code = [
            0x48, 0x8d, 0x04, 0x37, 0x75, 0xfa, 0xe8, 0xf5, 0x0f, 0x00, 0x00, 0x8b, 0x05, 0x10, 0,
            0, 0, 0xe9, 0xfa, 0x0f, 0x00, 0x00, 0x06,
        ];
        let att = x86(&code, 0x1000, 64, Syntax::Att, &named);
        assert_eq!(
            lines(&att),
            [
                "1000 lea     (%rdi,%rsi),%rax",
                "1004 jne     1000 → 1000",
                "1006 call    2000 <other>",
                "100b mov     0x10(%rip),%eax # 1021",
                "1011 jmp     2010 <other+0x10> → 2010",
                "1016 (bad)",
            ]
        );
        let intel = x86(&code, 0x1000, 64, Syntax::Intel, &named);
        assert_eq!(lines(&intel)[0], "1000 lea     rax,[rdi+rsi]");
        assert_eq!(lines(&intel)[4], "1011 jmp     2010 <other+0x10> → 2010");
    }

    #[test]
    fn arm_with_64_bits() {
        // add x0, x1, x2; cbz x0, +8; bl 0x2000; ret; an invalid word; half a word
        let code = [
            0x20, 0x00, 0x02, 0x8b, 0x40, 0x00, 0x00, 0xb4, 0xfe, 0x03, 0x00, 0x94, 0xc0, 0x03,
            0x5f, 0xd6, 0xff, 0xff, 0xff, 0xff, 0x00, 0x01,
        ];
        assert_eq!(
            lines(&arm(&code, 0x1000, &named)),
            [
                "1000 add     x0, x1, x2",
                "1004 cbz     x0, 100c → 100c",
                "1008 bl      2000 <other>",
                "100c ret",
                "1010 (bad)",
                "1014 (bad)",
            ]
        );
    }
}
