//! Contents of a file besides its events: facts, command lines, mappings, and the losses counted by the ring buffers.

use hashbrown::{HashMap, HashSet};
use perfquet_events::Error;
use perfquet_events::bytes::before_nul;
use perfquet_events::event::{Comm, Event, Fact, Loss, Mapping, Place, Space, Symbol};

use crate::trace_dat::clock::name_of;
use crate::trace_dat::head::{Head, Opened};
use crate::trace_dat::kallsyms::Kallsyms;
use crate::trace_dat::options::Options;
use crate::trace_dat::reporter::{OVERRUN, Reporter};

/// Address that the kernel stores in stacks for ftrace's own code (FTRACE_TRAMPOLINE_MARKER).
const TRAMPOLINE: u64 = i32::MAX as u64;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(before_nul(bytes)).trim().to_owned()
}

/// Emits the facts of a file.
pub(super) fn report(
    head: &Head<'_>,
    opened: &Opened<'_>,
    reporter: &mut Reporter<'_>,
) -> Result<(), Error> {
    let options = &opened.options;
    let mut fact = |fact: Fact<'_>| reporter.sink.event(Event::Fact(fact));
    if let Some(version) = &options.version {
        let version = text(version);
        // "3.1.6 not-a-git-repo"
        let number = version.split(' ').next().unwrap_or_default();
        fact(Fact::Recorder(&format!("trace-cmd {number}")))?;
    }
    if let Some(uname) = &options.uname {
        let uname = text(uname);
        let words: Vec<&str> = uname.split(' ').collect();
        if let [_, host, release, .., machine] = words.as_slice() {
            fact(Fact::Host(host))?;
            fact(Fact::OsRelease(release))?;
            fact(Fact::Architecture(machine))?;
        }
    }
    if let Some(cpus) = options.cpu_count {
        fact(Fact::Cpus(cpus))?;
    }
    let clock = opened.buffers.first().map(|buffer| buffer.clock.as_slice());
    let clock = clock.or(options.clock.as_deref()).unwrap_or_default();
    fact(Fact::Clock(name_of(clock)))?;
    if let Some(date) = options.date {
        fact(Fact::WallOffset(date))?;
    }
    if let Some(id) = options.trace_id {
        // Also in the pieces of `trace-cmd split`.
        fact(Fact::Recording(&format!("{id:#018x}")))?;
    }
    let mut other = |name: &str, value: String| match value.is_empty() {
        true => Ok(()),
        false => fact(Fact::Other {
            name: &format!("trace_cmd.{name}"),
            value: &value,
        }),
    };
    other("file_version", text(head.version))?;
    other("clock", text(clock))?;
    other("packed_by", text(opened.packed_by))?;
    let names = opened.buffers.iter().map(|buffer| text(&buffer.name));
    let names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    other("instances", names.join(" "))?;
    for buffer in opened.buffers.iter().filter(|buffer| buffer.clock != clock) {
        other(
            &format!("clock.{}", text(&buffer.name)),
            text(&buffer.clock),
        )?;
    }
    let hooks: Vec<String> = options.hooks.iter().map(|hook| text(hook)).collect();
    other("hooks", hooks.join("; "))?;
    if let Some(id) = options.trace_id {
        other("trace_id", format!("{id:#018x}"))?;
    }
    if options.offset != 0 {
        other("time_offset", options.offset.to_string())?;
    }
    if let Some(tsc) = options.tsc {
        let value = format!(
            "mult={} shift={} offset={}",
            tsc.mult, tsc.shift, tsc.offset
        );
        other("tsc2nsec", value)?;
    }
    if let Some(shift) = &options.time_shift {
        let samples: usize = shift.cpus.iter().map(Vec::len).sum();
        let value = format!("clock of {:#018x} by {samples} samples", shift.peer);
        other("time_shift", value)?;
    }
    for guest in &options.guests {
        let cpus = guest.cpus.iter().map(|(cpu, tid)| format!("{cpu}:{tid}"));
        let cpus: Vec<String> = cpus.collect();
        let value = format!("{:#018x} {}", guest.trace_id, cpus.join(" "));
        other(&format!("guest.{}", text(&guest.name)), value)?;
    }
    if let Some(boot) = &options.last_boot {
        other("last_boot", text(boot))?;
    }
    Ok(())
}

/// Emits the names of threads: `174 dd`, one per line. Returns the TIDs.
pub(super) fn comms(saved: &[u8], reporter: &mut Reporter<'_>) -> Result<HashSet<i32>, Error> {
    let mut named = HashSet::from([0]);
    let comm = |tid: i32, comm| {
        Event::Comm(Comm {
            time: None,
            pid: None,
            tid,
            comm,
            exec: false,
        })
    };
    // trace-cmd's name for the idle task, which the kernel does not save.
    reporter.sink.event(comm(0, b"<idle>"))?;
    for line in before_nul(saved).split(|&byte| byte == b'\n') {
        if line.is_empty() {
            continue;
        }
        let parsed = line
            .iter()
            .position(|&byte| byte == b' ')
            .and_then(|blank| {
                let (tid, name) = line.split_at_checked(blank)?;
                let tid = str::from_utf8(tid).ok()?.parse().ok()?;
                Some((tid, name.get(1..)?))
            });
        match parsed {
            Some((tid, name)) => {
                reporter.sink.event(comm(tid, name))?;
                named.insert(tid);
            }
            None => {
                reporter.problem(Place::Whole, "comm", || {
                    let found = String::from_utf8_lossy(line.get(..60).unwrap_or(line));
                    format!("command lines: expected a number and a name, found {found:?}")
                })?;
            }
        }
    }
    Ok(named)
}

