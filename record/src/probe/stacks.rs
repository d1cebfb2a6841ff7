//! Stack options: how stacks are unwound, of which side, and how deep; for all events or for one.
//!
//! ```text
//! -g, --call-graph auto[,check]     whole: walked in the kernel by unwind tables, else as dwarf; probes in programs, system calls,
//!                                   page faults: as dwarf,24K; other tracepoints, with -a also system calls and page faults: as fp;
//!                                   keys of aggregates: walked
//! --call-graph fp[,defer]           frame pointers; defer: user stacks on the way back to user space
//! --call-graph dwarf[,SIZE]         registers and a piece of the stack's memory, unwound when drained
//! --call-graph lbr                  branches that the CPU recorded
//! -e EVENT/call-graph=dwarf,stack-size=16384,max-stack=20/     for this event alone; call-graph=no for none
//! ```
//! The syntax is perf's (perf-record(1)). An event's own stack settings are kept in the attr of its probe until it is
//! opened.

use std::io;

use clap::Args;
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::symbols::UnwindCounts;

use super::{Kind, Probe};
use crate::failure::{Failure, failed, misuse};
use crate::sys::perf_event::{Attr, abi};
use crate::sys::privileges;

/// perf's 8 KiB are too short for 99 % of clang's stacks, 81 % of bash's; 32 KiB for 50 % and none.
const DEFAULT_STACK_BYTES: u32 = 32 << 10;
/// For each hit that a program causes: 24 KiB with the rest of its record, where 16 cut 4 % of the stacks of python. Hits come a hundred times as often as samples.
const HIT_STACK_BYTES: u32 = (24 << 10) - 512;
/// A ring holds at least this many copies.
const COPIES_PER_RING: usize = 64;
const LEAST_STACK_BYTES: usize = 8 << 10;
/// Maximum: a record has at most 64 KiB, and the kernel requires multiples of 8.
const MOST_STACK_BYTES: u32 = 65_528;

/// General-purpose, flags and segment registers of a 64-bit process (arch/x86/include/uapi/asm/perf_regs.h).
#[cfg(target_arch = "x86_64")]
const REGISTERS: Option<u64> = Some(0xff_0fff);
/// x0 to x30, sp, pc (arch/arm64/include/uapi/asm/perf_regs.h).
#[cfg(target_arch = "aarch64")]
const REGISTERS: Option<u64> = Some((1 << 33) - 1);
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const REGISTERS: Option<u64> = None;

/// The options about stacks.
#[derive(Debug, Clone, Default, Args)]
#[allow(
    rustdoc::broken_intra_doc_links,
    reason = "the texts are those of --help"
)]
pub(crate) struct StackOptions {
    /// Record stacks with every event; short for --call-graph auto
    #[arg(short = 'g')]
    has_stacks: bool,
    /// Record stacks with every event: auto, fp, dwarf or lbr
    ///
    /// auto unwinds user stacks of samples in the kernel, by unwind tables (root, Linux 5.17); without these, like dwarf.
    /// So do --profile, --off-cpu and --agg by ustack, whatever is given here, except that with fp they follow frame pointers.
    /// Stacks of probes in programs, calls, system calls and page faults are as with dwarf,24K; of other tracepoints, and with
    /// -a of system calls and page faults, too, as with fp.
    /// auto,check also copies them, and counts the stacks whose frames differ from those of the copy, which costs more.
    /// fp follows frame pointers; fp,defer does so on return to user space (Linux 6.19). dwarf[,BYTES] copies BYTES of
    /// stack memory [default: 32768] and unwinds them while recording. lbr reads the CPU's last branch records, if
    /// available. For a single event: -e EVENT/call-graph=fp/.
    #[arg(long = "call-graph", value_name = "MODE", value_parser = parse_how)]
    call_graph: Option<How>,
    /// Record only user-space frames
    #[arg(
        long = "user-stacks",
        alias = "user-callchains",
        conflicts_with = "kernel_only"
    )]
    user_only: bool,
    /// Record only kernel frames
    #[arg(long = "kernel-stacks", alias = "kernel-callchains")]
    kernel_only: bool,
    /// Maximum number of frames per stack
    ///
    /// At most kernel.perf_event_max_stack. Does not apply to stacks in keys of aggregations, which have up to 127.
    #[arg(long = "max-stack", value_name = "N")]
    deepest: Option<u16>,
}

