//! `pass_system_calls()`: calls of the kernel by programs, with what their entries recorded.
//!
//! ```text
//! raw_syscalls:sys_enter id=257 args=…  ──┐
//! syscalls:sys_enter_openat filename=… ──┼─► openat, args, fd, path
//! calls: sys_openat                    ──┘
//! ```
//! strace prints the arguments with the calls, which need no entries then.
//! Entries and exits are paired in `calls` already; a call and its entry have the same thread and time. Paths of file
//! descriptors are known from the calls that opened, duplicated and closed them, if these recorded the path, and from
//! `open_files`.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field};
use datafusion::catalog::CatalogProvider;
use datafusion::error::Result;
use datafusion::logical_expr::lit;
use hashbrown::HashMap;
use perfquet_trace::count::counted;

use super::Function;
use super::descriptors::{Descriptors, Effect};
use super::names::{Name, Names};
use super::pass::{Machine, Pass, PassPlan, Tables};
use super::rows::{Rows, emitted};
use super::selection::Selection;
use super::source::{BEFORE, Input, Row, Source, Times, column};
use super::strace;
use crate::linux::prototypes::{self, Kind};
use crate::linux::{arguments, errno, system_call};

pub(super) const FUNCTION: Function = Function {
    name: "pass_system_calls",
    create: |arguments| match arguments {
        [] => Some(Arc::new(SystemCalls { only: None })),
        _ => None,
    },
};

/// System calls, all or only those of the given names.
#[derive(Debug)]
pub(super) struct SystemCalls {
    pub(super) only: Option<BTreeSet<String>>,
}

emitted! {
    TIME "time" Int64,
    DURATION "duration" Int64,
    CPU "cpu" Int32,
    PID "pid" Int32,
    TID "tid" Int32,
    COMM "comm" Text,
    NAME "name" Text,
    NUMBER "nr" Int32,
    ARGS "args" Texts,
    FD "fd" Int32,
    PATH "path" Text,
    RET "ret" Int64,
    ERROR "error" Text,
    KERNEL_STACK "kernel_stack" Stack,
    USER_STACK "user_stack" Stack,
    CALL_ID "call_id" Int64,
    ARG0 "arg0" Int64,
    ARG1 "arg1" Int64,
    ARG2 "arg2" Int64,
}

/// The first sources; those of named entries follow, and the calls are the last.
mod feed {
    pub(super) const FACTS: usize = 0;
    pub(super) const THREADS: usize = 1;
    pub(super) const FILES: usize = 2;
    pub(super) const RAW: usize = 3;
    pub(super) const NAMED: usize = 4;
}

impl Tables<'_> {
    /// Whether the calls that close or replace descriptors have tables.
    fn follows_descriptors(&self) -> bool {
        // Some architectures have no dup2.
        const ALL: [&str; 4] = ["close", "close_range", "dup3", "openat"];
        let has = |call: &&str| {
            self.has(&format!("syscalls:sys_enter_{call}"))
                && self.has(&format!("syscalls:sys_exit_{call}"))
        };
        let has_raw = self.has("raw_syscalls:sys_enter") && self.has("raw_syscalls:sys_exit");
        has_raw || ALL.iter().all(has)
    }
}

/// Parameters of an event `sys_enter_X`.
#[derive(Debug, Clone)]
struct Entry {
    /// Name of the system call.
    call: String,
    parameters: Vec<(String, Kind)>,
}

/// Maximum number of parameters.
const MOST: usize = 6;

impl SystemCalls {
    /// The names of a query's rows; `None` if any.
    fn names(&self, selection: &Selection) -> Option<BTreeSet<String>> {
        match (&self.only, selection.texts(NAME)) {
            (Some(own), Some(wanted)) => Some(own & &wanted),
            (own, wanted) => own.clone().or(wanted),
        }
    }

    /// The named entries in a catalog, of calls of these names, in the order of their sources.
    fn entries(catalog: &dyn CatalogProvider, only: Option<&BTreeSet<String>>) -> Vec<Entry> {
        let Some(schema) = catalog.schema("syscalls") else {
            return Vec::new();
        };
        let mut names = schema.table_names();
        names.sort();
        let calls = names
            .iter()
            .filter_map(|name| name.strip_prefix("sys_enter_"));
        let is_wanted = |call: &&str| {
            let name = system_call::of_event(call);
            only.is_none_or(|only| only.contains(name))
        };
        calls.filter(is_wanted).map(Entry::of).collect()
    }
}

