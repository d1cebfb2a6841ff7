//! The one vocabulary that every reader speaks and the store understands.
//!
//! A reader turns bytes into a stream of [`Event`]s, in the order of time where the format knows one,
//! and hands each to a [`Sink`]. It keeps no tables and knows nothing of Parquet. What needs memory — who
//! runs under which tid, which file is mapped where, which enter belongs to which leave — is `normalize`'s.
//!
//! ```text
//! Event::Fact(Fact::OsRelease("6.12.117"))
//! Event::Type(EventType { system: "sched", name: "sched_switch", fields: [prev_comm: Text, …] })
//! Event::Mapping(Mapping { pid: 220, start: 0x401000, path: "/w/workload", … })
//! Event::Sample(Sample { event: EventId(0), time: 50102807555, tid: 220, fields: Raw(…), … })
//! Event::Problem(Problem { place: Place::Offset(0x7f10), message: "record of 3 bytes, …" })
//! ```
//!
//! Everything borrows: an event lives as long as the call that hands it over. Text is bytes as found;
//! what is no UTF-8 is replaced where it is stored.

mod aggregate;
pub mod bars;
mod call;
mod selection;
mod told_call;

pub use aggregate::{Action, Aggregate, Bucket};
pub use call::{Call, Common, Context, Enter, Function, Leave, Switch};
pub use selection::{CallEdge, Contexts, Purpose, Selection, span};
pub use told_call::{CallArgument, CallFunction, PairedCall};

use crate::Error;

/// Time of an event that the input has later than rows can: 2^63 ns or more. Its rows have NULL, and `problems` says so.
pub const TIME_BEYOND: i64 = i64::MAX;

/// Nanoseconds as the time of an event.
#[inline]
pub fn time_of(nanoseconds: u64) -> i64 {
    i64::try_from(nanoseconds).unwrap_or(TIME_BEYOND)
}

