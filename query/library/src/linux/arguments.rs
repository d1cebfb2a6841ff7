//! Arguments of system calls in words.
//!
//! ```text
//! openat(dfd=AT_FDCWD, flags=O_RDONLY|O_CLOEXEC, mode=0644)      futex(op=FUTEX_WAIT|FUTEX_PRIVATE_FLAG)
//! ```
//! Values are those of include/uapi/asm-generic and of x86, which s390, RISC-V and LoongArch share.

use std::fmt::Write as _;

use super::prototypes::Kind;
use perfquet_events::signal;

/// Appends the value of an argument. `is_generic`: the architecture has the flags of asm-generic.
pub(crate) fn write(
    call: &str,
    name: &str,
    kind: Kind,
    value: i64,
    is_generic: bool,
    into: &mut String,
) {
    let number = match kind {
        Kind::Signed => i64::from(value as i32),
        Kind::Unsigned => i64::from(value as u32),
        Kind::Long | Kind::Address => value,
    };
    let done = match meaning(call, name) {
        Meaning::Plain => false,
        Meaning::Flags(flags, Scope::Everywhere) => write_flags(number, flags, into),
        Meaning::Flags(flags, Scope::Generic) => is_generic && write_flags(number, flags, into),
        Meaning::Directory => write_if(number == -100, "AT_FDCWD", into),
        Meaning::Signal => match signal::name(number) {
            Some(name) => write_if(true, &name, into),
            None => false,
        },
        Meaning::OneOf(names) => match names.iter().find(|(value, _)| *value == number) {
            Some((_, name)) => write_if(true, name, into),
            None => false,
        },
        Meaning::Futex => write_futex(number, into),
        Meaning::Octal if number == 0 => false,
        Meaning::Octal => {
            let _ = write!(into, "0{number:o}");
            true
        }
    };
    if done {
        return;
    }
    let _ = match kind {
        Kind::Address if value == 0 => write!(into, "NULL"),
        Kind::Address => write!(into, "{value:#x}"),
        Kind::Signed | Kind::Unsigned => write!(into, "{number}"),
        // Sizes and offsets; larger values are addresses or masks.
        Kind::Long if (-(1 << 40)..1 << 40).contains(&value) => write!(into, "{value}"),
        Kind::Long => write!(into, "{value:#x}"),
    };
}

/// Values with their names; the first of those with value 0 is written for 0.
type Names = &'static [(i64, &'static str)];

/// Where the values of flags are the same.
enum Scope {
    Everywhere,
    Generic,
}

enum Meaning {
    Plain,
    Flags(Names, Scope),
    OneOf(Names),
    Directory,
    Signal,
    Futex,
    Octal,
}

fn meaning(call: &str, name: &str) -> Meaning {
    use Meaning::{Directory, Flags, Futex, Octal, OneOf, Plain, Signal};
    use Scope::{Everywhere, Generic};
    match (call, name) {
        (_, "dfd" | "olddfd" | "newdfd" | "olddirfd" | "newdirfd" | "dirfd") => Directory,
        ("open" | "openat", "flags") => Flags(OPEN, Generic),
        (
            "open" | "openat" | "creat" | "mkdir" | "mkdirat" | "chmod" | "fchmod" | "fchmodat",
            "mode",
        ) => Octal,
        ("pipe2" | "dup3", "flags") => Flags(OPEN, Generic),
        ("mmap" | "mprotect" | "pkey_mprotect", "prot") => Flags(PROTECTION, Everywhere),
        ("mmap", "flags") => Flags(MAP, Generic),
        ("madvise", "behavior") => OneOf(ADVICE),
        ("access" | "faccessat" | "faccessat2", "mode") => Flags(ACCESS, Everywhere),
        ("lseek", "whence") => OneOf(WHENCE),
        ("kill" | "tkill" | "tgkill" | "rt_sigaction" | "rt_sigqueueinfo", "sig") => Signal,
        ("rt_sigprocmask", "how") => OneOf(HOW),
        ("futex", "op") => Futex,
        ("clone", "clone_flags") => Flags(CLONE, Everywhere),
        ("unshare", "unshare_flags") => Flags(CLONE, Everywhere),
        ("fcntl", "cmd") => OneOf(FCNTL),
        ("socket" | "socketpair", "family") => OneOf(FAMILY),
        ("sendto" | "recvfrom" | "sendmsg" | "recvmsg" | "sendmmsg" | "recvmmsg", "flags") => {
            Flags(MESSAGE, Everywhere)
        }
        ("epoll_ctl", "op") => OneOf(EPOLL),
        ("clock_gettime" | "clock_nanosleep" | "clock_getres" | "clock_settime", "which_clock") => {
            OneOf(CLOCK)
        }
        ("unlinkat", "flag") => Flags(AT, Everywhere),
        ("newfstatat", "flag") | ("statx" | "execveat" | "faccessat2", "flags") => {
            Flags(AT, Everywhere)
        }
        ("wait4", "options") => Flags(WAIT, Everywhere),
        ("flock", "cmd") => Flags(LOCK, Everywhere),
        _ => Plain,
    }
}

