//! Names by which functions of two builds match: without addresses, compiler suffixes and directories.
//!
//! ```text
//! vfs_read.isra.0      /usr/lib/x86_64-linux-gnu/libc.so.6     →   vfs_read      libc.so.6
//! parse.constprop.1.cold   /home/a/new/parser                  →   parse         parser
//! ```

/// Suffixes of GCC and LLVM for clones and parts of a function; a number may follow.
const CLONES: [&str; 8] = [
    ".isra",
    ".constprop",
    ".part",
    ".cold",
    ".llvm",
    ".lto_priv",
    ".localalias",
    ".clone",
];

/// Returns the function name without clone suffixes.
pub(in crate::reports) fn function(name: &str) -> &str {
    let mut name = name;
    loop {
        let stem = without_number(name);
        let shorter = CLONES
            .iter()
            .find_map(|suffix| stem.strip_suffix(suffix))
            .filter(|shorter| !shorter.is_empty());
        match shorter {
            Some(shorter) => name = shorter,
            None => return name,
        }
    }
}

/// Turns `x.12` into `x`.
fn without_number(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, digits))
            if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) =>
        {
            stem
        }
        _ => name,
    }
}

/// Returns the file name of a module.
pub(in crate::reports) fn module(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((_, name)) if !name.is_empty() => name,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_their_function() {
        for (name, expected) in [
            ("vfs_read", "vfs_read"),
            ("vfs_read.isra.0", "vfs_read"),
            ("parse.constprop.1.cold", "parse"),
            ("f.llvm.1234567890", "f"),
            ("a.b.3", "a.b.3"),
            (".cold", ".cold"),
            ("core::ops::f", "core::ops::f"),
            ("", ""),
        ] {
            assert_eq!(function(name), expected);
        }
    }

    #[test]
    fn modules_match_by_file_name() {
        assert_eq!(module("/usr/lib/libc.so.6"), "libc.so.6");
        assert_eq!(module("[kernel.kallsyms]"), "[kernel.kallsyms]");
        assert_eq!(module("/srv/"), "/srv/");
    }
}