/// Methods of unwinding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// No stacks.
    No,
    /// As fits the [`Cause`] of the event's hits.
    Auto {
        /// Whether the program's walks are compared with copies.
        is_checked: bool,
    },
    /// With frame pointers.
    FramePointers { defers: bool },
    /// Later, from a copy of the stack memory.
    Copies { stack_bytes: u32 },
    /// From the CPU's branch records.
    Branches,
}

/// What causes the hits of an event, which decides how [`How::Auto`] takes their user stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A counter or clock: walked by a program in the kernel, or copied.
    Rate,
    /// A probe in a program, or a call. Only callers tell why, so their stacks are copied.
    Program,
    /// A program that calls or faults into the kernel: copied, too, unless those of the whole system are recorded. A busy host has
    /// hundreds of thousands per second, and the copies would fill the rings.
    Entry,
    /// The kernel, for example a switch, of which its own stack tells more than that of the program: by frame pointers.
    Kernel,
}

impl Cause {
    /// Returns that of an event's hits.
    fn of(probe: &Probe) -> Cause {
        const ENTRIES: [&str; 3] = ["exceptions", "raw_syscalls", "syscalls"];
        match &probe.kind {
            Kind::Sampled => Cause::Rate,
            Kind::Output { .. } => Cause::Program,
            Kind::Tracepoint(_) if probe.is_of_program() => Cause::Program,
            Kind::Tracepoint(tracepoint) if ENTRIES.contains(&&*tracepoint.system) => Cause::Entry,
            Kind::Tracepoint(_) => Cause::Kernel,
        }
    }
}

/// Stack settings of all events without their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stacks {
    how: Option<How>,
    user_only: bool,
    kernel_only: bool,
    deepest: Option<u16>,
    /// Whether a program in the kernel walks the stacks of [`How::Auto`].
    is_walked: bool,
    /// Whether the hits of all processes are recorded.
    is_of_system: bool,
}

impl StackOptions {
    /// Whether stacks are requested.
    pub(crate) fn is_requested(&self) -> bool {
        let is_plain = self.has_stacks || self.user_only || self.kernel_only;
        is_plain || self.deepest.is_some() || self.call_graph.is_some()
    }

    /// Combines the options.
    pub(crate) fn stacks(&self) -> Result<Stacks, Failure> {
        let asked = self.has_stacks || self.user_only || self.kernel_only || self.deepest.is_some();
        let plain = asked.then_some(match self.kernel_only {
            true => How::FramePointers { defers: false },
            false => How::Auto { is_checked: false },
        });
        let how = self.call_graph.or(plain);
        if self.kernel_only && matches!(how, Some(How::Copies { .. } | How::Branches)) {
            return Err(
                misuse("--kernel-stacks: dwarf and lbr apply only to user stacks")
                    .hint("use --kernel-stacks alone"),
            );
        }
        let most = privileges::perf_sysctl("max_stack").and_then(|most| u16::try_from(most).ok());
        if let (Some(deepest), Some(most)) = (self.deepest, most)
            && deepest > most
        {
            return Err(misuse(format!(
                "--max-stack {deepest}: the kernel allows {most} (kernel.perf_event_max_stack)"
            ))
            .hint("raise it: sysctl kernel.perf_event_max_stack"));
        }
        Ok(Stacks {
            how,
            user_only: self.user_only,
            kernel_only: self.kernel_only,
            deepest: self.deepest,
            is_walked: false,
            is_of_system: false,
        })
    }
}

impl Stacks {
    /// The hits of all processes are recorded.
    pub(crate) fn set_of_system(&mut self) {
        self.is_of_system = true;
    }

