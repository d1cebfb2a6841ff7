//! `--kprobe` and `--kretprobe`: functions of the kernel, and places in them.
//!
//! ```text
//! --kprobe 'tcp_sendmsg size'       p:pq_…/tcp_sendmsg tcp_sendmsg size=$arg3:u64
//! --kretprobe 'vfs_read'            r:pq_…/vfs_read__return vfs_read ret=$retval:s64
//! ```
//! Names and types of parameters are those of BTF, the kernel's own description (/sys/kernel/btf/vmlinux).

use super::argument::{self, Argument, Asked, Value};
use super::btf::Btf;
use super::definition::{Definition, Place};
use super::{fetch, glob_matches, nearest};
use crate::failure::{Failure, failed, misuse};
use crate::sys::kallsyms;

/// Functions that one pattern may stand for: each is a breakpoint or a call in the kernel.
const MOST: usize = 1000;

/// What the text asks for; several with wildcards.
pub(crate) fn definitions(text: &str, at_return: bool) -> Result<Vec<Definition>, Failure> {
    let asked = argument::parse(text, false)?;
    if let Some(line) = asked.line {
        return Err(misuse(format!(
            "{text}: line {line}: lines of the kernel need its debugging information"
        ))
        .hint("probe the function, or an offset in it (FUNCTION+0x10)"));
    }
    if at_return && asked.offset != 0 {
        return Err(misuse(format!("{text}: a return has no offset")));
    }
    let functions = functions(&asked)?;
    // Some megabytes to read: only where a name or a type is looked up in it.
    let needs_btf = at_return || asked.has_variables();
    let btf = needs_btf.then(Btf::of_the_kernel).flatten();
    functions
        .iter()
        .map(|function| definition(text, &asked, function, at_return, btf.as_ref()))
        .collect()
}

fn definition(
    text: &str,
    asked: &Asked,
    function: &str,
    at_return: bool,
    btf: Option<&Btf>,
) -> Result<Definition, Failure> {
    let mut body = match asked.offset {
        0 => function.to_owned(),
        offset => format!("{function}+{offset:#x}"),
    };
    let mut arguments = Vec::new();
    for argument in &asked.arguments {
        arguments.push(match argument.raw() {
            Some(raw) => raw,
            None => parameter(text, function, argument, asked.offset, at_return, btf)?,
        });
    }
    if at_return && !asked.arguments.iter().any(is_retval) {
        arguments.push(default_retval(function, btf));
    }
    for argument in arguments {
        body.push(' ');
        body.push_str(&argument);
    }
    let usual = match at_return {
        true => format!("{function}__return"),
        false => function.to_owned(),
    };
    Ok(Definition {
        asked: text.to_owned(),
        place: Place::Kernel,
        letter: if at_return { 'r' } else { 'p' },
        system: "probe".to_owned(),
        name: asked.event.clone().unwrap_or(usual),
        body,
    })
}

/// Signed as declared; unknown, it may be an error number.
fn default_retval(function: &str, btf: Option<&Btf>) -> String {
    let kind = btf
        .and_then(|btf| btf.return_type(function))
        .and_then(|(btf, kind)| fetch::kind_of(btf, kind));
    format!("ret=$retval:{}", kind.as_deref().unwrap_or("s64"))
}

pub(super) fn is_retval(argument: &Argument) -> bool {
    matches!(&argument.value, Value::Raw(raw) if raw == "$retval")
}

fn parameter(
    text: &str,
    function: &str,
    argument: &Argument,
    offset: u64,
    at_return: bool,
    btf: Option<&Btf>,
) -> Result<String, Failure> {
    let Value::Variable(variable) = &argument.value else {
        return Err(misuse(format!("{text}: not an argument")));
    };
    if at_return || offset != 0 {
        return Err(misuse(format!(
            "{text}: {}: parameters are known at a function's entry only",
            variable.name
        ))
        .hint(
            "$retval is what it returned; give a register (%di) if you know where the value is",
        ));
    }
    let Some(btf) = btf else {
        return Err(failed(format!(
            "{text}: {}: this kernel does not describe its parameters (no /sys/kernel/btf/vmlinux)",
            variable.name
        ))
        .hint("give the register that holds it, as the calling convention says: %di, %si, %dx, %cx, %r8, %r9 on x86-64"));
    };
    let Some(parameters) = btf.parameters(function) else {
        return Err(failed(format!(
            "{text}: the kernel's BTF does not describe {function}"
        ))
        .hint("functions of modules and those that the compiler changed are not in it; give registers"));
    };
    let names: Vec<String> = parameters.iter().map(|(name, _)| name.clone()).collect();
    let Some(place) = names.iter().position(|name| *name == variable.name) else {
        return Err(misuse(format!(
            "{text}: {function} has no parameter {}",
            variable.name
        ))
        .hint(format!("its parameters are: {}", names.join(", "))));
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

fn functions(asked: &Asked) -> Result<Vec<String>, Failure> {
    let pattern = &asked.function;
    let symbols = kallsyms::functions();
    if symbols.is_empty() {
        // Hidden from us; the kernel itself will know.
        return Ok(vec![pattern.clone()]);
    }
    let matching: Vec<String> = symbols
        .iter()
        .filter(|name| glob_matches(pattern, name))
        .cloned()
        .collect();
    match matching.len() {
        0 => Err(
            misuse(format!("the kernel has no function {pattern}")).hint(nearest::meant(
                pattern,
                symbols,
                "--functions '*'",
            )),
        ),
        1..=MOST => Ok(matching),
        many => Err(misuse(format!(
            "{pattern}: {many} functions, more than the {MOST} that are probed at once"
        ))),
    }
}
