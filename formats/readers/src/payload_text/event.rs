//! The payloads of one event: its columns, which grow with the lines, and the form of its last line.

use perfquet_events::event::{EventId, EventKind, EventType, Field, Flags};
use perfquet_events::scan::{
    after, bare_hex, find, find_text, prefixed_hex, same, split_once, trim,
};

use super::class::{Class, Notation};
use super::keys::{self, Pair};
use super::syscall::{self, Argument};
use super::template::{Template, TemplateField};
use super::{Style, known};

/// More keys than any event of the kernel has.
const MAX_COLUMNS: usize = 128;
/// Maximum number of declarations of an event; then its payload becomes one string.
const MAX_FORMS: u32 = 8;

/// Column of text without a preceding key.
const MESSAGE: &[u8] = b"message";

/// A column.
#[derive(Debug, Clone)]
pub(super) struct Column<'a> {
    pub(super) name: &'a [u8],
    /// Data that a system call's pointer refers to: the column is `__NAME_val`.
    is_pointed: bool,
    pub(super) class: Class,
    pub(super) notation: Notation,
}

/// One event, by name.
pub(super) struct State<'a> {
    pub(super) style: Style,
    system: &'a [u8],
    name: &'a [u8],
    kind: EventKind,
    /// Empty until the first line needs templates.
    templates: Vec<Template>,
    /// Column of each field of each template; empty if the template has not been used.
    bindings: Vec<Vec<usize>>,
    /// Index of the template that matched last.
    last_template: usize,
    /// Columns of the keys of the last `key=value` line, or of the arguments of the last system call, in their order.
    order: Vec<usize>,
    pub(super) columns: Vec<Column<'a>>,
    /// Whether lines have flags.
    has_flags: bool,
    /// `None` if it must be declared with the current columns.
    pub(super) id: Option<EventId>,
    forms: u32,
    /// The rest of its payloads are kept as one string.
    is_plain: bool,
}

/// Buffers shared by all events.
#[derive(Default)]
pub(super) struct Scratch<'a> {
    /// The line's text for each column.
    pub(super) texts: Vec<&'a [u8]>,
    fields: Vec<&'a [u8]>,
    pairs: Vec<Pair<'a>>,
    arguments: Vec<Argument<'a>>,
    /// The column after that of the last name.
    next_column: usize,
    /// Whether a system call argument with `0x` was seen.
    pub(super) saw_prefix: bool,
    /// Whether numbers without `0x` are decimal.
    pub(super) is_prefixed: bool,
}

impl<'a> State<'a> {
    pub(super) fn new(style: Style, system: &'a [u8], name: &'a [u8], kind: EventKind) -> Self {
        let templates: Vec<Template> = match style {
            Style::Event => known::forms(name)
                .iter()
                .map(|form| Template::new(form))
                .collect(),
            Style::SyscallEnter | Style::SyscallExit => Vec::new(),
        };
        State {
            style,
            system,
            name,
            kind,
            bindings: vec![Vec::new(); templates.len()],
            templates,
            last_template: 0,
            order: Vec::new(),
            columns: Vec::new(),
            has_flags: false,
            id: None,
            forms: 0,
            is_plain: false,
        }
    }

    /// The declaration with the current columns.
    pub(super) fn event_type(&self) -> EventType {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let system = match (self.style, self.system) {
            (Style::Event, b"") => known::system(self.name).to_owned(),
            (Style::SyscallEnter | Style::SyscallExit, _) => "syscalls".to_owned(),
            (_, system) => text(system),
        };
        let name = text(self.name.strip_prefix(b"sys_").unwrap_or(self.name));
        let name = match self.style {
            Style::Event => text(self.name),
            Style::SyscallEnter => format!("sys_enter_{name}"),
            Style::SyscallExit => format!("sys_exit_{name}"),
        };
        let fields = self.columns.iter().map(Column::field);
        let flags = self.has_flags.then(Flags::fields).into_iter().flatten();
        EventType {
            system,
            name,
            kind: self.kind,
            fields: fields.chain(flags).collect(),
            ..EventType::default()
        }
    }

    /// Sets the ID of the declaration.
    pub(super) fn declared(&mut self, id: EventId) {
        self.id = Some(id);
        self.forms += 1;
    }

    /// A line has flags.
    #[inline]
    pub(super) fn add_flags(&mut self) {
        if !self.has_flags {
            self.has_flags = true;
            self.changed();
        }
    }

    /// Requests another declaration after a change of columns, unless there were too many.
    fn changed(&mut self) {
        if self.id.take().is_some() && self.forms >= MAX_FORMS {
            self.is_plain = true;
        }
    }

