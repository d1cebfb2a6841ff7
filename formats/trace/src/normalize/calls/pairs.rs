//! Pairs of events that are the edges of one call: system calls, interrupts, work, timers, probes, Android's markers.
//!
//! ```text
//! syscalls:sys_enter_newstat … sys_exit_newstat       sys_stat, as by number; retval = ret
//! irq:irq_handler_entry irq=28 name=virtio0 … _exit   irq:virtio0, context irq
//! ftrace:print buf="B|611|draw" … buf="E|611"         draw
//! probe:vfs_read (__probe_ip) … __return (__probe_func, __probe_ret_ip)     vfs_read, retval = arg1 or ret
//! ```
//! Pairs are never guessed from names: these are the kernel's own. A probe's entry and return are matched by the
//! address of the function, which both carry. An entry whose exit is never recorded is not a call.

use perfquet_events::event::{CallEdge, Context, EventType, Field, FieldType, Purpose};

use super::super::texts::TextId;
use super::args::{self, Arg};
use crate::system_call;
use hashbrown::HashMap;

/// Maximum offset in a function at which a probe is still at its entry: `endbr64`, the patched call of ftrace.
pub(super) const ENTRY_BYTES: u64 = 16;
/// The class of all probes; their key is the address of the function.
pub(super) const PROBE: u32 = 0;
/// The class of all markers, which nest like functions.
pub(super) const MARKER: u32 = 1;
/// Class of edges with a function declared by the recorder; their key is the function's ID.
pub(super) const DECLARED: u32 = 2;

/// The role of an event type in calls.
#[derive(Debug, Clone)]
pub(crate) struct Role {
    pub(super) edge: Edge,
    /// The pair's class; [`PROBE`] for all probes, [`MARKER`] for all markers.
    pub(super) class: u32,
    /// Field common to both edges.
    pub(super) key: Option<usize>,
    /// The key, if it is not in a field.
    pub(super) number: u64,
    pub(super) name: NameOf,
    /// File that contains the function; empty if unknown.
    pub(super) module: String,
    /// Fields recorded with the call.
    pub(super) args: Vec<Arg>,
    pub(super) retval: Option<usize>,
    pub(super) context: Context,
    /// For edges of system calls: the kind of event.
    pub(super) system_call: Option<SystemCall>,
    /// Field with the system call number.
    pub(super) number_of_call: Option<usize>,
    /// Column with the buffer of the event, if the trace has several.
    pub(super) buffer: Option<usize>,
    /// For entries of probes: whether a return of the function was seen.
    pub(super) is_proven: bool,
    /// Number of hits before it was known to be an edge.
    pub(super) hits: u32,
    pub(super) ids: NameIds,
}

/// String IDs of names, with the generation of the strings.
#[derive(Debug, Clone, Default)]
pub(super) struct NameIds {
    /// Of the fixed name.
    pub(super) fixed: Option<(u32, TextId)>,
    /// Of small numbers.
    pub(super) numbers: Vec<Option<(u32, TextId)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edge {
    Enter,
    Leave,
}

/// Events of system calls. If both kinds are recorded, each call appears twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SystemCall {
    /// `syscalls:sys_enter_openat`
    Named,
    /// `raw_syscalls:sys_enter`
    Numbered,
}

/// The source of the call's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NameOf {
    /// A fixed name.
    Fixed(String),
    /// A string in the payload, with this prefix.
    Text(&'static str, usize),
    /// The number of a system call in the payload.
    SystemCall(usize),
    /// The number of a softirq in the payload.
    Softirq(usize),
    /// A function's address in the payload, or its name.
    Function(usize),
    /// In the text of a marker.
    Marker(usize),
    /// Known from the other edge.
    Unknown,
}

/// The pairs found so far.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// The first are those of probes, of markers, and of declared edges.
    classes: Vec<Class>,
    /// IDs of functions, with their modules, whose edges the recorder declares.
    declared: HashMap<(String, String), u64>,
}

