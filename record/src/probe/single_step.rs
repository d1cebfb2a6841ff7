//! Detection of slow probe locations, where the kernel must single-step a copy of the instruction, which makes each hit
//! several times slower.
//!
//! ```text
//! 55                push %rbp            emulated: 1.6 µs a hit, recorded
//! f3 0f 1e fa       endbr64              single-stepped: 6.2 µs (15 µs against 0.7 µs on another machine)
//! ```
//! The kernel emulates nop, push and jumps (arch/x86/kernel/uprobes.c, `branch_setup_xol_ops`, `push_setup_xol_ops`);
//! confirmed by measurements on Linux 6.18. Only x86-64 is covered.

/// Maximum distance of a fast neighbor: instructions at the start of functions are short.
const NEAR: usize = 32;

/// Whether the instruction is single-stepped.
pub(super) fn is_single_stepped(code: &[u8]) -> bool {
    if !cfg!(target_arch = "x86_64") {
        return false;
    }
    match code {
        [0x0f, second, ..] => !matches!(second, 0x80..=0x8f | 0x1f),
        [0x66, 0x0f, 0x1f, ..] | [0x66, 0x90, ..] | [0x41, 0x50..=0x57, ..] => false,
        [first, ..] => !matches!(first, 0x50..=0x57 | 0x70..=0x7f | 0x90 | 0xe8 | 0xe9 | 0xeb),
        [] => false,
    }
}

/// Returns the distance in bytes from a slow location to the next fast one that is executed equally often.
pub(super) fn neighbor(code: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < NEAR {
        let rest = code.get(at..).filter(|rest| !rest.is_empty())?;
        if !is_single_stepped(rest) {
            return Some(at);
        }
        at += length(rest)?;
    }
    None
}

/// Returns the length of an instruction common at the start of functions; `None` for others, and for those that branch.
fn length(code: &[u8]) -> Option<usize> {
    if code.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        return Some(4);
    }
    let (prefix, is_wide) = match code {
        [prefix @ 0x40..=0x4f, ..] => (1, prefix & 8 != 0),
        _ => (0, false),
    };
    let code = code.get(prefix..)?;
    let after = |opcode: usize, immediate: usize| {
        let operands = operands(code.get(opcode..)?)?;
        Some(prefix + opcode + operands + immediate)
    };
    match code {
        // Arithmetic, test, mov and lea between registers and memory.
        [
            0x01 | 0x03 | 0x09 | 0x0b | 0x21 | 0x23 | 0x29 | 0x2b | 0x31 | 0x33 | 0x39 | 0x3b,
            ..,
        ]
        | [0x63 | 0x84 | 0x85 | 0x88..=0x8b | 0x8d, ..] => after(1, 0),
        [0x80 | 0x83 | 0xc6, ..] => after(1, 1),
        [0x81 | 0xc7, ..] => after(1, 4),
        [0x58..=0x5f, ..] => Some(prefix + 1),
        [0xb8..=0xbf, ..] => Some(prefix + if is_wide { 9 } else { 5 }),
        // movzx, movsx, imul
        [0x0f, 0xb6 | 0xb7 | 0xbe | 0xbf | 0xaf, ..] => after(2, 0),
        _ => None,
    }
}

/// Returns the length of the ModRM byte and its operands (Intel SDM, volume 2, section 2.1.5).
fn operands(code: &[u8]) -> Option<usize> {
    let &modrm = code.first()?;
    let (mode, register) = (modrm >> 6, modrm & 7);
    let has_sib = mode != 3 && register == 4;
    let base = match has_sib {
        true => code.get(1)? & 7,
        false => register,
    };
    let displacement = match mode {
        0 if base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(1 + usize::from(has_sib) + displacement)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn single_stepped_instructions_as_measured() {
        let stepped = |code: &[u8]| is_single_stepped(code);
        for cheap in [
            &[0x90][..],
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0x55],
            &[0x41, 0x57],
            &[0x74, 0],
            &[0x0f, 0x84, 0, 0, 0, 0],
            &[0xe9, 0, 0, 0, 0],
        ] {
            assert!(!stepped(cheap), "{cheap:x?}");
        }
        for slow in [
            &[0xf3, 0x0f, 0x1e, 0xfa][..],
            &[0x40, 0x0f, 0xb6, 0xc7],
            &[0x0f, 0xb6, 0xc7],
            &[0x48, 0x83, 0xec, 8],
            &[0x31, 0xc0],
            &[0xc3],
        ] {
            assert!(stepped(slow), "{slow:x?}");
        }
    }

    #[test]
    fn next_fast_location() {
        for (code, expected) in [
            // endbr64; push %rbp
            (&[0xf3, 0x0f, 0x1e, 0xfa, 0x55][..], Some(4)),
            // mov %rdi,%rax; lea 0x10(%rsi,%rdx,4),%rcx; jmp
            (
                &[0x48, 0x89, 0xf8, 0x48, 0x8d, 0x4c, 0x96, 0x10, 0xeb, 0],
                Some(8),
            ),
            // mov 0x1234(%rip),%eax; test %eax,%eax; je
            (
                &[0x8b, 0x05, 0x34, 0x12, 0, 0, 0x85, 0xc0, 0x74, 5],
                Some(8),
            ),
            // sub $0x118,%rsp; mov $7,%edi; push
            (
                &[0x48, 0x81, 0xec, 0x18, 1, 0, 0, 0xbf, 7, 0, 0, 0, 0x53],
                Some(12),
            ),
            // movzbl (%rdi),%eax; ret
            (&[0x0f, 0xb6, 0x07, 0xc3], None),
            // Truncated, and unknown instructions.
            (&[0x48, 0x8d], None),
            (&[0xc5, 0xf8, 0x77, 0x55], None),
            (&[], None),
        ] {
            assert_eq!(neighbor(code), expected, "{code:x?}");
        }
    }
}
