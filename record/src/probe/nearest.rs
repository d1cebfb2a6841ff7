//! Names that resemble a mistyped one, and wildcards.

use strsim::osa_distance;

/// Distance beyond which a name is no help.
const FARTHEST: usize = 6;

/// Hint for an unknown event: the nearest names.
pub(crate) fn sentence(wanted: &str, names: impl IntoIterator<Item = String>) -> String {
    let found = nearest(wanted, names);
    if found.is_empty() {
        return "list the events of this system: perfquet-record --list".to_owned();
    }
    format!("use {}, or list all with --list", found.join(", "))
}

/// Hint for an unknown function or static probe.
pub(crate) fn meant(wanted: &str, names: impl IntoIterator<Item = String>, list: &str) -> String {
    let found = nearest(wanted, names);
    match found.is_empty() {
        true => format!("list all with {list}"),
        false => format!("use {}, or list all with {list}", found.join(", ")),
    }
}

/// At most five names that resemble `wanted`, the nearest first. For "sched:switch" the part after the
/// colon counts as well: many know the name and not the system.
pub(crate) fn nearest(wanted: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let short = |name: &str| name.rsplit(':').next().unwrap_or(name).to_owned();
    let wanted_short = short(wanted);
    let mut found: Vec<(usize, String)> = names
        .into_iter()
        .filter_map(|name| {
            let name_short = short(&name);
            let contains = !wanted_short.is_empty() && name_short.contains(&wanted_short);
            let distance = match contains {
                true => 1,
                false => distance(wanted, &name).min(distance(&wanted_short, &name_short) + 1),
            };
            (distance <= FARTHEST.min(wanted.len() / 2)).then_some((distance, name))
        })
        .collect();
    found.sort();
    found.dedup();
    found.into_iter().take(5).map(|(_, name)| name).collect()
}

/// Steps between two names; those of very different lengths are not counted, for a kernel has 200,000 functions.
fn distance(left: &str, right: &str) -> usize {
    match left.len().abs_diff(right.len()) > FARTHEST {
        true => usize::MAX / 2,
        false => osa_distance(left, right),
    }
}

/// `*` any text, `?` any character, `[abc]` and `[a-z]` one of them, as perf and the shell have it.
pub(crate) fn glob_matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut at, mut place) = (0, 0);
    // Position of the last `*` and how much it has swallowed: one step back is enough, so that no pattern is slow.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        match one_matches(&pattern[at.min(pattern.len())..], name[place]) {
            Some(width) => {
                at += width;
                place += 1;
            }
            None if pattern.get(at) == Some(&b'*') => {
                star = Some((at + 1, place));
                at += 1;
            }
            None => match &mut star {
                Some((behind, swallowed)) => {
                    *swallowed += 1;
                    at = *behind;
                    place = *swallowed;
                }
                None => return false,
            },
        }
    }
    pattern[at.min(pattern.len())..]
        .iter()
        .all(|&byte| byte == b'*')
}

/// How many bytes of the pattern stand for this one byte of a name; `None` if they do not.
fn one_matches(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'*' => None,
        b'?' => Some(1),
        b'[' => {
            let end = pattern.iter().position(|&byte| byte == b']')?;
            let mut set = &pattern[1..end];
            while let Some(&first) = set.first() {
                let (low, high, width) = match set {
                    [low, b'-', high, ..] => (*low, *high, 3),
                    _ => (first, first, 1),
                };
                if (low..=high).contains(&byte) {
                    return Some(end + 1);
                }
                set = &set[width..];
            }
            None
        }
        literal => (literal == byte).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("sched_*", "sched_switch", true),
            ("*_switch", "sched_switch", true),
            ("s*h*ch", "sched_switch", true),
            ("s*x", "sched_switch", false),
            ("sys_?nter", "sys_enter", true),
            ("sys_[a-e]*", "sys_enter", true),
            ("sys_[xy]*", "sys_enter", false),
            ("[", "[", false),
            ("abc", "abcd", false),
            ("abcd", "abc", false),
            ("**a**", "bab", true),
        ] {
            assert_eq!(glob_matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn near_names() {
        let names = || {
            [
                "sched:sched_switch",
                "cycles",
                "instructions",
                "irq:softirq_entry",
            ]
            .map(String::from)
        };
        assert_eq!(
            nearest("sched:sched_swich", names()),
            ["sched:sched_switch"]
        );
        assert_eq!(nearest("sched_switch", names()), ["sched:sched_switch"]);
        assert_eq!(nearest("cycels", names()), ["cycles"]);
        assert!(nearest("zzzzzzzz", names()).is_empty());
    }
}