/// Receives the events of one input, in the reader's order.
pub trait Sink {
    /// Takes one event. An error ends the import: the sink cannot go on (a full disk).
    fn event(&mut self, event: Event<'_>) -> Result<(), Error>;
}

/// Anything that a trace tells.
#[derive(Debug, Clone, Copy)]
pub enum Event<'a> {
    /// A fact about the recording as a whole, for the manifest.
    Fact(Fact<'a>),
    /// What the recorder was asked to keep; told again, it replaces the former.
    Selection(&'a Selection),
    /// Declares the next event type: the first declared is `EventId(0)`, the next `EventId(1)`, ….
    Type(&'a EventType),
    /// One hit of a tracepoint or probe, or one sample of a counter or clock.
    Sample(&'a Sample<'a>),
    /// A function was entered; its end comes later.
    Enter(&'a Enter<'a>),
    /// A function was left.
    Leave(&'a Leave<'a>),
    /// A whole call.
    Call(&'a Call<'a>),
    /// A whole call that a program in the kernel made of its edges.
    PairedCall(&'a PairedCall<'a>),
    /// A stack that later events name by a number.
    Stack(ToldStack<'a>),
    /// One key of an aggregation that the recording tool made.
    Aggregate(&'a Aggregate<'a>),
    /// Another thread runs on a CPU.
    Switch(Switch<'a>),
    /// A thread bears a name from now on.
    Comm(Comm<'a>),
    /// A thread was created.
    Fork(Fork),
    /// A thread ended.
    Exit(Exit),
    /// A file, or anonymous memory, was mapped into a process or the kernel.
    Mapping(Mapping<'a>),
    /// A build id became known for a path after its mapping (perf's header, its BUILD_ID records).
    BuildId(BuildId<'a>),
    /// The kernel gained or lost a symbol (BPF programs, out-of-line code).
    KernelSymbol(KernelSymbol<'a>),
    /// A text stands in the kernel at an address, by which payloads name it; told before the types of these.
    KernelText(KernelText<'a>),
    /// The reader names an address itself (simpleperf's symbol tables, kallsyms inside a file).
    Symbol(Symbol<'a>),
    /// Events are known to be missing.
    Loss(Loss<'a>),
    /// A place that could not be read.
    Problem(Problem<'a>),
    /// How far the input has been read, for the progress bar; sent now and then.
    Progress(Progress),
}

/// Facts about a recording. A fact told twice replaces the former one.
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
    /// The command line of the recorder, joined by blanks.
    CommandLine(&'a str),
    /// CPU model.
    CpuModel(&'a str),
    /// CPUs online.
    Cpus(u32),
    /// Physical memory in bytes.
    MemoryBytes(u64),
    /// The clock that `time` counts: "monotonic", "sched_clock", "boottime", "realtime", …
    Clock(&'a str),
    /// Add this to a `time` to get nanoseconds since 1970 (UTC).
    WallOffset(i64),
    /// Build id of the running kernel.
    KernelBuildId(&'a [u8]),
    /// Anything else worth keeping, by a name of its own ("perf.pmu_mappings").
    Other {
        /// Name, with the format in front.
        name: &'a str,
        /// Value as text.
        value: &'a str,
    },
}

/// Index of an event type, in the order of declaration within one input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub u32);

/// What was recorded: a tracepoint with its fields, a counter with its period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EventType {
    /// "sched", "probe", "hardware", "software", "perf" for perf's own records; empty if unknown.
    pub system: String,
    /// "sched_switch", "cycles:u".
    pub name: String,
    /// Decides the table: counters and clocks go to `samples`, all else to a table of its own.
    pub kind: EventKind,
    /// Columns behind the common ones.
    pub fields: Vec<Field>,
    /// Byte order of raw payloads.
    pub big_endian: bool,
    /// One sample every so many events.
    pub period: Option<u64>,
    /// Samples per second aimed at.
    pub frequency: Option<u64>,
    /// Filter in the kernel's language.
    pub filter: Option<String>,
    /// `print fmt` of the kernel's format file.
    pub print_format: Option<String>,
    /// Members of [`Sample`] that this event carries beside its fields and that an event table therefore
    /// needs columns for. Counters have all of them anyhow.
    pub extras: Extras,
    /// What its hits are for.
    pub purpose: Purpose,
    /// Threads inherit it, and each has counters of its own under the same ids: see [`Sample::read`].
    pub is_inherited: bool,
}

/// Members of a sample that only some tracepoint recordings have (`perf record -d`, `--all-cgroups`, …).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extras {
    /// `period` varies (a frequency, or a period above 1 was asked for).
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

/// The kinds of probes.
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
    /// Something the recorder itself tells (context switches, throttling).
    Recorder,
    /// Text written into the trace by hand.
    Marker,
}

impl EventKind {
    /// Whether hits go to the table `samples`.
    pub fn is_sampled(self) -> bool {
        matches!(self, EventKind::Counter | EventKind::Software)
    }

    /// As in `event_types.kind`.
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
    /// As in the format file.
    pub name: String,
    /// Type of the column.
    pub kind: FieldType,
    /// Where a raw payload holds it; `None` for events whose values come as [`Value`]s.
    pub layout: Option<Layout>,
    /// The declaration as written ("char prev_comm[16]"), for `tables`.
    pub declaration: String,
}

/// Types that a field can have. Lists have one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldType {
    /// `true`, `false`
    Bool,
    /// Signed integer of so many bytes: 1, 2, 4 or 8.
    Int(u8),
    /// Unsigned integer of so many bytes: 1, 2, 4 or 8.
    UInt(u8),
    /// 64-bit floating point.
    Float,
    /// Text, ended by NUL or its length.
    Text,
    /// Bytes without further meaning.
    Binary,
    /// Array of signed integers of so many bytes each.
    IntList(u8),
    /// Array of unsigned integers of so many bytes each.
    UIntList(u8),
    /// Array of texts.
    TextList,
}

/// Where a raw payload holds a field (include/linux/trace_events.h; a format file's `offset:` and `size:`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes from the start of the payload (`common_type`).
    pub offset: u32,
    /// Bytes that it takes there.
    pub size: u32,
    /// How these bytes lead to the value.
    pub place: FieldPlace,
}

/// How the bytes at a field's offset lead to its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldPlace {
    /// They are the value.
    Inline,
    /// `__data_loc`: low half offset from the start of the payload, high half length.
    DataLoc,
    /// `__rel_loc`: low half offset from the end of these 4 bytes, high half length.
    RelLoc,
    /// From here to the end of the payload (`T name[]` with size 0).
    Rest,
}

/// One hit of a tracepoint or probe, or one sample of a counter or clock. `None`: not recorded.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// Which event.
    pub event: EventId,
    /// Nanoseconds of the trace's clock.
    pub time: Option<i64>,
    /// CPU number.
    pub cpu: Option<u32>,
    /// Process.
    pub pid: Option<i32>,
    /// Thread.
    pub tid: Option<i32>,
    /// Thread name where the format writes it with each event; otherwise `normalize` knows it.
    pub comm: Option<&'a [u8]>,
    /// Stack in the kernel (or guest kernel, or hypervisor).
    pub kernel_stack: Stack<'a>,
    /// Stack in user space.
    pub user_stack: Stack<'a>,
    /// Space that `ip` is in.
    pub space: Space,
    /// Instruction pointer.
    pub ip: Option<u64>,
    /// Events that this sample stands for.
    pub period: Option<u64>,
    /// Data address.
    pub addr: Option<u64>,
    /// Weight (latency in cycles, mostly).
    pub weight: Option<u64>,
    /// `union perf_mem_data_src`, little-endian bit order.
    pub data_src: Option<u64>,
    /// Transaction flags.
    pub transaction: Option<u64>,
    /// Physical data address.
    pub phys_addr: Option<u64>,
    /// Cgroup id.
    pub cgroup: Option<u64>,
    /// Page size of the data address, bytes.
    pub data_page_size: Option<u64>,
    /// Page size of the instruction, bytes.
    pub code_page_size: Option<u64>,
    /// Stream id (`PERF_SAMPLE_STREAM_ID`).
    pub stream_id: Option<u64>,
    /// Taken branches, newest first.
    pub branches: &'a [Branch],
    /// Index of the newest branch in the hardware's own ring (`PERF_SAMPLE_BRANCH_HW_INDEX`).
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
    /// members, the tables get one row for each whose value grew, as `perf script` prints them.
    pub read: &'a [ReadValue],
    /// Values of the event type's fields.
    pub fields: Fields<'a>,
}

impl Sample<'_> {
    /// A sample of which only the event is known.
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

/// A stack as the input has it, leaf first.
#[derive(Debug, Clone, Copy, Default)]
pub enum Stack<'a> {
    /// Not recorded.
    #[default]
    None,
    /// Addresses; the first is where the thread was, the others are return addresses.
    Addresses {
        /// Where all of them are.
        space: Space,
        /// Leaf first, without context markers.
        addresses: &'a [u64],
    },
    /// Frames that come with names (text formats).
    Named(&'a [NamedFrame<'a>]),
    /// One that [`Event::Stack`] told before.
    Told(u64),
}

/// A stack that later events name by a number: told when its addresses can be resolved.
#[derive(Debug, Clone, Copy)]
pub struct ToldStack<'a> {
    /// Its number.
    pub id: u64,
    /// When.
    pub time: Option<i64>,
    /// Process that was on it.
    pub pid: Option<i32>,
    /// It.
    pub stack: Stack<'a>,
}

/// A frame that its format already names. Empty text: unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NamedFrame<'a> {
    /// Function.
    pub function: &'a [u8],
    /// Bytes from the function's start.
    pub function_offset: Option<u64>,
    /// Module.
    pub module: &'a [u8],
    /// Absolute address.
    pub address: Option<u64>,
    /// Where it runs.
    pub space: Space,
    /// Inlined into the frame behind it.
    pub inlined: bool,
}

/// Address space of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub enum Space {
    /// Not told.
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
    /// As in `frames.space`; `None` for NULL.
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

/// One taken branch (`struct perf_branch_entry`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Branch {
    /// From this address
    pub from: u64,
    /// to this one.
    pub to: u64,
    /// mispred, predicted, in_tx, abort, cycles:16, type:4, …, in little-endian bit order.
    pub flags: u64,
}

/// Registers of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers<'a> {
    /// Which: bit n is register n of the architecture's `perf_regs.h`.
    pub mask: u64,
    /// 1: 32-bit, 2: 64-bit (`enum perf_sample_regs_abi`).
    pub abi: u64,
    /// One value per set bit, lowest first.
    pub values: &'a [u64],
}

/// One counter's value (`read_format`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadValue {
    /// The counter's event; `None` where its id is not known.
    pub event: Option<EventId>,
    /// Id of the counter (one per CPU, and per thread unless threads inherit it).
    pub id: Option<u64>,
    /// Value since it was opened.
    pub value: u64,
    /// Samples lost so far.
    pub lost: Option<u64>,
}

/// Values of an event type's fields.
#[derive(Debug, Clone, Copy, Default)]
pub enum Fields<'a> {
    /// Not recorded: all NULL.
    #[default]
    None,
    /// The payload as the kernel wrote it; each [`Field`] has its [`Layout`].
    Raw(&'a [u8]),
    /// One value per field, in their order; missing ones at the end are NULL.
    Values(&'a [Value<'a>]),
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
    /// For `TextList`.
    TextList(&'a [&'a [u8]]),
}

/// A thread bears a name from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comm<'a> {
    /// When; `None` for what was so at the start.
    pub time: Option<i64>,
    /// Process; `None` where the format knows threads only.
    pub pid: Option<i32>,
    /// Thread.
    pub tid: i32,
    /// Its name.
    pub comm: &'a [u8],
    /// By `execve`: the process has a new image, its mappings are gone.
    pub exec: bool,
}

