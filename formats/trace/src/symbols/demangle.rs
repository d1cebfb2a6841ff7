//! Demangled names of C++ and Rust functions.
//!
//! ```text
//! _ZN4core3ptr13drop_in_place17h0123456789abcdefE   core::ptr::drop_in_place
//! _RNvCs1234_7mycrate3foo                            mycrate::foo
//! _ZNSt6vectorIiSaIiEE9push_backEOi                  std::vector<int, std::allocator<int> >::push_back
//! ```
//! Without the parameters of C++, as printed by perf. A name from a foreign file may expand exponentially: above 16 KiB
//! it stays mangled.

use std::fmt::{self, Write};

use super::limits::NAME_BYTES_MAX;

const DEMANGLED_MAX: usize = 16 << 10;
const MANGLED_MAX: usize = 8 << 10;

/// Whether the name may be mangled; a cheap filter.
pub fn may_be_mangled(name: &[u8]) -> bool {
    let mangled: [&[u8]; 3] = [b"_Z", b"_R", b"__Z"];
    mangled.iter().any(|start| name.starts_with(start))
}

/// Demangles a name, or returns it unchanged; in both cases without its symbol version.
pub fn demangle(name: &[u8]) -> String {
    if name.len() as u64 > NAME_BYTES_MAX {
        return cut(name);
    }
    let name = String::from_utf8_lossy(without_version(name));
    match unmangled(&name) {
        Some(demangled) => demangled,
        None => name.into_owned(),
    }
}

/// A name that is too long, cut: a process may write a name of any length, and each table and picture would contain it.
fn cut(name: &[u8]) -> String {
    let start = name.get(..NAME_BYTES_MAX as usize).unwrap_or(name);
    format!("{}… ({} bytes)", String::from_utf8_lossy(start), name.len())
}

/// Demangles a name with C++ parameters, which distinguish overloads.
pub(super) fn demangle_with_parameters(name: &str) -> String {
    if !name.starts_with("_R") && name.len() <= MANGLED_MAX && may_be_mangled(name.as_bytes()) {
        let mut out = Bounded(String::new());
        let options = cpp_demangle::DemangleOptions::new().no_return_type();
        let is_rust = rustc_demangle::try_demangle(without_suffix(name)).is_ok();
        if !is_rust
            && let Ok(symbol) = cpp_demangle::Symbol::new(name.as_bytes())
            && symbol.structured_demangle(&mut out, &options).is_ok()
        {
            return with_suffixes(without_empty_arguments(out.0));
        }
    }
    demangle(name.as_bytes())
}

/// Without the suffix binutils adds to a name that a library has in several versions: `pthread_create@@GLIBC_2.34`.
pub(super) fn without_version(name: &[u8]) -> &[u8] {
    let Some(at) = name.iter().position(|&byte| byte == b'@') else {
        return name;
    };
    let (plain, version) = name.split_at(at);
    let version = version.strip_prefix(b"@").unwrap_or(version);
    let version = version.strip_prefix(b"@").unwrap_or(version);
    let is_version = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
    match plain.is_empty() || version.is_empty() || !version.iter().all(is_version) {
        true => name,
        false => plain,
    }
}

fn unmangled(name: &str) -> Option<String> {
    if !may_be_mangled(name.as_bytes()) || name.len() > MANGLED_MAX {
        return None;
    }
    let mut out = Bounded(String::new());
    if let Ok(rust) = rustc_demangle::try_demangle(without_suffix(name)) {
        return write!(out, "{rust:#}").is_ok().then_some(out.0);
    }
    let symbol = cpp_demangle::Symbol::new(name.as_bytes()).ok()?;
    let options = cpp_demangle::DemangleOptions::new()
        .no_params()
        .no_return_type();
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(with_suffixes(without_empty_arguments(without_const(out.0))))
}

/// Strips the suffixes that LLVM adds to parts of a function (`.llvm.123`, `.warm`, `.cold`), as perf does, so that all
/// parts are one function.
fn without_suffix(name: &str) -> &str {
    let end = match name.strip_prefix("_R") {
        Some(_) => name.find('.'),
        None => name.rfind("E.").map(|at| at + 1),
    };
    end.and_then(|end| name.get(..end)).unwrap_or(name)
}

/// Strips the `const` of a member function, which belongs to the parameters.
fn without_const(mut name: String) -> String {
    if name.ends_with(" const") && !name.contains("operator ") {
        name.truncate(name.len() - " const".len());
    }
    name
}

