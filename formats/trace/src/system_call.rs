//! System calls by number, which differs between architectures.

use std::collections::BTreeSet;

use syscalls::{
    aarch64, arm, loongarch64, mips, mips64, powerpc, powerpc64, riscv32, riscv64, s390x, sparc,
    sparc64, x86, x86_64,
};

/// Bit of numbers of the x32 ABI on x86-64.
const X32: i64 = 0x4000_0000;

/// Returns the name of the system call with that number on an architecture as `uname -m` prints it: `x86_64`, `armv7l`; `None`
/// if either is not known.
///
/// A 32-bit program on a 64-bit kernel uses the numbers of the 32-bit architecture, but events do not show that.
pub fn name(number: i64, architecture: &str) -> Option<&'static str> {
    macro_rules! of {
        ($table:ident) => {
            $table::Sysno::new(usize::try_from(number).ok()?).map(|call| call.name())
        };
    }
    match architecture {
        "x86_64" | "amd64" => {
            let number = number & !X32;
            x86_64::Sysno::new(usize::try_from(number).ok()?).map(|call| call.name())
        }
        "x86" | "i386" | "i486" | "i586" | "i686" => of!(x86),
        "aarch64" | "arm64" => of!(aarch64),
        "riscv64" => of!(riscv64),
        "riscv32" => of!(riscv32),
        "s390x" => of!(s390x),
        "ppc64" | "ppc64le" => of!(powerpc64),
        "ppc" => of!(powerpc),
        "loongarch64" => of!(loongarch64),
        "mips" => of!(mips),
        "mips64" => of!(mips64),
        "sparc" => of!(sparc),
        "sparc64" => of!(sparc64),
        other if other.starts_with("arm") => of!(arm),
        _ => None,
    }
}

/// Returns the number of the system call with that name on an architecture; `None` if either is not known.
pub fn number(name: &str, architecture: &str) -> Option<i64> {
    let numbers = numbers(&[name]).into_iter();
    let mut own = numbers.filter(|&number| number & X32 == 0);
    own.find(|&number| self::name(number, architecture) == Some(name))
}

/// Whether there is a system call of that name, on any architecture.
pub fn is_name(name: &str) -> bool {
    !numbers(&[name]).is_empty()
}

/// The numbers of system calls with these names, on any architecture.
pub fn numbers(names: &[&str]) -> BTreeSet<i64> {
    let mut numbers = BTreeSet::new();
    macro_rules! add {
        ($name:ident, $($table:ident)+) => {
            $(if let Ok(call) = $name.parse::<$table::Sysno>() {
                numbers.insert(i64::from(call.id()));
            })+
        };
    }
    for name in names {
        add!(name, aarch64 arm loongarch64 mips mips64 powerpc powerpc64 riscv32 riscv64);
        add!(name, s390x sparc sparc64 x86 x86_64);
        if let Ok(call) = name.parse::<x86_64::Sysno>() {
            numbers.insert(i64::from(call.id()) | X32);
        }
    }
    numbers
}

/// The name that programs use for a system call, by the name of its event.
pub fn of_event(name: &str) -> &str {
    match name {
        "newstat" => "stat",
        "newfstat" => "fstat",
        "newlstat" => "lstat",
        "newuname" => "uname",
        "sendfile64" => "sendfile",
        "umount" => "umount2",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_between_architectures() {
        let names = [
            name(257, "x86_64"),
            name(257 | X32, "x86_64"),
            name(257, "aarch64"),
            name(56, "aarch64"),
            name(295, "i686"),
            name(322, "armv7l"),
            name(-1, "x86_64"),
            name(9999, "x86_64"),
            name(1, "vax"),
        ];
        let openat = Some("openat");
        let expected = [
            openat, openat, None, openat, openat, openat, None, None, None,
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_name_has_numbers_of_all_architectures() {
        let futex = numbers(&["futex"]);
        for (number, architecture) in [
            (202, "x86_64"),
            (202 | X32, "x86_64"),
            (240, "i686"),
            (98, "aarch64"),
            (4238, "mips"),
        ] {
            assert_eq!(name(number, architecture), Some("futex"));
            assert!(futex.contains(&number), "{number}: {futex:?}");
        }
        assert!(!futex.contains(&0));
        assert!(numbers(&["futex", "read"]).contains(&0));
        assert!(numbers(&["no such call"]).is_empty());
        assert_eq!(number("futex", "x86_64"), Some(202));
        assert_eq!(number("futex", "aarch64"), Some(98));
        assert_eq!(number("open", "aarch64"), None);
        assert!(is_name("open") && !is_name("vfs_open"));
    }
}
