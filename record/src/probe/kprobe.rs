//! `--kprobe` and `--kretprobe`: kernel functions, and places in them.
//!
//! ```text
//! --kprobe 'tcp_sendmsg size'       f:pq_…/tcp_sendmsg tcp_sendmsg size=$arg3:u64
//! --kretprobe 'vfs_read count'      f:pq_…/vfs_read__return vfs_read%return count=$arg3:u64 ret=$retval:s64
//! --kprobe 'vfs_read+0x10 %di'      p:pq_…/vfs_read vfs_read+0x10 %di
//! --kprobe 'vmwgfx:vmw_open inode'  p:pq_…/vmw_open vmwgfx:vmw_open inode=$arg1:x64
//! ```
//! At entry and return, fprobe (Linux 6.5) is cheapest. Kprobes are used elsewhere in a function, for registers, and
//! for functions that cannot be traced. Names and types of parameters come from BTF, the kernel's own description
//! (/sys/kernel/btf/vmlinux).

use perfquet_cli::glob_matches;
use perfquet_trace::symbols::Object;

use super::argument::{self, Argument, ProbeSpec, Value};
use super::btf::Btf;
use super::definition::Definition;
use super::edges::{Both, Edge, is_retval, sides};
use super::form::{Form, Place};
use super::{fetch, place, uprobe, vmlinux};
use crate::failure::{Failure, failed, misuse, similar};
use crate::sys::kallsyms;
use crate::sys::tracefs::Tracefs;

/// Maximum number of functions of one pattern: each costs a breakpoint or call in the kernel.
const MOST: usize = 1000;
/// Maximum number of pending calls per function; the kernel drops hits beyond it. The kernel allows 4096, at about a
/// hundred bytes each; its default is ten.
const MOST_ACTIVE: usize = 4096;
/// Maximum number of pending calls for all functions of a pattern.
const MOST_ACTIVE_TOGETHER: usize = 65536;

/// Features beyond plain kprobes, as listed in the README of tracefs.
#[derive(Debug, Clone, Copy, Default)]
struct Abilities {
    /// Fprobes as events (Linux 6.5).
    has_fprobes: bool,
    /// Parameters in addition to `$retval` (Linux 6.9).
    has_parameters_at_return: bool,
}

impl Abilities {
    fn of_the_kernel() -> Abilities {
        let readme = Tracefs::open().map(|tracefs| tracefs.file("README"));
        Abilities::of(&String::from_utf8_lossy(&readme.unwrap_or_default()))
    }

    fn of(readme: &str) -> Abilities {
        let has = |words: [&str; 2]| {
            let mut lines = readme.lines();
            lines.any(|line| words.iter().all(|word| line.contains(word)))
        };
        Abilities {
            has_fprobes: has(["f[:", "<func-name>[%return]"]),
            has_parameters_at_return: has(["return probes support", "$arg<N>"]),
        }
    }
}

/// Returns the definitions of one option; several with wildcards.
pub(crate) fn definitions(text: &str, at_return: bool) -> Result<Vec<Definition>, Failure> {
    let spec = argument::parse(text, false)?;
    if at_return && (spec.offset != 0 || spec.line.is_some()) {
        return Err(misuse(format!(
            "{text}: a return probe cannot have an offset or a line"
        )));
    }
    // Inside a function, only debug info has the locations of variables.
    if spec.line.is_some() || (spec.offset != 0 && spec.has_variables()) {
        let object = vmlinux::open_for(text, spec.object.as_deref())?;
        return within(text, &spec, &object).map(|definition| vec![definition]);
    }
    let functions = functions(text, &spec)?;
    let module = spec.object.as_deref();
    // BTF has several megabytes, so it is read only to look up a name or type.
    let needs_btf = at_return || spec.has_variables();
    let btf = needs_btf.then(|| Btf::of(module)).flatten();
    let abilities = Abilities::of_the_kernel();
    let most_active = most_active(functions.len());
    let edge = Edge::of_probe(at_return);
    functions
        .iter()
        .map(|function| {
            let mut definition = definition(text, &spec, function, edge, btf.as_ref(), abilities)?;
            if at_return {
                await_returns(&mut definition.forms, most_active);
            }
            Ok(definition)
        })
        .collect()
}