/// A thread was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fork {
    /// When; `None` for what was so at the start.
    pub time: Option<i64>,
    /// Its process.
    pub pid: i32,
    /// It.
    pub tid: i32,
    /// Process of the creator.
    pub parent_pid: i32,
    /// The creator.
    pub parent_tid: i32,
}

/// A thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// When.
    pub time: Option<i64>,
    /// Its process.
    pub pid: i32,
    /// It.
    pub tid: i32,
    /// Its exit status where known.
    pub code: Option<i32>,
}

/// A range of addresses with a file, or nothing, behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// When; `None` for what was so at the start.
    pub time: Option<i64>,
    /// Process; -1 for the kernel.
    pub pid: i32,
    /// Thread that mapped.
    pub tid: i32,
    /// Where it is valid.
    pub space: Space,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Offset in the file of the first address.
    pub file_offset: u64,
    /// File, or a name in brackets, or `//anon`.
    pub path: &'a [u8],
    /// Build id where the record holds it.
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

/// A build id of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildId<'a> {
    /// Process, -1 for all.
    pub pid: i32,
    /// Kernel or user.
    pub space: Space,
    /// As in the mappings.
    pub path: &'a [u8],
    /// 20 bytes, mostly.
    pub build_id: &'a [u8],
}

/// A symbol of the kernel that came or went while recording (`PERF_RECORD_KSYMBOL`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    /// When.
    pub time: Option<i64>,
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Name.
    pub name: &'a [u8],
    /// It went.
    pub gone: bool,
}