/// Whether an entry's exit is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recorded {
    /// It is recorded.
    Yes,
    /// It may still be declared, or is not known to be of this function.
    Perhaps,
    /// From this hit on, no exit is expected: its earlier entries are no calls.
    GivenUp,
    /// No exit is recorded.
    No,
}

/// Readers declare types as they find them: after this many entries without an exit, exits count as not recorded.
pub(super) const EARLY_ENTRIES: u32 = 64;
/// After this many hits that never match a return, a probe counts as inside a function.
const EARLY_HITS: u32 = 1024;

#[derive(Debug)]
struct Class {
    name: String,
    has_enter: bool,
    has_leave: bool,
}

/// `include/linux/interrupt.h`, in the order of their numbers.
pub(super) const SOFTIRQS: [&str; 10] = [
    "HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
];

/// A pair with its own names.
struct Known {
    system: &'static str,
    enter: &'static str,
    leave: &'static str,
    /// Field that both have.
    key: &'static str,
    context: Context,
    name: fn(&EventType) -> NameOf,
    retval: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        system: "irq",
        enter: "irq_handler_entry",
        leave: "irq_handler_exit",
        key: "irq",
        context: Context::Irq,
        name: |event| text("irq:", "name", event),
        retval: "ret",
    },
    Known {
        system: "irq",
        enter: "softirq_entry",
        leave: "softirq_exit",
        key: "vec",
        context: Context::Softirq,
        name: |event| place("vec", event).map_or(NameOf::Unknown, NameOf::Softirq),
        retval: "",
    },
    Known {
        system: "irq",
        enter: "tasklet_entry",
        leave: "tasklet_exit",
        key: "tasklet",
        context: Context::Softirq,
        name: |event| function("func", event),
        retval: "",
    },
    Known {
        system: "workqueue",
        enter: "workqueue_execute_start",
        leave: "workqueue_execute_end",
        key: "work",
        context: Context::Task,
        name: |event| function("function", event),
        retval: "",
    },
    Known {
        system: "timer",
        enter: "timer_expire_entry",
        leave: "timer_expire_exit",
        key: "timer",
        context: Context::Softirq,
        name: |event| function("function", event),
        retval: "",
    },
    Known {
        system: "timer",
        enter: "hrtimer_expire_entry",
        leave: "hrtimer_expire_exit",
        key: "hrtimer",
        context: Context::Irq,
        name: |event| function("function", event),
        retval: "",
    },
    Known {
        system: "raw_syscalls",
        enter: "sys_enter",
        leave: "sys_exit",
        key: "id",
        context: Context::Task,
        name: |event| place("id", event).map_or(NameOf::Unknown, NameOf::SystemCall),
        retval: "ret",
    },
];

impl Role {
    fn of(context: Context) -> Role {
        Role {
            edge: Edge::Enter,
            class: PROBE,
            key: None,
            number: 0,
            name: NameOf::Unknown,
            module: String::new(),
            args: Vec::new(),
            retval: None,
            context,
            system_call: None,
            number_of_call: None,
            buffer: None,
            is_proven: false,
            hits: 0,
            ids: NameIds::default(),
        }
    }

    /// Remembers the name of a number.
    pub(super) fn set_number(&mut self, number: usize, name: (u32, TextId)) {
        if number >= self.ids.numbers.len() {
            self.ids.numbers.resize(number + 1, None);
        }
        if let Some(place) = self.ids.numbers.get_mut(number) {
            *place = Some(name);
        }
    }
}

impl Pairs {
    /// The role of an event type in calls.
    pub(crate) fn role_of(&mut self, event: &EventType) -> Option<Role> {
        if self.classes.is_empty() {
            self.class("probes");
            self.class("markers");
            self.class("declared");
        }
        match &event.purpose {
            Purpose::Edge(edge) => return Some(self.edge(edge, event)),
            Purpose::RowsOnly => return None,
            Purpose::Rows | Purpose::Start(_) | Purpose::Stop(_) => {}
        }
        let mut role = self
            .system_call(event)
            .or_else(|| self.known(event))
            .or_else(|| self.vector(event))
            .or_else(|| probe(event))
            .or_else(|| marker(event))?;
        let is_buffer = |field: &Field| field.name == "buffer" && field.kind == FieldType::Text;
        role.buffer = event.fields.iter().rposition(is_buffer);
        if let Some(class) = self.classes.get_mut(role.class as usize) {
            let is_marker = role.class == MARKER;
            class.has_enter |= role.edge == Edge::Enter;
            class.has_leave |= role.edge == Edge::Leave || is_marker;
        }
        Some(role)
    }