fn write_if(condition: bool, text: &str, into: &mut String) -> bool {
    if condition {
        into.push_str(text);
    }
    condition
}

/// `A|B|0x80`: names of bits, then the rest.
fn write_flags(value: i64, names: Names, into: &mut String) -> bool {
    let mut rest = value;
    let mut separator = "";
    if let Some((_, name)) = names.iter().find(|(bits, _)| *bits == 0) {
        // An access mode or an empty set.
        let low = names.iter().filter(|(bits, _)| (1..=3).contains(bits));
        let is_first = match name.starts_with("O_") {
            true => !low.clone().any(|(bits, _)| value & 3 == *bits),
            false => value == 0,
        };
        if is_first {
            into.push_str(name);
            separator = "|";
        }
    }
    for (bits, name) in names.iter().filter(|(bits, _)| *bits != 0) {
        if rest & bits == *bits {
            rest &= !bits;
            into.push_str(separator);
            into.push_str(name);
            separator = "|";
        }
    }
    if rest != 0 || separator.is_empty() {
        let _ = match rest {
            0 => write!(into, "0"),
            rest => write!(into, "{separator}{rest:#x}"),
        };
    }
    true
}

fn write_futex(value: i64, into: &mut String) -> bool {
    const PRIVATE: i64 = 128;
    const REALTIME: i64 = 256;
    let Some(name) = usize::try_from(value & 127)
        .ok()
        .and_then(|place| FUTEX.get(place))
    else {
        return false;
    };
    let _ = write!(into, "FUTEX_{name}");
    for (bit, name) in [
        (PRIVATE, "FUTEX_PRIVATE_FLAG"),
        (REALTIME, "FUTEX_CLOCK_REALTIME"),
    ] {
        if value & bit != 0 {
            let _ = write!(into, "|{name}");
        }
    }
    true
}

/// Commands of futex(2), by number.
const FUTEX: [&str; 14] = [
    "WAIT",
    "WAKE",
    "FD",
    "REQUEUE",
    "CMP_REQUEUE",
    "WAKE_OP",
    "LOCK_PI",
    "UNLOCK_PI",
    "TRYLOCK_PI",
    "WAIT_BITSET",
    "WAKE_BITSET",
    "WAIT_REQUEUE_PI",
    "CMP_REQUEUE_PI",
    "LOCK_PI2",
];

