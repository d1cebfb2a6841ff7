//! `--functions`, `--lines`, `--vars`: listing of probe targets, as in `perf probe -F`, `-L` and `-V`.
//!
//! ```text
//! $ perfquet-record --lines ./prog:work          $ perfquet-record --vars ./prog:work:2
//! work at prog.c:10                              n      int     %di
//!    0  int work(int n)                          total  int     -20(%bp)
//! ```

use std::fmt::Write;
use std::fs;

use perfquet_cli::glob_matches;
use perfquet_trace::symbols::{CodeSymbol, Location, Object, Shape};

use super::argument::ProbeSpec;
use super::btf::Btf;
use super::fetch::Types;
use super::{argument, function_name, place, uprobe, vmlinux};
use crate::failure::{Failure, failed, misuse, similar};
use crate::sys::kallsyms;

/// Lists names of functions, one per line.
pub(crate) fn functions(pattern: &str) -> Result<String, Failure> {
    let (names, pattern, list) = match place::object(pattern) {
        Some((module, pattern)) if place::is_module(module) => (
            kallsyms::functions_of(Some(module)),
            pattern,
            format!("--functions '{module}:*'"),
        ),
        Some((object, pattern)) => (
            function_name::all_names(&open(object)?),
            pattern,
            format!("--functions '{object}:*'"),
        ),
        None => (kallsyms::functions(), pattern, "--functions '*'".to_owned()),
    };
    let matching = names.iter().filter(|name| {
        let is_pattern = pattern.contains(['*', '?', '[']);
        name.contains(pattern) || is_pattern && glob_matches(pattern, name)
    });
    let mut text = String::new();
    let mut last = None;
    for name in matching {
        if last != Some(name) {
            let _ = writeln!(text, "{name}");
        }
        last = Some(name);
    }
    if text.is_empty() {
        return Err(misuse(format!("no function {pattern}")).hint(similar(pattern, names, &list)));
    }
    Ok(text)
}

/// Lists the lines of a function that have code, with the source if available.
pub(crate) fn lines(text: &str) -> Result<String, Failure> {
    let (_, object, symbol) = find(text)?;
    let lines = object
        .lines_of(&symbol)
        .map_err(|error| failed(format!("{text}: {error}")))?;
    let Some(first) = lines.first_line else {
        return Err(without_information(text));
    };
    let source = fs::read(&lines.file);
    if let Err(error) = &source {
        log::warn!(
            "{text}: listing line numbers only: cannot read its source {}: {error}",
            lines.file
        );
    }
    let source = source.unwrap_or_default();
    let source = String::from_utf8_lossy(&source);
    let source: Vec<&str> = source.lines().collect();
    let last = lines.places.last().map_or(first, |place| place.line);
    let mut out = format!("{} at {}:{first}\n", symbol.readable(), lines.file);
    for line in first..=last.max(first) {
        let has_code = lines.places.iter().any(|place| place.line == line);
        let words = source.get((line as usize).saturating_sub(1)).copied();
        let number = match has_code {
            true => (line - first).to_string(),
            false if words.is_none() => continue,
            false => String::new(),
        };
        let _ = writeln!(out, "{number:>6}  {}", words.unwrap_or_default());
    }
    Ok(out)
}

