//! Names of signals, from include/uapi/asm-generic/signal.h. MIPS, SPARC, PA-RISC and Alpha number some of them differently.

/// By number, from 1.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// The first and the last real-time signal.
const REAL_TIME: std::ops::RangeInclusive<i64> = 32..=64;

/// Returns the name of a signal: `SIGTERM`, `SIGRTMIN+2`.
///
/// ```
/// assert_eq!(perfquet_events::signal::name(15).as_deref(), Some("SIGTERM"));
/// ```
pub fn name(number: i64) -> Option<String> {
    if REAL_TIME.contains(&number) {
        return Some(match number - REAL_TIME.start() {
            0 => "SIGRTMIN".to_owned(),
            above => format!("SIGRTMIN+{above}"),
        });
    }
    let place = usize::try_from(number).ok()?.checked_sub(1)?;
    NAMES.get(place).map(|&name| name.to_owned())
}

/// Returns the number of a signal; strace writes the real-time ones above the first as `SIGRT_1`. `None` if the name is unknown.
///
/// ```
/// assert_eq!(perfquet_events::signal::number(b"SIGKILL"), Some(9));
/// ```
pub fn number(name: &[u8]) -> Option<i64> {
    if let Some(place) = NAMES.iter().position(|other| other.as_bytes() == name) {
        return i64::try_from(place + 1).ok();
    }
    let name = std::str::from_utf8(name).ok()?;
    let above = match name {
        "SIGRTMIN" => 0,
        _ => {
            let digits = name
                .strip_prefix("SIGRT_")
                .or_else(|| name.strip_prefix("SIGRTMIN+"))?;
            digits.parse().ok().filter(|above: &u8| *above > 0)?
        }
    };
    let number = REAL_TIME.start() + i64::from(above);
    REAL_TIME.contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_signals() {
        let names = [-1, 0, 9, 31, 32, 34, 64, 65].map(name);
        let names = names.each_ref().map(Option::as_deref);
        let expected = [
            None,
            None,
            Some("SIGKILL"),
            Some("SIGSYS"),
            Some("SIGRTMIN"),
            Some("SIGRTMIN+2"),
            Some("SIGRTMIN+32"),
            None,
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn numbers_of_signals() {
        let numbers = [
            &b"SIGHUP"[..],
            b"SIGRTMIN",
            b"SIGRT_2",
            b"SIGRTMIN+32",
            b"SIGRT_33",
            b"SIGRT_0",
            b"SIG",
        ];
        let expected = [Some(1), Some(32), Some(34), Some(64), None, None, None];
        assert_eq!(numbers.map(number), expected);
    }
}
