//! Sets up a ring for a plan: clock, size, target, functions, and the tracer last.

use std::collections::HashSet;

use super::buffer::{self, Buffer};
use super::plan::{Plan, Tracer};
use super::settings::current;
use super::{claim, refusal};
use crate::failure::{Failure, failed, misuse};
use crate::sys::host;
use crate::sys::tracefs::Tracefs;
use crate::target::{Place, Target, Tasks};

/// Per CPU. The same as for the rings of perf: size decides about loss.
const RING_BYTES: usize = 16 << 20;
const LEAST_RING_BYTES: usize = 256 << 10;
/// The clock of every recording.
const CLOCK: &str = "mono";

/// The target of function tracing.
pub(super) struct TracedThreads<'a> {
    target: &'a Target,
    /// The selected threads; `None` for all.
    tids: Option<Vec<i32>>,
    cpus: &'a [u32],
}

impl<'a> TracedThreads<'a> {
    /// Derives the threads from the places of the perf events.
    pub(super) fn of(
        target: &'a Target,
        places: &[Place],
        cpus: &'a [u32],
    ) -> Result<TracedThreads<'a>, Failure> {
        let mut tids = Vec::new();
        for place in places {
            match place.tasks {
                Tasks::All => {
                    return Ok(TracedThreads {
                        target,
                        tids: None,
                        cpus,
                    });
                }
                Tasks::Thread(tid) => tids.push(tid),
                Tasks::Cgroup(_) => {
                    return Err(
                        misuse("-G: function tracing filters by thread, not by cgroup")
                            .hint("use -p, -t or -u, or -a for the whole system"),
                    );
                }
            }
        }
        tids.sort_unstable();
        tids.dedup();
        Ok(TracedThreads {
            target,
            tids: Some(tids),
            cpus,
        })
    }
}

/// Creates or claims a ring and sets it up, stopped.
pub(super) fn set_up(
    tracefs: &Tracefs,
    plan: &Plan,
    threads: &TracedThreads<'_>,
    ring_bytes: Option<usize>,
) -> Result<Buffer, Failure> {
    refusal::check(tracefs, plan.tracer)?;
    let mut buffer = choose(tracefs, plan)?;
    log::info!("{} in {}", plan.tracer.name(), buffer.path("").display());
    must(&mut buffer, "tracing_on", "0")?;
    if current(&buffer.read("trace_clock")) != CLOCK {
        must(&mut buffer, "trace_clock", CLOCK)?;
    }
    set_size(&mut buffer, threads.cpus.len(), ring_bytes)?;
    // Wakes the reader when a quarter is full (Linux 4.21).
    may(&mut buffer, "buffer_percent", "25");
    if threads.cpus != host::online_cpus() {
        must(&mut buffer, "tracing_cpumask", &mask(threads.cpus))?;
    }
    choose_threads(&mut buffer, threads)?;
    choose_functions(tracefs, &mut buffer, plan)?;
    let tracer = plan.tracer.name();
    buffer
        .note_held(tracer)
        .map_err(|error| failed(format!("cannot save the current tracer settings: {error}")))?;
    must(&mut buffer, "current_tracer", tracer).map_err(|failure| {
        failure.hint(
            "stop readers of trace_pipe and trace_pipe_raw, and turn off the function profiler \
             (function_profile_enabled)",
        )
    })?;
    Ok(buffer)
}

/// A separate instance if it suffices, otherwise the top level.
fn choose(tracefs: &Tracefs, plan: &Plan) -> Result<Buffer, Failure> {
    if let Some(reason) = plan.needs_top() {
        return claim::take(tracefs, reason);
    }
    let own = Buffer::own(tracefs).map_err(|error| {
        failed(format!(
            "cannot create an instance in {}: {error}",
            tracefs.path("instances").display()
        ))
    })?;
    if refusal::has(&own.path("available_tracers"), plan.tracer) {
        if plan.tracer == Tracer::Graph {
            claim::check_limits(tracefs)?;
        }
        return Ok(own);
    }
    // Instances support the graph tracer since Linux 6.11.
    drop(own);
    claim::take(
        tracefs,
        "the graph tracer, which this kernel has in no instance",
    )
}

/// Size of each CPU's ring unless another is requested: together at most an eighth of the memory.
pub(super) fn default_ring_bytes(cpus: usize) -> usize {
    let most = host::memory_kib().map_or(u64::MAX, |kib| kib * 1024 / 8);
    let mut ring_bytes = RING_BYTES;
    while (ring_bytes * cpus.max(1)) as u64 > most && ring_bytes > LEAST_RING_BYTES {
        ring_bytes /= 2;
    }
    ring_bytes
}

