//! Patterns of function names: POSIX' extended regular expressions and those of the shell, as far as specifications of arguments use them.
//!
//! ```text
//! ^std::.*push_back$      mem(cpy|set)      [a-z]+_init      glob: str*
//! ```

/// Longest name and pattern; beyond it, nothing matches.
const BYTES_MAX: usize = 512;
/// Steps of one comparison.
const STEPS_MAX: u32 = 20_000;

/// How patterns are written (`pattern_type` in `info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Regex,
    Glob,
    Simple,
}

impl Style {
    pub(super) fn of(name: Option<&[u8]>) -> Style {
        match name {
            Some(b"glob") => Style::Glob,
            Some(b"simple") => Style::Simple,
            _ => Style::Regex,
        }
    }
}

/// Whether a name matches a pattern. Without special characters, they must be equal.
pub(super) fn matches(style: Style, pattern: &[u8], name: &[u8]) -> bool {
    let is_special = |byte: &u8| b".?*+-^$|()[]{}".contains(byte);
    if style == Style::Simple || !pattern.iter().any(is_special) {
        return pattern == name;
    }
    if pattern.len() > BYTES_MAX || name.len() > BYTES_MAX || pattern.starts_with(b"operator ") {
        return pattern == name;
    }
    let mut steps = STEPS_MAX;
    match style {
        Style::Glob => {
            let mut regex = vec![b'^'];
            for &byte in pattern {
                match byte {
                    b'*' => regex.extend_from_slice(b".*"),
                    b'?' => regex.push(b'.'),
                    b'[' | b']' => regex.push(byte),
                    other => regex.extend_from_slice(&[b'\\', other]),
                }
            }
            regex.push(b'$');
            Matcher { name }.branches(&regex, 0, &mut steps, &mut |_, _| true)
        }
        _ => (0..=name.len())
            .any(|start| Matcher { name }.branches(pattern, start, &mut steps, &mut |_, _| true)),
    }
}

struct Matcher<'n> {
    name: &'n [u8],
}

type Then<'t> = &'t mut dyn FnMut(usize, &mut u32) -> bool;

impl Matcher<'_> {
    /// Alternatives separated by `|`.
    fn branches(&self, pattern: &[u8], at: usize, steps: &mut u32, then: Then<'_>) -> bool {
        let mut rest = pattern;
        loop {
            let end = end_of(rest, b'|').unwrap_or(rest.len());
            if self.sequence(rest.get(..end).unwrap_or_default(), at, steps, then) {
                return true;
            }
            match rest.get(end + 1..) {
                Some(more) => rest = more,
                None => return false,
            }
        }
    }

    fn sequence(&self, pattern: &[u8], at: usize, steps: &mut u32, then: Then<'_>) -> bool {
        let Some((&first, after)) = pattern.split_first() else {
            return then(at, steps);
        };
        if *steps == 0 {
            return false;
        }
        *steps -= 1;
        match first {
            b'^' => return at == 0 && self.sequence(after, at, steps, then),
            b'$' => return at == self.name.len() && self.sequence(after, at, steps, then),
            _ => {}
        }
        let length = match first {
            b'(' => end_of(after, b')').map_or(pattern.len(), |end| end + 2),
            // A bracket at the beginning of a class is a member.
            b'[' => {
                let from = if after.starts_with(b"^") { 2 } else { 1 };
                let end = after
                    .get(from..)
                    .and_then(|rest| memchr::memchr(b']', rest));
                end.map_or(pattern.len(), |end| from + end + 2)
            }
            b'\\' => 2,
            _ => 1,
        };
        let (atom, rest) = pattern.split_at_checked(length).unwrap_or((pattern, b""));
        let (least, is_many, rest) = match rest.split_first() {
            Some((b'*', rest)) => (0, true, rest),
            Some((b'+', rest)) => (1, true, rest),
            Some((b'?', rest)) => (0, false, rest),
            _ => (1, false, rest),
        };
        self.repeat(atom, least, is_many, rest, at, steps, then)
    }

    #[expect(clippy::too_many_arguments, reason = "the state of the recursion")]
    fn repeat(
        &self,
        atom: &[u8],
        least: u32,
        is_many: bool,
        rest: &[u8],
        at: usize,
        steps: &mut u32,
        then: Then<'_>,
    ) -> bool {
        if least == 0 && self.sequence(rest, at, steps, then) {
            return true;
        }
        if least == 0 && !is_many {
            // `?`: once, then the rest.
            return self.atom(atom, at, steps, &mut |next, steps| {
                self.sequence(rest, next, steps, then)
            });
        }
        self.atom(atom, at, steps, &mut |next, steps| {
            if is_many && next > at {
                self.repeat(atom, 0, true, rest, next, steps, then)
            } else {
                self.sequence(rest, next, steps, then)
            }
        })
    }

    fn atom(&self, atom: &[u8], at: usize, steps: &mut u32, then: Then<'_>) -> bool {
        if let Some(inner) = atom.strip_prefix(b"(") {
            let inner = inner.strip_suffix(b")").unwrap_or(inner);
            return self.branches(inner, at, steps, then);
        }
        let Some(&byte) = self.name.get(at) else {
            return false;
        };
        let is_equal = match atom {
            b"." => true,
            [b'\\', escaped] => *escaped == byte,
            [b'[', class @ .., b']'] => is_member(class, byte),
            [only] => *only == byte,
            _ => false,
        };
        is_equal && then(at + 1, steps)
    }
}

