//! Files of tracefs: one-word settings, lists, and instances.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::sys::tracefs::while_busy;

/// Time for which readers may hold an instance.
const BUSY_FOR: Duration = Duration::from_secs(1);

/// Removes an instance, even while it records.
pub(super) fn remove_instance(root: &Path) -> io::Result<()> {
    // A reader that is about to close still holds it.
    let removed = while_busy(Instant::now() + BUSY_FOR, Duration::from_millis(50), || {
        fs::remove_dir(root)
    });
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Extracts the value of a setting from its file: `[local] global mono` is local, `7 (expanded: 1408)` is 1408.
pub(super) fn current(shown: &str) -> String {
    if let Some((_, after)) = shown.split_once('[')
        && let Some((chosen, _)) = after.split_once(']')
    {
        return chosen.to_owned();
    }
    if let Some((_, after)) = shown.split_once("(expanded: ") {
        return after.trim_end_matches(')').to_owned();
    }
    shown.to_owned()
}

pub(super) fn read(path: &Path) -> String {
    fs::read(path)
        .map(|text| String::from_utf8_lossy(&text).trim().to_owned())
        .unwrap_or_default()
}

/// Writes with truncation: a list is emptied first.
pub(super) fn write(path: &Path, value: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(format!("{value}\n").as_bytes())
}

/// Adds to a list.
pub(super) fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().append(true).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::current;

    #[test]
    fn current_values() {
        for (shown, expected) in [
            ("[local] global counter mono", "local"),
            ("local global [mono] tai", "mono"),
            ("7 (expanded: 1408)", "1408"),
            ("1410", "1410"),
            ("", ""),
        ] {
            assert_eq!(current(shown), expected);
        }
    }
}
