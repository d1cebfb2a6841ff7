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
pub(crate) fn name(number: i64) -> Option<String> {
    if REAL_TIME.contains(&number) {
        return Some(match number - REAL_TIME.start() {
            0 => "SIGRTMIN".to_owned(),
            above => format!("SIGRTMIN+{above}"),
        });
    }
    let place = usize::try_from(number).ok()?.checked_sub(1)?;
    NAMES.get(place).map(|&name| name.to_owned())
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
}
