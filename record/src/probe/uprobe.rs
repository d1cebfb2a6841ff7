//! `--uprobe` and `--uretprobe`: functions and lines of programs and libraries.
//!
//! ```text
//! --uprobe 'libc.so.6:malloc bytes=%di:u64'     p:pq_…/malloc /usr/lib/…/libc.so.6:0x9d1e0 bytes=%di:u64
//! --uretprobe 1234:work                         r:pq_…/work__return /usr/bin/prog:0x1189 ret=$retval:s64
//! ```

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use perfquet_trace::symbols::{CodeSymbol, Object, Scope};

use super::argument::{self, Argument, ProbeSpec, Value};
use super::definition::Definition;
use super::edges::{Both, Edge, is_retval, sides};
use super::form::{Form, Place};
use super::function_name::{self, Found};
use super::{fetch, register, single_step};
use crate::failure::{Failure, failed, misuse};

/// Maximum number of functions of one pattern.
const MOST: usize = 1000;
/// Maximum number of functions whose types of return values are looked up: each may take a search of the whole debug info.
const MOST_TYPED: usize = 64;
/// Library directories, next to those configured for the dynamic linker.
const LIBRARIES: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// Returns the definitions of one option; several with wildcards.
pub(crate) fn definitions(text: &str, at_return: bool) -> Result<Vec<Definition>, Failure> {
    let spec = argument::parse(text, true)?;
    let path = find(spec.object.as_deref().unwrap_or_default())?;
    let object = Object::open(&path).map_err(|error| failed(format!("{text}: {error}")))?;
    if at_return && (spec.offset != 0 || spec.line.is_some()) {
        return Err(misuse(format!(
            "{text}: a return probe cannot have an offset or a line"
        )));
    }
    let mut definitions = Vec::new();
    let edge = Edge::of_probe(at_return);
    let symbols = functions(text, &spec, &object)?;
    let mut slow = Vec::new();
    let are_typed = symbols.len() <= MOST_TYPED;
    for found in &symbols {
        let mut spec = spec.clone();
        if at_return && are_typed {
            type_returned(&mut spec, &object, &found.symbol);
        }
        definitions.push(definition(text, &spec, &path, &object, found, edge)?);
        let symbol = &found.symbol;
        // A return is caught at the entry, which is fixed.
        if !at_return {
            let place = place_of(text, &spec, &object, symbol, edge)?;
            let code = object.code(place, 64);
            if single_step::is_single_stepped(code) {
                slow.push((symbol, place, single_step::neighbor(code)));
            }
        }
    }
    report_slow(text, &slow, symbols.len());
    if at_return {
        warn_of_exceptions(text, &object);
    }
    Ok(definitions)
}

/// Returns entry and return of each function of an option. Variables that a function lacks are omitted for it.
pub(super) fn calls(text: &str, spec: &ProbeSpec) -> Result<Vec<Both>, Failure> {
    let path = find(spec.object.as_deref().unwrap_or_default())?;
    let object = Object::open(&path).map_err(|error| failed(format!("{text}: {error}")))?;
    let symbols = functions(text, spec, &object)?;
    let (at_entry, at_return) = sides(spec);
    let are_typed = symbols.len() <= MOST_TYPED;
    let is_pattern = symbols.len() > 1;
    let define =
        |spec: &ProbeSpec, found: &Found, edge| definition(text, spec, &path, &object, found, edge);
    let mut all = Vec::new();
    for symbol in &symbols {
        let mut entry = define(&at_entry, symbol, Edge::Entry);
        if entry.is_err() && is_pattern {
            let mut fewer = at_entry.clone();
            fewer.arguments.retain(|argument| {
                let mut alone = at_entry.clone();
                alone.arguments = vec![argument.clone()];
                define(&alone, symbol, Edge::Entry).is_ok()
            });
            entry = define(&fewer, symbol, Edge::Entry);
        }
        let mut at_return = at_return.clone();
        if are_typed && at_return.arguments.iter().any(is_retval) {
            type_returned(&mut at_return, &object, &symbol.symbol);
        }
        for argument in &mut at_return.arguments {
            if is_retval(argument) && argument.kind.is_none() {
                argument.kind = Some("s64".to_owned());
            }
        }
        all.push(Both {
            function: symbol.name.clone(),
            module: path.display().to_string(),
            entry: entry?,
            exit: define(&at_return, symbol, Edge::Exit)?,
        });
    }
    warn_of_exceptions(text, &object);
    Ok(all)
}

