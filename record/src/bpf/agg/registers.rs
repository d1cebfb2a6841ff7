//! Offsets of registers in `struct pt_regs`, in words of 8 bytes (arch/x86/include/asm/ptrace.h,
//! arch/arm64/include/asm/ptrace.h), by the names in probe definitions.

#[cfg(target_arch = "x86_64")]
mod architecture {
    pub(super) const NAMES: &[(&str, u32)] = &[
        ("r15", 0),
        ("r14", 1),
        ("r13", 2),
        ("r12", 3),
        ("bp", 4),
        ("bx", 5),
        ("r11", 6),
        ("r10", 7),
        ("r9", 8),
        ("r8", 9),
        ("ax", 10),
        ("cx", 11),
        ("dx", 12),
        ("si", 13),
        ("di", 14),
        ("orig_ax", 15),
        ("ip", 16),
        ("cs", 17),
        ("flags", 18),
        ("sp", 19),
        ("ss", 20),
    ];
    pub(super) const RETURNED: &str = "ax";
    pub(super) const ARGUMENTS: &[&str] = &["di", "si", "dx", "cx", "r8", "r9"];
}

#[cfg(target_arch = "aarch64")]
mod architecture {
    pub(super) const NAMES: &[(&str, u32)] = &[("sp", 31), ("pc", 32), ("pstate", 33)];
    pub(super) const RETURNED: &str = "x0";
    pub(super) const ARGUMENTS: &[&str] = &["x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"];
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod architecture {
    pub(super) const NAMES: &[(&str, u32)] = &[];
    pub(super) const RETURNED: &str = "";
    pub(super) const ARGUMENTS: &[&str] = &[];
}

/// Returns a register by its name.
pub(in crate::bpf) fn named(name: &str) -> Option<u32> {
    let known = architecture::NAMES.iter().find(|(known, _)| *known == name);
    if let Some((_, place)) = known {
        return Some(*place);
    }
    let number = name.strip_prefix('x')?.parse().ok()?;
    (cfg!(target_arch = "aarch64") && number < 31).then_some(number)
}

/// Returns the register with the return value.
pub(in crate::bpf) fn returned() -> Option<u32> {
    named(architecture::RETURNED)
}

/// Returns the register of an argument at function entry, counted from 1.
pub(in crate::bpf) fn argument(number: usize) -> Option<u32> {
    named(architecture::ARGUMENTS.get(number.checked_sub(1)?)?)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn places() {
        assert_eq!(
            (named("di"), named("sp"), named("xmm0")),
            (Some(14), Some(19), None)
        );
        assert_eq!(
            (returned(), argument(1), argument(7)),
            (Some(10), Some(14), None)
        );
    }
}
