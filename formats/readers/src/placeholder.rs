//! Names that stand for functions without a name: exporters write the module in brackets, `[libc.so.6]`, `[kernel.kallsyms]`, or `[unknown]`.

/// The function's name; empty if it is a placeholder for a place in the module, which may be a path.
pub(crate) fn without_placeholder<'a>(function: &'a [u8], module: &[u8]) -> &'a [u8] {
    let inside = function
        .strip_prefix(b"[")
        .and_then(|rest| rest.strip_suffix(b"]"))
        .filter(|inside| !inside.is_empty());
    let base = module.rsplit(|&byte| byte == b'/').next();
    let is_placeholder = inside
        .is_some_and(|inside| inside == b"unknown" || function == module || Some(inside) == base);
    match is_placeholder {
        true => b"",
        false => function,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_in_brackets_are_no_functions() {
        for (function, module, expected) in [
            ("main", "/usr/bin/sh", "main"),
            ("[sh]", "/usr/bin/sh", ""),
            ("[sh]", "sh", ""),
            ("[kernel.kallsyms]", "[kernel.kallsyms]", ""),
            ("[unknown]", "", ""),
            ("[GC]", "/usr/bin/sh", "[GC]"),
            ("[]", "", "[]"),
            ("[", "[", "["),
            ("", "", ""),
        ] {
            let found = without_placeholder(function.as_bytes(), module.as_bytes());
            assert_eq!(found, expected.as_bytes(), "{function} in {module}");
        }
    }
}
