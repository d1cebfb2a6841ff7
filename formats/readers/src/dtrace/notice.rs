//! Messages of `dtrace` besides its data, mostly on standard error: notices, drops, errors.
//!
//! ```text
//! dtrace: description 'fbt::malloc:entry ' matched 1 probe
//! dtrace: 7 drops on CPU 1
//! dtrace: [DTRACEDROP_PRINCIPAL] 1 drop on CPU #
//! dtrace: error on enabled probe ID 1 (ID 8408: fbt:kernel:malloc:entry): invalid address (0x0) in action #1
//! ```

use crate::lines::unsigned;

/// The meaning of a notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Notice<'a> {
    /// A message that reports no loss and no error.
    Info(&'a str),
    /// Data is missing.
    Lost {
        count: Option<u64>,
        cpu: Option<u32>,
        reason: String,
    },
    /// Something went wrong.
    Failed(&'a str),
}

/// Parses the part after `dtrace: `.
pub(super) fn notice(text: &str) -> Notice<'_> {
    let text = text.trim();
    let after_tag = match text
        .strip_prefix('[')
        .and_then(|text| text.split_once("] "))
    {
        Some((_, after)) => after,
        None => text,
    };
    if let Some(lost) = drops(after_tag) {
        return lost;
    }
    if let Some(why) = text.strip_prefix("processing aborted: ") {
        return Notice::Lost {
            count: None,
            cpu: None,
            reason: format!("processing aborted: {why}"),
        };
    }
    let starts = ["error ", "failed ", "invalid ", "could not ", "couldn't "];
    match starts.iter().any(|start| text.starts_with(start)) {
        true => Notice::Failed(text),
        false => Notice::Info(text),
    }
}

/// `7 dynamic variable drops with non-empty dirty list`, `2 drops on CPU 1`
fn drops(text: &str) -> Option<Notice<'_>> {
    const KINDS: [(&str, &str); 4] = [
        ("drop", "drops"),
        ("speculation", "speculations"),
        ("overflow", "overflows"),
        ("error", "errors"),
    ];
    let (number, what) = text.split_once(' ')?;
    let count = unsigned(number.as_bytes())?;
    let (what, cpu) = match what.split_once(" on CPU ") {
        Some((what, cpu)) => (what, cpu.trim().parse().ok()),
        None => (what, None),
    };
    let mut is_loss = false;
    let words: Vec<&str> = what
        .split(' ')
        .map(|word| {
            match KINDS
                .iter()
                .find(|(one, many)| word == *one || word == *many)
            {
                Some((one, _)) => {
                    is_loss = true;
                    *one
                }
                None => word,
            }
        })
        .collect();
    is_loss.then(|| Notice::Lost {
        count: Some(count),
        cpu,
        reason: words.join(" "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, count: Option<u64>, cpu: Option<u32>, reason: &str) {
        let reason = reason.to_owned();
        assert_eq!(notice(text), Notice::Lost { count, cpu, reason });
    }

    #[test]
    fn losses() {
        check("7 drops on CPU 1", Some(7), Some(1), "drop");
        check(
            "[DTRACEDROP_PRINCIPAL] 1 drop on CPU #",
            Some(1),
            None,
            "drop",
        );
        check(
            "3 aggregation drops on CPU 0",
            Some(3),
            Some(0),
            "aggregation drop",
        );
        check(
            "2 dynamic variable drops with non-empty dirty list",
            Some(2),
            None,
            "dynamic variable drop with non-empty dirty list",
        );
        check(
            "1 failed speculation (no speculative buffer available)",
            Some(1),
            None,
            "failed speculation (no speculative buffer available)",
        );
        check(
            "4 jstack()/ustack() string table overflows",
            Some(4),
            None,
            "jstack()/ustack() string table overflow",
        );
        check(
            "2 errors in ERROR probe enabling",
            Some(2),
            None,
            "error in ERROR probe enabling",
        );
        check(
            "processing aborted: Abort due to systemic unresponsiveness",
            None,
            None,
            "processing aborted: Abort due to systemic unresponsiveness",
        );
    }

    #[test]
    fn others() {
        let text =
            "error on enabled probe ID 1 (ID 8408: fbt:kernel:malloc:entry): invalid address";
        assert_eq!(notice(text), Notice::Failed(text));
        let text = "script 'x.d' matched 17 probes";
        assert_eq!(notice(text), Notice::Info(text));
        let text = "buffer size lowered to 4m";
        assert_eq!(notice(text), Notice::Info(text));
    }
}