/// Returns the definition for a line of a function, or for an offset with variables.
fn within(text: &str, spec: &ProbeSpec, object: &Object) -> Result<Definition, Failure> {
    let symbol = vmlinux::symbol(text, object, &spec.function)?;
    let place = match spec.line {
        Some(line) => uprobe::place_of_line(text, object, &symbol, line)?,
        None => symbol.offset.saturating_add(spec.offset),
    };
    let scope = match spec.has_variables() {
        true => Some(uprobe::scope_at(text, object, &symbol, place)?),
        false => None,
    };
    let mut arguments = Vec::new();
    for argument in &spec.arguments {
        arguments.push(match argument.raw() {
            Some(raw) => raw,
            None => uprobe::variable(text, scope.as_ref(), argument)?,
        });
    }
    let name = match spec.line {
        Some(line) => format!("{}_L{line}", symbol.name),
        None => symbol.name.clone(),
    };
    let inside = place.saturating_sub(symbol.offset);
    let place = match inside {
        0 => symbol.name.clone(),
        inside => format!("{}+{inside:#x}", symbol.name),
    };
    let words = arguments.iter().map(String::as_str);
    let words: Vec<&str> = std::iter::once(place.as_str()).chain(words).collect();
    Ok(Definition {
        text: text.to_owned(),
        place: Place::Kernel,
        system: "probe".to_owned(),
        name: spec.event.clone().unwrap_or(name),
        forms: vec![Form::new("p", words.join(" "))],
    })
}

/// Returns entry and return of each function of an option. Parameters that a function lacks are omitted for it.
pub(super) fn calls(text: &str, spec: &ProbeSpec) -> Result<Vec<Both>, Failure> {
    let functions = functions(text, spec)?;
    let (at_entry, at_return) = sides(spec);
    let is_pattern = functions.len() > 1;
    let needs_btf = spec.has_variables() || !at_return.arguments.is_empty();
    let module = spec.object.as_deref();
    let btf = needs_btf.then(|| Btf::of(module)).flatten();
    let btf = btf.as_ref();
    let abilities = Abilities::of_the_kernel();
    let most_active = most_active(functions.len());
    let both = |function: &String| {
        let mut at_entry = at_entry.clone();
        if is_pattern {
            at_entry.arguments.retain(|argument| {
                argument.raw().is_some() || parameter(text, function, argument, btf).is_ok()
            });
        }
        let mut at_return = at_return.clone();
        for argument in &mut at_return.arguments {
            if is_retval(argument) && argument.kind.is_none() {
                argument.kind = Some(retval_kind(function, btf));
            }
        }
        let mut exit = definition(text, &at_return, function, Edge::Exit, btf, abilities)?;
        await_returns(&mut exit.forms, most_active);
        Ok(Both {
            function: function.clone(),
            module: String::new(),
            entry: definition(text, &at_entry, function, Edge::Entry, btf, abilities)?,
            exit,
        })
    };
    // Parts that the compiler split off for rare cases are never called.
    let is_function = |function: &&String| !function.contains(".cold");
    let found = functions.iter().filter(is_function).map(both);
    let found = found.collect::<Result<Vec<_>, _>>()?;
    match found.is_empty() {
        true => Err(misuse(format!(
            "{text}: matches only fragments split off by the compiler, which are never called"
        ))),
        false => Ok(found),
    }
}

fn definition(
    text: &str,
    spec: &ProbeSpec,
    function: &str,
    edge: Edge,
    btf: Option<&Btf>,
    abilities: Abilities,
) -> Result<Definition, Failure> {
    let at_return = edge != Edge::Entry;
    let mut arguments = Vec::new();
    for argument in &spec.arguments {
        arguments.push(match argument.raw() {
            Some(raw) => raw,
            None => {
                if spec.offset != 0 || (at_return && !abilities.has_parameters_at_return) {
                    return Err(no_parameters(text, argument, at_return));
                }
                parameter(text, function, argument, btf)?
            }
        });
    }
    if edge == Edge::Return && !spec.arguments.iter().any(is_retval) {
        arguments.push(default_retval(function, btf));
    }
    let usual = match at_return {
        true => format!("{function}__return"),
        false => function.to_owned(),
    };
    Ok(Definition {
        text: text.to_owned(),
        place: Place::Kernel,
        system: "probe".to_owned(),
        name: spec.event.clone().unwrap_or(usual),
        forms: forms(
            (spec.object.as_deref(), function),
            spec.offset,
            at_return,
            &arguments,
            abilities,
        ),
    })
}