impl Entry {
    fn of(call: &str) -> Entry {
        let known = prototypes::of(call).into_iter().flatten();
        Entry {
            call: call.to_owned(),
            parameters: known
                .map(|parameter| (parameter.name.to_owned(), parameter.kind))
                .collect(),
        }
    }

    /// Its table: number and thread; then arguments, and recorded strings of arguments, if they are wanted.
    fn source(&self, wants_arguments: bool) -> Source {
        let mut columns = vec![
            Input::integer(&["__syscall_nr", "nr"]),
            Input::integer(&["tid"]),
        ];
        if wants_arguments {
            for (name, _) in &self.parameters {
                // A field with the name of a common column is called otherwise.
                columns.push(Input::integer(&[&format!("arg_{name}"), name]));
            }
            columns.resize(2 + MOST, Input::integer(&[]));
            columns.extend(self.strings());
        }
        Source::event(&self.event(), columns)
    }

    fn event(&self) -> String {
        format!("syscalls:sys_enter_{}", self.call)
    }

    /// The strings of its parameters: of Linux 6.19 and later, or of an input with the string in the argument's place.
    fn strings(&self) -> impl Iterator<Item = Input> {
        let names = self.parameters.iter().map(|(name, _)| name);
        names.map(|name| Input::string(&[&format!("__{name}_val"), name]))
    }

    /// Whether strings of its parameters were recorded.
    fn has_strings(&self, tables: &Tables<'_>) -> bool {
        let fields = tables.fields(&self.event());
        fields.is_some_and(|fields| self.strings().any(|string| string.is_in(&fields)))
    }
}