    /// Describes those in keys of aggregations for `--dry-run`.
    pub(crate) fn describe_in_keys(self) -> &'static str {
        match (self.has_user_side(), self.are_walked_by_programs()) {
            (false, _) => "kernel, in keys of aggregations",
            (true, false) if self.user_only => "user, by frame pointers, in keys of aggregations",
            (true, true) if self.user_only => "user, whole, in keys of aggregations",
            (true, false) => "kernel and user, by frame pointers, in keys of aggregations",
            (true, true) => "kernel and user, whole, in keys of aggregations",
        }
    }

    /// Describes them for `--dry-run`.
    pub(crate) fn describe(self) -> &'static str {
        match (self.how, self.user_only, self.kernel_only) {
            (None | Some(How::No), ..) => "none",
            (_, _, true) => "kernel",
            (Some(How::Auto { .. }), true, _) => "user, whole",
            (Some(How::Auto { .. }), ..) => "kernel and user, whole",
            (Some(How::FramePointers { .. }), true, _) => "user, by frame pointers",
            (Some(How::FramePointers { .. }), ..) => "kernel and user, by frame pointers",
            (Some(How::Copies { .. }), true, _) => "user, from copies of the stack's memory",
            (Some(How::Copies { .. }), ..) => "kernel and user, from copies of the stack's memory",
            (Some(How::Branches), ..) => "kernel and user, by branch records",
        }
    }

    /// Returns what decides about the stacks of an event.
    pub(crate) fn cause(self, probe: &Probe) -> Cause {
        match Cause::of(probe) {
            Cause::Entry if self.is_of_system => Cause::Kernel,
            cause => cause,
        }
    }

    /// Whether a program in the kernel could walk the stacks of an event.
    pub(crate) fn wants_walks(self, probes: &[Probe]) -> bool {
        let is_it = |probe: &Probe| probe.is_sampled() && probe.attr.sample_type == 0;
        let is_auto = matches!(self.how, Some(How::Auto { .. }));
        is_auto && !self.kernel_only && probes.iter().any(is_it)
    }

    /// Whether programs that aggregate by stack may walk it, too: unless frame pointers are requested. They can neither copy it nor
    /// read branch records.
    pub(crate) fn are_walked_by_programs(self) -> bool {
        !matches!(self.how, Some(How::FramePointers { .. })) && self.has_user_side()
    }

    /// Whether stacks have kernel frames.
    pub(crate) fn has_kernel_side(self) -> bool {
        !self.user_only
    }

    /// Whether stacks have frames of user space.
    pub(crate) fn has_user_side(self) -> bool {
        !self.kernel_only
    }

    /// Whether its walks are compared with copies.
    pub(crate) fn are_checked(self) -> bool {
        self.how == Some(How::Auto { is_checked: true })
    }

    /// It does.
    pub(crate) fn set_walked(&mut self) {
        self.is_walked = true;
    }

    /// Whether it walks those of this event.
    pub(crate) fn are_walked(self, probe: &Probe, attr: &Attr) -> bool {
        let has_chain = attr.sample_type & u64::from(abi::PERF_SAMPLE_CALLCHAIN) != 0;
        let is_copied = attr.sample_type & u64::from(abi::PERF_SAMPLE_STACK_USER) != 0;
        let is_left_out = attr.exclude_callchain_user() == 1;
        self.is_walked && probe.is_sampled() && has_chain && is_left_out && !is_copied
    }

    /// Whether the user stacks of this event are by frame pointers although whole ones are requested.
    pub(crate) fn are_followed(self, probe: &Probe, attr: &Attr) -> bool {
        let is_auto = matches!(self.how, Some(How::Auto { .. })) && probe.attr.sample_type == 0;
        let has_chain = attr.sample_type & u64::from(abi::PERF_SAMPLE_CALLCHAIN) != 0;
        is_auto
            && self.cause(probe) == Cause::Kernel
            && has_chain
            && attr.exclude_callchain_user() == 0
    }

    /// Maximum number of frames.
    pub(crate) fn deepest(self) -> Option<u16> {
        self.deepest
    }

    /// Applies the event's own settings to `attr`, or these if it has none.
    pub(crate) fn add_to(self, attr: &mut Attr, own: &Attr, cause: Cause) {
        match self.how {
            _ if is_none(own) => {
                attr.set_exclude_callchain_user(0);
                attr.set_exclude_callchain_kernel(0);
                return;
            }
            _ if own.sample_type != 0 => attr.sample_type |= own.sample_type,
            None | Some(How::No) => return,
            Some(How::Auto { .. }) => self.put_auto(attr, cause),
            Some(how) => put(how, attr),
        }
        if attr.sample_max_stack == 0 {
            attr.sample_max_stack = self.deepest.unwrap_or(0);
        }
        if self.user_only {
            attr.set_exclude_callchain_kernel(1);
        }
        // A stack copy was requested by the event itself.
        if self.kernel_only && attr.sample_stack_user == 0 {
            attr.set_exclude_callchain_user(1);
        }
    }
}