/// Sets the requested size; without one, the best size allowed.
fn set_size(buffer: &mut Buffer, cpus: usize, requested: Option<usize>) -> Result<(), Failure> {
    // "X": it differs between CPUs, so it could not be restored.
    if buffer.is_top() && buffer.read("buffer_size_kb").starts_with('X') {
        log::warn!("keeping the ring sizes of function tracing: they differ between CPUs");
        return Ok(());
    }
    let mut ring_bytes = requested.unwrap_or_else(|| default_ring_bytes(cpus));
    loop {
        let kib = (ring_bytes >> 10).max(4).to_string();
        match buffer.set("buffer_size_kb", &kib) {
            Ok(()) => return Ok(()),
            Err(_) if requested.is_none() && ring_bytes > LEAST_RING_BYTES => ring_bytes /= 2,
            Err(error) => {
                return Err(buffer::refused(buffer, "buffer_size_kb", &kib, &error)
                    .hint("use a smaller -m SIZE"));
            }
        }
    }
}

/// The requested threads and their children; for the whole system, all but the recorder's.
fn choose_threads(buffer: &mut Buffer, threads: &TracedThreads<'_>) -> Result<(), Failure> {
    must(buffer, "options/function-fork", "1")?;
    let (file, tids) = match &threads.tids {
        Some(tids) => ("set_ftrace_pid", tids.clone()),
        None => ("set_ftrace_notrace_pid", own_threads()),
    };
    let words: Vec<String> = tids.iter().map(i32::to_string).collect();
    match buffer.fill(file, &words) {
        // Before Linux 5.7, the recorder cannot be excluded.
        Err(error) if threads.tids.is_none() => {
            log::info!("cannot exclude own activity: {file}: {error}");
            Ok(())
        }
        Err(error) => Err(buffer::refused(buffer, file, &words.join(" "), &error)),
        Ok(()) => {
            if let Some(tids) = &threads.tids {
                add_new_threads(buffer, threads.target, tids);
            }
            Ok(())
        }
    }
}

/// Adds threads that started between the listing and the write. With function-fork set, the kernel adds later ones itself.
fn add_new_threads(buffer: &mut Buffer, target: &Target, tids: &[i32]) {
    let mut known: HashSet<i32> = tids.iter().copied().collect();
    loop {
        let threads = target.threads().into_iter();
        let new = threads.filter_map(|tasks| match tasks {
            Tasks::Thread(tid) => known.insert(tid).then(|| tid.to_string()),
            Tasks::All | Tasks::Cgroup(_) => None,
        });
        let new: Vec<String> = new.collect();
        // The kernel rejects threads that have already ended.
        if new.is_empty() || buffer.fill("set_ftrace_pid", &new).is_err() {
            return;
        }
    }
}

fn choose_functions(tracefs: &Tracefs, buffer: &mut Buffer, plan: &Plan) -> Result<(), Failure> {
    for name in plan.watched() {
        buffer
            .fill("set_ftrace_filter", std::slice::from_ref(name))
            .map_err(|error| refusal::unknown_function(tracefs, name, &error))?;
    }
    if plan.has_args {
        let option = plan.tracer.args_option();
        if !buffer.has(option) {
            return Err(refusal::no_arguments());
        }
        must(buffer, option, "1")?;
        may(buffer, "options/funcgraph-retval", "1");
    }
    if plan.without_interrupts && plan.tracer == Tracer::Graph {
        may(buffer, "options/funcgraph-irqs", "0");
    }
    if buffer.is_top() && plan.tracer == Tracer::Graph {
        for name in &plan.roots {
            buffer
                .fill("set_graph_function", std::slice::from_ref(name))
                .map_err(|error| refusal::unknown_function(tracefs, name, &error))?;
        }
        if let Some(depth) = plan.max_depth {
            must(buffer, "max_graph_depth", &depth.to_string())?;
        }
        if let Some(us) = plan.min_duration_us {
            must(buffer, "tracing_thresh", &us.to_string())?;
        }
    }
    for file in ["set_ftrace_filter", "set_graph_function"] {
        if log::log_enabled!(log::Level::Info) && buffer.has(file) {
            let text = buffer.read(file);
            let names = text.lines().filter(|line| !line.starts_with('#'));
            log::info!("{file}: {} functions", names.count());
        }
    }
    Ok(())
}

fn must(buffer: &mut Buffer, file: &str, value: &str) -> Result<(), Failure> {
    buffer
        .set(file, value)
        .map_err(|error| buffer::refused(buffer, file, value, &error))
}

fn may(buffer: &mut Buffer, file: &str, value: &str) {
    if buffer.has(file)
        && let Err(error) = buffer.set(file, value)
    {
        log::debug!("{file}: {error}");
    }
}

fn own_threads() -> Vec<i32> {
    crate::sys::procfs::threads(std::process::id() as i32)
}

/// CPUs as bits, in words of 32 with the highest in front: "1,00000003".
fn mask(cpus: &[u32]) -> String {
    let last = cpus.iter().max().copied().unwrap_or(0) / 32;
    let words = (0..=last).rev().map(|word| {
        let bits = cpus
            .iter()
            .filter(|cpu| **cpu / 32 == word)
            .fold(0u32, |bits, cpu| bits | 1 << (cpu % 32));
        format!("{bits:08x}")
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn masks() {
        assert_eq!(mask(&[0, 1]), "00000003");
        assert_eq!(mask(&[1, 33, 64]), "00000001,00000002,00000002");
    }
}