/// Emits the mappings of the traced processes: `160 13 /usr/bin/dd`, numbers in hexadecimal; then one per line,
/// `55a287134000 55a287136000 /usr/bin/dd`. The file has no offsets: a mapping's offset is assumed to be its distance
/// from the first mapping of the file, which holds for code as GNU ld lays it out.
pub(super) fn mappings(options: &Options<'_>, reporter: &mut Reporter<'_>) -> Result<(), Error> {
    for maps in &options.proc_maps {
        let mut pid = None;
        let mut first_of: (&[u8], u64) = (b"", 0);
        for line in maps
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
        {
            let mut words = line.splitn(3, |&byte| byte == b' ');
            let mut number = || u64::from_str_radix(str::from_utf8(words.next()?).ok()?, 16).ok();
            let (first, second) = (number(), number());
            let path = words.next().unwrap_or_default();
            match (pid, first, second) {
                (None, Some(found), Some(_)) => pid = i32::try_from(found).ok(),
                (Some(pid), Some(start), Some(end)) if end > start => {
                    if first_of.0 != path || start < first_of.1 {
                        first_of = (path, start);
                    }
                    let mut mapping = mapping(pid, start, end, path);
                    if path.starts_with(b"/") {
                        mapping.file_offset = start - first_of.1;
                    }
                    reporter.sink.event(Event::Mapping(mapping))?;
                }
                _ => {
                    reporter.problem(Place::Whole, "mapping", || {
                        let found = String::from_utf8_lossy(line.get(..60).unwrap_or(line));
                        format!("mappings: expected two addresses and a path, found {found:?}")
                    })?;
                }
            }
        }
    }
    Ok(())
}

fn mapping(pid: i32, start: u64, end: u64, path: &[u8]) -> Mapping<'_> {
    Mapping {
        time: None,
        pid,
        tid: pid,
        space: Space::User,
        start,
        length: end - start,
        file_offset: 0,
        path,
        build_id: None,
        device: None,
        inode: None,
        protection: None,
        flags: None,
    }
}

/// Emits the names of the kernel's functions, for the stacks.
pub(super) fn symbols(kallsyms: &Kallsyms<'_>, reporter: &mut Reporter<'_>) -> Result<(), Error> {
    let symbol = |start, length, name| {
        Event::Symbol(Symbol {
            module: None,
            start,
            length,
            name,
            line: None,
        })
    };
    let mut any = false;
    for (address, length, found) in kallsyms.iter() {
        any = true;
        reporter.sink.event(symbol(address, length, found.name))?;
    }
    if any {
        let name = b"[FTRACE TRAMPOLINE]";
        reporter.sink.event(symbol(TRAMPOLINE, 1, name))?;
    }
    Ok(())
}

/// Events lost as counted by the ring buffers, by buffer name and CPU.
pub(super) fn counted_losses(cpu_stats: &[u8]) -> HashMap<(Vec<u8>, u32), u64> {
    let mut losses = HashMap::new();
    let (mut buffer, mut cpu) = (Vec::new(), None);
    for line in cpu_stats.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        match name {
            "Buffer" => {
                buffer = value.as_bytes().to_vec();
                cpu = None;
            }
            "CPU" => cpu = value.parse().ok(),
            "overrun" | "commit overrun" | "dropped events" => {
                if let (Some(cpu), Ok(count @ 1..)) = (cpu, value.parse::<u64>()) {
                    let sum = losses.entry((buffer.clone(), cpu)).or_insert(0u64);
                    *sum = sum.saturating_add(count);
                }
            }
            _ => {}
        }
    }
    losses
}

/// Reports the events of a CPU that were lost beyond those reported in its pages.
pub(super) fn report_rest(
    cpu: u32,
    counted: u64,
    in_pages: u64,
    reporter: &mut Reporter<'_>,
) -> Result<(), Error> {
    match counted.saturating_sub(in_pages) {
        0 => Ok(()),
        rest => reporter.sink.event(Event::Loss(Loss {
            time: None,
            cpu: Some(cpu),
            event: None,
            count: Some(rest),
            in_all: None,
            reason: OVERRUN,
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_rings() {
        let text = b"CPU: 0\nentries: 2\noverrun: 0\n\nCPU: 1\noverrun: 113\ncommit overrun: 2\nbytes: 1\n\
            dropped events: 5\n\n\nBuffer: sched\n\n\nCPU: 1\noverrun: 7\n";
        let losses = counted_losses(text);
        assert_eq!(losses.len(), 2);
        assert_eq!(losses[&(b"".to_vec(), 1)], 120);
        assert_eq!(losses[&(b"sched".to_vec(), 1)], 7);
    }
}
