//! Names of the kernel's functions.

use std::collections::BTreeSet;
use std::fs;

/// Returns all functions of the kernel and its modules, in order; empty if they are hidden.
pub(crate) fn functions() -> Vec<String> {
    functions_of(None)
}

/// Returns the functions of the kernel without those of its modules, in order; empty if they are hidden.
pub(crate) fn kernel_functions() -> Vec<String> {
    names_in(&read(), |line| !line.ends_with(']'))
}

/// Returns the functions of a module; without one, those of the kernel and all its modules.
pub(crate) fn functions_of(module: Option<&str>) -> Vec<String> {
    in_module(&read(), module)
}

fn in_module(text: &str, module: Option<&str>) -> Vec<String> {
    let module = module.map(|name| format!("[{}]", name.replace('-', "_")));
    names_in(text, |line| match &module {
        Some(module) => line.ends_with(module.as_str()),
        None => true,
    })
}

/// Returns the functions in these lines.
fn names_in(text: &str, is_it: impl Fn(&str) -> bool) -> Vec<String> {
    let lines = text.lines().filter(|line| is_it(line));
    let names: BTreeSet<&str> = lines.filter_map(function).map(|(_, name)| name).collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Returns the addresses of these functions, once per occurrence of the name; 0 if addresses are hidden.
pub(crate) fn addresses(functions: &BTreeSet<&str>) -> Vec<(String, u64)> {
    let text = read();
    let found = code(&text).filter(|(_, name)| functions.contains(name));
    found
        .map(|(address, name)| (name.to_owned(), address))
        .collect()
}

/// The function at an address, or that holds it.
pub(crate) fn name_at(address: u64) -> Option<String> {
    let text = read();
    let symbols = code(&text).filter(|(start, _)| *start != 0 && *start <= address);
    // Of several names with one address, the first is used.
    let nearest = symbols.reduce(|best, next| if next.0 > best.0 { next } else { best })?;
    (address - nearest.0 < 1 << 20).then(|| nearest.1.to_owned())
}

fn read() -> String {
    let text = fs::read("/proc/kallsyms").unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

fn code(text: &str) -> impl Iterator<Item = (u64, &str)> {
    text.lines().filter_map(function)
}

/// Parses a line with a function of the kernel or a module. Functions of the init section have been discarded, and are
/// listed as data.
fn function(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (start, kind, name) = (words.next()?, words.next()?, words.next()?);
    let start = u64::from_str_radix(start, 16).ok()?;
    matches!(kind, "T" | "t" | "W" | "w").then_some((start, name))
}

#[cfg(test)]
mod tests {
    use super::{in_module, names_in};

    #[test]
    fn functions_of_a_module() {
        let text = "ffffffff81000000 T vfs_read\n\
            ffffffffc0a00000 t vmw_driver_load\t[vmwgfx]\n\
            ffffffffc0a00100 d vmw_data\t[vmwgfx]\n\
            ffffffffc0b00000 t vmw_driver_load\t[other]\n";
        assert_eq!(in_module(text, None), ["vfs_read", "vmw_driver_load"]);
        assert_eq!(in_module(text, Some("vmwgfx")), ["vmw_driver_load"]);
        assert!(in_module(text, Some("nothing")).is_empty());
        assert_eq!(names_in(text, |line| !line.ends_with(']')), ["vfs_read"]);
    }
}
