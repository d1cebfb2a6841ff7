//! Compiles the fields of probes into fetch instructions for programs.
//!
//! A field of a tracepoint is in its record. Programs at the recorder's own probes get registers instead, so this
//! module compiles the fetch argument that the kernel compiles for its records:
//!
//! ```text
//! bytes=%di:u64             register di
//! len=+112(%si):u32         register si, then read 4 bytes at offset 112
//! name=+0(+16(%di)):string  register di, read the pointer at offset 16, the string is there
//! flag=+8(%di):b4@3/32      4 bits of the 32 bits there, the lowest of them bit 3
//! ```
//! (Documentation/trace/kprobetrace.rst, uprobetracer.rst)

use perfquet_cli::nearest;
use perfquet_ebpf::layout::{Base, Fetch, MOST_STEPS, Step};

use super::fields::{self, Field, Kind};
use super::registers;
use crate::failure::{Failure, misuse};
use crate::probe::form::{Form, Place};
use crate::probe::{self, Probe};

/// A compiled field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bpf) enum Fetched {
    /// A number.
    Number(Fetch),
    /// A string.
    Text {
        /// The fetch instructions.
        fetch: Fetch,
        /// At most 16 bytes including the terminating NUL.
        is_short: bool,
    },
    /// Name of the thread (`$comm`).
    Comm,
}

/// Compiles the field `name` of a probe. `option` is the option that requests it, for messages.
pub(in crate::bpf) fn of(option: &str, probe: &Probe, name: &str) -> Result<Fetched, Failure> {
    let probe::Kind::Tracepoint(tracepoint) = &probe.kind else {
        return Err(misuse(format!("{option}: {} has no fields", probe.name))
            .hint("use count() by comm, pid, tid, cpu, stack, kstack or ustack with counters and clocks"));
    };
    let all = fields::of(&tracepoint.format);
    let Some(place) = all.iter().position(|field| field.name == name) else {
        let names: Vec<&str> = all
            .iter()
            .map(|field| field.name.as_str())
            .filter(|name| !name.starts_with("__probe_"))
            .collect();
        let near = nearest(name, names.iter().map(|name| (*name).to_owned()));
        let meant = match near.is_empty() {
            true => String::new(),
            false => format!("use {}, or ", near.join(", ")),
        };
        return Err(misuse(format!("{option}: {} has no field {name}", probe.name)).hint(
            match names.is_empty() {
                true => "add an argument to the probe, for example --uprobe 'libc.so.6:malloc bytes=%di:u64'".to_owned(),
                false => format!(
                    "{meant}choose from the fields: {}; keys can also be comm, pid, tid, cpu, probe, stack, kstack, ustack",
                    names.join(", ")
                ),
            },
        ));
    };
    let field = &all[place];
    let found = match &tracepoint.definition {
        None => of_record(field),
        Some((place_of_code, form)) => {
            // The fields that the kernel itself adds come first.
            let added = all
                .iter()
                .take_while(|field| field.name.starts_with("__probe_"))
                .count();
            let words = form.body.split_whitespace().skip(1);
            match place
                .checked_sub(added)
                .and_then(|place| words.into_iter().nth(place))
            {
                Some(argument) => of_argument(argument, field, *place_of_code, form),
                None => None,
            }
        }
    };
    found.ok_or_else(|| {
        misuse(format!(
            "{option}: BPF programs cannot read {name} of {}",
            probe.name
        ))
        .hint("use a number or string in a register or reached through at most six pointers; not a list, and not a parameter at a return")
    })
}

/// Compiles a field of a record.
fn of_record(field: &Field) -> Option<Fetched> {
    let mut fetch = Fetch {
        base: Base::Field as u32,
        place: field.offset,
        size: field.size,
        is_signed: field.is_signed.into(),
        ..Fetch::default()
    };
    /// Bytes at the start of a record that programs read: in words, and byte by byte (ebpf/src/fetch.h).
    const IN_WORDS: u32 = 800;
    const IN_BYTES: u32 = 200;
    let is_in_words = field.size >= 4 && field.offset.is_multiple_of(4);
    let most = if is_in_words { IN_WORDS } else { IN_BYTES };
    fetch.is_located = match field.kind {
        Kind::Number if field.offset.saturating_add(field.size) > most => return None,
        Kind::Number => return Some(Fetched::Number(fetch)),
        Kind::Other => return None,
        Kind::Text => 0,
        Kind::DataLoc => 1,
        Kind::RelLoc => 2,
    };
    fetch.is_text = 1;
    // Thread names end with a NUL; other arrays may use all of their bytes.
    let is_whole = field.size < 16 || (field.size == 16 && field.name.ends_with("comm"));
    Some(Fetched::Text {
        fetch,
        is_short: field.kind == Kind::Text && is_whole,
    })
}