impl Stacks {
    /// Kernel frames by the kernel, those of user space by the best that there is.
    fn put_auto(self, attr: &mut Attr, cause: Cause) {
        let by_default = How::FramePointers { defers: false };
        let can_copy = REGISTERS.is_some() && !self.kernel_only;
        match cause {
            Cause::Rate if self.is_walked => {
                put(by_default, attr);
                attr.set_exclude_callchain_user(1);
            }
            Cause::Rate if can_copy => put(
                How::Copies {
                    stack_bytes: DEFAULT_STACK_BYTES,
                },
                attr,
            ),
            Cause::Program | Cause::Entry if can_copy => put(
                How::Copies {
                    stack_bytes: HIT_STACK_BYTES,
                },
                attr,
            ),
            Cause::Rate | Cause::Program | Cause::Entry | Cause::Kernel => put(by_default, attr),
        }
    }
}

/// Extracts the stack settings of an event, and stores them in the attr of its probe. `cpu-clock/call-graph=dwarf/u`
/// becomes `cpu-clock:u`, `cpu/event=1,call-graph=no/` becomes `cpu/event=1/`.
pub(crate) fn split_terms(event: &str) -> Result<(String, Option<EventStack>), Failure> {
    let Some((head, rest)) = event.split_once('/') else {
        return Ok((event.to_owned(), None));
    };
    let Some((terms, modifiers)) = rest.rsplit_once('/') else {
        return Ok((event.to_owned(), None));
    };
    let mut own = EventStack::default();
    let mut others = Vec::new();
    for term in terms.split(',') {
        let (name, value) = term.split_once('=').unwrap_or((term, ""));
        let wrong = |message: String| misuse(format!("{event}: {name}: {message}"));
        match name {
            "call-graph" if value == "auto" || value.starts_with("auto,") => {
                return Err(wrong(
                    "auto is for all events: --call-graph auto".to_owned(),
                ));
            }
            "call-graph" => own.how = Some(parse_how(value).map_err(wrong)?),
            "stack-size" => own.stack_bytes = Some(parse_stack_bytes(value).map_err(wrong)?),
            "max-stack" => {
                let deepest = value.parse();
                let expected = |_| wrong(format!("expected a number, found \"{value}\""));
                own.deepest = Some(deepest.map_err(expected)?);
            }
            _ => others.push(term),
        }
    }
    if own == EventStack::default() {
        return Ok((event.to_owned(), None));
    }
    let modifiers = modifiers.strip_prefix(':').unwrap_or(modifiers);
    let rest = match (&others[..], modifiers) {
        ([], "") => head.to_owned(),
        ([], modifiers) => format!("{head}:{modifiers}"),
        (others, modifiers) => format!("{head}/{}/{modifiers}", others.join(",")),
    };
    Ok((rest, Some(own)))
}

/// The stack settings of one event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EventStack {
    how: Option<How>,
    stack_bytes: Option<u32>,
    deepest: Option<u16>,
}

