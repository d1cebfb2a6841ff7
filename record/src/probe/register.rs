//! Names of registers in assembly, and their names in kernel probes (`regoffset_table`).
//!
//! ```text
//! %rdi  →  %di        %r10d  →  refused: the kernel fetches whole registers, :u32 takes their lower half
//! $arg1 of a program  →  %di on x86-64, %x0 on aarch64, $arg7 the first that is passed on the stack
//! ```

use crate::failure::{Failure, misuse};

/// The kernel's name, and the assembly names for 64, 32, 16 and 8 bits.
const X86: [(&str, [&str; 4]); 8] = [
    ("ax", ["rax", "eax", "ax", "al"]),
    ("bx", ["rbx", "ebx", "bx", "bl"]),
    ("cx", ["rcx", "ecx", "cx", "cl"]),
    ("dx", ["rdx", "edx", "dx", "dl"]),
    ("si", ["rsi", "esi", "si", "sil"]),
    ("di", ["rdi", "edi", "di", "dil"]),
    ("bp", ["rbp", "ebp", "bp", "bpl"]),
    ("sp", ["rsp", "esp", "sp", "spl"]),
];

/// The registers of integer arguments, by the kernel's names.
#[cfg(target_arch = "aarch64")]
const OF_ARGUMENTS: &[&str] = &["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"];
#[cfg(not(target_arch = "aarch64"))]
const OF_ARGUMENTS: &[&str] = &["di", "si", "dx", "cx", "r8", "r9"];
/// Offset of the first stack argument at entry; on x86-64, it is above the return address.
const ON_STACK: usize = if cfg!(target_arch = "aarch64") { 0 } else { 8 };

/// Translates an assembly name, with `%`, to the kernel's.
pub(super) fn kernels(name: &str) -> Option<String> {
    let Some(name) = name.strip_prefix('%') else {
        let is_arm = name == "sp"
            || name
                .strip_prefix(['x', 'w'])
                .is_some_and(|number| number.parse::<u8>().is_ok_and(|number| number < 31));
        return is_arm.then(|| format!("%{}", name.replacen('w', "x", 1)));
    };
    if let Some((kernels, _)) = X86.iter().find(|(_, names)| names.contains(&name)) {
        return Some(format!("%{kernels}"));
    }
    let number = name.strip_prefix('r')?.trim_end_matches(['d', 'w', 'b']);
    let number: u8 = number.parse().ok()?;
    (8..16).contains(&number).then(|| format!("%r{number}"))
}

/// Translates register names in a fetch argument: `+8(%rdi)` → `+8(%di)`. Rejects partial registers, because the kernel
/// would fetch the whole register.
pub(super) fn renamed(text: &str, value: &str) -> Result<String, Failure> {
    let mut parts = value.split('%');
    let mut renamed = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_letter = |letter: char| letter.is_ascii_alphanumeric();
        let end = part.find(|letter| !is_letter(letter));
        let (name, rest) = part.split_at(end.unwrap_or(part.len()));
        let kernels = kernels(&format!("%{name}")).filter(|kernels| kernels[1..] != *name);
        match kernels {
            None => renamed.push_str(&format!("%{name}")),
            Some(kernels) if is_whole(name) => renamed.push_str(&kernels),
            Some(kernels) => {
                let bits = bits_of(name);
                return Err(misuse(format!(
                    "{text}: %{name} is a partial register, but the kernel fetches all of {kernels}"
                ))
                .hint(format!("use {kernels}:u{bits} for the value of %{name}")));
            }
        }
        renamed.push_str(rest);
    }
    Ok(renamed)
}

fn is_whole(name: &str) -> bool {
    X86.iter().any(|(_, names)| names[0] == name)
}

fn bits_of(name: &str) -> u32 {
    let column = X86
        .iter()
        .find_map(|(_, names)| names.iter().position(|known| *known == name));
    match (column, name.as_bytes().last()) {
        (Some(2), _) | (None, Some(b'w')) => 16,
        (Some(3), _) | (None, Some(b'b')) => 8,
        _ => 32,
    }
}

/// Replaces `$argN` at the entry of a user function by the register of the calling convention: the kernel supports the
/// word only for its own functions. `None` if the value does not contain it.
pub(super) fn arguments_replaced(value: &str) -> Option<String> {
    let mut rest = value;
    let mut replaced = String::new();
    let mut has_any = false;
    while let Some((before, tail)) = rest.split_once("$arg") {
        let end = tail.find(|letter: char| !letter.is_ascii_digit());
        let (digits, after) = tail.split_at(end.unwrap_or(tail.len()));
        replaced.push_str(before);
        match digits.parse::<usize>() {
            Ok(number @ 1..=64) => {
                has_any = true;
                replaced.push_str(&place_of(number - 1));
            }
            _ => replaced.push_str(&format!("$arg{digits}")),
        }
        rest = after;
    }
    replaced.push_str(rest);
    has_any.then_some(replaced)
}

fn place_of(index: usize) -> String {
    match OF_ARGUMENTS.get(index) {
        Some(register) => format!("%{register}"),
        None => format!("+{}(%sp)", ON_STACK + 8 * (index - OF_ARGUMENTS.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assembly_names_become_kernel_names() {
        for (value, expected) in [
            ("%di", "%di"),
            ("%rdi", "%di"),
            ("+8(%rsp)", "+8(%sp)"),
            ("%r10", "%r10"),
            ("%x0", "%x0"),
            ("%nothing", "%nothing"),
            ("$retval", "$retval"),
        ] {
            assert_eq!(renamed("f", value).unwrap(), expected);
        }
        for (value, kernels) in [("%edi", "%di:u32"), ("%al", "%ax:u8"), ("%r8w", "%r8:u16")] {
            let failure = renamed("f", value).unwrap_err();
            assert!(failure.to_string().contains("partial register"));
            assert!(
                failure
                    .hint_text()
                    .is_some_and(|hint| hint.contains(kernels))
            );
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn arguments_by_number() {
        for (value, expected) in [
            ("$arg1", Some("%di")),
            ("+4($arg2)", Some("+4(%si)")),
            ("$arg6", Some("%r9")),
            ("$arg7", Some("+8(%sp)")),
            ("$arg8", Some("+16(%sp)")),
            ("$arg0", None),
            ("$retval", None),
            ("%di", None),
        ] {
            assert_eq!(arguments_replaced(value).as_deref(), expected, "{value}");
        }
    }
}