/// Compiles an argument of the recorder's own probe, in the kernel's syntax. Returns its name, too.
pub(in crate::bpf) fn of_word(word: &str, place: Place, form: &Form) -> Option<(String, Fetched)> {
    let (name, value) = word.split_once('=')?;
    let kind = value.rsplit_once(':').map_or("", |(_, kind)| kind);
    let (size, is_signed) = fields::number_of(kind).unwrap_or((8, false));
    let field = Field {
        name: name.to_owned(),
        kind: Kind::Number,
        offset: 0,
        size,
        is_signed,
    };
    Some((name.to_owned(), of_argument(word, &field, place, form)?))
}

/// Compiles a return value of a type in the kernel's syntax.
pub(in crate::bpf) fn returned(kind: &str) -> Option<Fetch> {
    let (size, is_signed) = fields::number_of(kind)?;
    Some(Fetch {
        base: Base::Register as u32,
        place: registers::returned()?,
        size,
        is_signed: is_signed.into(),
        ..Fetch::default()
    })
}

/// Compiles an argument of the recorder's own probe, in the kernel's syntax.
fn of_argument(argument: &str, field: &Field, place: Place, form: &Form) -> Option<Fetched> {
    let expression = argument
        .split_once('=')
        .map_or(argument, |(_, behind)| behind);
    let (expression, kind) = match expression.rsplit_once(':') {
        Some((expression, kind)) => (expression, kind),
        None => (expression, ""),
    };
    if expression == "$comm" {
        return Some(Fetched::Comm);
    }
    if kind.contains('[') {
        return None;
    }
    // At the return, the registers of the entry are lost.
    if form.head.starts_with('r') && expression.contains("$arg") {
        return None;
    }
    let mut path = Vec::new();
    let in_user = place == Place::User;
    let mut fetch = expression_of(expression, in_user, &mut path)?;
    let is_text = matches!(kind, "string" | "ustring" | "symstr");
    if is_text {
        if kind == "symstr" {
            return None;
        }
        // A pointer in a register: the string is at that address.
        if path.is_empty() {
            path.push(Step::default());
        }
        if let Some(last) = path.last_mut() {
            last.is_user = (in_user || kind == "ustring").into();
        }
    }
    if path.len() > MOST_STEPS {
        return None;
    }
    fetch.steps = path.len() as u32;
    fetch.path[..path.len()].copy_from_slice(&path);
    fetch.is_text = is_text.into();
    if is_text {
        return Some(Fetched::Text {
            fetch,
            is_short: false,
        });
    }
    fetch.size = match field.size {
        size @ (1 | 2 | 4 | 8) => size,
        _ => return None,
    };
    fetch.is_signed = field.is_signed.into();
    if let Some(bits) = kind.strip_prefix('b') {
        // b<width>@<offset>/<container>
        let (width, place) = bits.split_once('@')?;
        let (shift, container) = place.split_once('/')?;
        fetch.bits = width.parse().ok()?;
        fetch.shift = shift.parse().ok()?;
        fetch.size = container.parse::<u32>().ok()? / 8;
    }
    Some(Fetched::Number(fetch))
}

/// Parses `%reg`, `$retval`, `$argN`, `$stackN`, `@ADDRESS`, `\NUMBER`, `+OFFSET(…)` and `+uOFFSET(…)`, and appends
/// steps from the inside out.
fn expression_of(text: &str, in_user: bool, path: &mut Vec<Step>) -> Option<Fetch> {
    let register = |place: Option<u32>| {
        Some(Fetch {
            base: Base::Register as u32,
            place: place?,
            size: 8,
            ..Fetch::default()
        })
    };
    let constant = |constant: u64| {
        Some(Fetch {
            base: Base::Constant as u32,
            constant,
            size: 8,
            ..Fetch::default()
        })
    };
    let mut step = |offset: i64, is_user: bool| {
        path.push(Step {
            offset,
            is_user: is_user.into(),
            unused: 0,
        });
    };
    if let Some(name) = text.strip_prefix('%') {
        return register(registers::named(name));
    }
    if let Some(name) = text.strip_prefix('$') {
        if let Some(number) = name.strip_prefix("arg") {
            return register(registers::argument(number.parse().ok()?));
        }
        return match (name, name.strip_prefix("stack")) {
            ("retval", _) => register(registers::returned()),
            (_, Some("")) => register(registers::named("sp")),
            (_, Some(number)) => {
                step(number.parse::<i64>().ok()?.checked_mul(8)?, in_user);
                register(registers::named("sp"))
            }
            _ => None,
        };
    }
    if let Some(address) = text.strip_prefix('@') {
        // Symbols and file offsets would have to be resolved like in the kernel.
        let address = number(address)?;
        step(0, in_user);
        return constant(address as u64);
    }
    if let Some(value) = text.strip_prefix('\\') {
        return constant(number(value)? as u64);
    }
    let sign = match text.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let rest = &text[1..];
    let (rest, is_user) = match rest.strip_prefix('u') {
        Some(rest) => (rest, true),
        None => (rest, in_user),
    };
    let (offset, inside) = rest.strip_suffix(')')?.split_once('(')?;
    let fetch = expression_of(inside, in_user, path)?;
    path.push(Step {
        offset: sign * number(offset)?,
        is_user: is_user.into(),
        unused: 0,
    });
    Some(fetch)
}