impl EventStack {
    /// Stores the settings in the attr of a probe.
    pub(crate) fn put(self, attr: &mut Attr) {
        let how = match (self.how, self.stack_bytes) {
            (Some(How::Copies { .. }) | None, Some(stack_bytes)) => How::Copies { stack_bytes },
            (Some(how), _) => how,
            (None, None) => How::FramePointers { defers: false },
        };
        put(how, attr);
        attr.sample_max_stack = self.deepest.unwrap_or(0);
    }
}

fn put(how: How, attr: &mut Attr) {
    // Includes the IP, because perf script does not print stacks without it.
    let chain = u64::from(abi::PERF_SAMPLE_CALLCHAIN | abi::PERF_SAMPLE_IP);
    attr.sample_type |= chain;
    match how {
        How::No => {
            // Neither side: an internal mark, never opened like this.
            attr.sample_type = chain;
            attr.set_exclude_callchain_user(1);
            attr.set_exclude_callchain_kernel(1);
        }
        // Resolved later, when the available methods are known.
        How::Auto { .. } => {}
        How::FramePointers { defers } => attr.set_defer_callchain(defers.into()),
        How::Copies { stack_bytes } => {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_REGS_USER | abi::PERF_SAMPLE_STACK_USER);
            attr.sample_regs_user = REGISTERS.unwrap_or(0);
            attr.sample_stack_user = stack_bytes;
            attr.set_exclude_callchain_user(1);
        }
        How::Branches => {
            attr.sample_type |= u64::from(abi::PERF_SAMPLE_BRANCH_STACK);
            attr.branch_sample_type = (abi::PERF_SAMPLE_BRANCH_USER
                | abi::PERF_SAMPLE_BRANCH_CALL_STACK
                | abi::PERF_SAMPLE_BRANCH_NO_CYCLES
                | abi::PERF_SAMPLE_BRANCH_NO_FLAGS)
                .into();
            attr.set_exclude_callchain_user(1);
        }
    }
}

/// Removes the stacks of an event at which a program runs that takes its own: the kernel would hand it its chain instead, with the
/// markers of perf's records in it, and without the side that the event excludes (kernel/bpf/stackmap.c, bpf_get_stack_pe).
pub(crate) fn leave_to_program(attr: &mut Attr) {
    let without = u64::from(
        abi::PERF_SAMPLE_CALLCHAIN
            | abi::PERF_SAMPLE_REGS_USER
            | abi::PERF_SAMPLE_STACK_USER
            | abi::PERF_SAMPLE_BRANCH_STACK,
    );
    attr.sample_type &= !without;
    (attr.sample_regs_user, attr.sample_stack_user) = (0, 0);
    (attr.branch_sample_type, attr.sample_max_stack) = (0, 0);
    attr.set_exclude_callchain_user(0);
    attr.set_exclude_callchain_kernel(0);
    attr.set_defer_callchain(0);
    // Of precise events, the kernel accepts the program with a chain only.
    if attr.precise_ip() > 0 {
        attr.sample_type |= u64::from(abi::PERF_SAMPLE_CALLCHAIN);
    }
}

/// Reduces copies of a size that the user has not chosen if rings are small because locked memory is limited: otherwise a late
/// drain would lose samples.
pub(crate) fn fit_copies(attr: &mut Attr, ring_bytes: usize) {
    if [DEFAULT_STACK_BYTES, HIT_STACK_BYTES].contains(&attr.sample_stack_user) {
        let fitting = (ring_bytes / COPIES_PER_RING).max(LEAST_STACK_BYTES);
        let fitting = u32::try_from(fitting & !7).unwrap_or(u32::MAX);
        attr.sample_stack_user = fitting.min(attr.sample_stack_user);
    }
}

/// Whether the attr has the mark of [`How::No`]. (Copies without the kernel side exclude both chains too.)
fn is_none(own: &Attr) -> bool {
    own.sample_type == u64::from(abi::PERF_SAMPLE_CALLCHAIN | abi::PERF_SAMPLE_IP)
        && own.exclude_callchain_user() == 1
        && own.exclude_callchain_kernel() == 1
}