impl Pass for SystemCalls {
    fn name(&self) -> &'static str {
        FUNCTION.name
    }

    fn columns(&self, id: &DataType) -> Vec<Field> {
        fields(id)
    }

    fn is_in_order(&self) -> bool {
        true
    }

    fn plan(&self, selection: &Selection, tables: &Tables<'_>) -> PassPlan {
        let only = self.names(selection);
        let all_entries = SystemCalls::entries(tables.catalog, self.only.as_ref());
        // strace prints the arguments with the calls.
        let is_strace = tables.has("strace:signal");
        let has_strings = || all_entries.iter().any(|entry| entry.has_strings(tables));
        // Files that were open before are followed only if every call that gives a descriptor another file was recorded.
        let has_files = tables.has("main:open_files") && tables.follows_descriptors();
        let wants_paths = selection.wants(PATH) && (is_strace || has_files || has_strings());
        // Names of descriptors come from calls of other names.
        let read = only.as_ref().filter(|_| !wants_paths);
        let entries = match read {
            Some(_) => SystemCalls::entries(tables.catalog, read),
            None => all_entries,
        };
        // The architecture is known only with the rows. Calls of its other numbers are dropped then.
        let numbers = read.map(|names| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            system_call::numbers(&names)
        });
        // Names of descriptors come from earlier calls, of any thread of the process; all else from the entry at the time of the call.
        let of_selection = |source: Source, columns: &[(usize, &str)]| {
            let last = selection.times.last;
            if wants_paths {
                return source.within(Times { first: None, last });
            }
            let columns: Vec<(usize, Input)> = columns
                .iter()
                .map(|&(column, name)| (column, Input::integer(&[name])))
                .collect();
            selection
                .with_values(source, &columns)
                .within(selection.times)
        };
        let threads = ["tid", "pid", "parent"].map(|name| Input::integer(&[name]));
        let threads = Source::fixed("threads", "start_time", threads.to_vec());
        let files = [
            Input::integer(&["pid"]),
            Input::integer(&["fd"]),
            Input::text(&["path"]),
        ];
        // Calls have the number of their entry.
        let wants_arguments = selection.wants_any(&[ARGS, FD, ARG0, ARG1, ARG2]) || wants_paths;
        let raw = Source::event(
            "raw_syscalls:sys_enter",
            vec![
                Input::integer(&["id"]),
                Input::integer(&["tid"]),
                Input::integers(&["args"]),
            ],
        );
        let raw = match &numbers {
            Some(numbers) => raw.with_values(Input::integer(&["id"]), numbers.clone()),
            None => raw,
        };
        let mut sources = vec![
            Source::facts(),
            match wants_paths {
                true => threads.with_unknown_times(),
                false => Source::none(),
            },
            match wants_paths && has_files {
                true => Source::fixed("open_files", "time", files.to_vec()).with_unknown_times(),
                false => Source::none(),
            },
            match wants_arguments {
                true => of_selection(raw, &[(TID, "tid")]),
                false => Source::none(),
            },
        ];
        let named = entries.iter().map(|entry| entry.source(wants_arguments));
        sources.extend(named.map(|entry| of_selection(entry, &[(TID, "tid")])));
        let numbered = |number: &i64| lit(format!("syscall:{number}"));
        let is_numbered = match &numbers {
            Some(none) if none.is_empty() => lit(false),
            Some(all) => column("function").in_list(all.iter().map(numbered).collect(), false),
            None => column("function").like(lit("syscall:%")),
        };
        let is_one = column("function").like(lit("sys\\_%")).or(is_numbered);
        let requested = |column: usize, name: &'static str| {
            let is_needed = match column {
                PID => wants_paths,
                RET => wants_paths || selection.wants(ERROR),
                _ => false,
            };
            Input::integer(&[name]).if_wanted(is_needed || selection.wants(column))
        };
        let calls = Source::fixed(
            "calls",
            "time",
            vec![
                Input::integer(&["tid"]),
                requested(DURATION, "duration"),
                requested(CPU, "cpu"),
                requested(PID, "pid"),
                Input::text(&["comm"]).if_wanted(selection.wants(COMM)),
                Input::text(&["function"]),
                requested(RET, "retval"),
                Input::flag(&["entry_seen"]),
                requested(KERNEL_STACK, "kernel_stack"),
                requested(USER_STACK, "user_stack"),
                requested(CALL_ID, "call_id"),
                Input::texts(&["args"]).if_wanted(is_strace && wants_arguments),
            ],
        );
        let calls = calls.with_condition(is_one);
        // strace prints times only if it is asked to.
        let calls = match is_strace {
            true => calls.with_unknown_times(),
            false => calls,
        };
        sources.push(of_selection(
            calls,
            &[(TID, "tid"), (PID, "pid"), (CPU, "cpu")],
        ));
        let has_numbers =
            tables.has("raw_syscalls:sys_enter") || tables.has("raw_syscalls:sys_exit");
        PassPlan::new(sources, move || Calls {
            only: only.clone(),
            wants_paths,
            is_strace,
            has_numbers,
            functions: HashMap::new(),
            entries: entries.clone(),
            architecture: String::new(),
            pending: HashMap::new(),
            names: Names::default(),
            descriptors: Descriptors::default(),
            unnamed: 0,
            text: String::new(),
        })
    }
}

/// The entry of a call, until the call itself comes.
#[derive(Debug, Clone, Default)]
struct Pending {
    time: i64,
    /// Index of the named entry; `None` for a numbered one.
    entry: Option<usize>,
    number: Option<i64>,
    values: [Option<i64>; MOST],
    /// Strings that were recorded with the arguments.
    strings: Vec<(usize, Box<str>)>,
    /// The arguments as strace printed them.
    texts: Vec<Box<str>>,
}

impl Pending {
    /// The string at a place among the arguments, if it was recorded.
    fn string(&self, place: usize) -> Option<&str> {
        let found = self.strings.iter().find(|(other, _)| *other == place);
        found.map(|(_, text)| &**text)
    }

    /// The arguments that strace printed with the call.
    fn of_strace(arguments: Option<ArrayRef>) -> Pending {
        let mut pending = Pending::default();
        let texts = arguments
            .iter()
            .flat_map(|list| list.as_string_view().iter());
        for (place, text) in texts.flatten().enumerate() {
            if text.starts_with("error=") {
                continue;
            }
            if let Some(value) = pending.values.get_mut(place) {
                *value = strace::number(text);
            }
            if let Some(string) = strace::string(text) {
                pending.strings.push((place, string.into()));
            }
            pending.texts.push(text.into());
        }
        pending
    }
}

