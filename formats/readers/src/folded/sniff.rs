//! Recognizes folded stacks: most lines end with a number, and many contain a `;`.

use perfquet_events::Guess;

use super::line::split_count;
use super::read::is_comment;

/// Certain only for austin: any log may look like folded stacks.
pub(super) fn sniff(head: &[u8]) -> Guess {
    if head.starts_with(b"# austin: ") {
        return Guess::Certain;
    }
    // Text has no control characters other than tabs and line endings. The line may be half of one of any length.
    let is_control = |byte: &u8| *byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r');
    if head.iter().any(is_control) {
        return Guess::No;
    }
    let mut lines: Vec<&[u8]> = head.split(|&byte| byte == b'\n').collect();
    // The last line may continue after the head; a single line that fills it is judged by its frames.
    if head.len() >= perfquet_events::input::HEAD_BYTES {
        match lines.as_slice() {
            [long] if long.iter().filter(|&&byte| byte == b';').count() > 8 => {
                return Guess::Likely;
            }
            _ => lines.pop(),
        };
    }
    lines.retain(|line| !line.trim_ascii().is_empty() && !is_comment(false, line));
    let counted = lines
        .iter()
        .filter(|line| split_count(line).is_some())
        .count();
    let parted = lines.iter().filter(|line| line.contains(&b';')).count();
    // Bad lines occur in real files, and stacks of one frame are common in some.
    if parted > 0 && counted * 10 >= lines.len() * 6 && parted * 2 >= lines.len() {
        Guess::Likely
    } else {
        Guess::No
    }
}
