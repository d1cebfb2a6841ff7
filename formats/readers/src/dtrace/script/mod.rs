//! Facts about the output, from its D script: names and functions of aggregations, their order, formats, providers.
//!
//! ```text
//! fbt::malloc:entry { @sizes[execname, stack()] = quantize(arg0); }
//! END { printa("%-20s %@8d\n", @counts); }
//! ```
//! Only the parts of D needed for this are parsed: comments, strings, probe descriptions, `@name[keys] = action(…)` and
//! `printa(…)`. Everything else is ignored.

mod follow;
mod format;

pub(super) use follow::Follow;

use perfquet_events::event::Action;

use format::Format;

/// Maximum number of aggregations; beyond it, the text is not a script.
const AGGREGATIONS_MAX: usize = 10_000;

/// The facts from a script.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Script {
    /// In the order of their first use, which is that of printing at the end.
    pub(super) aggregations: Vec<Aggregation>,
    /// In the order of the text.
    pub(super) printings: Vec<Printing>,
    pub(super) probes: Vec<Probe>,
}

/// `@name[keys] = action(…)`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Aggregation {
    /// Empty for `@[…]`.
    pub(super) name: String,
    pub(super) action: Option<Action>,
    pub(super) texts: usize,
    pub(super) stacks: Vec<Side>,
}

/// The stack that a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Kernel,
    User,
}

/// `printa("…", @a, @b)`
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Printing {
    pub(super) format: Option<Format>,
    /// Indexes of aggregations.
    pub(super) of: Vec<usize>,
}

/// `provider:module:function:name`; an empty part matches any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Probe {
    provider: String,
    module: String,
    function: String,
    name: String,
}

impl Script {
    /// Reads a script.
    pub(super) fn of(text: &str) -> Script {
        let text = without_comments(text);
        let mut script = Script {
            probes: probes(&text),
            ..Script::default()
        };
        let mut printings = Vec::new();
        let mut rest = text.as_str();
        // A printa may precede the aggregation that it prints.
        while let Some(at) = rest.find(['@', 'p', '"']) {
            let (before, here) = rest.split_at(at);
            rest = here.get(1..).unwrap_or_default();
            if here.starts_with('"') {
                rest = after_string(rest);
            } else if let Some(call) = here.strip_prefix("printa") {
                let is_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
                if let (false, Some(inside)) = (is_word, inside(call, '(', ')')) {
                    printings.push(inside);
                    rest = call.get(inside.len() + 1..).unwrap_or_default();
                }
            } else if here.starts_with('@') {
                script.aggregation(rest);
            }
        }
        for arguments in printings {
            script.printing(arguments);
        }
        script
    }

    /// Parses the part after an `@`.
    fn aggregation(&mut self, text: &str) {
        let (name, after) = split_name(text);
        let after = after.trim_start();
        let (keys, after) = match inside(after, '[', ']') {
            Some(keys) => (keys, after.get(keys.len() + 2..).unwrap_or_default()),
            None => ("", after),
        };
        let Some(call) = after.trim_start().strip_prefix('=') else {
            return;
        };
        let (action, _) = split_name(call.trim_start());
        let mut found = Aggregation {
            name: name.to_owned(),
            action: action_of(action),
            ..Aggregation::default()
        };
        for key in arguments(keys) {
            match split_name(key).0 {
                "stack" => found.stacks.push(Side::Kernel),
                "ustack" | "jstack" => found.stacks.push(Side::User),
                _ => found.texts += 1,
            }
        }
        let is_known = self.aggregations.iter().any(|known| known.name == name);
        if !is_known && self.aggregations.len() < AGGREGATIONS_MAX {
            self.aggregations.push(found);
        }
    }

    fn printing(&mut self, text: &str) {
        let mut printing = Printing::default();
        for argument in arguments(text) {
            if let Some(format) = argument.strip_prefix('"') {
                printing.format = Some(Format::of(&unescaped(format.trim_end_matches('"'))));
            } else if let Some(name) = argument.strip_prefix('@') {
                let name = split_name(name).0;
                let index = self
                    .aggregations
                    .iter()
                    .position(|known| known.name == name);
                printing.of.extend(index);
            }
        }
        if !printing.of.is_empty() {
            self.printings.push(printing);
        }
    }