/// `AnalysisManager<Function, >` as other demanglers print it, without the empty pack of arguments.
fn without_empty_arguments(name: String) -> String {
    if !name.contains(", >") {
        return name;
    }
    // libiberty separates two of these with a space only if it printed the first one just before.
    name.replace(", > >", ">>")
        .replace(">, >", "> >")
        .replace(", >", ">")
}

/// `Array<4096ul>` instead of `Array<(unsigned long)4096>`, as libiberty, and so perf, prints numbers.
fn with_suffixes(mut name: String) -> String {
    const TYPES: [(&str, &str); 6] = [
        ("(int)", ""),
        ("(unsigned int)", "u"),
        ("(long)", "l"),
        ("(unsigned long)", "ul"),
        ("(long long)", "ll"),
        ("(unsigned long long)", "ull"),
    ];
    for (cast, suffix) in TYPES {
        let mut parts = name.split(cast);
        let Some(first) = parts.next().filter(|first| first.len() < name.len()) else {
            continue;
        };
        let mut written = first.to_owned();
        for part in parts {
            let is_digit = |c: char| c.is_ascii_digit();
            let digits = part.trim_start_matches('-').trim_start_matches(is_digit);
            let (number, rest) = part.split_at(part.len() - digits.len());
            if number.ends_with(is_digit) {
                written.extend([number, suffix, rest]);
            } else {
                written.extend([cast, part]);
            }
        }
        name = written;
    }
    name
}

/// A string that does not grow beyond [`DEMANGLED_MAX`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > DEMANGLED_MAX {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_names_are_cut() {
        let name = demangle(&[b'x'; 1 << 20]);
        assert!(name.len() < NAME_BYTES_MAX as usize + 32);
        assert!(name.ends_with("x… (1048576 bytes)"));
        // In the middle of a character.
        let name = demangle("é".repeat(1 << 20).as_bytes());
        assert!(name.starts_with("éé") && name.ends_with("(2097152 bytes)"));
        assert_eq!(demangle(&[b'y'; 1 << 14]).len(), 1 << 14);
    }

    fn check(mangled: &str, expected: &str) {
        assert_eq!(demangle(mangled.as_bytes()), expected);
    }

    #[test]
    fn names_as_in_source_code() {
        check("work_inner", "work_inner");
        check(
            "_ZN3std2io5stdio6_print17h0123456789abcdefE",
            "std::io::stdio::_print",
        );
        check("_RNvC7mycrate3foo", "mycrate::foo");
        check("_ZN3foo3barEi", "foo::bar");
        check(
            "_ZNSt6vectorIiSaIiEE9push_backEOi",
            "std::vector<int, std::allocator<int> >::push_back",
        );
        check("_ZNK3foo3barEv", "foo::bar");
        check("_ZN3FooIiJEE3barEv", "Foo<int>::bar");
        check(
            "_ZN3FooILm4096ELi3ELb1EE3barEv",
            "Foo<4096ul, 3, true>::bar",
        );
        check("_RNvC7mycrate3foo.llvm.123.warm", "mycrate::foo");
        check(
            "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE.llvm.77",
            "core::fmt::Formatter::pad",
        );
        check("_Z", "_Z");
        check("_ZN", "_ZN");
        check("_R", "_R");
        assert_eq!(demangle(b"caf\xe9"), "caf\u{fffd}");
        check("__libc_start_main@@GLIBC_2.34", "__libc_start_main");
        check("memcpy@GLIBC_2.2.5", "memcpy");
        check("_ZN3foo3barEi@@FOO_1.0", "foo::bar");
        check("@@GLIBC_2.34", "@@GLIBC_2.34");
        check("mail@host of a script", "mail@host of a script");
    }

    #[test]
    fn parameters_distinguish_overloads() {
        let check = |mangled: &str, expected: &str| {
            assert_eq!(demangle_with_parameters(mangled), expected);
        };
        check("_ZN2ns4overEi", "ns::over(int)");
        check("_ZN2ns4overEd", "ns::over(double)");
        check("_ZNK3foo3barEv", "foo::bar() const");
        check("_RNvC7mycrate3foo", "mycrate::foo");
        check(
            "_ZN3std2io5stdio6_print17h0123456789abcdefE",
            "std::io::stdio::_print",
        );
        check("work", "work");
    }

    #[test]
    fn refuses_to_explode() {
        // Each S_ repeats all text before it: doubles 60 times.
        let mut name = String::from("_Z1fI1aIi");
        for _ in 0..60 {
            name.push_str("S_IS_S_E");
        }
        name.push_str("EEvv");
        assert!(demangle(name.as_bytes()).len() <= DEMANGLED_MAX.max(name.len()));
    }
}
