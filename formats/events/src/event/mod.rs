//! The event vocabulary shared by all readers and the store.
//!
//! A reader turns bytes into a stream of [`Event`]s, in order of time where the format has one, and passes each to a
//! [`Sink`]. It keeps no tables and does not see Parquet. `normalize` keeps all state: thread names, mappings, and the
//! pairing of entries and exits.
//!
//! ```text
//! Event::Fact(Fact::OsRelease("6.12.117"))
//! Event::Type(EventType { system: "sched", name: "sched_switch", fields: [prev_comm: Text, …] })
//! Event::Mapping(Mapping { pid: 220, start: 0x401000, path: "/w/workload", … })
//! Event::Sample(Sample { event: EventId(0), time: 50102807555, tid: 220, fields: Raw(…), … })
//! Event::Problem(Problem { place: Place::Offset(0x7f10), message: "record of 3 bytes, …" })
//! ```
//!
//! Events borrow: they live as long as the call that passes them. Strings are raw bytes;
//! the store replaces invalid UTF-8.

mod aggregate;
pub mod bars;
mod call;
mod code;
mod counter_value;
mod flags;
mod hit;
mod paired_call;
mod payload;
mod process;
mod selection;
mod stack;

pub use aggregate::{Action, Aggregate, AggregateValue, Bucket};
pub use call::{Call, Common, Context, Enter, Function, Leave, Switch};
pub use code::KeptCode;
pub use counter_value::{Counted, CounterValue};
pub use flags::Flags;
pub use hit::{Hit, Id, Stacks};
pub use paired_call::{CallArgument, CallFunction, PairedCall};
pub use payload::{Array, Integer, Op, Payload, Plan, decode_field};
pub use process::{Cgroup, Namespaces, OpenFile, ProcessState};
pub use selection::{CallEdge, Contexts, Purpose, Selection, span};
pub use stack::{NamedFrame, Stack, StackDefinition};

use crate::Error;

/// Marks a time of 2^63 ns or more, which rows cannot hold: they have NULL, and `problems` has a row.
pub const TIME_BEYOND: i64 = i64::MAX;

/// Converts nanoseconds into the time of an event.
#[inline]
pub fn time_of(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(TIME_BEYOND)
}