/// Returns the forms, best first.
fn forms(
    (module, function): (Option<&str>, &str),
    offset: u64,
    at_return: bool,
    arguments: &[String],
    abilities: Abilities,
) -> Vec<Form> {
    let body = |place: &str| {
        let words = arguments.iter().map(String::as_str);
        let words: Vec<&str> = std::iter::once(place).chain(words).collect();
        words.join(" ")
    };
    let mut forms = Vec::new();
    // Fprobes have parameters but no registers, and accept a name that occurs several times.
    let has_registers = arguments.iter().any(|argument| argument.contains('%'));
    if abilities.has_fprobes && offset == 0 && !has_registers && module.is_none() {
        forms.push(match at_return {
            true => Form::new("f", body(&format!("{function}%return"))),
            false => Form::new("f", body(function)),
        });
    }
    let letter = if at_return { "r" } else { "p" };
    let place = match module {
        Some(module) => format!("{}:{function}", module.replace('-', "_")),
        None => function.to_owned(),
    };
    forms.push(match offset {
        0 => Form::new(letter, body(&place)),
        offset => Form::new(letter, body(&format!("{place}+{offset:#x}"))),
    });
    forms
}

/// Returns the maximum number of pending calls per function, for this many functions.
fn most_active(functions: usize) -> usize {
    (MOST_ACTIVE_TOGETHER / functions.max(1)).min(MOST_ACTIVE)
}

/// Requests space for this number of pending calls; the second choice is the kernel's default. Fprobes need no space
/// since Linux 6.14, which rejects the number.
fn await_returns(forms: &mut Vec<Form>, most_active: usize) {
    *forms = forms
        .drain(..)
        .flat_map(|form| {
            let roomy = Form::new(format!("{}{most_active}", form.head), form.body.clone());
            [roomy, form]
        })
        .collect();
}

fn no_parameters(text: &str, argument: &Argument, at_return: bool) -> Failure {
    let name = match &argument.value {
        Value::Variable(variable) => &variable.name,
        Value::Raw(raw) => raw,
    };
    let hint = match at_return {
        true => "record them at the entry, by --kprobe; use $retval for the return value",
        false => "give a register (%di) if you know where the value is",
    };
    let when = match at_return {
        true => {
            "this kernel knows parameters at a function's entry only (Linux 6.9 at its return too)"
        }
        false => "parameters are known at a function's entry only",
    };
    misuse(format!("{text}: {name}: {when}")).hint(hint)
}

/// Returns the type of the return value. If unknown, it is signed, because it may be an error number.
fn default_retval(function: &str, btf: Option<&Btf>) -> String {
    format!("ret=$retval:{}", retval_kind(function, btf))
}

fn retval_kind(function: &str, btf: Option<&Btf>) -> String {
    let kind = btf
        .and_then(|btf| btf.return_type(function))
        .and_then(|(btf, kind)| fetch::kind_of(btf, kind));
    kind.unwrap_or_else(|| "s64".to_owned())
}

fn parameter(
    text: &str,
    function: &str,
    argument: &Argument,
    btf: Option<&Btf>,
) -> Result<String, Failure> {
    let Value::Variable(variable) = &argument.value else {
        return Err(misuse(format!("{text}: not an argument")));
    };
    let Some(btf) = btf else {
        return Err(failed(format!(
            "{text}: {}: this kernel does not describe its parameters (no /sys/kernel/btf/vmlinux)",
            variable.name
        ))
        .hint(
            "use the register of the calling convention: %di, %si, %dx, %cx, %r8, %r9 on x86-64",
        ));
    };
    let Some(parameters) = btf.parameters(function) else {
        return Err(failed(format!(
            "{text}: the kernel's BTF does not describe {function}"
        ))
        .hint("write MODULE:FUNC for a function of a module; use registers for functions that the compiler changed"));
    };
    let names: Vec<String> = parameters.iter().map(|(name, _)| name.clone()).collect();
    let Some(place) = names.iter().position(|name| *name == variable.name) else {
        return Err(misuse(format!(
            "{text}: {function} has no parameter {}",
            variable.name
        ))
        .hint(format!("use one of: {}", names.join(", "))));
    };
    let start = fetch::Expression::value(format!("$arg{}", place + 1));
    let kind = parameters.get(place).map_or(0, |(_, kind)| *kind);
    let found = fetch::walk(btf, start, kind, variable, argument.kind.as_deref())
        .map_err(|reason| misuse(format!("{text}: {reason}")))?;
    let name = argument.name.as_deref().unwrap_or(variable.field_name());
    let kind = argument.kind.clone().or(found.kind);
    Ok(argument::in_kernels_words(
        Some(name),
        &found.expression,
        kind.as_deref(),
    ))
}