    /// Whether exits are recorded for the entries of an event. Called once per edge.
    pub(crate) fn is_recorded(&mut self, role: &mut Role) -> Recorded {
        let Some(class) = self.classes.get(role.class as usize) else {
            return Recorded::No;
        };
        let both = class.has_enter && class.has_leave;
        if role.is_proven || role.class == DECLARED || (both && role.class != PROBE) {
            return Recorded::Yes;
        }
        role.hits = role.hits.saturating_add(1);
        let early = if both { EARLY_HITS } else { EARLY_ENTRIES };
        match role.hits {
            _ if role.edge == Edge::Leave => Recorded::Perhaps,
            hits if hits <= early => Recorded::Perhaps,
            hits if hits == early + 1 => Recorded::GivenUp,
            _ => Recorded::No,
        }
    }

    fn class(&mut self, name: &str) -> u32 {
        let known = self.classes.iter().position(|class| class.name == name);
        known.unwrap_or_else(|| {
            self.classes.push(Class {
                name: name.to_owned(),
                has_enter: false,
                has_leave: false,
            });
            self.classes.len() - 1
        }) as u32
    }

    /// An edge declared by the recorder.
    fn edge(&mut self, edge: &CallEdge, event: &EventType) -> Role {
        let next = self.declared.len() as u64;
        let key = (edge.module.clone(), edge.function.clone());
        let retval = place("ret", event).filter(|_| !edge.is_entry);
        let retval = retval.filter(|&place| args::is_number(event, place));
        Role {
            edge: if edge.is_entry {
                Edge::Enter
            } else {
                Edge::Leave
            },
            class: DECLARED,
            number: *self.declared.entry(key).or_insert(next),
            name: NameOf::Fixed(edge.function.clone()),
            module: edge.module.clone(),
            args: args::of(event, retval),
            retval,
            ..Role::of(Context::Task)
        }
    }

    fn system_call(&mut self, event: &EventType) -> Option<Role> {
        let (edge, name) = match (
            event.name.strip_prefix("sys_enter_"),
            event.name.strip_prefix("sys_exit_"),
        ) {
            (Some(name), _) => (Edge::Enter, name),
            (None, Some(name)) => (Edge::Leave, name),
            (None, None) => return None,
        };
        Some(Role {
            edge,
            class: self.class(&event.name.replacen("sys_exit_", "sys_enter_", 1)),
            // As raw events, which have its number.
            name: NameOf::Fixed(format!("sys_{}", system_call::of_event(name))),
            retval: place("ret", event),
            system_call: Some(SystemCall::Named),
            number_of_call: place("__syscall_nr", event).or_else(|| place("nr", event)),
            ..Role::of(Context::Task)
        })
    }

    fn known(&mut self, event: &EventType) -> Option<Role> {
        let known = KNOWN.iter().find(|known| {
            event.system == known.system && [known.enter, known.leave].contains(&&*event.name)
        })?;
        let edge = match event.name == known.enter {
            true => Edge::Enter,
            false => Edge::Leave,
        };
        let name = match edge {
            Edge::Enter => (known.name)(event),
            // Only the entry has the name of an interrupt's handler.
            Edge::Leave => match (known.name)(event) {
                NameOf::Function(_) => NameOf::Unknown,
                name => name,
            },
        };
        Some(Role {
            edge,
            class: self.class(known.enter),
            // Without the key, the ended call is unknown.
            key: Some(place(known.key, event)?),
            name,
            retval: place(known.retval, event),
            system_call: (known.system == "raw_syscalls").then_some(SystemCall::Numbered),
            number_of_call: place(known.key, event).filter(|_| known.system == "raw_syscalls"),
            ..Role::of(known.context)
        })
    }