fn number(text: &str) -> Option<i64> {
    let (text, sign) = match text.strip_prefix('-') {
        Some(text) => (text, -1),
        None => (text, 1),
    };
    let value = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()? as i64,
        None => text.parse().ok()?,
    };
    Some(value.wrapping_mul(sign))
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn form() -> Form {
        Form::new("p", "")
    }

    fn field(size: u32, is_signed: bool) -> Field {
        Field {
            name: "x".to_owned(),
            kind: Kind::Number,
            offset: 16,
            size,
            is_signed,
        }
    }

    /// Offset, and 1 for user memory.
    type Step = (i64, u32);

    fn shown(argument: &str, place: Place) -> Option<(u32, u32, Vec<Step>)> {
        let fetched = of_argument(argument, &field(4, true), place, &form())?;
        let (Fetched::Number(fetch) | Fetched::Text { fetch, .. }) = fetched else {
            return None;
        };
        let path = &fetch.path[..fetch.steps as usize];
        let path = path
            .iter()
            .map(|step| (step.offset, step.is_user))
            .collect();
        Some((fetch.base, fetch.place, path))
    }

    #[test]
    fn arguments_of_probes() {
        let register = Base::Register as u32;
        for (argument, place, expected) in [
            ("x=%di:s32", Place::User, (register, 14, vec![])),
            ("$retval:s32", Place::Kernel, (register, 10, vec![])),
            ("x=$arg2:u64", Place::Kernel, (register, 13, vec![])),
            ("x=+8(%si):s32", Place::User, (register, 13, vec![(8, 1)])),
            (
                "x=-0x10(+112(%bp)):s32",
                Place::Kernel,
                (register, 4, vec![(112, 0), (-16, 0)]),
            ),
            (
                "x=+0(+u8(%di)):s32",
                Place::Kernel,
                (register, 14, vec![(8, 1), (0, 0)]),
            ),
            ("x=$stack2:u64", Place::User, (register, 19, vec![(16, 1)])),
            (
                "x=@0xffff:u64",
                Place::Kernel,
                (Base::Constant as u32, 0, vec![(0, 0)]),
            ),
            (
                "x=+0(%si):string",
                Place::Kernel,
                (register, 13, vec![(0, 0)]),
            ),
            (
                "x=+0(%si):ustring",
                Place::Kernel,
                (register, 13, vec![(0, 1)]),
            ),
            ("x=%si:string", Place::User, (register, 13, vec![(0, 1)])),
        ] {
            assert_eq!(shown(argument, place), Some(expected), "{argument}");
        }
        for wrong in [
            "x=%xmm0:u64",
            "x=@init_task:u64",
            "x=+0(%di):x8[4]",
            "x=$stackx",
            "x=%di:symstr",
        ] {
            assert_eq!(shown(wrong, Place::User), None, "{wrong}");
        }
        let comm = of_argument("$comm", &field(16, false), Place::User, &form());
        assert_eq!(comm, Some(Fetched::Comm));
        let bits = of_argument("f=+8(%di):b4@3/32", &field(4, false), Place::User, &form());
        let at_return = Form::new("r", "");
        let gone = of_argument("x=$arg1", &field(8, false), Place::Kernel, &at_return);
        assert_eq!(gone, None);
        let Some(Fetched::Number(bits)) = bits else {
            panic!()
        };
        assert_eq!((bits.bits, bits.shift, bits.size), (4, 3, 4));
    }
}
