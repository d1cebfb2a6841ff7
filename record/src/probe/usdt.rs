//! `--usdt`: static probes in programs (sys/sdt.h).
//!
//! ```text
//! --usdt 'python3.11:python:function__entry'
//! note: arguments "8@%rbx -4@12(%rsp)"  →  p:pq_…/function__entry PATH:0x1234(0x5678) arg1=%bx:u64 arg2=+12(%sp):s32
//! ```
//! The number in brackets is the semaphore, which the kernel increments while the probe is attached.

use perfquet_cli::glob_matches;
use perfquet_trace::symbols::{Object, StaticProbe};

use super::definition::{Definition, STATIC_PROBES};
use super::form::{Form, Place};
use super::register::kernels as register;
use super::uprobe;
use crate::failure::{Failure, failed, misuse, similar};

/// Returns the definitions for `PATH:PROVIDER:NAME`; several with wildcards, or if one name has several locations.
pub(crate) fn definitions(text: &str) -> Result<Vec<Definition>, Failure> {
    let parts: Vec<&str> = text.trim().split(':').collect();
    let [object, provider, name] = parts[..] else {
        return Err(misuse(format!("{text}: expected OBJECT:PROVIDER:NAME"))
            .hint("for example --usdt 'libc.so.6:libc:*'"));
    };
    let path = uprobe::find(object)?;
    let object = Object::open(&path).map_err(|error| failed(format!("{text}: {error}")))?;
    let all = object.static_probes();
    if all.is_empty() {
        return Err(failed(format!("{} has no static probes", path.display()))
            .hint("build it with sys/sdt.h (systemtap-sdt-dev); list its notes with readelf -n"));
    }
    let matching: Vec<&StaticProbe> = all
        .iter()
        .filter(|probe| glob_matches(provider, &probe.provider) && glob_matches(name, &probe.name))
        .collect();
    if matching.is_empty() {
        let names = all
            .iter()
            .map(|probe| format!("{}:{}", probe.provider, probe.name));
        return Err(misuse(format!(
            "{} has no static probe {provider}:{name}",
            path.display()
        ))
        .hint(similar(&format!("{provider}:{name}"), names, "readelf -n")));
    }
    Ok(matching
        .into_iter()
        .map(|probe| definition(text, &path, probe))
        .collect())
}

fn definition(text: &str, path: &std::path::Path, probe: &StaticProbe) -> Definition {
    let mut body = format!("{}:{:#x}", path.display(), probe.offset);
    if let Some(semaphore) = probe.semaphore_offset {
        body.push_str(&format!("({semaphore:#x})"));
    }
    for (index, argument) in arguments(&probe.arguments).enumerate() {
        match fetch_of(argument) {
            Some((value, kind)) => body.push_str(&format!(" arg{}={value}:{kind}", index + 1)),
            None => log::warn!(
                "{text}: argument {} of {}:{} is not recorded: the kernel cannot fetch {argument:?}",
                index + 1,
                probe.provider,
                probe.name
            ),
        }
    }
    Definition {
        text: text.to_owned(),
        place: Place::User,
        system: format!("{STATIC_PROBES}{}", probe.provider),
        name: probe.name.clone(),
        forms: vec![Form::new("p", body)],
    }
}

/// Splits at spaces, but not inside `[sp, 12]`.
fn arguments(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0;
    text.split(move |letter| {
        depth += match letter {
            '[' => 1,
            ']' => -1,
            _ => 0,
        };
        letter == ' ' && depth == 0
    })
    .filter(|argument| !argument.is_empty())
}

/// "-4@12(%rsp)" → ("+12(%sp)", "s32").
fn fetch_of(argument: &str) -> Option<(String, String)> {
    let (size, place) = argument.split_once('@')?;
    // Floating-point arguments have an f after their size, and are in registers that probes cannot read.
    let size: i32 = size.parse().ok()?;
    let sign = if size < 0 { 's' } else { 'u' };
    let kind = match size.unsigned_abs() {
        bytes @ (1 | 2 | 4 | 8) => format!("{sign}{}", bytes * 8),
        _ => return None,
    };
    let value = match place.strip_prefix('$') {
        Some(constant) => format!("\\{}", constant.parse::<i64>().ok()?),
        None if place.starts_with('[') => arm_memory(place)?,
        None if place.ends_with(')') => x86_memory(place)?,
        None => register(place)?,
    };
    Some((value, kind))
}

/// Parses "12(%rsp)", "(%rax)"; the kernel's syntax has no index registers.
fn x86_memory(place: &str) -> Option<String> {
    let (offset, base) = place.split_once('(')?;
    let base = register(base.strip_suffix(')')?)?;
    let offset: i64 = match offset {
        "" => 0,
        offset => offset.parse().ok()?,
    };
    Some(format!("{offset:+}({base})"))
}

/// Parses `[sp, 12]`, `[x0]`.
fn arm_memory(place: &str) -> Option<String> {
    let inside = place.strip_prefix('[')?.strip_suffix(']')?;
    let (base, offset) = inside.split_once(',').unwrap_or((inside, "0"));
    let offset: i64 = offset.trim().trim_start_matches('#').parse().ok()?;
    Some(format!("{offset:+}({})", register(base.trim())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments_of_note: &str, expected: &[Option<(&str, &str)>]) {
        let found: Vec<Option<(String, String)>> =
            arguments(arguments_of_note).map(fetch_of).collect();
        let expected: Vec<Option<(String, String)>> = expected
            .iter()
            .map(|pair| pair.map(|(value, kind)| (value.to_owned(), kind.to_owned())))
            .collect();
        assert_eq!(found, expected, "{arguments_of_note}");
    }

    #[test]
    fn places_of_arguments() {
        check(
            "8@%rbx -4@12(%rsp) 8@(%rax) -4@$-5 1@%r10b",
            &[
                Some(("%bx", "u64")),
                Some(("+12(%sp)", "s32")),
                Some(("+0(%ax)", "u64")),
                Some(("\\-5", "s32")),
                Some(("%r10", "u8")),
            ],
        );
        check(
            "8@x0 -4@[sp, 12] 4@w3",
            &[
                Some(("%x0", "u64")),
                Some(("+12(%sp)", "s32")),
                Some(("%x3", "u32")),
            ],
        );
        // Indexed memory, floating point, symbols: not fetched, but reported.
        check(
            "8@(%rax,%rbx,8) 8f@%xmm0 8@global(%rip)",
            &[None, None, None],
        );
    }
}
