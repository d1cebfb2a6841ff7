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

/// The module of a frame in a format that has only names: that in brackets, `[libc.so.6]`. `None` for functions and
/// `[unknown]`; digits alone are no file.
///
/// perf names the kernel and its modules in brackets, `[kernel.kallsyms]`; `stackcollapse-perf.pl` writes two then: `[[vdso]]`.
pub(crate) fn module_of(name: &[u8], is_kernel: bool) -> Option<&[u8]> {
    const BRACKETED: [&[u8]; 8] = [
        b"kernel.kallsyms",
        b"guest.kernel.kallsyms",
        b"vdso",
        b"vsyscall",
        b"heap",
        b"stack",
        b"anon",
        b"uprobes",
    ];
    let inside = name.strip_prefix(b"[")?.strip_suffix(b"]")?;
    if inside.starts_with(b"[") && inside.ends_with(b"]") && inside.len() > 2 {
        return Some(inside);
    }
    let is_module = inside != b"unknown"
        && inside.iter().any(|byte| !byte.is_ascii_digit())
        && !inside.iter().any(|byte| b"[]".contains(byte));
    if !is_module {
        return None;
    }
    match is_kernel || BRACKETED.contains(&inside) {
        true => Some(name),
        false => Some(inside),
    }
}

/// Whether a module is of the kernel: `[kernel.kallsyms]`, `[ext4]`. Other names in brackets are those of mappings in processes (`/proc/PID/maps`),
/// of code of interpreters and compilers, or of code that simpleperf names: `[vdso]`, `[stack:77]`, `[python]`,
/// `[anon:dalvik-jit-code-cache]`, `[JIT app cache]`.
pub(crate) fn is_kernel_module(module: &[u8]) -> bool {
    const OF_PROCESSES: [&[u8]; 19] = [
        b"unknown",
        b"vdso",
        b"vdso32",
        b"vdsox32",
        b"vsyscall",
        b"vvar",
        b"vvar_vclock",
        b"vectors",
        b"sigpage",
        b"uprobes",
        b"uprobes-trampoline",
        b"stack",
        b"heap",
        b"anon",
        b"anon_shmem",
        b"jit",
        b"python",
        b"ruby",
        b"javascript",
    ];
    let name = module
        .strip_prefix(b"[")
        .and_then(|name| name.strip_suffix(b"]"));
    name.is_some_and(|name| {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
        name.iter().all(is_word) && !OF_PROCESSES.contains(&name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_the_kernel() {
        for module in ["[kernel.kallsyms]", "[ext4]", "[snd_hda-intel]"] {
            assert!(is_kernel_module(module.as_bytes()), "{module}");
        }
        for module in [
            "[vdso]",
            "[vvar]",
            "[python]",
            "[anon:x]",
            "[JIT app cache]",
            "ext4",
            "/lib/a.so",
        ] {
            assert!(!is_kernel_module(module.as_bytes()), "{module}");
        }
    }

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

    #[test]
    fn names_in_brackets_are_modules() {
        for (name, is_kernel, expected) in [
            ("[libc.so.6]", false, Some("libc.so.6")),
            ("[/usr/bin/sh]", false, Some("/usr/bin/sh")),
            ("[vdso]", false, Some("[vdso]")),
            ("[[vdso]]", false, Some("[vdso]")),
            ("[ext4]", true, Some("[ext4]")),
            ("[[kernel.kallsyms]]", true, Some("[kernel.kallsyms]")),
            ("[unknown]", false, None),
            ("[1]", false, None),
            ("[]", false, None),
            ("[]f]", false, None),
            ("operator[]", false, None),
            ("main", false, None),
        ] {
            let found = module_of(name.as_bytes(), is_kernel).map(String::from_utf8_lossy);
            assert_eq!(found.as_deref(), expected, "{name}");
        }
    }
}