/// A text of the kernel (tracefs `printk_formats`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelText<'a> {
    /// Where it stands.
    pub address: u64,
    /// Without its NUL.
    pub text: &'a [u8],
}

/// A name for a range of addresses of a module, told by the input itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Module's path; `None`: absolute address of the kernel.
    pub module: Option<&'a [u8]>,
    /// Offset in the module's file, or absolute address.
    pub start: u64,
    /// Bytes; 0: up to the next symbol.
    pub length: u64,
    /// Name as found (mangled or not).
    pub name: &'a [u8],
}

/// Events are known to be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss<'a> {
    /// When it was noticed.
    pub time: Option<i64>,
    /// CPU whose buffer it was.
    pub cpu: Option<u32>,
    /// Event that lost, where told.
    pub event: Option<EventId>,
    /// How many; `None`: told that there were some.
    pub count: Option<u64>,
    /// How many of this event are lost, if not `count`: those in a ring that several events share were told before,
    /// without an event. For `event_types.lost`.
    pub in_all: Option<u64>,
    /// Why.
    pub reason: &'a str,
}

/// A place in an input that could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Problem<'a> {
    /// Where.
    pub place: Place,
    /// How many of the same kind.
    pub count: u64,
    /// What was expected and what was found.
    pub message: &'a str,
}

/// A place in an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Not at one place.
    Whole,
    /// Byte offset.
    Offset(u64),
    /// Line, from 1.
    Line(u64),
}

/// How far an input has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub done: u64,
    /// Bytes in all, where known.
    pub total: Option<u64>,
}
