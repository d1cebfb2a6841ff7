//! Slices, instants and tracks as `--to perfetto` writes them.
//!
//! ```text
//! calls    vfs_read { count: 4096, retval: 12, self_time: 900, module: "[kernel.kallsyms]" }      on the track "CPU 0 irq"
//! calls    vfs_write (exit not seen)
//! losses   7 events lost on CPU 1: ring full { count: 7, cpu: 1, event: "sched:sched_switch", reason: "ring full" }
//! ```

use perfquet_events::Error;
use perfquet_events::event::{Call, Common, Context, Event, Function, Leave, Loss, Sink};

use super::tracks::{Argument, TrackEvent};
use crate::exported::{CallName, function};

pub(super) const CALLS: &[u8] = b"calls";
pub(super) const LOSSES: &[u8] = b"losses";

type Arguments<'a> = Vec<(Vec<u8>, Argument<'a>)>;

/// Emits a call; a negative duration is unknown.
pub(super) fn call(
    (time, event, duration): (i64, &TrackEvent<'_>, i64),
    mut arguments: Arguments<'_>,
    sink: &mut dyn Sink,
) -> Result<(), Error> {
    // What follows the arguments, from the end.
    let depth = match take(&mut arguments, b"call_depth") {
        Some(Argument::Int(depth)) => u32::try_from(depth).ok(),
        _ => None,
    };
    let module = take(&mut arguments, b"module");
    take(&mut arguments, b"self_time");
    let retval = take(&mut arguments, b"retval");
    let module = match module {
        Some(Argument::Text(module)) => module,
        _ => b"",
    };
    let retval = match retval {
        Some(Argument::Int(retval)) => Some(retval),
        _ => None,
    };
    let name = CallName::of(event.name);
    let function = function(name.function, module);
    let (mut at, mut context) = (event.common(time), None);
    if let Some((cpu, of_cpu)) = cpu_of(event.place.track) {
        at = Common {
            cpu: Some(cpu),
            comm: None,
            ..at
        };
        context = of_cpu;
    } else {
        at = thread(at, event);
    }
    let duration = (duration >= 0).then_some(duration);
    if !name.is_entry_seen {
        return sink.event(Event::Leave(&Leave {
            common: at,
            function,
            depth,
            context,
            retval,
            ..Leave::default()
        }));
    }
    let args: Vec<Vec<u8>> = arguments
        .iter()
        .map(|(name, value)| [name, &b"="[..], &value.text()].concat())
        .collect();
    let args: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    sink.event(Event::Call(&Call {
        common: at,
        function,
        caller: Function::Unknown,
        depth,
        context,
        args: &args,
        duration,
        retval,
        may_nest: true,
    }))
}

/// The thread of a track that only its name identifies, since its process is unknown.
pub(super) fn thread<'a>(at: Common<'a>, event: &TrackEvent<'a>) -> Common<'a> {
    if at.tid.is_some() {
        return at;
    }
    match thread_of(event.place.track) {
        Some((comm, tid)) => Common {
            tid: Some(tid),
            comm: Some(comm).filter(|comm| *comm != b"thread"),
            ..at
        },
        None => Common { comm: None, ..at },
    }
}

/// Emits a loss.
pub(super) fn loss(time: i64, arguments: &Arguments<'_>, sink: &mut dyn Sink) -> Result<(), Error> {
    let find = |name: &[u8]| arguments.iter().find(|(known, _)| known == name);
    let number = |name: &[u8]| match find(name) {
        Some((_, Argument::Int(number))) => u64::try_from(*number).ok(),
        _ => None,
    };
    let reason = find(b"reason").map(|(_, reason)| reason.text());
    sink.event(Event::Loss(Loss {
        time: Some(time),
        cpu: number(b"cpu").and_then(|cpu| u32::try_from(cpu).ok()),
        event: None,
        count: number(b"count"),
        in_all: None,
        reason: &String::from_utf8_lossy(reason.as_deref().unwrap_or_default()),
    }))
}

/// Removes the last argument if it has this name.
fn take<'a>(arguments: &mut Arguments<'a>, name: &[u8]) -> Option<Argument<'a>> {
    let (_, value) = arguments.pop_if(|(last, _)| last == name)?;
    Some(value)
}

/// CPU and context of the track `CPU 0 irq`.
fn cpu_of(track: &[u8]) -> Option<(u32, Option<Context>)> {
    let track = std::str::from_utf8(track).ok()?;
    let (cpu, what) = track.strip_prefix("CPU ")?.split_once(' ')?;
    let context = match what.strip_suffix(" overlapping").unwrap_or(what) {
        "irq" => Some(Context::Irq),
        "softirq" => Some(Context::Softirq),
        "nmi" => Some(Context::Nmi),
        "calls" => None,
        _ => return None,
    };
    Some((cpu.parse().ok()?, context))
}

/// Name and ID of the track of a thread whose process is unknown: `dd [212]`, `dd [212] overlapping`, `dd [212] not left`.
fn thread_of(track: &[u8]) -> Option<(&[u8], i32)> {
    let ends = [&b" overlapping"[..], b" not left"];
    let end = ends.iter().find_map(|end| track.strip_suffix(*end));
    let inner = end.unwrap_or(track).strip_suffix(b"]")?;
    let open = inner.iter().rposition(|byte| *byte == b'[')?;
    let tid = std::str::from_utf8(inner.get(open + 1..)?).ok()?;
    Some((inner.get(..open)?.strip_suffix(b" ")?, tid.parse().ok()?))
}
