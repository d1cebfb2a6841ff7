//! Error codes of page faults.
//!
//! Bits of x86 (arch/x86/include/asm/trap_pf.h): 1 present, 2 write, 4 user, 8 reserved bit, 16 instruction, 32 protection key,
//! 64 shadow stack, 32768 SGX.

const PRESENT: i64 = 1 << 0;
const WRITE: i64 = 1 << 1;
const USER: i64 = 1 << 2;
const RESERVED: i64 = 1 << 3;
const INSTRUCTION: i64 = 1 << 4;
const KEY: i64 = 1 << 5;

/// Returns the kind of a fault on x86: `read`, `write` or `exec` of a page that is not there; `protection` if it is there, but
/// the access is not allowed.
pub(crate) fn kind(error_code: i64) -> &'static str {
    if error_code & (PRESENT | RESERVED | KEY) != 0 {
        "protection"
    } else if error_code & INSTRUCTION != 0 {
        "exec"
    } else if error_code & WRITE != 0 {
        "write"
    } else {
        "read"
    }
}

/// Whether the access was made in user mode.
pub(crate) fn is_of_user(error_code: i64) -> bool {
    error_code & USER != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds() {
        let kinds = [0, 2, 4, 6, 7, 20, 21, 5].map(kind);
        let expected = [
            "read",
            "write",
            "read",
            "write",
            "protection",
            "exec",
            "protection",
            "protection",
        ];
        assert_eq!(kinds, expected);
        assert!(is_of_user(6) && !is_of_user(2));
    }
}
