//! Lookup of functions by name, as in the symbol table or as in C++ or Rust source code.
//!
//! ```text
//! _ZN2ns4overEi        the symbol itself
//! ns::over(int)        one overload                      over(int)   the same, if no other namespace has one
//! ns::over             all of that name; several overloads are refused, with their names
//! ns::over*            all of them
//! r::gen<u32>          one instance, prog::r::gen::<u32>
//! ```

use perfquet_cli::glob_matches;
use perfquet_trace::symbols::{CodeSymbol, Object};

use crate::failure::{Failure, misuse, similar};

/// Maximum number of overloads in a message.
const MOST_NAMED: usize = 10;

/// A function found by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) symbol: CodeSymbol,
    /// Readable name, with parameters if it is ambiguous without them.
    pub(super) name: String,
}

/// Finds the functions with a name: several addresses of one function, or all matches of a pattern.
pub(super) fn find(text: &str, object: &Object, wanted: &str) -> Result<Vec<Found>, Failure> {
    let all = object.functions();
    let exact = all.iter().filter(|symbol| symbol.name == wanted);
    let mut found: Vec<CodeSymbol> = exact.cloned().collect();
    if found.is_empty() {
        found = by_readable_name(text, object, &all, wanted)?;
    }
    if found.is_empty() {
        return Err(nothing(text, object, &all, wanted));
    }
    // Several names at one address are one probe.
    found.sort_by_key(|symbol| symbol.offset);
    found.dedup_by_key(|symbol| symbol.offset);
    Ok(named(found))
}

/// Finds the single function with a name.
pub(super) fn find_one(text: &str, object: &Object, wanted: &str) -> Result<CodeSymbol, Failure> {
    let mut found = find(text, object, wanted)?;
    match found.len() {
        1 => Ok(found.remove(0).symbol),
        // Several addresses with one name are the same function in the source.
        _ if found.iter().all(|other| other.name == found[0].name) => Ok(found.remove(0).symbol),
        _ => Err(misuse(format!(
            "{text}: expected one function, found {}",
            found.len()
        ))
        .hint(format!("use one of: {}", list(&found)))),
    }
}

