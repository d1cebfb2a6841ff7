//! Prints a generated trace as text of ftrace, for the speed of views: the same lines in every run.
//!
//! ```text
//! view_events sched 10000000 | perfquet-convert - --from ftrace-text -o sched.pqt
//! ```
//! A third argument is the time of the first event in microseconds, for a trace of several parts: the text of 10^9 events has 130 GB.
//! Kinds: `sched` (switches and wake-ups of 200 threads on 8 CPUs), `syscalls`, `irqs`, `block`, `locks`, `kmem`.

use std::io::{self, BufWriter, Write};

use perfquet_tests::random::Random;

const CPUS: usize = 8;
const THREADS: u64 = 200;

/// A generated trace: its random numbers, clock and output.
struct Lines<W: Write> {
    random: Random,
    /// Microseconds.
    time: u64,
    left: u64,
    out: W,
}

impl<W: Write> Lines<W> {
    fn print(&mut self, tid: u64, cpu: usize, event: &str) -> io::Result<()> {
        self.time += 1 + self.random.below(3);
        self.left = self.left.saturating_sub(1);
        let (seconds, micros) = (100 + self.time / 1_000_000, self.time % 1_000_000);
        writeln!(
            self.out,
            "{:>16}-{tid:<7} [{cpu:03}] d..2. {seconds:>5}.{micros:06}: {event}",
            comm(tid, cpu)
        )
    }
}

fn comm(tid: u64, cpu: usize) -> String {
    match tid {
        0 => format!("swapper/{cpu}"),
        tid => format!("worker/{}", tid % 20),
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (kind, count, start) = match arguments.as_slice() {
        [kind, count] => (kind, count, 0),
        [kind, count, start] => (kind, count, start.parse().map_err(io::Error::other)?),
        _ => return Err(io::Error::other("usage: view_events KIND COUNT [START]")),
    };
    let mut lines = Lines {
        random: Random(0x9e37_79b9_7f4a_7c15 ^ start),
        time: start,
        left: count.parse().map_err(io::Error::other)?,
        out: BufWriter::with_capacity(1 << 20, io::stdout().lock()),
    };
    writeln!(lines.out, "# tracer: nop\n#")?;
    match kind.as_str() {
        "sched" => sched(&mut lines)?,
        "syscalls" => pairs(&mut lines, system_call)?,
        "irqs" => pairs(&mut lines, irq)?,
        "block" => pairs(&mut lines, request)?,
        "locks" => pairs(&mut lines, lock)?,
        "kmem" => pairs(&mut lines, allocation)?,
        other => return Err(io::Error::other(format!("{other}: no such kind"))),
    }
    lines.out.flush()
}

/// Threads that run, sleep, are woken by others, and are preempted.
fn sched<W: Write>(lines: &mut Lines<W>) -> io::Result<()> {
    let mut running = [0; CPUS];
    let mut queues: Vec<Vec<u64>> = vec![Vec::new(); CPUS];
    let mut asleep: Vec<u64> = (1..=THREADS).map(|thread| 1000 + thread).collect();
    while lines.left > 0 {
        let cpu = lines.random.below(CPUS as u64) as usize;
        let tid = running[cpu];
        if !asleep.is_empty() && lines.random.below(2) == 0 {
            let place = lines.random.below(asleep.len() as u64) as usize;
            let woken = asleep.swap_remove(place);
            let target = lines.random.below(CPUS as u64) as usize;
            for event in ["sched_waking", "sched_wakeup"] {
                let text = format!(
                    "{event}: comm={} pid={woken} prio=120 target_cpu={target:03}",
                    comm(woken, cpu)
                );
                lines.print(tid, cpu, &text)?;
            }
            queues[target].insert(0, woken);
            continue;
        }
        let next = queues[cpu].pop().unwrap_or(0);
        if next == tid {
            continue;
        }
        let is_preempted = tid != 0 && lines.random.below(5) == 0;
        let state = if is_preempted { "R+" } else { "S" };
        let text = format!(
            "sched_switch: prev_comm={} prev_pid={tid} prev_prio=120 prev_state={state} ==> next_comm={} next_pid={next} next_prio=120",
            comm(tid, cpu),
            comm(next, cpu)
        );
        lines.print(tid, cpu, &text)?;
        match (tid, is_preempted) {
            (0, _) => {}
            (tid, true) => queues[cpu].insert(0, tid),
            (tid, false) => asleep.push(tid),
        }
        running[cpu] = next;
    }
    Ok(())
}

/// Things that begin and end, a few at the same time; `text` formats one end of a thing.
fn pairs<W: Write>(lines: &mut Lines<W>, text: fn(u64, bool) -> String) -> io::Result<()> {
    let mut open: Vec<Option<u64>> = vec![None; CPUS];
    let mut number = 0;
    while lines.left > 0 {
        let cpu = lines.random.below(CPUS as u64) as usize;
        let tid = 1001 + cpu as u64;
        match open[cpu].take() {
            Some(begun) => lines.print(tid, cpu, &text(begun, false))?,
            None => {
                number += 1;
                lines.print(tid, cpu, &text(number, true))?;
                open[cpu] = Some(number);
            }
        }
    }
    Ok(())
}

/// Reads and writes, some of which fail.
fn system_call(number: u64, begins: bool) -> String {
    let call = number % 2;
    let result = if number.is_multiple_of(50) { -11 } else { 64 };
    match begins {
        true => format!(
            "sys_enter: NR {call} ({}, 7f0012340000, 40, 0, 0, 0)",
            number % 7
        ),
        false => format!("sys_exit: NR {call} = {result}"),
    }
}

fn irq(number: u64, begins: bool) -> String {
    let irq = 20 + number % 7;
    match begins {
        true => format!("irq_handler_entry: irq={irq} name=device{irq}"),
        false => format!("irq_handler_exit: irq={irq} ret=handled"),
    }
}

fn request(number: u64, begins: bool) -> String {
    let sector = number * 8 % (1 << 30);
    match begins {
        true => format!("block_rq_issue: 8,16 WS 4096 () {sector} + 8 [worker]"),
        false => format!("block_rq_complete: 8,16 WS () {sector} + 8 [0]"),
    }
}

fn lock(number: u64, begins: bool) -> String {
    let address = 0xffff_8880_0000_0000_u64 + number % 500 * 64;
    match begins {
        true => format!("contention_begin: {address:x} (flags=MUTEX)"),
        false => format!("contention_end: {address:x} (ret=0)"),
    }
}

fn allocation(number: u64, begins: bool) -> String {
    let address = 0xffff_8880_0000_0000_u64 + number % 100_000 * 64;
    match begins {
        true => format!(
            "kmalloc: call_site=ffffffff81000000 ptr={address:x} bytes_req=60 bytes_alloc=64 gfp_flags=GFP_KERNEL"
        ),
        false => format!("kfree: call_site=ffffffff81000000 ptr={address:x}"),
    }
}