/// Gives `$retval` the type that the function returns: the upper half of the register of an `int` is undefined.
fn type_returned(spec: &mut ProbeSpec, object: &Object, symbol: &CodeSymbol) {
    let is_untyped = |argument: &&mut Argument| is_retval(argument) && argument.kind.is_none();
    let is_default = !spec.arguments.iter().any(is_retval);
    let mut untyped = spec.arguments.iter_mut().filter(is_untyped).peekable();
    if !is_default && untyped.peek().is_none() {
        return;
    }
    let Some((bytes, is_signed)) = object.returned_integer(symbol) else {
        return;
    };
    let kind = format!(
        "{}{}",
        if is_signed { 's' } else { 'u' },
        u32::from(bytes) * 8
    );
    untyped.for_each(|argument| argument.kind = Some(kind.clone()));
    if is_default {
        spec.arguments.push(Argument {
            name: Some("ret".to_owned()),
            value: Value::Raw("$retval".to_owned()),
            kind: Some(kind),
        });
    }
}

fn definition(
    text: &str,
    spec: &ProbeSpec,
    path: &Path,
    object: &Object,
    found: &Found,
    edge: Edge,
) -> Result<Definition, Failure> {
    let at_return = edge != Edge::Entry;
    let symbol = &found.symbol;
    let place = place_of(text, spec, object, symbol, edge)?;
    let mut body = format!("{}:{place:#x}", path.display());
    // Debug info is read once, however many variables are requested.
    let scope = match spec.has_variables() && !at_return {
        true => Some(scope_at(text, object, symbol, place)?),
        false => None,
    };
    for argument in &spec.arguments {
        body.push(' ');
        body.push_str(&match argument.raw() {
            Some(raw) => {
                let is_entry = !at_return && place == symbol.offset;
                numbered_arguments(text, raw, object, is_entry)?
            }
            None => variable(text, scope.as_ref(), argument)?,
        });
    }
    if edge == Edge::Return && !spec.arguments.iter().any(is_retval) {
        body.push_str(" ret=$retval:s64");
    }
    let plain = function_name::event_name(&found.name);
    let name = match (at_return, spec.line) {
        (true, _) => format!("{plain}__return"),
        (false, Some(line)) => format!("{plain}_L{line}"),
        (false, None) => plain,
    };
    Ok(Definition {
        text: text.to_owned(),
        place: Place::User,
        system: format!("probe_{}", short_name(path)),
        name: spec.event.clone().unwrap_or(name),
        forms: vec![Form::new(if at_return { "r" } else { "p" }, body)],
    })
}

/// Replaces `$argN`, which the kernel supports only for its own functions, by registers of the calling convention.
fn numbered_arguments(
    text: &str,
    raw: String,
    object: &Object,
    is_entry: bool,
) -> Result<String, Failure> {
    let Some(replaced) = register::arguments_replaced(&raw) else {
        return Ok(raw);
    };
    let bad = |reason: &str, hint: &str| {
        let message = format!("{text}: $argN is known at the entry of a function{reason}");
        Err(misuse(message).hint(hint))
    };
    match is_entry {
        _ if !object.is_wide() => bad(
            " of a 64-bit program",
            "this one passes arguments on the stack: +4(%sp):u32 is the first",
        ),
        true => {
            // Keep the name that the kernel would have used.
            let is_named = raw.contains('=') || !raw.starts_with("$arg");
            let name = raw
                .split(':')
                .next()
                .unwrap_or(&raw)
                .trim_start_matches('$');
            Ok(match is_named {
                true => replaced,
                false => format!("{name}={replaced}"),
            })
        }
        false => bad(
            " only, and this place is after it",
            "name the variable, or record it at the entry by a --uprobe without OFFSET, LINE and variables",
        ),
    }
}

fn place_of(
    text: &str,
    spec: &ProbeSpec,
    object: &Object,
    symbol: &CodeSymbol,
    edge: Edge,
) -> Result<u64, Failure> {
    match spec.line {
        Some(line) => place_of_line(text, object, symbol, line),
        None if spec.offset == 0 && edge == Edge::Entry && spec.has_variables() => {
            after_prologue(text, object, symbol)
        }
        None => Ok(symbol.offset.saturating_add(spec.offset)),
    }
}

/// Warns that the program may not survive: the kernel replaces return addresses, beyond which an exception is not unwound.
fn warn_of_exceptions(text: &str, object: &Object) {
    if object.throws_exceptions() {
        log::warn!(
            "{text}: an exception that leaves a function whose return is probed ends the program"
        );
    }
}

