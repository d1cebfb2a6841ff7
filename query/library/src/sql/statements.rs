//! Splits SQL at the semicolons that end statements.

/// Splits SQL into statements without their semicolons. Semicolons in quotes and comments do not count.
pub fn statements(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    for end in ends(text) {
        found.push(&text[start..end]);
        start = end + 1;
    }
    found.push(&text[start.min(text.len())..]);
    found.retain(|statement| !is_blank(statement));
    found
}

/// Returns the offsets of the semicolons that end statements.
pub fn ends(text: &str) -> Vec<usize> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut index = 0;
    while index < bytes.len() {
        let rest = &text.as_bytes()[index..];
        index += match bytes[index] {
            b';' => {
                found.push(index);
                1
            }
            quote @ (b'\'' | b'"') => 1 + length_until(&rest[1..], &[quote]),
            b'-' if rest.starts_with(b"--") => 2 + length_until(&rest[2..], b"\n"),
            b'/' if rest.starts_with(b"/*") => 2 + length_until(&rest[2..], b"*/"),
            _ => 1,
        };
    }
    found
}

/// Returns the number of bytes up to and including `end`; all bytes if it is missing.
fn length_until(bytes: &[u8], end: &[u8]) -> usize {
    let at = bytes.windows(end.len()).position(|window| window == end);
    at.map_or(bytes.len(), |at| at + end.len())
}

/// Whether a statement consists of whitespace and comments only.
fn is_blank(statement: &str) -> bool {
    let mut rest = statement.trim_start();
    loop {
        let comment = if rest.starts_with("--") {
            2 + length_until(&rest.as_bytes()[2..], b"\n")
        } else if rest.starts_with("/*") {
            2 + length_until(&rest.as_bytes()[2..], b"*/")
        } else {
            return rest.is_empty();
        };
        rest = rest[comment..].trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divided_at_semicolons() {
        assert_eq!(statements("SELECT 1; SELECT 2"), ["SELECT 1", " SELECT 2"]);
        assert_eq!(
            statements("SELECT ';'';' -- ;\n; /* ; */ ;"),
            ["SELECT ';'';' -- ;\n"]
        );
        assert_eq!(statements(" ;; -- nothing"), [""; 0]);
        assert_eq!(statements("SELECT 'open;"), ["SELECT 'open;"]);
    }
}