/// What a call's function says about it: the same for every call of the function.
#[derive(Debug)]
struct Called {
    /// `syscall:257`, not `sys_openat`.
    is_numbered: bool,
    number: Option<i64>,
    name: Option<Box<str>>,
    /// Whether calls of this name were recorded by their own events.
    has_entry: bool,
    /// Whether the name is among those of the query.
    is_wanted: bool,
    /// Places among the arguments.
    fd: Option<usize>,
    path: Option<usize>,
    effect: Option<Effect>,
}

struct Calls {
    only: Option<BTreeSet<String>>,
    wants_paths: bool,
    is_strace: bool,
    /// Whether calls were recorded by number.
    has_numbers: bool,
    functions: HashMap<Box<str>, Called>,
    entries: Vec<Entry>,
    architecture: String,
    pending: HashMap<i32, Pending>,
    names: Names,
    descriptors: Descriptors,
    /// Number of calls whose numbers have no names, since these differ between architectures.
    unnamed: u64,
    text: String,
}

impl Calls {
    /// What a function says. If its number is not in its name, it may be known from the entry.
    fn called(&self, function: &str, entered: Option<i64>) -> Called {
        let raw_number = function.strip_prefix("syscall:");
        // Traces of earlier versions have the names of events.
        let named = function.strip_prefix("sys_").unwrap_or_default();
        let named = system_call::of_event(named);
        let number = match raw_number {
            Some(number) => number.parse().ok().or(entered),
            None if self.has_numbers && !named.is_empty() => {
                system_call::number(named, &self.architecture)
            }
            None => None,
        };
        // Traces of earlier versions have the return of a signal, without a number.
        let is_number = |number: &i64| *number >= 0;
        let name = match raw_number {
            Some(_) => number
                .filter(is_number)
                .and_then(|number| system_call::name(number, &self.architecture)),
            None => Some(named),
        };
        let call = name.unwrap_or_default();
        let is_of = |entry: &Entry| system_call::of_event(&entry.call) == named;
        Called {
            is_numbered: raw_number.is_some(),
            number,
            name: name.map(Box::from),
            has_entry: raw_number.is_none() && self.entries.iter().any(is_of),
            is_wanted: self.only.as_ref().is_none_or(|only| only.contains(call)),
            fd: place_of_fd(call),
            path: place_of_path(call),
            effect: Effect::of(call),
        }
    }

    fn raw(&mut self, row: Row<'_>) {
        let Some(tid) = row.id(1) else {
            return;
        };
        let pending = self.pending.entry(tid).or_default();
        pending.time = row.time;
        pending.entry = None;
        pending.number = row.integer(0);
        pending.strings.clear();
        pending.values = [None; MOST];
        let recorded = row.integers(2).unwrap_or_default();
        for (value, &recorded) in pending.values.iter_mut().zip(recorded) {
            *value = Some(recorded);
        }
    }

    fn named(&mut self, entry: usize, row: Row<'_>) {
        let (Some(tid), Some(of)) = (row.id(1), self.entries.get(entry)) else {
            return;
        };
        let pending = self.pending.entry(tid).or_default();
        pending.time = row.time;
        pending.entry = Some(entry);
        pending.number = row.integer(0);
        for (place, value) in pending.values.iter_mut().enumerate() {
            *value = row.integer(2 + place);
        }
        pending.strings.clear();
        for place in 0..of.parameters.len() {
            if let Some(text) = row.text(2 + MOST + place) {
                pending.strings.push((place, text.into()));
            }
        }
    }