/// Returns a message about walked or copied stacks whose outer frames are missing. `by_frame_pointers` were not unwound at all:
/// they are marked as cut, since they may be.
pub(crate) fn cut_sentence(
    how: &str,
    counts: &UnwindCounts,
    by_frame_pointers: u64,
) -> Option<String> {
    let cut = counts.cut() + by_frame_pointers;
    let all = counts.complete + cut;
    let mut parts = Vec::new();
    if by_frame_pointers > 0 {
        let count = grouped(by_frame_pointers);
        parts.push(format!(
            "{count} by frame pointers, before unwind tables were loaded"
        ));
    }
    if counts.memory_ended > 0 {
        let count = grouped(counts.memory_ended);
        parts.push(match how {
            "copied" => {
                format!("{count} at the end of the copy (--call-graph dwarf,BYTES copies more)")
            }
            _ => format!("{count} at missing memory"),
        });
    }
    let unknown = counts.lost + counts.no_rule;
    if unknown > 0 {
        let count = grouped(unknown);
        parts.push(format!("{count} at code without unwind information"));
    }
    if counts.too_deep > 0 {
        parts.push(format!("{} at the maximum depth", grouped(counts.too_deep)));
    }
    if counts.unsupported > 0 {
        parts.push(format!("{} not supported", grouped(counts.unsupported)));
    }
    (!parts.is_empty()).then(|| {
        let parts = parts.join(", ");
        format!(
            "{} of {} cut: {parts}",
            grouped(cut),
            counted(all, &format!("{how} user stack"))
        )
    })
}

/// Returns a message about stacks by frame pointers that do not reach the start of their threads.
pub(crate) fn followed_sentence(whole: u64, cut: u64) -> Option<String> {
    (cut > 0).then(|| {
        let (cut, all) = (grouped(cut), counted(whole + cut, "user stack"));
        format!("{cut} of {all} by frame pointers cut; --call-graph dwarf copies whole ones")
    })
}

/// Whether stacks come from the CPU's branch records.
pub(crate) fn are_branches(attr: &Attr) -> bool {
    attr.branch_sample_type & u64::from(abi::PERF_SAMPLE_BRANCH_CALL_STACK) != 0
}

/// Whether samples have branches, for stacks or for themselves.
pub(crate) fn has_branches(attr: &Attr) -> bool {
    attr.sample_type & u64::from(abi::PERF_SAMPLE_BRANCH_STACK) != 0
}

/// Changes the event to frame pointers, because its hits have no branches.
pub(crate) fn without_branches(attr: &mut Attr) {
    attr.sample_type &= !u64::from(abi::PERF_SAMPLE_BRANCH_STACK);
    attr.branch_sample_type = 0;
    attr.set_exclude_callchain_user(0);
}

/// Returns the error for an event without branch records.
pub(crate) fn no_branches(event: &str, error: &io::Error) -> Failure {
    failed(format!(
        "--call-graph lbr: {event} provides no branch records on this system: {error}"
    ))
    .hint(
        "use fp or dwarf; lbr requires a physical Intel CPU and a hardware counter such as cycles",
    )
}

fn parse_how(text: &str) -> Result<How, String> {
    let (mode, more) = text.split_once(',').unwrap_or((text, ""));
    match (mode, more) {
        ("no", "") => Ok(How::No),
        ("auto", "") => Ok(How::Auto { is_checked: false }),
        ("auto", "check") => Ok(How::Auto { is_checked: true }),
        ("fp", "") => Ok(How::FramePointers { defers: false }),
        ("fp", "defer") => Ok(How::FramePointers { defers: true }),
        ("lbr", "") => Ok(How::Branches),
        ("dwarf", _) if REGISTERS.is_none() => {
            Err("dwarf is supported only on x86-64 and ARM64".to_owned())
        }
        ("dwarf", "") => Ok(How::Copies {
            stack_bytes: DEFAULT_STACK_BYTES,
        }),
        ("dwarf", bytes) => parse_stack_bytes(bytes).map(|stack_bytes| How::Copies { stack_bytes }),
        _ => {
            Err("expected auto, auto,check, fp, fp,defer, dwarf, dwarf,BYTES, lbr or no".to_owned())
        }
    }
}

