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
            [long] if is_long_stack(long) => return Guess::Likely,
            _ => lines.pop(),
        };
    }
    lines.retain(|line| !line.trim_ascii().is_empty() && !is_comment(false, line));
    let counted = lines
        .iter()
        .filter(|line| split_count(line).is_some_and(|(stack, _)| !stack.ends_with(b" #")))
        .count();
    // Sentences have a blank after it: "passed: 5,973; failed: 9; error: 4".
    let is_parted = |line: &[u8]| matches!(line, [b';', next] if *next != b' ');
    let parted = lines
        .iter()
        .filter(|line| line.windows(2).any(is_parted))
        .count();
    // Bad lines occur in real files, and stacks of one frame are common in some.
    if parted > 0 && counted * 10 >= lines.len() * 6 && parted * 2 >= lines.len() {
        Guess::Likely
    } else {
        Guess::No
    }
}

/// Whether a line without an end may be a stack: many frames, of which most have as many opening braces as closing ones
/// (`main::{{closure}}`). Statements of minified scripts and style sheets do not, nor do the entities and tags of a page.
fn is_long_stack(line: &[u8]) -> bool {
    let frames: Vec<&[u8]> = line.split(|&byte| byte == b';').collect();
    let is_balanced = |frame: &[u8]| {
        let mut braces = frame.iter().filter(|byte| matches!(byte, b'{' | b'}'));
        let depth = braces.try_fold(0_usize, |depth, byte| match byte {
            b'{' => Some(depth + 1),
            _ => depth.checked_sub(1),
        });
        depth == Some(0)
    };
    let is_other = |frame: &&&[u8]| {
        let is_tag = perfquet_events::scan::find_text(frame, b"</").is_some();
        let is_entity = frame
            .iter()
            .rposition(|&byte| byte == b'&')
            .is_some_and(|start| {
                let name = frame.get(start + 1..).unwrap_or_default();
                !name.is_empty()
                    && name
                        .iter()
                        .all(|&byte| byte == b'#' || byte.is_ascii_alphanumeric())
            });
        !is_balanced(frame) || is_tag || is_entity
    };
    let others = frames.iter().filter(is_other).count();
    frames.len() > 9 && others * 8 <= frames.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_are_refused() {
        let check = |text: &[u8], expected| assert_eq!(sniff(text), expected);
        check(b"main;read 4\nmain;write 5\n", Guess::Likely);
        check(
            b"Test results: passed: 5,973; failed: 9; error: 4\n",
            Guess::No,
        );
        check(
            b"a/b.java containers: 0, failed: 0; tests: 0, aborted: 0\n",
            Guess::No,
        );
    }

    /// Scripts, style sheets and pages in one line, as they are published for the web.
    #[test]
    fn long_lines_of_others_are_refused() {
        let check = |piece: &str, expected| {
            let line = piece.repeat(4096 / piece.len() + 1);
            assert_eq!(sniff(&line.as_bytes()[..4096]), expected, "{piece}");
        };
        check("main;std::rt::lang_start::{{closure}};", Guess::Likely);
        check("a::{lambda(int)#1}::operator();b<c>;", Guess::Likely);
        check("Ljava/lang/Object;::<init>;", Guess::Likely);
        check("!function(n,r){var t,e;return t=n._,(e=r())}", Guess::No);
        check(".cls-1{fill:#3f3f3f;}.cls-2{fill:#9d9d9d;}", Guess::No);
        check("<td>a&nbsp;b&#160;c</td>", Guess::No);
    }

    /// A collation of the C library: the number follows a comment sign.
    #[test]
    fn numbered_comments_are_refused() {
        assert_eq!(
            sniff(b"<U4E00> <U4E00>;IGNORE # 1\n<U4E28> <U4E28>;IGNORE # 2\n"),
            Guess::No
        );
        assert_eq!(sniff(b"main;a 1\nmain;b 2\n"), Guess::Likely);
    }
}