    /// Provider and module of the probe `function:name`, if all matching probes of the script agree.
    pub(super) fn provider(&self, function: &[u8], name: &[u8]) -> Option<(&str, &str)> {
        let fits = |probe: &&Probe| {
            matches(probe.function.as_bytes(), function) && matches(probe.name.as_bytes(), name)
        };
        let mut probes = self.probes.iter().filter(fits);
        let first = probes.next()?;
        let plain =
            |text: &'static str, value: &str| value.contains(['*', '?', '[', '$']) || value == text;
        let is_same =
            probes.all(|probe| probe.provider == first.provider && probe.module == first.module);
        let provider =
            Some(first.provider.as_str()).filter(|value| is_same && !plain("", value))?;
        let module = Some(first.module.as_str()).filter(|value| !plain("", value));
        Some((provider, module.unwrap_or_default()))
    }
}

/// Whether a glob of D (`*`, `?`) matches a string; the empty glob matches all.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    if pattern.is_empty() {
        return true;
    }
    let (mut at, mut place) = (0, 0);
    // Where to resume when the last star consumes one more byte.
    let mut star: Option<(usize, usize)> = None;
    while place < text.len() {
        let byte = text.get(place);
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at + 1, place));
                at += 1;
            }
            Some(b'?') => {
                at += 1;
                place += 1;
            }
            other if other == byte => {
                at += 1;
                place += 1;
            }
            _ => {
                let Some((after, taken)) = star else {
                    return false;
                };
                star = Some((after, taken + 1));
                at = after;
                place = taken + 1;
            }
        }
    }
    pattern
        .get(at..)
        .is_none_or(|rest| rest.iter().all(|&byte| byte == b'*'))
}

fn action_of(name: &str) -> Option<Action> {
    Some(match name {
        "count" => Action::Count,
        "sum" => Action::Sum,
        "avg" => Action::Avg,
        "min" => Action::Min,
        "max" => Action::Max,
        "stddev" => Action::Stddev,
        "quantize" => Action::Quantize,
        "lquantize" => Action::Lquantize,
        "llquantize" => Action::Llquantize,
        _ => return None,
    })
}

/// The script with comments and preprocessor lines replaced by spaces. Strings are kept.
fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let is_line_start = plain.is_empty() || plain.ends_with('\n');
        let end = if rest.starts_with("/*") {
            rest.find("*/").map(|end| end + 2)
        } else if rest.starts_with("//") || (next == '#' && is_line_start) {
            rest.find('\n')
        } else if next == '"' {
            let after = after_string(rest.get(1..).unwrap_or_default());
            let (string, after) = rest.split_at(rest.len() - after.len());
            plain.push_str(string);
            rest = after;
            continue;
        } else {
            plain.push(next);
            rest = rest.get(next.len_utf8()..).unwrap_or_default();
            continue;
        };
        plain.push(' ');
        rest = rest.get(end.unwrap_or(rest.len())..).unwrap_or_default();
    }
    plain
}

/// The part after a string whose content begins here.
fn after_string(text: &str) -> &str {
    let mut is_escaped = false;
    for (place, character) in text.char_indices() {
        match character {
            '"' if !is_escaped => return text.get(place + 1..).unwrap_or_default(),
            character => is_escaped = character == '\\' && !is_escaped,
        }
    }
    ""
}

/// The text between the bracket that begins `text` and its closing bracket.
fn inside(text: &str, open: char, close: char) -> Option<&str> {
    let text = text.strip_prefix(open)?;
    let mut depth = 0usize;
    let mut rest = text;
    while let Some(at) = rest.find([open, close, '"']) {
        let after = rest.get(at + 1..).unwrap_or_default();
        match rest.get(at..)?.chars().next() {
            Some('"') => rest = after_string(after),
            Some(bracket) if bracket == open => {
                depth += 1;
                rest = after;
            }
            _ if depth == 0 => return text.get(..text.len() - after.len() - 1),
            _ => {
                depth -= 1;
                rest = after;
            }
        }
    }
    None
}