fn functions(text: &str, spec: &ProbeSpec) -> Result<Vec<String>, Failure> {
    let pattern = &spec.function;
    let module = spec.object.as_deref();
    if let Some(module) = module.filter(|module| !place::is_module(module)) {
        return Err(misuse(format!("{text}: module {module} is not loaded")).hint(
            "use MODULE:FUNC for a function of a loaded module (lsmod), FUNC:LINE for a line, or --uprobe OBJECT:FUNC for a function \
             of a program",
        ));
    }
    let symbols = kallsyms::functions_of(module);
    if symbols.is_empty() && kallsyms::functions().is_empty() {
        // Addresses are hidden from this user, but the kernel resolves the name.
        return Ok(vec![pattern.clone()]);
    }
    let matching: Vec<String> = symbols
        .iter()
        .filter(|name| glob_matches(pattern, name))
        .cloned()
        .collect();
    let (whose, list) = match module {
        Some(module) => (
            format!("the module {module}"),
            format!("--functions '{module}:*'"),
        ),
        None => ("the kernel".to_owned(), "--functions '*'".to_owned()),
    };
    match matching.len() {
        0 => Err(misuse(format!("{whose} has no function {pattern}"))
            .hint(similar(pattern, symbols, &list))),
        1..=MOST => Ok(matching),
        many => Err(misuse(format!(
            "{pattern}: {many} functions, more than the maximum of {MOST}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(place: (&str, u64, bool), argument: &str, has_fprobes: bool, expected: &[&str]) {
        let abilities = Abilities {
            has_fprobes,
            has_parameters_at_return: true,
        };
        let (function, offset, at_return) = place;
        let mut forms = forms(
            (None, function),
            offset,
            at_return,
            &[argument.to_owned()],
            abilities,
        );
        if at_return {
            await_returns(&mut forms, 4096);
        }
        let lines: Vec<String> = forms
            .iter()
            .map(|form| format!("{}: {}", form.head, form.body))
            .collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn fprobes_are_used_if_possible() {
        let (entry, inside) = (("vfs_read", 0, false), ("vfs_read", 16, false));
        check(
            entry,
            "n=$arg3:u64",
            true,
            &["f: vfs_read n=$arg3:u64", "p: vfs_read n=$arg3:u64"],
        );
        check(entry, "n=$arg3:u64", false, &["p: vfs_read n=$arg3:u64"]);
        check(entry, "n=%dx:u64", true, &["p: vfs_read n=%dx:u64"]);
        check(inside, "n=%dx:u64", true, &["p: vfs_read+0x10 n=%dx:u64"]);
        check(
            ("vfs_read", 0, true),
            "$retval",
            true,
            &[
                "f4096: vfs_read%return $retval",
                "f: vfs_read%return $retval",
                "r4096: vfs_read $retval",
                "r: vfs_read $retval",
            ],
        );
    }

    #[test]
    fn module_functions_need_a_loaded_module() {
        let abilities = Abilities {
            has_fprobes: true,
            has_parameters_at_return: true,
        };
        let place = (Some("snd-pcm"), "snd_pcm_open");
        let forms = forms(place, 4, false, &["$arg1".to_owned()], abilities);
        assert_eq!(forms, [Form::new("p", "snd_pcm:snd_pcm_open+0x4 $arg1")]);
        let spec = argument::parse("no_such_module:f", false).unwrap();
        let failure = functions("no_such_module:f", &spec).unwrap_err();
        assert!(
            failure
                .to_string()
                .contains("module no_such_module is not loaded")
        );
    }

    #[test]
    fn abilities_follow_from_the_readme() {
        let readme = "\t           f[:[<group>/][<event>]] <func-name>[%return] [<args>]\n\
            \t     kernel return probes support: $retval, $arg<N>, $comm\n";
        let abilities = Abilities::of(readme);
        assert!(abilities.has_fprobes && abilities.has_parameters_at_return);
        let older =
            Abilities::of("r[maxactive][:[<group>/][<event>]] <place> [<args>]\n$retval, $arg<N>");
        assert!(!older.has_fprobes && !older.has_parameters_at_return);
    }
}