    /// Interrupts of the CPU itself: `irq_vectors:local_timer_entry`, on x86.
    fn vector(&mut self, event: &EventType) -> Option<Role> {
        if event.system != "irq_vectors" {
            return None;
        }
        let (edge, name) = match (
            event.name.strip_suffix("_entry"),
            event.name.strip_suffix("_exit"),
        ) {
            (Some(name), _) => (Edge::Enter, name),
            (None, Some(name)) => (Edge::Leave, name),
            (None, None) => return None,
        };
        Some(Role {
            edge,
            class: self.class(&format!("vector {name}")),
            key: place("vector", event),
            name: NameOf::Fixed(format!("irq:{name}")),
            ..Role::of(Context::Irq)
        })
    }
}

/// kprobe, uprobe and fprobe events: `__probe_ip` at an entry, `__probe_func` and `__probe_ret_ip` at a return.
fn probe(event: &EventType) -> Option<Role> {
    let (edge, key) = match (place("__probe_ip", event), place("__probe_func", event)) {
        (_, Some(function)) => (Edge::Leave, function),
        (Some(ip), None) => (Edge::Enter, ip),
        (None, None) => return None,
    };
    let retval = ["ret", "retval", "arg1"]
        .iter()
        .find_map(|name| place(name, event));
    let retval = retval.filter(|_| edge == Edge::Leave);
    Some(Role {
        edge,
        class: PROBE,
        key: Some(key),
        name: NameOf::Function(key),
        args: args::of(event, retval.filter(|&place| args::is_number(event, place))),
        retval,
        ..Role::of(Context::Task)
    })
}

/// Strings written by user programs, including begin and end of Android's sections.
fn marker(event: &EventType) -> Option<Role> {
    if event.system != "ftrace" || event.name != "print" {
        return None;
    }
    Some(Role {
        // The string decides; it may also be a leave.
        edge: Edge::Enter,
        class: MARKER,
        key: None,
        name: NameOf::Marker(place("buf", event)?),
        ..Role::of(Context::Task)
    })
}

/// The edge of a marker, with the name of the section if it begins one: `B|PID|NAME`, `E` or `E|PID`.
/// (system/core/libcutils/include/cutils/trace.h of Android, and the `trace_marker` writers of Perfetto and Chromium.)
pub(super) fn edge_of_marker(text: &[u8]) -> Option<(Edge, &[u8])> {
    let text = text.trim_ascii_end();
    match text {
        b"E" => return Some((Edge::Leave, b"")),
        _ if text.starts_with(b"E|") => return Some((Edge::Leave, b"")),
        _ => {}
    }
    let rest = text.strip_prefix(b"B|")?;
    let bar = rest.iter().position(|&byte| byte == b'|')?;
    let (pid, name) = (rest.get(..bar)?, rest.get(bar + 1..)?);
    let is_section = pid.iter().all(u8::is_ascii_digit) && !name.is_empty();
    is_section.then_some((Edge::Enter, name))
}

/// The name of a probed function whose address has no symbol: perf and tracefs put it into the event's name.
pub(super) fn name_of_probe(event: &str) -> &str {
    let name = event.strip_prefix("p_").or(event.strip_prefix("r_"));
    let name = name.unwrap_or(event);
    let ends = ["__return", "__exit", "__entry"];
    let name = ends
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    // tracefs appends the offset; perf appends a number to a repeated name.
    let base = name.trim_end_matches(|digit: char| digit.is_ascii_digit());
    base.strip_suffix('_')
        .filter(|base| !base.is_empty())
        .unwrap_or(name)
}

fn place(name: &str, event: &EventType) -> Option<usize> {
    let is = |field: &Field| field.name == name;
    event
        .fields
        .iter()
        .position(is)
        .filter(|_| !name.is_empty())
}

fn text(prefix: &'static str, name: &str, event: &EventType) -> NameOf {
    place(name, event).map_or(NameOf::Unknown, |place| NameOf::Text(prefix, place))
}

fn function(name: &str, event: &EventType) -> NameOf {
    place(name, event).map_or(NameOf::Unknown, NameOf::Function)
}