/// Lists the parameters of a kernel function, or the variables at a place in a program.
pub(crate) fn variables(text: &str) -> Result<String, Failure> {
    let (place, _) = place::split(text);
    if let Some((module, function)) = place::object(place)
        && place::is_module(module)
        && place::line(function).is_none()
    {
        return parameters(Some(module), function);
    }
    if !text.contains([':', '+']) {
        return parameters(None, text);
    }
    let (spec, object, symbol) = find(text)?;
    let place = match spec.line {
        Some(line) => uprobe::place_of_line(text, &object, &symbol, line)?,
        None if spec.offset == 0 => uprobe::after_prologue(text, &object, &symbol)?,
        None => symbol.offset.saturating_add(spec.offset),
    };
    let scope = object
        .variables_at(&symbol, place)
        .map_err(|error| failed(format!("{text}: {error}")))?;
    if !scope.has_debugging_information() {
        return Err(without_information(text));
    }
    let mut rows = Vec::new();
    for variable in scope.variables() {
        let place = match &variable.location {
            Ok(Location::Register(register)) => format!("%{register}"),
            Ok(Location::Memory { register, offset }) => format!("{offset:+}(%{register})"),
            Err(reason) => format!("({reason})"),
        };
        rows.push([
            variable.name.clone(),
            type_text(&scope, variable.kind, 0),
            place,
        ]);
    }
    Ok(aligned(&rows))
}

fn parameters(module: Option<&str>, function: &str) -> Result<String, Failure> {
    let Some(btf) = Btf::of(module) else {
        let file = module.unwrap_or("vmlinux");
        return Err(failed(format!(
            "this kernel does not describe its functions (no /sys/kernel/btf/{file})",
        )));
    };
    let Some(parameters) = btf.parameters(function) else {
        return Err(
            misuse(format!("the kernel's BTF does not describe {function}")).hint(similar(
                function,
                kallsyms::functions_of(module),
                "--functions '*'",
            )),
        );
    };
    let rows: Vec<[String; 3]> = parameters
        .into_iter()
        .enumerate()
        .map(|(index, (name, kind))| [name, type_text(&btf, kind, 0), format!("$arg{}", index + 1)])
        .collect();
    Ok(aligned(&rows))
}

/// Describes a type briefly, with the members that can be followed.
fn type_text(types: &dyn Types, number: u64, depth: usize) -> String {
    match types.shape(number) {
        Shape::Integer { bytes, signed } => {
            let sign = if signed { 's' } else { 'u' };
            format!("{sign}{}", u32::from(bytes) * 8)
        }
        Shape::Pointer(target) if depth == 0 => format!("*{}", type_text(types, target, depth + 1)),
        Shape::Pointer(_) => "pointer".to_owned(),
        Shape::Structure(_) => {
            let members = types.members(number);
            let names: Vec<&str> = members
                .iter()
                .map(|member| member.name.as_str())
                .filter(|name| !name.is_empty())
                .take(6)
                .collect();
            let more = if members.len() > names.len() {
                ", …"
            } else {
                ""
            };
            format!("{{{}{more}}}", names.join(", "))
        }
        Shape::Array(element, count) => {
            format!("{}[{count}]", type_text(types, element, depth + 1))
        }
        Shape::Other => "?".to_owned(),
    }
}

fn aligned(rows: &[[String; 3]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let (names, kinds) = (width(0), width(1));
    let mut text = String::new();
    for [name, kind, place] in rows {
        let _ = writeln!(text, "{name:<names$}  {kind:<kinds$}  {place}");
    }
    text
}

/// Finds a user function, or a kernel function with a line.
fn find(text: &str) -> Result<(ProbeSpec, Object, CodeSymbol), Failure> {
    if !place::is_of_program(text) {
        let spec = argument::parse(text, false)?;
        let object = vmlinux::open_for(text, spec.object.as_deref())?;
        let symbol = vmlinux::symbol(text, &object, &spec.function)?;
        return Ok((spec, object, symbol));
    }
    let spec = argument::parse(text, true)?;
    let object = open(spec.object.as_deref().unwrap_or_default())?;
    let symbol = function_name::find_one(text, &object, &spec.function)?;
    Ok((spec, object, symbol))
}

fn open(object: &str) -> Result<Object, Failure> {
    let path = uprobe::find(object)?;
    Object::open(&path).map_err(|error| failed(error.to_string()))
}

fn without_information(text: &str) -> Failure {
    failed(format!("{text}: no debug info"))
        .hint("compile it with -g, or install its debug package")
}