    /// Splits `payload` into one text per column.
    #[inline]
    pub(super) fn split(&mut self, payload: &'a [u8], scratch: &mut Scratch<'a>) {
        scratch.texts.clear();
        scratch.texts.resize(self.columns.len(), &[]);
        scratch.next_column = 0;
        if self.is_plain {
            self.split_plain(payload, scratch);
            return;
        }
        match self.style {
            Style::Event => {
                if !self.by_template(payload, scratch) && !self.by_order(payload, scratch) {
                    self.split_event(payload, scratch);
                }
            }
            Style::SyscallEnter => {
                let arguments = payload.strip_prefix(b"(").unwrap_or(payload);
                let arguments = arguments.strip_suffix(b")").unwrap_or(arguments);
                if !self.by_argument_order(arguments, scratch)
                    && !self.by_arguments(arguments, scratch)
                {
                    self.put(MESSAGE, Class::Text, Notation::Plain, payload, scratch);
                }
            }
            Style::SyscallExit => {
                self.put(b"ret", Class::Int, Notation::HexSigned, payload, scratch);
            }
        }
    }

    /// Handles a payload of no known form, with other keys than the last.
    #[cold]
    fn split_event(&mut self, payload: &'a [u8], scratch: &mut Scratch<'a>) {
        if self.name.starts_with(b"sys_enter_") && self.by_arguments(payload, scratch) {
            return;
        }
        if self.name.starts_with(b"sys_exit_") && prefixed_hex(payload).is_some() {
            self.put(b"ret", Class::Int, Notation::HexSigned, payload, scratch);
            return;
        }
        let payload = self.split_probe(payload, scratch);
        let mut pairs = std::mem::take(&mut scratch.pairs);
        let before = keys::scan(payload, &mut pairs);
        self.order.clear();
        for (key, value) in &pairs {
            if let Some(column) = self.put_key(key, value, scratch) {
                self.order.push(column);
            }
        }
        scratch.pairs = pairs;
        if !before.is_empty() {
            self.order.clear();
            self.put(MESSAGE, Class::Text, Notation::Plain, before, scratch);
        }
    }

    /// Keeps payloads as one string after too many forms.
    #[cold]
    fn split_plain(&mut self, payload: &'a [u8], scratch: &mut Scratch<'a>) {
        if self.columns.len() != 1 {
            self.columns.clear();
            self.id = None;
        }
        scratch.texts.clear();
        scratch.texts.resize(self.columns.len(), &[]);
        self.put(MESSAGE, Class::Text, Notation::Plain, payload, scratch);
    }