#[rustfmt::skip]
const OPEN: Names = &[
    (0, "O_RDONLY"), (1, "O_WRONLY"), (2, "O_RDWR"), (0o100, "O_CREAT"), (0o200, "O_EXCL"), (0o400, "O_NOCTTY"),
    (0o1000, "O_TRUNC"), (0o2000, "O_APPEND"), (0o4000, "O_NONBLOCK"), (0o4010000, "O_SYNC"), (0o10000, "O_DSYNC"),
    (0o20000, "O_ASYNC"), (0o40000, "O_DIRECT"), (0o100000, "O_LARGEFILE"), (0o20200000, "O_TMPFILE"),
    (0o200000, "O_DIRECTORY"), (0o400000, "O_NOFOLLOW"), (0o1000000, "O_NOATIME"), (0o2000000, "O_CLOEXEC"),
    (0o10000000, "O_PATH"),
];
const PROTECTION: Names = &[
    (0, "PROT_NONE"),
    (1, "PROT_READ"),
    (2, "PROT_WRITE"),
    (4, "PROT_EXEC"),
];
#[rustfmt::skip]
const MAP: Names = &[
    (3, "MAP_SHARED_VALIDATE"), (1, "MAP_SHARED"), (2, "MAP_PRIVATE"), (0x10, "MAP_FIXED"), (0x20, "MAP_ANONYMOUS"),
    (0x100, "MAP_GROWSDOWN"), (0x800, "MAP_DENYWRITE"), (0x2000, "MAP_LOCKED"), (0x4000, "MAP_NORESERVE"),
    (0x8000, "MAP_POPULATE"), (0x10000, "MAP_NONBLOCK"), (0x20000, "MAP_STACK"), (0x40000, "MAP_HUGETLB"),
    (0x100000, "MAP_FIXED_NOREPLACE"),
];
#[rustfmt::skip]
const ADVICE: Names = &[
    (0, "MADV_NORMAL"), (1, "MADV_RANDOM"), (2, "MADV_SEQUENTIAL"), (3, "MADV_WILLNEED"), (4, "MADV_DONTNEED"),
    (8, "MADV_FREE"), (9, "MADV_REMOVE"), (10, "MADV_DONTFORK"), (11, "MADV_DOFORK"), (14, "MADV_HUGEPAGE"),
    (15, "MADV_NOHUGEPAGE"), (16, "MADV_DONTDUMP"), (17, "MADV_DODUMP"), (20, "MADV_COLD"), (21, "MADV_PAGEOUT"),
];
const ACCESS: Names = &[(0, "F_OK"), (4, "R_OK"), (2, "W_OK"), (1, "X_OK")];
#[rustfmt::skip]
const WHENCE: Names = &[(0, "SEEK_SET"), (1, "SEEK_CUR"), (2, "SEEK_END"), (3, "SEEK_DATA"), (4, "SEEK_HOLE")];
const HOW: Names = &[(0, "SIG_BLOCK"), (1, "SIG_UNBLOCK"), (2, "SIG_SETMASK")];
#[rustfmt::skip]
const CLONE: Names = &[
    (0x100, "CLONE_VM"), (0x200, "CLONE_FS"), (0x400, "CLONE_FILES"), (0x800, "CLONE_SIGHAND"), (0x1000, "CLONE_PIDFD"),
    (0x2000, "CLONE_PTRACE"), (0x4000, "CLONE_VFORK"), (0x8000, "CLONE_PARENT"), (0x10000, "CLONE_THREAD"),
    (0x20000, "CLONE_NEWNS"), (0x40000, "CLONE_SYSVSEM"), (0x80000, "CLONE_SETTLS"), (0x100000, "CLONE_PARENT_SETTID"),
    (0x200000, "CLONE_CHILD_CLEARTID"), (0x800000, "CLONE_UNTRACED"), (0x1000000, "CLONE_CHILD_SETTID"),
    (0x2000000, "CLONE_NEWCGROUP"), (0x4000000, "CLONE_NEWUTS"), (0x8000000, "CLONE_NEWIPC"), (0x10000000, "CLONE_NEWUSER"),
    (0x20000000, "CLONE_NEWPID"), (0x40000000, "CLONE_NEWNET"), (0x80000000, "CLONE_IO"), (17, "SIGCHLD"),
];
#[rustfmt::skip]
const FCNTL: Names = &[
    (0, "F_DUPFD"), (1, "F_GETFD"), (2, "F_SETFD"), (3, "F_GETFL"), (4, "F_SETFL"), (5, "F_GETLK"), (6, "F_SETLK"),
    (7, "F_SETLKW"), (1024, "F_SETLEASE"), (1025, "F_GETLEASE"), (1030, "F_DUPFD_CLOEXEC"), (1031, "F_SETPIPE_SZ"),
    (1032, "F_GETPIPE_SZ"), (1033, "F_ADD_SEALS"), (1034, "F_GET_SEALS"),
];
#[rustfmt::skip]
const FAMILY: Names = &[
    (0, "AF_UNSPEC"), (1, "AF_UNIX"), (2, "AF_INET"), (10, "AF_INET6"), (16, "AF_NETLINK"), (17, "AF_PACKET"),
    (38, "AF_ALG"), (40, "AF_VSOCK"), (44, "AF_XDP"),
];
#[rustfmt::skip]
const MESSAGE: Names = &[
    (1, "MSG_OOB"), (2, "MSG_PEEK"), (4, "MSG_DONTROUTE"), (0x20, "MSG_TRUNC"), (0x40, "MSG_DONTWAIT"),
    (0x100, "MSG_WAITALL"), (0x4000, "MSG_NOSIGNAL"), (0x8000, "MSG_MORE"), (0x10000, "MSG_WAITFORONE"),
    (0x40000000, "MSG_CMSG_CLOEXEC"),
];
const EPOLL: Names = &[
    (1, "EPOLL_CTL_ADD"),
    (2, "EPOLL_CTL_DEL"),
    (3, "EPOLL_CTL_MOD"),
];
#[rustfmt::skip]
const CLOCK: Names = &[
    (0, "CLOCK_REALTIME"), (1, "CLOCK_MONOTONIC"), (2, "CLOCK_PROCESS_CPUTIME_ID"), (3, "CLOCK_THREAD_CPUTIME_ID"),
    (4, "CLOCK_MONOTONIC_RAW"), (5, "CLOCK_REALTIME_COARSE"), (6, "CLOCK_MONOTONIC_COARSE"), (7, "CLOCK_BOOTTIME"),
    (11, "CLOCK_TAI"),
];
#[rustfmt::skip]
const AT: Names = &[
    (0x100, "AT_SYMLINK_NOFOLLOW"), (0x200, "AT_REMOVEDIR"), (0x400, "AT_SYMLINK_FOLLOW"), (0x800, "AT_NO_AUTOMOUNT"),
    (0x1000, "AT_EMPTY_PATH"), (0x2000, "AT_STATX_FORCE_SYNC"), (0x4000, "AT_STATX_DONT_SYNC"),
];
const WAIT: Names = &[(1, "WNOHANG"), (2, "WUNTRACED"), (8, "WCONTINUED")];
const LOCK: Names = &[
    (1, "LOCK_SH"),
    (2, "LOCK_EX"),
    (8, "LOCK_UN"),
    (4, "LOCK_NB"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(call: &str, name: &str, kind: Kind, value: i64, expected: &str) {
        let mut text = String::new();
        write(call, name, kind, value, true, &mut text);
        assert_eq!(text, expected);
    }

    #[test]
    fn values_in_words() {
        check("openat", "dfd", Kind::Signed, 0xffff_ff9c, "AT_FDCWD");
        check(
            "openat",
            "flags",
            Kind::Signed,
            0o2000000,
            "O_RDONLY|O_CLOEXEC",
        );
        check(
            "open",
            "flags",
            Kind::Signed,
            0o1101,
            "O_WRONLY|O_CREAT|O_TRUNC",
        );
        check("open", "mode", Kind::Unsigned, 0o644, "0644");
        check("open", "mode", Kind::Unsigned, 0, "0");
        check("mmap", "prot", Kind::Long, 0, "PROT_NONE");
        check(
            "mmap",
            "prot",
            Kind::Long,
            7,
            "PROT_READ|PROT_WRITE|PROT_EXEC",
        );
        check(
            "mmap",
            "flags",
            Kind::Long,
            0x22,
            "MAP_PRIVATE|MAP_ANONYMOUS",
        );
        check("access", "mode", Kind::Signed, 0, "F_OK");
        check(
            "futex",
            "op",
            Kind::Signed,
            128,
            "FUTEX_WAIT|FUTEX_PRIVATE_FLAG",
        );
        check("futex", "op", Kind::Signed, 99, "99");
        check("kill", "sig", Kind::Signed, 15, "SIGTERM");
        check("kill", "sig", Kind::Signed, 0, "0");
        check(
            "sendto",
            "flags",
            Kind::Unsigned,
            0x4000_4040,
            "MSG_DONTWAIT|MSG_NOSIGNAL|MSG_CMSG_CLOEXEC",
        );
        check("sendto", "flags", Kind::Unsigned, 0, "0");
        check("read", "buf", Kind::Address, -1, "0xffffffffffffffff");
        check("read", "buf", Kind::Address, 0, "NULL");
        check("read", "count", Kind::Long, 4096, "4096");
        check("read", "fd", Kind::Unsigned, 3, "3");
        check("close", "fd", Kind::Signed, -1, "-1");
        check("lseek", "whence", Kind::Unsigned, 2, "SEEK_END");
    }

    #[test]
    fn other_architectures_keep_numbers_of_their_own_flags() {
        let mut text = String::new();
        write("open", "flags", Kind::Signed, 0x80000, false, &mut text);
        assert_eq!(text, "524288");
    }
}