/// Reports slow probe locations.
fn report_slow(text: &str, slow: &[(&CodeSymbol, u64, Option<usize>)], all: usize) {
    match slow {
        [] => {}
        [(symbol, place, neighbor)] => {
            let way = match neighbor {
                Some(bytes) => {
                    let offset = place - symbol.offset + *bytes as u64;
                    format!(
                        "; {}+{offset:#x} is emulated and runs as often",
                        symbol.readable()
                    )
                }
                None => "; no nearby instruction is faster".to_owned(),
            };
            log::warn!("{text}: slow (single-stepped), at several times the overhead{way}");
        }
        many => log::warn!(
            "{text}: {} of {all} functions are slow to probe (single-stepped), at several times the overhead",
            many.len()
        ),
    }
}

/// Returns the end of the prologue: at the entry of unoptimized code, parameters are not yet at their DWARF locations.
pub(crate) fn after_prologue(
    text: &str,
    object: &Object,
    symbol: &CodeSymbol,
) -> Result<u64, Failure> {
    let bad = |error| failed(format!("{text}: {error}"));
    let scope = object.variables_at(symbol, symbol.offset).map_err(bad)?;
    if !scope.is_unoptimized() {
        return Ok(symbol.offset);
    }
    let lines = object
        .lines_of(symbol)
        .map_err(|error| failed(format!("{text}: {error}")))?;
    Ok(lines.after_prologue.unwrap_or(symbol.offset))
}

/// Returns the file offset at which the code of a line begins.
pub(crate) fn place_of_line(
    text: &str,
    object: &Object,
    symbol: &CodeSymbol,
    line: u32,
) -> Result<u64, Failure> {
    let lines = object
        .lines_of(symbol)
        .map_err(|error| failed(format!("{text}: {error}")))?;
    let Some(first) = lines.first_line else {
        return Err(failed(format!(
            "{text}: {} has no debug info for lines",
            symbol.readable()
        ))
        .hint("compile it with -g, or install its debug package"));
    };
    let wanted = first.saturating_add(line);
    let known = lines.places.iter().find(|place| place.line == wanted);
    known.map(|place| place.offset).ok_or_else(|| {
        let mut others: Vec<u32> = lines
            .places
            .iter()
            .filter_map(|place| place.line.checked_sub(first))
            .collect();
        others.sort_unstable();
        others.dedup();
        let others: Vec<String> = others.iter().map(u32::to_string).collect();
        misuse(format!(
            "{text}: no code begins at line {line} of {} (line {wanted} of {})",
            symbol.readable(),
            lines.file
        ))
        .hint(format!("use one of the lines {}", others.join(", ")))
    })
}

/// Returns the variables at a place.
pub(super) fn scope_at(
    text: &str,
    object: &Object,
    symbol: &CodeSymbol,
    place: u64,
) -> Result<Scope, Failure> {
    let scope = object
        .variables_at(symbol, place)
        .map_err(|error| failed(format!("{text}: {error}")))?;
    if scope.has_debugging_information() {
        return Ok(scope);
    }
    Err(failed(format!(
        "{text}: {} has no debug info for variables",
        object.path().display()
    ))
    .hint("compile it with -g, install its debug package, or use a register (%di, %si, %dx, %cx, %r8, %r9 at an entry on x86-64)"))
}

/// Returns a variable in the kernel's syntax; at a return there is no scope.
pub(super) fn variable(
    text: &str,
    scope: Option<&Scope>,
    argument: &Argument,
) -> Result<String, Failure> {
    let Value::Variable(variable) = &argument.value else {
        return Err(misuse(format!("{text}: not an argument")));
    };
    let Some(scope) = scope else {
        return Err(misuse(format!(
            "{text}: {}: variables are not available at a return",
            variable.name
        ))
        .hint("use $retval for the return value"));
    };
    let Some(found) = scope.variable(&variable.name) else {
        let names = scope.names();
        return Err(misuse(format!(
            "{text}: no variable {} at this location",
            variable.name
        ))
        .hint(format!("use one of: {}", names.join(", "))));
    };
    let start = match &found.location {
        Ok(location) => fetch::Expression::at(location),
        Err(reason) => {
            return Err(failed(format!("{text}: {}: {reason}", variable.name))
                .hint("try another line of the function"));
        }
    };
    let walked = fetch::walk(scope, start, found.kind, variable, argument.kind.as_deref())
        .map_err(|reason| misuse(format!("{text}: {reason}")))?;
    let name = argument.name.as_deref().unwrap_or(variable.field_name());
    let kind = argument.kind.clone().or(walked.kind);
    Ok(argument::in_kernels_words(
        Some(name),
        &walked.expression,
        kind.as_deref(),
    ))
}

