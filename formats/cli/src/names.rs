//! Names similar to a misspelled one, and shell patterns.

use strsim::osa_distance;

/// Maximum distance of a similar name, in edits.
const FARTHEST: usize = 6;
/// Maximum number of names in a hint.
const MOST: usize = 4;

/// Returns up to four of `names` that are similar to `wrong`, the nearest first; names that contain it, or that it contains, if
/// none is a few edits away.
///
/// A name may follow its table or system (`sched.sched_switch`, `sched:sched_switch`): many users know only the name.
pub fn nearest<S: AsRef<str> + Ord>(wrong: &str, names: impl IntoIterator<Item = S>) -> Vec<S> {
    let wrong = wrong.to_lowercase();
    // The part after the last colon, as in `sched:swich`. Dots do not separate: cgroups and files have dots.
    let wrong_last = wrong.rsplit(':').next().unwrap_or(&wrong);
    let allowed = (wrong.chars().count() / 3).clamp(1, FARTHEST);
    let (mut near, mut parts) = (Vec::new(), Vec::new());
    for name in names {
        let lower = name.as_ref().to_lowercase();
        let name_last = last(&lower);
        let edits = edits(&wrong, &lower)
            .min(edits(&wrong, name_last))
            .min(edits(wrong_last, name_last) + 1);
        let is_part = wrong_last.len() >= 3 && lower.contains(wrong_last)
            || name_last.len() >= 3 && wrong.contains(name_last);
        if edits <= allowed {
            near.push((edits, name));
        } else if is_part {
            parts.push((0, name));
        }
    }
    let mut near = if near.is_empty() { parts } else { near };
    near.sort();
    near.dedup_by(|(_, left), (_, right)| left == right);
    near.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// Returns a hint with valid names: `use comm`, `use one of: pid, tid`.
pub fn suggestion(names: &[&str]) -> String {
    match names {
        [only] => format!("use {only}"),
        names => format!("use one of: {}", names.join(", ")),
    }
}

/// Returns the name without its table or system.
fn last(name: &str) -> &str {
    name.rsplit(['.', ':']).next().unwrap_or(name)
}

/// Returns the number of edits between two names; infinite for very different lengths, because a kernel has 200,000
/// functions.
fn edits(left: &str, right: &str) -> usize {
    match left.len().abs_diff(right.len()) > FARTHEST {
        true => usize::MAX / 4,
        false => osa_distance(left, right),
    }
}

/// Whether `text` matches `pattern` with `*`, `?`, `[a-z]` and `[!a-z]`, as in the shell.
///
/// Runs in at most `pattern.len() * text.len()` steps.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let (mut pattern_rest, mut text_rest) = (pattern, text);
    // State at the last `*`: the pattern after it, and the text that it has not matched yet.
    let mut star: Option<(&str, &str)> = None;
    while let Some(character) = text_rest.chars().next() {
        if let Some(after) = pattern_rest.strip_prefix('*') {
            star = Some((after, text_rest));
            pattern_rest = after;
        } else if let Some(after) = strip_one(pattern_rest, character) {
            pattern_rest = after;
            text_rest = &text_rest[character.len_utf8()..];
        } else if let Some((after, from)) = star {
            // The last `*` matches one more character. Earlier ones need no second try, which keeps this fast.
            let mut from = from.chars();
            from.next();
            star = Some((after, from.as_str()));
            (pattern_rest, text_rest) = (after, from.as_str());
        } else {
            return false;
        }
    }
    pattern_rest.chars().all(|rest| rest == '*')
}

/// Returns `pattern` after its first element if that matches `character`.
fn strip_one(pattern: &str, character: char) -> Option<&str> {
    let mut after = pattern.chars();
    match after.next()? {
        '?' => Some(after.as_str()),
        '[' => {
            let set = after.as_str();
            // A bracket at the start belongs to the set.
            let skipped = set.chars().take(1).map(char::len_utf8).sum::<usize>();
            let end = skipped + set.get(skipped..)?.find(']')?;
            let (is_inverted, members) = match set[..end].strip_prefix(['!', '^']) {
                Some(members) if !members.is_empty() => (true, members),
                _ => (false, &set[..end]),
            };
            (is_member(members, character) != is_inverted).then(|| &set[end + 1..])
        }
        literal => (literal == character).then_some(after.as_str()),
    }
}

/// Whether a set of characters and ranges (`abc`, `a-z`) contains `character`.
fn is_member(members: &str, character: char) -> bool {
    let members: Vec<char> = members.chars().collect();
    let mut members = &members[..];
    while let Some((&low, after)) = members.split_first() {
        let (high, after) = match after {
            ['-', high, after @ ..] => (*high, after),
            _ => (low, after),
        };
        if (low..=high).contains(&character) {
            return true;
        }
        members = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("sched_*", "sched_switch", true),
            ("*_switch", "sched_switch", true),
            ("s*h*ch", "sched_switch", true),
            ("s*x", "sched_switch", false),
            ("sys_?nter", "sys_enter", true),
            ("sys_[a-e]*", "sys_enter", true),
            ("sys_[xy]*", "sys_enter", false),
            ("[", "[", false),
            ("[]x]", "]", true),
            ("run-[!0-3]", "run-2", false),
            ("run-[!0-3]", "run-4", true),
            ("run-[0-3]*", "run-2b", true),
            ("run-?", "run-10", false),
            ("abc", "abcd", false),
            ("abcd", "abc", false),
            ("**a**", "bab", true),
            ("größe_?", "größe_µ", true),
            ("*a*a*a*b", &"a".repeat(2000), false),
        ] {
            assert_eq!(glob_matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn similar_tables() {
        let tables = [
            "samples",
            "sched_switch",
            "sched.sched_switch",
            "sched_wakeup",
            "stacks",
            "threads",
        ];
        assert_eq!(nearest("sample", tables), ["samples"]);
        assert_eq!(
            nearest("shced_switch", tables),
            ["sched.sched_switch", "sched_switch"]
        );
        assert_eq!(nearest("stack", tables), ["stacks"]);
        assert_eq!(nearest("xyz", tables), [""; 0]);
        assert_eq!(
            nearest("switch", tables),
            ["sched.sched_switch", "sched_switch"]
        );
    }

    #[test]
    fn similar_events() {
        let events = [
            "sched:sched_switch",
            "cycles",
            "instructions",
            "irq:softirq_entry",
        ];
        assert_eq!(nearest("sched:sched_swich", events), ["sched:sched_switch"]);
        assert_eq!(nearest("sched_switch", events), ["sched:sched_switch"]);
        assert_eq!(nearest("sched:switch", events), ["sched:sched_switch"]);
        assert_eq!(nearest("cycels", events), ["cycles"]);
        assert_eq!(nearest("zzzzzzzz", events), [""; 0]);
        let groups = ["system.slice", "system.slice/cron.service"];
        assert_eq!(
            nearest("system.slice/crom.service", groups),
            ["system.slice/cron.service"]
        );
    }

    #[test]
    fn suggestions() {
        assert_eq!(suggestion(&["comm"]), "use comm");
        assert_eq!(suggestion(&["pid", "tid"]), "use one of: pid, tid");
    }
}