/// Parts separated by commas outside brackets and strings.
fn arguments(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0i32, 0);
    let mut skip_to = 0;
    for (place, character) in text.char_indices() {
        if place < skip_to {
            continue;
        }
        match character {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '"' => {
                let after = after_string(text.get(place + 1..).unwrap_or_default());
                skip_to = text.len() - after.len();
            }
            ',' if depth == 0 => {
                parts.push(text.get(start..place).unwrap_or_default());
                start = place + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..).unwrap_or_default());
    let parts = parts.into_iter().map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

/// The name that begins a text, and the rest.
fn split_name(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    text.split_at(end.unwrap_or(text.len()))
}

fn unescaped(text: &str) -> String {
    let mut plain = String::new();
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match (character, character == '\\') {
            (_, true) => match characters.next() {
                Some('n') => plain.push('\n'),
                Some('t') => plain.push('\t'),
                Some(other) => plain.push(other),
                None => {}
            },
            (character, false) => plain.push(character),
        }
    }
    plain
}

/// The probe descriptions that precede the blocks of the script.
fn probes(text: &str) -> Vec<Probe> {
    let mut probes = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find(['{', ';']) {
        let (head, block) = rest.split_at(open);
        let Some(body) = inside(block, '{', '}') else {
            rest = block.get(1..).unwrap_or_default();
            continue;
        };
        // A predicate is between slashes.
        let head = head.split('/').next().unwrap_or_default();
        for description in head.split(',') {
            probes.extend(probe(description.trim()));
        }
        rest = block.get(body.len() + 2..).unwrap_or_default();
    }
    probes
}

fn probe(description: &str) -> Option<Probe> {
    if description.is_empty() || description.contains(char::is_whitespace) {
        return None;
    }
    let mut parts: Vec<&str> = description.split(':').collect();
    let mut take = || parts.pop().unwrap_or_default().to_owned();
    // Omitted parts are the leading ones.
    let (name, function, module, provider) = (take(), take(), take(), take());
    Some(Probe {
        provider,
        module,
        function,
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregations() {
        let script = Script::of(
            "#!/usr/sbin/dtrace -s\n#pragma D option quiet\n/* @no[1] = count(); */\nBEGIN { printf(\"@x = y\"); }\n\
             fbt::malloc:entry /execname == \"csh\"/ { @sizes[execname, stack(), ustack(5)] = quantize(arg0);\n\
             @ = count(); @n[f(a, b)] = lquantize(x, 0, 100, 10); }\n// @no = sum(1);\nEND { @sizes[1] = sum(2); }",
        );
        let found: Vec<_> = script
            .aggregations
            .iter()
            .map(|one| (one.name.as_str(), one.action, one.texts, one.stacks.len()))
            .collect();
        assert_eq!(
            found,
            [
                ("sizes", Some(Action::Quantize), 1, 2),
                ("", Some(Action::Count), 0, 0),
                ("n", Some(Action::Lquantize), 1, 0)
            ]
        );
    }

    #[test]
    fn printings() {
        let script = Script::of(
            "END { printa(\"%6d, %@d\\n\", @b, @a); printa(@a); } tick-1s { @a = count(); @b = sum(1); myprinta(@a); }",
        );
        let of: Vec<_> = script.printings.iter().map(|one| one.of.clone()).collect();
        assert_eq!(of, [vec![1, 0], vec![0]]);
        assert!(script.printings[0].format.is_some());
    }

    #[test]
    fn providers() {
        let script = Script::of(
            "struct x { int a; };\nfbt:kernel:malloc:entry, fbt:kernel:free:return /arg0/ { } syscall:::entry { } tick-1s { }\n\
             io:::start { }",
        );
        let check = |function: &str, name: &str, expected| {
            assert_eq!(
                script.provider(function.as_bytes(), name.as_bytes()),
                expected
            );
        };
        check("free", "return", Some(("fbt", "kernel")));
        check("read", "entry", Some(("syscall", "")));
        check("malloc", "entry", None);
        check("x", "start", Some(("io", "")));
        check("", "tick-1s", None);
    }

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("", "x", true),
            ("vfs_*", "vfs_read", true),
            ("*read", "vfs_read", true),
            ("v?s_*d", "vfs_read", true),
            ("vfs", "vfs_read", false),
            ("*a*b*c", "xaybzc", true),
            ("*a*b*c", "xaybz", false),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                expected,
                "{pattern}"
            );
        }
    }

    #[test]
    fn unfinished_scripts() {
        for text in [
            "@",
            "printa(",
            "@a[",
            "\"",
            "/*",
            "x {",
            "@a = ",
            "printa(\"",
            "a:b:c:d:e {}",
            "é@é[é] = é",
        ] {
            Script::of(text);
        }
    }
}