/// Where a character stands outside of groups and classes.
fn end_of(pattern: &[u8], wanted: u8) -> Option<usize> {
    let mut depth = 0_u32;
    let mut class_from = None;
    let mut is_escaped = false;
    for (place, &byte) in pattern.iter().enumerate() {
        if std::mem::take(&mut is_escaped) {
            continue;
        }
        if let Some(from) = class_from {
            if byte == b']' && place > from + 1 {
                class_from = None;
            }
            continue;
        }
        match byte {
            b'\\' => is_escaped = true,
            byte if byte == wanted && depth == 0 => return Some(place),
            b'[' => class_from = Some(place),
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// Whether a class without its brackets has a character: `a-z_`, `^0-9`.
fn is_member(class: &[u8], byte: u8) -> bool {
    let (is_inverted, mut class) = match class.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, class),
    };
    let mut is_found = false;
    while let Some((&first, rest)) = class.split_first() {
        class = rest;
        let mut last = first;
        if let [b'-', end, rest @ ..] = rest {
            (last, class) = (*end, rest);
        }
        is_found |= (first..=last).contains(&byte);
    }
    is_found != is_inverted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let check = |style, pattern: &str, name: &str, expected| {
            let found = matches(style, pattern.as_bytes(), name.as_bytes());
            assert_eq!(found, expected, "{pattern} {name}");
        };
        let regex = |pattern, name, expected| check(Style::Regex, pattern, name, expected);
        regex("fib", "fib", true);
        regex("fib", "fib2", false);
        regex("fib.", "a_fib2", true);
        regex("^fib.*$", "fib", true);
        regex("^fib.+$", "fib", false);
        regex("mem(cpy|set)$", "memset", true);
        regex("mem(cpy|set)$", "memmove", false);
        regex("^[a-z]+_[^0-9]?x", "ab_yx", true);
        regex("^[a-z]+_[^0-9]?x", "ab_1x", false);
        regex("^(ab)*c", "ababc", true);
        regex("a|^b$", "b", true);
        regex(r"a\.b", "axb", false);
        regex("^[]x]+$", "]x", true);
        regex("(a*)*b", &"a".repeat(400), false);
        check(Style::Glob, "str*", "strlen", true);
        check(Style::Glob, "str?en", "strlen", true);
        check(Style::Glob, "str", "strlen", false);
        check(Style::Glob, "a.c*", "abc", false);
        check(Style::Simple, "a.*", "abc", false);
    }
}