    /// Splits off `(vfs_read+0x4/0x370) `, `(ksys_write+0x6b/0xe0 <- vfs_write) `, `(401186 <- 401211) ` of probes, and
    /// returns the rest. The kernel prints the return target first; perf and trace-cmd print the function first,
    /// without `0x`.
    fn split_probe(&mut self, payload: &'a [u8], scratch: &mut Scratch<'a>) -> &'a [u8] {
        let inside = payload.strip_prefix(b"(").and_then(|rest| {
            let close = find(rest, b')')?;
            Some((rest.get(..close)?, rest.get(close + 1..)?))
        });
        let Some((place, rest)) = inside.filter(|(place, _)| !place.is_empty()) else {
            return payload;
        };
        if let Some((one, other)) = split_once(place, b" <- ") {
            let is_tool = bare_hex(one).is_some() && bare_hex(other).is_some();
            let (function, to) = if is_tool { (one, other) } else { (other, one) };
            self.put_place(b"__probe_func", function, scratch);
            self.put_place(b"__probe_ret_ip", to, scratch);
            self.is_probe(is_user(one), true);
            return trim(rest);
        }
        let is_place = prefixed_hex(place).is_some()
            || bare_hex(place).is_some()
            || find_text(place, b"+0x").is_some();
        if is_place {
            self.put_place(b"__probe_ip", place, scratch);
            self.is_probe(is_user(place), false);
            return trim(rest);
        }
        // An event probe: `(syscalls.sys_enter_openat)`.
        let is_event = place
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'));
        if is_event && find(place, b'.').is_some() {
            return trim(rest);
        }
        payload
    }

    fn is_probe(&mut self, is_user: bool, at_return: bool) {
        if self.kind == EventKind::Tracepoint {
            self.kind = match (is_user, at_return) {
                (true, true) => EventKind::Uretprobe,
                (true, false) => EventKind::Uprobe,
                (false, true) => EventKind::Kretprobe,
                (false, false) => EventKind::Kprobe,
            };
        }
    }

    fn put_place(&mut self, name: &'static [u8], text: &'a [u8], scratch: &mut Scratch<'a>) {
        let is_hex = prefixed_hex(text).or_else(|| bare_hex(text)).is_some();
        let (class, notation) = match is_hex {
            true => (Class::UInt, Notation::Hex),
            false => (Class::Text, Notation::Plain),
        };
        self.put(name, class, notation, text, scratch);
    }

    #[inline]
    fn by_template(&mut self, payload: &'a [u8], scratch: &mut Scratch<'a>) -> bool {
        let count = self.templates.len();
        for step in 0..count {
            let index = (self.last_template + step) % count;
            let fits = self
                .templates
                .get(index)
                .is_some_and(|template| template.read(payload, &mut scratch.fields));
            if fits {
                self.last_template = index;
                self.bind(index, scratch);
                return true;
            }
        }
        false
    }

    #[inline]
    fn bind(&mut self, index: usize, scratch: &mut Scratch<'a>) {
        if self.bindings.get(index).is_none_or(Vec::is_empty) {
            self.bind_first(index, scratch);
        }
        let Scratch { texts, fields, .. } = scratch;
        let columns = self.bindings.get(index).map_or(&[][..], Vec::as_slice);
        for (&column, field) in columns.iter().zip(fields.iter()) {
            if let Some(text) = texts.get_mut(column) {
                *text = field;
            }
        }
    }

    #[cold]
    fn bind_first(&mut self, index: usize, scratch: &mut Scratch<'a>) {
        let fields: Vec<TemplateField> = match self.templates.get(index) {
            Some(template) => template.fields().collect(),
            None => return,
        };
        let columns: Vec<usize> = fields
            .iter()
            .filter_map(|field| {
                self.column(field.name, false, field.class, field.notation, scratch)
            })
            .collect();
        if let Some(binding) = self.bindings.get_mut(index)
            && columns.len() == fields.len()
        {
            *binding = columns;
        }
    }

    /// Handles a line with the same keys as the last, and no spaces in values.
    #[inline]
    fn by_order(&mut self, payload: &'a [u8], scratch: &mut Scratch<'a>) -> bool {
        let mut rest = payload;
        let mut order = self.order.iter().peekable();
        if order.peek().is_none() {
            return false;
        }
        while let Some(&index) = order.next() {
            let Some(column) = self.columns.get(index) else {
                return false;
            };
            let value = after(rest, column.name).and_then(|rest| rest.strip_prefix(b"="));
            let Some(value) = value else {
                return false;
            };
            let end = value
                .iter()
                .position(|byte| matches!(byte, b' ' | b'=' | b'"' | b'['))
                .unwrap_or(value.len());
            let (text, others) = value.split_at_checked(end).unwrap_or((value, &[]));
            match (order.peek(), others) {
                (Some(_), [b' ', others @ ..]) => rest = others,
                (None, []) => {}
                _ => return false,
            }
            if let Some(place) = scratch.texts.get_mut(index) {
                *place = text.strip_suffix(b",").unwrap_or(text);
            }
        }
        true
    }

    /// Handles a system call with the same arguments as the last, all of them numbers: `fd: 1, count: 0x10`.
    #[inline]
    fn by_argument_order(&mut self, arguments: &'a [u8], scratch: &mut Scratch<'a>) -> bool {
        let is_read = self.read_arguments(arguments, scratch).is_some();
        if !is_read {
            scratch.texts.fill(&[]);
        }
        is_read
    }

    #[inline]
    fn read_arguments(&self, arguments: &'a [u8], scratch: &mut Scratch<'a>) -> Option<()> {
        let mut rest = arguments;
        let (&last, others) = self.order.split_last()?;
        let mut value_of = |rest: &mut &'a [u8], index: usize| {
            let column = self.columns.get(index)?;
            let value = after(rest, column.name)?.strip_prefix(b": ")?;
            let end = value.iter().position(|byte| !byte.is_ascii_alphanumeric());
            let (value, rest_of) = value.split_at_checked(end.unwrap_or(value.len()))?;
            scratch.saw_prefix |= value.starts_with(b"0x");
            *scratch.texts.get_mut(index)? = value;
            *rest = rest_of;
            Some(())
        };
        for &index in others {
            value_of(&mut rest, index)?;
            rest = rest.strip_prefix(b", ")?;
        }
        value_of(&mut rest, last)?;
        rest.is_empty().then_some(())
    }

    fn by_arguments(&mut self, text: &'a [u8], scratch: &mut Scratch<'a>) -> bool {
        self.order.clear();
        let mut arguments = std::mem::take(&mut scratch.arguments);
        let is_list = syscall::scan(text, &mut arguments);
        if is_list {
            let notation = match scratch.is_prefixed {
                true => Notation::Argument,
                false => Notation::BareArgument,
            };
            let mut has_pointed = false;
            for argument in &arguments {
                // Kernels that print the data of pointers (Linux 7.0) print decimal numbers, without `0x`.
                scratch.saw_prefix |= argument.value.starts_with(b"0x")
                    || argument.text.is_some()
                    || argument.bytes.is_some();
                let column = self.column(argument.name, false, Class::UInt, notation, scratch);
                if let Some((column, place)) =
                    column.and_then(|column| Some((column, scratch.texts.get_mut(column)?)))
                {
                    *place = argument.value;
                    self.order.push(column);
                }
                let (class, pointed) = match (argument.text, argument.bytes) {
                    (Some(text), _) => (Class::Text, text),
                    (None, Some(bytes)) => (Class::Binary, bytes),
                    (None, None) => continue,
                };
                has_pointed = true;
                let column = self.column(argument.name, true, class, Notation::Plain, scratch);
                if let Some(place) = column.and_then(|column| scratch.texts.get_mut(column)) {
                    *place = pointed;
                }
            }
            if has_pointed {
                self.order.clear();
            }
        }
        scratch.arguments = arguments;
        is_list
    }

    fn put_key(
        &mut self,
        key: &'a [u8],
        value: &'a [u8],
        scratch: &mut Scratch<'a>,
    ) -> Option<usize> {
        let is_retval = key == b"ret" && self.name.starts_with(b"sys_exit_");
        let (class, notation) = match is_retval {
            true => (Class::Int, Notation::HexSigned),
            false => (Class::Empty, Notation::Plain),
        };
        let column = self.column(key, false, class, notation, scratch)?;
        if let Some(place) = scratch.texts.get_mut(column) {
            *place = value;
        }
        Some(column)
    }

    /// Sets the text of a column, which is created if necessary.
    pub(super) fn put(
        &mut self,
        name: &'a [u8],
        class: Class,
        notation: Notation,
        text: &'a [u8],
        scratch: &mut Scratch<'a>,
    ) {
        let column = self.column(name, false, class, notation, scratch);
        if let Some(place) = column.and_then(|column| scratch.texts.get_mut(column)) {
            *place = text;
        }
    }

    /// The column with this name; created if necessary.
    fn column(
        &mut self,
        name: &'a [u8],
        is_pointed: bool,
        class: Class,
        notation: Notation,
        scratch: &mut Scratch<'a>,
    ) -> Option<usize> {
        let is_it =
            |column: &Column<'_>| column.is_pointed == is_pointed && same(column.name, name);
        // Lines have their names in the same order, mostly.
        let next = scratch.next_column;
        let found = match self.columns.get(next).is_some_and(is_it) {
            true => Some(next),
            false => self.columns.iter().position(is_it),
        };
        if let Some(index) = found {
            scratch.next_column = index + 1;
            return Some(index);
        }
        if self.columns.len() >= MAX_COLUMNS {
            self.is_plain = true;
            return None;
        }
        self.columns.push(Column {
            name,
            is_pointed,
            class,
            notation,
        });
        scratch.texts.resize(self.columns.len(), &[]);
        self.changed();
        Some(self.columns.len() - 1)
    }

    /// Widens a column whose text did not fit.
    #[cold]
    pub(super) fn widen(&mut self, column: usize, text: &[u8]) {
        let Some(column) = self.columns.get_mut(column) else {
            return;
        };
        let seen = match column.notation {
            Notation::Plain => Class::of(text),
            // A known notation fails only for text that is not a number.
            _ => Class::Text,
        };
        let wider = column.class.with(seen);
        column.class = if wider == column.class {
            Class::Text
        } else {
            wider
        };
        self.changed();
    }
}

impl Column<'_> {
    fn field(&self) -> Field {
        let name = String::from_utf8_lossy(self.name);
        Field {
            name: match self.is_pointed {
                true => format!("__{name}_val"),
                false => name.into_owned(),
            },
            kind: self.class.field_type(),
            layout: None,
            declaration: String::new(),
        }
    }
}

/// Whether an address is in user space.
fn is_user(place: &[u8]) -> bool {
    let address = prefixed_hex(place).or_else(|| bare_hex(place));
    address.is_some_and(|address| address >> 63 == 0)
}