/// Receives the events of one input, in the reader's order.
pub trait Sink {
    /// Takes one event. An error ends the import, for example because the disk is full.
    fn event(&mut self, event: Event<'_>) -> Result<(), Error>;

    /// Takes one [`Event::Sample`] that has only the usual members.
    fn hit(&mut self, hit: &Hit<'_>) -> Result<(), Error> {
        self.event(Event::Sample(&hit.sample()))
    }
}

/// One item of a trace.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A fact about the recording as a whole, for the manifest.
    Fact(Fact<'a>),
    /// The recorder's selection of calls and events; a second one replaces the first.
    Selection(&'a Selection),
    /// Declares the next event type: the first declared is `EventId(0)`, the next `EventId(1)`, ….
    Type(&'a EventType),
    /// One hit of a tracepoint or probe, or one sample of a counter or clock.
    Sample(&'a Sample<'a>),
    /// A function was entered; its end comes later.
    Enter(&'a Enter<'a>),
    /// A function returned.
    Leave(&'a Leave<'a>),
    /// A complete call.
    Call(&'a Call<'a>),
    /// A complete call, paired by a BPF program.
    PairedCall(&'a PairedCall<'a>),
    /// A stack that later events reference by ID.
    Stack(StackDefinition<'a>),
    /// One key of an aggregation computed by the recording tool.
    Aggregate(&'a Aggregate<'a>),
    /// Occurrences of an event in a period, counted by the recording tool.
    Count(&'a CounterValue<'a>),
    /// Another thread runs on a CPU.
    Switch(Switch<'a>),
    /// A thread was renamed.
    Comm(Comm<'a>),
    /// A thread was created.
    Fork(Fork),
    /// A thread ended.
    Exit(Exit),
    /// What a process runs, where, and how it ended.
    Process(ProcessState<'a>),
    /// A file was open in a process.
    OpenFile(OpenFile<'a>),
    /// The code of a function, which will be gone later.
    KeptCode(KeptCode<'a>),
    /// The path of a cgroup, to which samples refer.
    Cgroup(Cgroup<'a>),
    /// The namespaces of a thread.
    Namespaces(Namespaces<'a>),
    /// A file, or anonymous memory, was mapped into a process or the kernel.
    Mapping(Mapping<'a>),
    /// The build ID of a path, found after its mapping (perf's header, its BUILD_ID records).
    BuildId(BuildId<'a>),
    /// The kernel gained or lost a symbol (BPF programs, out-of-line code).
    KernelSymbol(KernelSymbol<'a>),
    /// A string in kernel memory, referenced by its address in payloads. Precedes the types of those events.
    KernelText(KernelText<'a>),
    /// A symbol from the input itself (simpleperf's symbol tables, kallsyms in a file).
    Symbol(Symbol<'a>),
    /// Lost events.
    Loss(Loss<'a>),
    /// Unreadable data.
    Problem(Problem<'a>),
    /// Progress of reading the input, sent occasionally.
    Progress(Progress),
}

/// Facts about a recording. A repeated fact replaces the earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact<'a> {
    /// Host name.
    Host(&'a str),
    /// `uname -r` of the recorded kernel.
    OsRelease(&'a str),
    /// `uname -m`.
    Architecture(&'a str),
    /// The tool and version that recorded.
    Recorder(&'a str),
    /// The command line of the recorder, joined by spaces.
    CommandLine(&'a str),
    /// CPU model.
    CpuModel(&'a str),
    /// CPUs online.
    Cpus(u32),
    /// Physical memory in bytes.
    MemoryBytes(u64),
    /// The clock of `time`: "monotonic", "sched_clock", "boottime", "realtime", …
    Clock(&'a str),
    /// Offset from `time` to nanoseconds since 1970 (UTC).
    WallOffset(i64),
    /// Build ID of the recorded kernel.
    KernelBuildId(&'a [u8]),
    /// Identifies the recording: files into which it was divided have the same.
    Recording(&'a str),
    /// Any other fact, with its own name ("perf.pmu_mappings").
    Other {
        /// Name, prefixed with the format.
        name: &'a str,
        /// Value as a string.
        value: &'a str,
    },
}

/// Index of an event type, in the order of declaration within one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub u32);

/// An event type: a tracepoint with its fields, a counter with its period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventType {
    /// "sched", "probe", "hardware", "software", "perf" for perf's own records; empty if unknown.
    pub system: String,
    /// "sched_switch", "cycles:u".
    pub name: String,
    /// Selects the table: `samples` for counters and clocks, otherwise a table per event type.
    pub kind: EventKind,
    /// Columns after the common ones.
    pub fields: Vec<Field>,
    /// Byte order of raw payloads.
    pub big_endian: bool,
    /// Sampling period: one sample per this many events.
    pub period: Option<u64>,
    /// Requested samples per second.
    pub frequency: Option<u64>,
    /// Filter in the kernel's syntax.
    pub filter: Option<String>,
    /// `print fmt` of the kernel's format file.
    pub print_format: Option<String>,
    /// Members of [`Sample`] that the event has besides its fields, so that its table
    /// needs columns for them. Counters have all of them.
    pub extras: Extras,
    /// Purpose of the hits.
    pub purpose: Purpose,
    /// Threads inherit the event, and each has its own counters with the same IDs: see [`Sample::read`].
    pub is_inherited: bool,
    /// With each hit comes an [`Event::Switch`], which names the threads of events on its CPU that have none.
    pub has_switches: bool,
}

/// Members of a sample that only some tracepoint recordings have (`perf record -d`, `--all-cgroups`, …).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extras {
    /// `period` varies (sampling by frequency, or by a period above 1).
    pub period: bool,
    /// `addr`
    pub addr: bool,
    /// `weight`
    pub weight: bool,
    /// `data_src`
    pub data_src: bool,
    /// `phys_addr`
    pub phys_addr: bool,
    /// `cgroup`
    pub cgroup: bool,
}

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EventKind {
    /// A hardware, cache, raw or PMU counter.
    Counter,
    /// A software counter or clock of the kernel (cpu-clock, page-faults).
    Software,
    /// A static tracepoint of the kernel.
    #[default]
    Tracepoint,
    /// A dynamic probe in the kernel, at entry or inside.
    Kprobe,
    /// A dynamic probe at a kernel function's return.
    Kretprobe,
    /// A dynamic probe in user code.
    Uprobe,
    /// A dynamic probe at a user function's return.
    Uretprobe,
    /// A static probe in user code.
    Usdt,
    /// An event of the recorder itself (context switches, throttling).
    Recorder,
    /// Text written into the trace by a user.
    Marker,
}

impl EventKind {
    /// Whether hits go to the table `samples`.
    #[inline]
    pub fn is_sampled(self) -> bool {
        matches!(self, EventKind::Counter | EventKind::Software)
    }

    /// Returns the value of `event_types.kind`.
    #[inline]
    pub fn as_str(self) -> &'static str {
        match self {
            EventKind::Counter => "counter",
            EventKind::Software => "software",
            EventKind::Tracepoint => "tracepoint",
            EventKind::Kprobe => "kprobe",
            EventKind::Kretprobe => "kretprobe",
            EventKind::Uprobe => "uprobe",
            EventKind::Uretprobe => "uretprobe",
            EventKind::Usdt => "usdt",
            EventKind::Recorder => "recorder",
            EventKind::Marker => "marker",
        }
    }
}

/// One column of an event type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name in the format file.
    pub name: String,
    /// Type of the column.
    pub kind: FieldType,
    /// Position in a raw payload; `None` for events whose values are [`Value`]s.
    pub layout: Option<Layout>,
    /// The declaration as written (`char prev_comm[16]`), for `tables`.
    pub declaration: String,
}

/// Types of fields. Lists are not nested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldType {
    /// `true`, `false`
    Bool,
    /// Signed integer with this size in bytes: 1, 2, 4 or 8.
    Int(u8),
    /// Unsigned integer with this size in bytes: 1, 2, 4 or 8.
    UInt(u8),
    /// 64-bit floating point.
    Float,
    /// String, terminated by NUL or its length.
    Text,
    /// Opaque bytes.
    Binary,
    /// Array of signed integers with this size in bytes.
    IntList(u8),
    /// Array of unsigned integers with this size in bytes.
    UIntList(u8),
    /// Array of strings.
    TextList,
}

/// Position of a field in a raw payload (include/linux/trace_events.h; `offset:` and `size:` in a format file).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes from the start of the payload (`common_type`).
    pub offset: u32,
    /// Size in bytes.
    pub size: u32,
    /// Relation of these bytes to the value.
    pub place: FieldPlace,
}

/// Relation of the bytes at a field's offset to its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldPlace {
    /// The bytes are the value.
    Inline,
    /// `__data_loc`: low half offset from the start of the payload, high half length.
    DataLoc,
    /// `__rel_loc`: low half offset from the end of these 4 bytes, high half length.
    RelLoc,
    /// From here to the end of the payload (`T name[]` with size 0).
    Rest,
}

/// One hit of a tracepoint or probe, or one sample of a counter or clock. `None`: not recorded. One struct, because a format may have
/// any of these members in a record.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// The event type.
    pub event: EventId,
    /// Time in nanoseconds on the trace's clock.
    pub time: Option<i64>,
    /// CPU number.
    pub cpu: Option<u32>,
    /// Process ID.
    pub pid: Option<i32>,
    /// Thread ID.
    pub tid: Option<i32>,
    /// Thread name, if the format has it in each event; otherwise `normalize` adds it.
    pub comm: Option<&'a [u8]>,
    /// Kernel stack (also of a guest kernel or hypervisor).
    pub kernel_stack: Stack<'a>,
    /// User stack.
    pub user_stack: Stack<'a>,
    /// Address space of `ip`.
    pub space: Space,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// Number of events that the sample represents.
    pub period: Option<u64>,
    /// Data address.
    pub addr: Option<u64>,
    /// Weight, usually latency in cycles.
    pub weight: Option<u64>,
    /// `union perf_mem_data_src`, little-endian bit order.
    pub data_src: Option<u64>,
    /// Transaction flags.
    pub transaction: Option<u64>,
    /// Physical data address.
    pub phys_addr: Option<u64>,
    /// Cgroup ID.
    pub cgroup: Option<u64>,
    /// Page size of the data address in bytes.
    pub data_page_size: Option<u64>,
    /// Page size of the instruction in bytes.
    pub code_page_size: Option<u64>,
    /// Stream ID (`PERF_SAMPLE_STREAM_ID`).
    pub stream_id: Option<u64>,
    /// Branches taken, newest first.
    pub branches: &'a [Branch],
    /// Index of the newest branch in the hardware's ring (`PERF_SAMPLE_BRANCH_HW_INDEX`).
    pub branch_hw_index: Option<u64>,
    /// Events counted between the branches, packed per branch (`PERF_SAMPLE_BRANCH_COUNTERS`).
    pub branch_counters: &'a [u64],
    /// Registers in user space.
    pub user_registers: Option<Registers<'a>>,
    /// Registers at the interrupt.
    pub interrupt_registers: Option<Registers<'a>>,
    /// Copied user stack, from the stack pointer upwards (`--call-graph dwarf`).
    pub user_memory: &'a [u8],
    /// Counter values read with the sample (`PERF_SAMPLE_READ`), the group's leader first. With several
    /// members, the tables get one row for each that increased, as in `perf script`.
    pub read: &'a [ReadValue],
    /// Values of the event type's fields.
    pub fields: Fields<'a>,
}

impl Sample<'_> {
    /// Returns a sample without any values.
    #[inline]
    pub fn of(event: EventId) -> Self {
        Sample {
            event,
            time: None,
            cpu: None,
            pid: None,
            tid: None,
            comm: None,
            kernel_stack: Stack::None,
            user_stack: Stack::None,
            space: Space::Unknown,
            ip: None,
            period: None,
            addr: None,
            weight: None,
            data_src: None,
            transaction: None,
            phys_addr: None,
            cgroup: None,
            data_page_size: None,
            code_page_size: None,
            stream_id: None,
            branches: &[],
            branch_hw_index: None,
            branch_counters: &[],
            user_registers: None,
            interrupt_registers: None,
            user_memory: &[],
            read: &[],
            fields: Fields::None,
        }
    }
}

/// Address space of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum Space {
    /// Not recorded.
    #[default]
    Unknown,
    /// The host's kernel.
    Kernel,
    /// A process.
    User,
    /// The hypervisor.
    Hypervisor,
    /// A guest's kernel.
    GuestKernel,
    /// A guest's process.
    GuestUser,
}

impl Space {
    /// Returns the value of `frames.space`; `None` for NULL.
    #[inline]
    pub fn as_str(self) -> Option<&'static str> {
        match self {
            Space::Unknown => None,
            Space::Kernel => Some("kernel"),
            Space::User => Some("user"),
            Space::Hypervisor => Some("hypervisor"),
            Space::GuestKernel => Some("guest kernel"),
            Space::GuestUser => Some("guest user"),
        }
    }
}

/// One branch taken (`struct perf_branch_entry`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// Source address.
    pub from: u64,
    /// Target address.
    pub to: u64,
    /// mispred, predicted, in_tx, abort, cycles:16, type:4, …, in little-endian bit order.
    pub flags: u64,
}

/// Registers of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers<'a> {
    /// Recorded registers: bit n is register n of the architecture's `perf_regs.h`.
    pub mask: u64,
    /// 1: 32-bit, 2: 64-bit (`enum perf_sample_regs_abi`).
    pub abi: u64,
    /// One value per set bit, lowest first.
    pub values: &'a [u64],
}

/// One counter's value (`read_format`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadValue {
    /// The counter's event; `None` if its ID is unknown.
    pub event: Option<EventId>,
    /// ID of the counter (one per CPU, and per thread unless inherited).
    pub id: Option<u64>,
    /// Value since the counter was opened.
    pub value: u64,
    /// Number of samples lost so far.
    pub lost: Option<u64>,
}

/// Values of an event type's fields.
#[derive(Debug, Clone, Copy, Default)]
pub enum Fields<'a> {
    /// Not recorded: all NULL.
    #[default]
    None,
    /// The kernel's payload; each [`Field`] has its [`Layout`].
    Raw(Payload<'a>),
    /// One value per field, in order; missing ones at the end are NULL.
    Values(&'a [Value<'a>]),
}

impl<'a> Fields<'a> {
    /// Returns the value of a field; NULL if it was not recorded.
    #[inline]
    pub fn value(&self, field: usize) -> Value<'a> {
        match self {
            Fields::None => Value::Null,
            Fields::Raw(payload) => payload.value(field),
            Fields::Values(values) => values.get(field).copied().unwrap_or(Value::Null),
        }
    }

    /// Returns the context in which the event occurred, if the payload has it.
    #[inline]
    pub fn context(&self) -> Option<Context> {
        match self {
            Fields::Raw(payload) => payload.context(),
            Fields::None | Fields::Values(_) => None,
        }
    }
}

/// A value of a field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// NULL
    Null,
    /// For `Bool`.
    Bool(bool),
    /// For `Int`.
    Int(i64),
    /// For `UInt`.
    UInt(u64),
    /// For `Float`.
    Float(f64),
    /// For `Text` and `Binary`.
    Bytes(&'a [u8]),
    /// For `IntList`.
    IntList(&'a [i64]),
    /// For `UIntList`.
    UIntList(&'a [u64]),
    /// Elements inside a payload, for `IntList` and `UIntList`.
    Array(Array<'a>),
    /// For `TextList`.
    TextList(&'a [&'a [u8]]),
}

/// A thread was renamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comm<'a> {
    /// Time; `None` for the state at the start.
    pub time: Option<i64>,
    /// Process ID; `None` if the format has only threads.
    pub pid: Option<i32>,
    /// Thread ID.
    pub tid: i32,
    /// New name.
    pub comm: &'a [u8],
    /// Renamed by `execve`: the process has a new program, its mappings are gone.
    pub exec: bool,
}

/// A thread was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// Time; `None` for the state at the start.
    pub time: Option<i64>,
    /// ID of its process.
    pub pid: i32,
    /// ID of the thread.
    pub tid: i32,
    /// ID of the creating process.
    pub parent_pid: i32,
    /// ID of the creating thread.
    pub parent_tid: i32,
}

/// A thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// Time of the event.
    pub time: Option<i64>,
    /// ID of its process, if the input has it.
    pub pid: Option<i32>,
    /// ID of the thread.
    pub tid: i32,
    /// Exit status, if known.
    pub code: Option<i32>,
}

/// A mapped address range, of a file or anonymous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// Time; `None` for the state at the start.
    pub time: Option<i64>,
    /// Process ID; -1 for the kernel.
    pub pid: i32,
    /// ID of the mapping thread.
    pub tid: i32,
    /// Address space.
    pub space: Space,
    /// First address.
    pub start: u64,
    /// Size in bytes.
    pub length: u64,
    /// File offset of the first address.
    pub file_offset: u64,
    /// File, or a name in brackets, or `//anon`.
    pub path: &'a [u8],
    /// Build ID, if the record has it.
    pub build_id: Option<&'a [u8]>,
    /// Device as major and minor.
    pub device: Option<(u32, u32)>,
    /// Inode.
    pub inode: Option<u64>,
    /// PROT_*
    pub protection: Option<u32>,
    /// MAP_*
    pub flags: Option<u32>,
}

/// The build ID of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildId<'a> {
    /// Process ID; -1 for all.
    pub pid: i32,
    /// Kernel or user.
    pub space: Space,
    /// Path in the mappings.
    pub path: &'a [u8],
    /// Usually 20 bytes.
    pub build_id: &'a [u8],
}

/// A kernel symbol added or removed while recording (`PERF_RECORD_KSYMBOL`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// Time of the event.
    pub time: Option<i64>,
    /// First address.
    pub start: u64,
    /// Size in bytes.
    pub length: u64,
    /// Name.
    pub name: &'a [u8],
    /// The symbol was removed.
    pub gone: bool,
}

/// A string of the kernel (tracefs `printk_formats`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelText<'a> {
    /// Its address.
    pub address: u64,
    /// The string without its NUL.
    pub text: &'a [u8],
}

/// A symbol of a module, from the input itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Path of the module; `None` for absolute kernel addresses.
    pub module: Option<&'a [u8]>,
    /// Offset in the module's file, or absolute address.
    pub start: u64,
    /// Size in bytes; 0 means up to the next symbol.
    pub length: u64,
    /// Name as found (mangled or not).
    pub name: &'a [u8],
    /// Source file and line, if known.
    pub line: Option<(&'a [u8], u32)>,
}

/// Lost events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss<'a> {
    /// Time at which the loss was noticed.
    pub time: Option<i64>,
    /// CPU of the buffer.
    pub cpu: Option<u32>,
    /// Lost event, if known.
    pub event: Option<EventId>,
    /// Number of lost events, if known.
    pub count: Option<u64>,
    /// Total of this event for `event_types.lost`, if it differs from `count`: losses of a shared ring are reported
    /// without an event first.
    pub in_all: Option<u64>,
    /// Reason.
    pub reason: &'a str,
}

impl Loss<'_> {
    /// The reason where the kernel sampled less for a while. No event is lost.
    pub const THROTTLED: &'static str = "throttled";
    /// The beginning of the reason where the kernel ended the recording of a process that executed a program, whose name follows.
    pub const UNRECORDED_PROGRAM: &'static str = "not recorded after its exec: ";
}

/// Unreadable data in an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem<'a> {
    /// Place in the input.
    pub place: Place,
    /// Number of problems of this kind.
    pub count: u64,
    /// Description: what was expected, and what was found.
    pub message: &'a str,
}

/// A place in an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The whole input.
    Whole,
    /// Byte offset.
    Offset(u64),
    /// Line number, from 1.
    Line(u64),
}

/// Progress of reading an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Total bytes, if known.
    pub total: Option<u64>,
}