/// Returns the readable names of all functions; overloads include their parameters.
pub(super) fn all_names(object: &Object) -> Vec<String> {
    let mut names: Vec<String> = named(object.functions())
        .into_iter()
        .map(|found| found.name)
        .collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the event name of a function: without bracketed namespaces, types and operators.
pub(super) fn event_name(readable: &str) -> String {
    let mut depth = 0usize;
    let mut before = ' ';
    let outside = readable.chars().filter(|&letter| {
        let is_arrow = letter == '>' && before == '-';
        before = letter;
        match letter {
            '<' | '(' | '{' => depth += 1,
            '>' if is_arrow => {}
            '>' | ')' | '}' => {
                depth = depth.saturating_sub(1);
                return false;
            }
            _ => {}
        }
        depth == 0
    });
    let outside: String = outside.collect();
    let parts = outside.split("::").filter(|part| !part.trim().is_empty());
    let name = parts.collect::<Vec<_>>().join("_");
    match name.contains(|letter: char| letter.is_ascii_alphanumeric()) {
        true => name,
        false => "probe".to_owned(),
    }
}

fn by_readable_name(
    text: &str,
    object: &Object,
    all: &[CodeSymbol],
    wanted: &str,
) -> Result<Vec<CodeSymbol>, Failure> {
    let wanted = canonical(wanted);
    let names: Vec<(String, &CodeSymbol)> = all
        .iter()
        .map(|symbol| {
            let name = match has_parameters(&wanted) {
                true => symbol.readable_with_parameters(),
                false => symbol.readable(),
            };
            (canonical(&name), symbol)
        })
        .collect();
    let those = |is_it: &dyn Fn(&str) -> bool| -> Vec<CodeSymbol> {
        let found = names.iter().filter(|(name, _)| is_it(name));
        found.map(|(_, symbol)| (*symbol).clone()).collect()
    };
    let suffix = format!("::{wanted}");
    let mut found = those(&|name| name == wanted);
    if found.is_empty() {
        found = those(&|name| name.ends_with(&suffix));
    }
    // Without the types of a template, the name matches all its instances.
    if found.is_empty() {
        found = those(&|name| {
            let plain = without_types(name);
            plain != name && (plain == wanted || plain.ends_with(&suffix))
        });
    }
    if found.is_empty() {
        found = by_declared_name(object, &names, &wanted);
    }
    if found.is_empty() && wanted.contains(['*', '?', '[']) {
        let matches = |(name, symbol): &&(String, &CodeSymbol)| {
            glob_matches(&wanted, name) || glob_matches(&wanted, &symbol.name)
        };
        let found = names.iter().filter(matches);
        return Ok(found.map(|(_, symbol)| (*symbol).clone()).collect());
    }
    one_meaning(text, found)
}

/// Finds functions by the names in debug info, because Rust's legacy mangling omits types.
fn by_declared_name(
    object: &Object,
    names: &[(String, &CodeSymbol)],
    wanted: &str,
) -> Vec<CodeSymbol> {
    let plain = without_types(wanted);
    if plain == wanted {
        return Vec::new();
    }
    let last = wanted.get(start_of_last(wanted)..).unwrap_or_default();
    let suffix = format!("::{plain}");
    let candidates = names
        .iter()
        .filter(|(name, _)| *name == plain || name.ends_with(&suffix));
    candidates
        .filter(|(_, symbol)| {
            let declared = object.declared_name(symbol);
            declared.is_some_and(|declared| canonical(&declared) == last)
        })
        .map(|(_, symbol)| (*symbol).clone())
        .collect()
}

/// Checks that all functions found are the same; otherwise the name is ambiguous.
fn one_meaning(text: &str, found: Vec<CodeSymbol>) -> Result<Vec<CodeSymbol>, Failure> {
    let mut names: Vec<String> = found
        .iter()
        .map(CodeSymbol::readable_with_parameters)
        .collect();
    names.sort_unstable();
    names.dedup();
    if names.len() < 2 {
        return Ok(found);
    }
    let count = names.len();
    let more = if count > MOST_NAMED { ", …" } else { "" };
    names.truncate(MOST_NAMED);
    Err(
        misuse(format!("{text}: {count} functions have this name")).hint(format!(
            "use a full name, or a pattern with * for all: {}{more}",
            names.join(", ")
        )),
    )
}

fn nothing(text: &str, object: &Object, all: &[CodeSymbol], wanted: &str) -> Failure {
    let path = object.path().display();
    if all.is_empty() {
        return crate::failure::failed(format!("{text}: {path} has no symbols"))
            .hint("install its debug package");
    }
    if object.is_stripped() {
        return misuse(format!(
            "{path} has no symbol {wanted}: it is stripped, and only has the functions that it exports"
        ))
        .hint(format!(
            "install its debug package, use an offset, or list what it has: --functions '{path}:*'"
        ));
    }
    let names = all_names(object);
    misuse(format!("{path} has no function {wanted}")).hint(similar(
        wanted,
        names,
        &format!("--functions '{path}:*'"),
    ))
}

/// Adds parameters where names would otherwise be equal.
fn named(found: Vec<CodeSymbol>) -> Vec<Found> {
    let mut names: Vec<(String, CodeSymbol)> = found
        .into_iter()
        .map(|symbol| (symbol.readable(), symbol))
        .collect();
    let mut counts = std::collections::HashMap::new();
    for (name, symbol) in &names {
        let mangled: &mut std::collections::BTreeSet<String> =
            counts.entry(name.clone()).or_default();
        mangled.insert(symbol.name.clone());
    }
    names
        .drain(..)
        .map(|(name, symbol)| {
            let is_shared = counts.get(&name).is_some_and(|names| names.len() > 1);
            let name = match is_shared {
                true => symbol.readable_with_parameters(),
                false => name,
            };
            Found { symbol, name }
        })
        .collect()
}

fn list(found: &[Found]) -> String {
    let mut names: Vec<&str> = found.iter().map(|found| found.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let more = if names.len() > MOST_NAMED {
        ", …"
    } else {
        ""
    };
    names.truncate(MOST_NAMED);
    format!("{}{more}", names.join(", "))
}

/// Normalizes the spelling of a name, such as `gen::<u32>` and `A<B> >`: spaces only between words, no `::` before
/// types.
fn canonical(name: &str) -> String {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let name = name.trim().trim_start_matches("::").replace("::<", "<");
    let letters: Vec<char> = name.chars().collect();
    let mut out = String::with_capacity(name.len());
    for (at, &letter) in letters.iter().enumerate() {
        if letter.is_whitespace() {
            let before = out.chars().next_back();
            let after = letters.get(at + 1..).unwrap_or_default();
            let after = after.iter().find(|letter| !letter.is_whitespace());
            let parts = before.is_some_and(is_word) && after.copied().is_some_and(is_word);
            if parts {
                out.push(' ');
            }
        } else {
            out.push(letter);
        }
    }
    out
}

fn has_parameters(wanted: &str) -> bool {
    let without = wanted
        .replace("(anonymous namespace)", "")
        .replace("operator()", "operator");
    without.contains('(')
}

/// Removes the types after the last name: `list<int>::push<char>` → `list<int>::push`.
fn without_types(name: &str) -> &str {
    let last = start_of_last(name);
    let tail = name.get(last..).unwrap_or_default();
    if !tail.ends_with('>') || tail.contains("operator") {
        return name;
    }
    let end = tail.find('<').filter(|at| *at > 0);
    end.and_then(|end| name.get(..last + end)).unwrap_or(name)
}

/// Finds the start of the last name, after the last `::` outside brackets.
fn start_of_last(name: &str) -> usize {
    let bytes = name.as_bytes();
    let mut depth = 0usize;
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' | b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => start = at + 2,
            _ => {}
        }
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_spellings() {
        for (name, expected) in [
            ("std::map<int, A<B> >::at", "std::map<int,A<B>>::at"),
            ("prog::r::gen::<u32>", "prog::r::gen<u32>"),
            ("f(unsigned long, char *)", "f(unsigned long,char*)"),
            ("<T as  U>::go", "<T as U>::go"),
            ("::f", "f"),
        ] {
            assert_eq!(canonical(name), expected);
        }
    }

    #[test]
    fn types_are_removed() {
        for (name, expected) in [
            ("r::gen<u32>", "r::gen"),
            ("list<int>::push<char>", "list<int>::push"),
            ("list<int>::push", "list<int>::push"),
            ("<T as U>", "<T as U>"),
            ("A::operator->", "A::operator->"),
        ] {
            assert_eq!(without_types(name), expected);
        }
    }

    #[test]
    fn event_names_are_valid_in_the_kernel() {
        for (name, expected) in [
            ("work", "work"),
            ("ns::over", "ns_over"),
            ("ns::over(int)", "ns_over"),
            ("prog::r::gen::<u32>", "prog_r_gen"),
            ("(anonymous namespace)::f", "f"),
            ("<T as U<V>>::go", "go"),
            ("main::{{closure}}", "main"),
            ("A::operator->", "A_operator->"),
        ] {
            assert_eq!(event_name(name), expected, "{name}");
        }
    }
}