    fn call(&mut self, row: Row<'_>, rows: &mut Rows) {
        let tid = row.id(0);
        let Some(function) = row.text(5) else {
            return;
        };
        let entry_seen = row.flag(7).unwrap_or(true);
        if !self.functions.contains_key(function) {
            let called = self.called(function, None);
            self.functions.insert(function.into(), called);
        }
        let Some(called) = self.functions.get(function) else {
            return;
        };
        // strace of one process prints no thread. Of others, a name alone may be that of a function of the kernel.
        if tid.is_none() && !self.is_strace && !called.is_numbered {
            return;
        }
        let pending = tid.and_then(|tid| self.pending.get(&tid));
        let pending = pending.filter(|pending| pending.time == row.time);
        // Of several calls within the resolution of the clock, the last one's entry is known.
        let is_of_call = |pending: &&Pending| match (pending.number, called.number) {
            (Some(entered), Some(number)) if called.is_numbered => entered == number,
            _ => true,
        };
        let pending = pending.filter(is_of_call);
        let printed = self.is_strace.then(|| Pending::of_strace(row.list(11)));
        let pending = pending.or(printed.as_ref());
        if called.is_numbered && called.number == Some(-1) && !entry_seen {
            // The exit of rt_sigreturn: the kernel has restored the registers, which had the number, to those before the signal.
            return;
        }
        if !called.is_numbered {
            let is_entry =
                |entry: &Entry| called.name.as_deref() == Some(system_call::of_event(&entry.call));
            let is_of = |pending: &Pending| {
                let entry = pending.entry.and_then(|entry| self.entries.get(entry));
                entry.is_some_and(is_entry)
            };
            // Otherwise a function of this name in the kernel, from a function tracer.
            let is_other = (entry_seen || !called.has_entry) && called.number.is_none();
            if !self.is_strace && !pending.is_some_and(is_of) && is_other {
                return;
            }
        }
        let entered = pending.and_then(|pending| pending.number);
        let of_entry = match called.is_numbered && called.number.is_none() {
            true => Some(self.called(function, entered)),
            false => None,
        };
        let called = of_entry.as_ref().unwrap_or(called);
        if !called.is_wanted && !self.wants_paths {
            return;
        }
        let number = match called.is_numbered {
            true => called.number,
            false => entered.or(called.number),
        };
        let number = number.filter(|&number| number >= 0);
        let ret = row.integer(6);
        let call = called.name.as_deref().unwrap_or_default();
        let none = Pending::default();
        let entry = pending.unwrap_or(&none);
        let pid = row.id(3);
        // Inputs without process IDs have programs of one thread, mostly.
        let process = pid.or(tid).unwrap_or_default();
        let fd = match self.wants_paths || rows.wants(FD) {
            true => called.fd.and_then(|place| fd_of(entry, place)),
            false => None,
        };
        let new_path = match called.path.filter(|_| self.wants_paths) {
            Some(place) => entry
                .string(place)
                .map(|path| self.names.of(Some(path), Name::default())),
            None => None,
        };
        let path_of_fd = || self.descriptors.path(process, fd?);
        let path = new_path.or_else(path_of_fd).unwrap_or_default();
        // Numbers of processes have names, too: `7<sh>` (-Y).
        let printed_file = || strace::file(entry.texts.get(called.fd?)?);
        let printed_file = match (self.is_strace, new_path) {
            (true, None) => printed_file(),
            _ => None,
        };
        if called.is_wanted {
            if called.name.is_none() && number.is_some() && self.architecture.is_empty() {
                self.unnamed += 1;
            }
            rows.integer(TIME, Some(row.time).filter(|&time| time != BEFORE));
            rows.integer(DURATION, row.integer(1));
            rows.integer(CPU, row.integer(2));
            rows.id(PID, pid);
            rows.id(TID, tid);
            rows.text(COMM, row.text(4));
            rows.text(NAME, called.name.as_deref());
            rows.integer(NUMBER, number);
            if rows.wants(ARGS) {
                self.text.clear();
                let known = pending.is_some();
                if known {
                    write_arguments(call, entry, &self.architecture, &mut self.text);
                }
                let arguments = self.text.split('\0').filter(|text| !text.is_empty());
                rows.texts(ARGS, known.then_some(arguments));
            }
            rows.id(FD, fd);
            rows.text(PATH, printed_file.or_else(|| self.names.text(path)));
            rows.integer(RET, ret);
            if rows.wants(ERROR) {
                rows.text(ERROR, ret.and_then(errno::name));
            }
            rows.integer(KERNEL_STACK, row.integer(8));
            rows.integer(USER_STACK, row.integer(9));
            rows.integer(CALL_ID, row.integer(10));
            for (column, value) in [ARG0, ARG1, ARG2].into_iter().zip(entry.values) {
                rows.integer(column, value);
            }
            rows.end_row();
        }
        if let (Some(effect), Some(ret)) = (called.effect, ret.filter(|_| self.wants_paths)) {
            self.descriptors
                .call(process, effect, &entry.values, ret, new_path);
        }
    }
}