/// Returns a path to a process's program that is valid here: in a container, its own path may name another file.
fn program_of(pid: i32) -> io::Result<PathBuf> {
    let link = PathBuf::from(format!("/proc/{pid}/exe"));
    let path = std::fs::read_link(&link)?;
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    Ok(match identity(&path) == identity(&link) {
        true => path,
        false => PathBuf::from(format!("/proc/{pid}/root{}", path.display())),
    })
}

/// Finds the file of a path, a library or program name, or a PID.
pub(crate) fn find(object: &str) -> Result<PathBuf, Failure> {
    if let Ok(pid) = object.parse::<i32>() {
        return program_of(pid).map_err(|error| failed(format!("process {pid}: {error}")));
    }
    if object.contains('/') {
        return std::fs::canonicalize(object).map_err(|error| failed(format!("{object}: {error}")));
    }
    let programs = std::env::var_os("PATH").unwrap_or_default();
    let programs: Vec<PathBuf> = std::env::split_paths(&programs).collect();
    let libraries = LIBRARIES.iter().map(PathBuf::from);
    let is_library = object.contains(".so");
    let folders: Vec<PathBuf> = match is_library {
        true => libraries.chain(programs).collect(),
        false => programs.into_iter().chain(libraries).collect(),
    };
    // "libc" means libc.so.6, as in perf.
    let with_version = |folder: &Path| {
        let prefix = format!("{object}.so");
        let entries = std::fs::read_dir(folder).ok()?;
        let mut names: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                // libc.so is a linker script.
                name.starts_with(&prefix) && is_elf(path)
            })
            .collect();
        names.sort();
        names.into_iter().next()
    };
    let exact = folders
        .iter()
        .map(|folder| folder.join(object))
        .find(|path| path.is_file());
    let found = exact.or_else(|| folders.iter().find_map(|folder| with_version(folder)));
    match found {
        Some(path) => std::fs::canonicalize(&path)
            .map_err(|error| failed(format!("{}: {error}", path.display()))),
        None => Err(misuse(format!("no program or library {object}"))
            .hint("give its path, or the PID of a process that runs it")),
    }
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    let read = std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == *b"\x7fELF"
}

fn functions(text: &str, spec: &ProbeSpec, object: &Object) -> Result<Vec<Found>, Failure> {
    let found = function_name::find(text, object, &spec.function)?;
    match found.len() {
        ..=MOST => Ok(found),
        many => Err(misuse(format!(
            "{text}: {many} functions, more than the maximum of {MOST}"
        ))),
    }
}

/// "libc.so.6" → "libc", as perf names its groups.
fn short_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let end = name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    name[..end.unwrap_or(name.len())].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_name() {
        assert!(find("libc.so.6").unwrap().is_absolute());
        assert_eq!(find("libc.so.6").unwrap(), find("libc").unwrap());
        assert!(find("sh").unwrap().is_file());
        let own = find(&std::process::id().to_string()).unwrap();
        assert_eq!(own, std::env::current_exe().unwrap());
        assert!(find("no-such-library.so").is_err());
        assert!(find("/no/such/file").is_err());
    }

    #[test]
    fn groups_are_named_like_perfs() {
        assert_eq!(short_name(Path::new("/lib/libc.so.6")), "libc");
        assert_eq!(short_name(Path::new("/lib/libstdc++.so.6")), "libstdc");
        assert_eq!(short_name(Path::new("prog")), "prog");
    }

    #[test]
    fn malloc_of_the_local_libc() {
        let definitions = definitions("libc.so.6:malloc bytes=%di:u64", false).unwrap();
        assert_eq!(definitions.len(), 1);
        let definition = &definitions[0];
        assert_eq!(
            (definition.system.as_str(), definition.name.as_str()),
            ("probe_libc", "malloc")
        );
        let [form] = &definition.forms[..] else {
            panic!("{:?}", definition.forms)
        };
        assert_eq!(form.head, "p");
        assert!(form.body.ends_with(" bytes=%di:u64"), "{}", form.body);
        let wrong = super::definitions("libc.so.6:mallok", false).unwrap_err();
        assert!(wrong.to_string().contains("no function mallok"));
    }
}