/// Rounds up to a multiple of 8.
fn parse_stack_bytes(text: &str) -> Result<u32, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1024),
        None => (text, 1),
    };
    let bytes = number
        .parse()
        .ok()
        .and_then(|number: u32| number.checked_mul(unit));
    match bytes {
        // 64K means the maximum.
        Some(65_536) => Ok(MOST_STACK_BYTES),
        Some(bytes @ 1..=MOST_STACK_BYTES) => Ok(bytes.next_multiple_of(8)),
        _ => Err(format!(
            "expected a stack size of at most {MOST_STACK_BYTES} bytes, found \"{text}\""
        )),
    }
}

#[cfg(test)]
mod tests {
    use perfquet_events::event::Purpose;

    use super::*;
    use crate::probe::tracepoint::Tracepoint;

    #[test]
    fn modes() {
        let copies = |stack_bytes| Ok(How::Copies { stack_bytes });
        assert_eq!(parse_how("dwarf"), copies(32768));
        assert_eq!(parse_how("auto"), Ok(How::Auto { is_checked: false }));
        assert_eq!(parse_how("dwarf,4000"), copies(4000));
        assert_eq!(parse_how("dwarf,4001"), copies(4008));
        assert_eq!(parse_how("dwarf,32K"), copies(32768));
        assert_eq!(parse_how("dwarf,64K"), copies(65528));
        assert_eq!(parse_how("fp"), Ok(How::FramePointers { defers: false }));
        assert_eq!(
            parse_how("fp,defer"),
            Ok(How::FramePointers { defers: true })
        );
        for wrong in [
            "",
            "dwarf,0",
            "dwarf,65529",
            "dwarf,x",
            "fp,8192",
            "lbr,1",
            "orc",
        ] {
            assert!(parse_how(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_cut_stack_is_in_one_count() {
        let counts = UnwindCounts {
            complete: 715,
            no_rule: 20,
            too_deep: 2,
            ..UnwindCounts::default()
        };
        let sentence = |counts, by_frame_pointers| {
            cut_sentence("aggregated", counts, by_frame_pointers).unwrap_or_default()
        };
        assert_eq!(
            sentence(&counts, 2_818),
            "2,840 of 3,555 aggregated user stacks cut: 2,818 by frame pointers, before unwind tables were loaded, \
             20 at code without unwind information, 2 at the maximum depth"
        );
        assert_eq!(sentence(&UnwindCounts::default(), 0), "");
    }

    #[test]
    fn terms_are_taken_out_of_events() {
        let rest = |event: &str| {
            let (rest, own) = split_terms(event).map_err(|failure| failure.to_string())?;
            Ok::<_, String>((rest, own.is_some()))
        };
        for (event, expected, has_own) in [
            ("cycles:u", "cycles:u", false),
            ("cpu/event=0x3c/u", "cpu/event=0x3c/u", false),
            ("cpu/event=0x3c,call-graph=no/u", "cpu/event=0x3c/u", true),
            ("cpu-clock/call-graph=fp/u", "cpu-clock:u", true),
            (
                "sched:sched_switch/max-stack=3/",
                "sched:sched_switch",
                true,
            ),
        ] {
            assert_eq!(rest(event), Ok((expected.to_owned(), has_own)), "{event}");
        }
        assert!(rest("cpu-clock/call-graph=orc/").is_err());
        assert!(rest("cpu-clock/max-stack=many/").is_err());
    }

    #[test]
    fn hits_caused_by_programs_are_copied() {
        let copied = |how, kernel_only, cause, is_walked| {
            let all = Stacks {
                how: Some(how),
                kernel_only,
                is_walked,
                ..Stacks::default()
            };
            let mut attr = Attr::default();
            all.add_to(&mut attr, &Attr::default(), cause);
            attr.sample_stack_user
        };
        let auto = How::Auto { is_checked: false };
        let by_frame_pointers = How::FramePointers { defers: false };
        for is_walked in [false, true] {
            let of = |cause| copied(auto, false, cause, is_walked);
            assert_eq!(of(Cause::Program), HIT_STACK_BYTES);
            assert_eq!(of(Cause::Entry), HIT_STACK_BYTES);
            assert_eq!(of(Cause::Kernel), 0);
            let of_samples = if is_walked { 0 } else { DEFAULT_STACK_BYTES };
            assert_eq!(of(Cause::Rate), of_samples);
            assert_eq!(copied(auto, true, Cause::Program, is_walked), 0);
            let by_frame_pointers = copied(by_frame_pointers, false, Cause::Program, is_walked);
            assert_eq!(by_frame_pointers, 0);
        }
    }

    #[test]
    fn entries_of_the_whole_system_are_not_copied() {
        let mut stacks = Stacks {
            how: Some(How::Auto { is_checked: false }),
            ..Stacks::default()
        };
        let probe = |system: &str| {
            let tracepoint = Tracepoint {
                system: system.to_owned(),
                name: "any".to_owned(),
                format: Vec::new(),
                is_own: false,
                is_of_program: false,
                purpose: Purpose::Rows,
                definition: None,
            };
            let mut probe = Probe::output("any", false);
            probe.kind = Kind::Tracepoint(tracepoint);
            probe
        };
        let (entry, switch) = (probe("raw_syscalls"), probe("sched"));
        let call = Probe::output("calls", true);
        let causes = |stacks: Stacks| [&entry, &switch, &call].map(|probe| stacks.cause(probe));
        assert_eq!(
            causes(stacks),
            [Cause::Entry, Cause::Kernel, Cause::Program]
        );
        stacks.set_of_system();
        assert_eq!(
            causes(stacks),
            [Cause::Kernel, Cause::Kernel, Cause::Program]
        );
    }

    #[test]
    fn programs_take_their_own_stacks() {
        let chain = u64::from(abi::PERF_SAMPLE_CALLCHAIN);
        for how in [
            How::No,
            How::FramePointers { defers: true },
            How::Copies { stack_bytes: 16 },
            How::Branches,
        ] {
            let mut attr = Attr::default();
            put(how, &mut attr);
            let mut precise = attr;
            precise.set_precise_ip(2);
            leave_to_program(&mut attr);
            assert_eq!(attr.sample_type & !u64::from(abi::PERF_SAMPLE_IP), 0);
            leave_to_program(&mut precise);
            assert_eq!(precise.sample_type & chain, chain);
            for attr in [attr, precise] {
                let excluded = attr.exclude_callchain_user() + attr.exclude_callchain_kernel();
                assert_eq!((attr.sample_stack_user, excluded), (0, 0), "{how:?}");
            }
        }
    }

    #[test]
    fn own_stack_settings_take_precedence() {
        let all = Stacks {
            how: Some(How::FramePointers { defers: false }),
            user_only: true,
            ..Stacks::default()
        };
        let with = |how| {
            let mut attr = Attr::default();
            if let Some(how) = how {
                put(how, &mut attr);
            }
            let own = attr;
            attr.sample_type = 0;
            all.add_to(&mut attr, &own, Cause::Rate);
            attr
        };
        let plain = with(None);
        let chain = u64::from(abi::PERF_SAMPLE_CALLCHAIN | abi::PERF_SAMPLE_IP);
        assert_eq!(plain.sample_type, chain);
        assert_eq!(plain.exclude_callchain_kernel(), 1);
        let none = with(Some(How::No));
        assert_eq!((none.sample_type, none.exclude_callchain_user()), (0, 0));
        let copies = with(Some(How::Copies { stack_bytes: 16 }));
        assert_eq!(copies.sample_stack_user, 16);
        assert_eq!(copies.exclude_callchain_kernel(), 1);
        assert_ne!(
            copies.sample_type & u64::from(abi::PERF_SAMPLE_STACK_USER),
            0
        );
    }
}