/// The place of the file descriptor among the arguments.
fn place_of_fd(call: &str) -> Option<usize> {
    prototypes::of(call)?.position(|parameter| {
        matches!(
            parameter.name,
            "fd" | "fildes" | "oldfd" | "epfd" | "out_fd" | "sockfd" | "in_fd" | "fd_in"
        )
    })
}

/// The file descriptor among the arguments.
fn fd_of(entry: &Pending, place: usize) -> Option<i32> {
    let value = (*entry.values.get(place)?)?;
    // 32 bits; programs pass -1 as well.
    Some(value as i32).filter(|fd| *fd >= 0)
}

/// The place of the path among the arguments.
fn place_of_path(call: &str) -> Option<usize> {
    const PATHS: [&str; 9] = [
        "filename", "pathname", "path", "oldname", "name", "library", "dir_name", "fs_name",
        "dev_name",
    ];
    prototypes::of(call)?.position(|parameter| PATHS.contains(&parameter.name))
}

/// Appends `name=value` for each argument, separated by NUL.
fn write_arguments(call: &str, entry: &Pending, architecture: &str, into: &mut String) {
    let is_generic = matches!(
        architecture,
        "x86_64" | "amd64" | "x86" | "i386" | "i486" | "i586" | "i686" | "s390x" | "loongarch64"
    ) || architecture.starts_with("riscv");
    let add = |place: usize, name: &str, kind: Kind, into: &mut String| {
        if let Some(text) = entry.texts.get(place) {
            into.push_str(&strace::with_name(name, text));
            into.push('\0');
            return;
        }
        let string = entry.string(place);
        let value = entry.values.get(place).copied().flatten();
        if string.is_none() && value.is_none() {
            return;
        }
        into.push_str(name);
        into.push('=');
        match (string, value) {
            (Some(text), _) => into.extend(text.chars().filter(|&letter| letter != '\0')),
            (None, Some(value)) => arguments::write(call, name, kind, value, is_generic, into),
            (None, None) => {}
        }
        into.push('\0');
    };
    match prototypes::of(call) {
        Some(parameters) => {
            for (place, parameter) in parameters.enumerate() {
                add(place, parameter.name, parameter.kind, into);
            }
        }
        None => {
            for place in 0..MOST {
                add(place, &format!("arg{place}"), Kind::Long, into);
            }
        }
    }
}

impl Machine for Calls {
    fn row(&mut self, source: usize, row: Row<'_>, rows: &mut Rows) -> Result<()> {
        match source {
            feed::FACTS => {
                if row.text(0) == Some("architecture") {
                    row.text(1)
                        .unwrap_or_default()
                        .clone_into(&mut self.architecture);
                    self.functions.clear();
                }
            }
            feed::THREADS => {
                // A new process has the descriptors of its parent.
                if let (Some(tid), Some(pid), Some(parent)) = (row.id(0), row.id(1), row.id(2))
                    && tid == pid
                    && row.time > BEFORE
                {
                    self.descriptors.fork(parent, pid);
                }
            }
            feed::FILES => {
                if let (Some(pid), Some(fd), Some(path)) = (row.id(0), row.id(1), row.text(2)) {
                    let path = self.names.of(Some(path), Name::default());
                    self.descriptors.found(pid, fd, path);
                }
            }
            feed::RAW => self.raw(row),
            other if other < feed::NAMED + self.entries.len() => {
                self.named(other - feed::NAMED, row);
            }
            _ => self.call(row, rows),
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Rows) -> Result<bool> {
        if self.unnamed > 0 {
            log::warn!(
                "syscalls: {} without a name: the trace does not tell the architecture, on which the meaning of numbers depends; import text of perf script --header",
                counted(self.unnamed, "call")
            );
        }
        Ok(false)
    }

    fn bytes(&self) -> usize {
        self.pending.capacity() * size_of::<Pending>()
            + self.functions.capacity() * 2 * size_of::<Called>()
            + self.names.bytes()
            + self.descriptors.bytes()
    }
}
