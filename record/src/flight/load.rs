//! `cpu>90% for 5s`, `runqueue>8`, `psi.io>10%`: a load of the whole system that makes a snapshot.
//!
//! ```text
//! cpu       share of all CPUs' time that threads run, from /proc/stat; without the recorder's own
//! runqueue  threads that run or wait for a CPU, from /proc/loadavg; without the thread that reads it
//! psi.io    share of time in which a thread waits, from /proc/pressure/io; psi.io.full: in which all do
//! ```
//! A value is the mean of the last second. The condition must hold for the whole TIME, and fires again only after the
//! value was below the threshold: otherwise a busy system would write one snapshot after another.

use std::collections::VecDeque;
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use perfquet_cli::quantity::duration;

use crate::failure::{Failure, failed};
use crate::sys::procfs;

/// Values are means of this time.
const WINDOW: Duration = Duration::from_secs(1);
/// Readings are at least so far apart; the caller looks every 250 ms.
const APART: Duration = Duration::from_millis(200);
/// PID_MAX_LIMIT (include/linux/threads.h): no kernel has more threads.
const MOST_THREADS: f64 = 4_194_304.0;

/// A load that makes a snapshot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Load {
    /// As written by the user.
    text: String,
    quantity: Quantity,
    /// A share between 0 and 1, or a number of threads.
    threshold: f64,
    /// Time for which the value must exceed the threshold.
    lasting: Duration,
}

/// The quantity that a condition compares with its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quantity {
    Cpu,
    RunQueue,
    Pressure {
        /// A file of `/proc/pressure`.
        resource: &'static str,
        is_full: bool,
    },
}

/// Counters whose growth gives the value: `part / whole`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Reading {
    part: f64,
    whole: f64,
}

/// A load above its threshold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Exceeded {
    text: String,
    quantity: Quantity,
    value: f64,
}

/// A load that is watched.
struct Watched {
    load: Load,
    /// Those of the last second and one before, oldest first.
    readings: VecDeque<(Instant, Reading)>,
    /// Since when the value exceeds the threshold.
    above_since: Option<Instant>,
    has_fired: bool,
}

/// The loads that are watched.
pub(crate) struct Loads {
    watched: Vec<Watched>,
    read_at: Option<Instant>,
}

impl Load {
    /// Parses `NAME>VALUE` or `NAME>VALUE for TIME`; `None` if it begins with another name.
    pub(super) fn parse(text: &str) -> Option<Result<Load, String>> {
        let name = text.split('>').next().unwrap_or_default().trim();
        let quantity = match name {
            "cpu" => Quantity::Cpu,
            "runqueue" => Quantity::RunQueue,
            name => match pressure(name.strip_prefix("psi.")?) {
                Some(pressure) => pressure,
                None => {
                    return Some(Err(format!(
                        "{name}: expected psi.cpu, psi.io, psi.memory or psi.irq, or one of them with .full"
                    )));
                }
            },
        };
        Some(Load::of(text, quantity))
    }

    fn of(text: &str, quantity: Quantity) -> Result<Load, String> {
        let (_, rest) = text
            .split_once('>')
            .ok_or_else(|| format!("expected {}", quantity.example()))?;
        let (value, time) = match rest.split_once(" for ") {
            Some((value, time)) => (value.trim(), Some(time.trim())),
            None => (rest.trim(), None),
        };
        Ok(Load {
            text: text.trim().to_owned(),
            quantity,
            threshold: quantity.threshold(value)?,
            lasting: time.map_or(Ok(Duration::ZERO), duration)?,
        })
    }
}

fn pressure(name: &str) -> Option<Quantity> {
    let (name, is_full) = match name.strip_suffix(".full") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let resource = ["cpu", "io", "memory", "irq"]
        .into_iter()
        .find(|resource| *resource == name)?;
    // The kernel has no line "some" of interrupts: they stop whatever runs.
    let is_full = is_full || resource == "irq";
    Some(Quantity::Pressure { resource, is_full })
}

impl Quantity {
    fn example(self) -> &'static str {
        match self {
            Quantity::Cpu => "a percentage below 100, as in cpu>90%",
            Quantity::RunQueue => "a number of threads below 4194304, as in runqueue>8",
            Quantity::Pressure { .. } => "a percentage below 100, as in psi.io>10%",
        }
    }

    fn threshold(self, text: &str) -> Result<f64, String> {
        let wrong = || format!("expected {}, found {text:?}", self.example());
        let is_share = self != Quantity::RunQueue;
        let digits = match is_share {
            true => text.strip_suffix('%').ok_or_else(wrong)?.trim_end(),
            false => text,
        };
        // `parse` alone takes "inf", "nan" and signs.
        if !digits.chars().all(|c| c.is_ascii_digit() || c == '.') {
            return Err(wrong());
        }
        let number: f64 = digits.parse().map_err(|_| wrong())?;
        // A threshold that nothing can exceed would wait forever.
        let limit = if is_share { 100.0 } else { MOST_THREADS };
        if number >= limit {
            return Err(wrong());
        }
        Ok(if is_share { number / 100.0 } else { number })
    }

    /// The name of the file with the counters.
    fn path(self) -> String {
        match self {
            Quantity::Cpu => "/proc/stat".to_owned(),
            Quantity::RunQueue => "/proc/loadavg".to_owned(),
            Quantity::Pressure { resource, .. } => format!("/proc/pressure/{resource}"),
        }
    }

    /// Reads the counters that come after `last`, at `now`.
    fn read(self, last: Reading, elapsed: Duration) -> std::io::Result<Reading> {
        let text = fs::read_to_string(self.path())?;
        let reading = match self {
            Quantity::Cpu => cpu(&text).map(|(busy, all)| {
                let own = procfs::cpu_ticks(std::process::id() as i32).unwrap_or(0);
                Reading {
                    part: busy.saturating_sub(own) as f64,
                    whole: all as f64,
                }
            }),
            Quantity::RunQueue => runnable(&text).map(|threads| Reading {
                part: last.part + threads,
                whole: last.whole + 1.0,
            }),
            Quantity::Pressure { is_full, .. } => stalled_us(&text, is_full).map(|us| Reading {
                part: us as f64,
                whole: last.whole + elapsed.as_secs_f64() * 1e6,
            }),
        };
        reading.ok_or_else(|| std::io::Error::other("unexpected contents"))
    }

    fn show(self, value: f64) -> String {
        match self {
            Quantity::RunQueue => format!("{value:.1}"),
            Quantity::Cpu | Quantity::Pressure { .. } => format!("{:.1}%", value * 100.0),
        }
    }
}

/// Returns the ticks of all CPUs in which threads ran, and all ticks, from the first line of `/proc/stat`:
/// `cpu  user nice system idle iowait irq softirq steal guest guest_nice`. Those of guests are in `user` and `nice`.
fn cpu(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .take(8)
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let all: u64 = ticks.iter().sum();
    let idle = ticks.get(3)? + ticks.get(4)?;
    Some((all - idle, all))
}

/// Returns the number of other threads that run or wait for a CPU: `0.20 0.18 0.12 1/80 11206`.
fn runnable(loadavg: &str) -> Option<f64> {
    let (running, _) = loadavg.split_whitespace().nth(3)?.split_once('/')?;
    let running: u32 = running.parse().ok()?;
    Some(f64::from(running.saturating_sub(1)))
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=3842`
fn stalled_us(pressure: &str, is_full: bool) -> Option<u64> {
    let name = if is_full { "full " } else { "some " };
    let line = pressure.lines().find(|line| line.starts_with(name))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

impl Watched {
    fn new(load: Load) -> Watched {
        Watched {
            load,
            readings: VecDeque::new(),
            above_since: None,
            has_fired: false,
        }
    }

    fn read(&mut self, now: Instant) -> std::io::Result<()> {
        let (then, last) = self
            .readings
            .back()
            .copied()
            .unwrap_or((now, Reading::default()));
        let reading = self.load.quantity.read(last, now.duration_since(then))?;
        self.add(now, reading);
        Ok(())
    }

    fn add(&mut self, now: Instant, reading: Reading) {
        self.readings.push_back((now, reading));
        // The second oldest covers the window: the oldest is not needed.
        while self
            .readings
            .get(1)
            .is_some_and(|(time, _)| now.duration_since(*time) >= WINDOW)
        {
            self.readings.pop_front();
        }
    }

    /// Returns the mean over the last second, and the time of its first reading; `None` if the readings cover less than a second.
    fn value(&self, now: Instant) -> Option<(f64, Instant)> {
        let (then, first) = self.readings.front()?;
        let (_, last) = self.readings.back()?;
        let whole = last.whole - first.whole;
        // The kernel's counts of idle time may decrease.
        let is_usable = now.duration_since(*then) >= WINDOW && whole > 0.0;
        is_usable.then(|| (((last.part - first.part) / whole).max(0.0), *then))
    }

    /// Whether the condition has just become true.
    fn fires(&mut self, now: Instant) -> Option<Exceeded> {
        let (value, since) = self.value(now)?;
        if value <= self.load.threshold {
            self.above_since = None;
            self.has_fired = false;
            return None;
        }
        let since = *self.above_since.get_or_insert(since);
        if self.has_fired || now.duration_since(since) < self.load.lasting {
            return None;
        }
        self.has_fired = true;
        Some(Exceeded {
            text: self.load.text.clone(),
            quantity: self.load.quantity,
            value,
        })
    }
}

impl Loads {
    /// Watches `loads`; fails if the kernel does not tell one of them.
    pub(crate) fn open(loads: impl Iterator<Item = Load>) -> Result<Loads, Failure> {
        let mut loads = Loads {
            watched: loads.map(Watched::new).collect(),
            read_at: None,
        };
        let now = Instant::now();
        for watched in &mut loads.watched {
            watched
                .read(now)
                .map_err(|error| missing(&watched.load, &error))?;
        }
        Ok(loads)
    }

    /// Reads all values if it is time. Returns those that now exceed their thresholds.
    pub(super) fn look(&mut self) -> Vec<Exceeded> {
        let now = Instant::now();
        if self
            .read_at
            .is_some_and(|last| now.duration_since(last) < APART)
        {
            return Vec::new();
        }
        self.read_at = Some(now);
        let mut exceeded = Vec::new();
        self.watched.retain_mut(|watched| match watched.read(now) {
            Ok(()) => {
                exceeded.extend(watched.fires(now));
                true
            }
            Err(error) => {
                let path = watched.load.quantity.path();
                log::warn!(
                    "--snapshot-on {}: {path}: {error}; no longer watched",
                    watched.load.text
                );
                false
            }
        });
        exceeded
    }
}

/// The error of a load that cannot be read.
fn missing(load: &Load, error: &std::io::Error) -> Failure {
    let path = load.quantity.path();
    let failure = failed(format!(
        "--snapshot-on {}: cannot read {path}: {error}",
        load.text
    ));
    let is_missing = error.kind() == std::io::ErrorKind::NotFound
        || error.raw_os_error() == Some(libc::EOPNOTSUPP);
    match load.quantity {
        Quantity::Pressure { .. } if is_missing => failed(format!(
            "--snapshot-on {}: this kernel has no {path}: pressure stall information is missing or switched off",
            load.text
        ))
        .hint("boot with psi=1, on a kernel with CONFIG_PSI; or use cpu>90% or runqueue>8"),
        _ => failure,
    }
}

impl fmt::Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.quantity.show(self.value);
        write!(f, "{}: {value} in the last second", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Load, String> {
        Load::parse(text).expect("a load")
    }

    #[test]
    fn conditions() {
        let cpu = load("cpu>90% for 5s").unwrap();
        assert_eq!((cpu.quantity, cpu.threshold), (Quantity::Cpu, 0.9));
        assert_eq!(cpu.lasting, Duration::from_secs(5));
        let queue = load("runqueue > 8").unwrap();
        assert_eq!((queue.quantity, queue.threshold), (Quantity::RunQueue, 8.0));
        let pressure = |text: &str| match load(text).unwrap().quantity {
            Quantity::Pressure { resource, is_full } => (resource, is_full),
            other => panic!("{other:?}"),
        };
        assert_eq!(pressure("psi.io>10%"), ("io", false));
        assert_eq!(pressure("psi.memory.full>0.5 %"), ("memory", true));
        assert_eq!(pressure("psi.irq>1%"), ("irq", true));
        assert_eq!(Load::parse("slow:cpu>1s"), None);
        assert_eq!(Load::parse("cpus>90%"), None);
        for wrong in [
            "cpu",
            "cpu>",
            "cpu>90",
            "cpu>%",
            "cpu>100%",
            "cpu>-1%",
            "cpu>nan%",
            "cpu>inf%",
            "cpu>1e2%",
            "cpu>90% for",
            "cpu>90% for 5",
            "cpu>90% for ever",
            "cpu>90%for 5s",
            "runqueue>8%",
            "runqueue>",
            "runqueue>99999999999999999999999",
            "psi.disk>1%",
            "psi.>1%",
            "psi.io>ten%",
        ] {
            assert!(load(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn contents_of_proc() {
        let stat = "cpu  10 20 30 400 40 5 6 7 8 9\ncpu0 1 2 3 4 5 6 7 8 9 0\n";
        assert_eq!(cpu(stat), Some((78, 518)));
        assert_eq!(cpu("cpu  1 2 3\n"), None);
        assert_eq!(cpu("intr 1\n"), None);
        assert_eq!(runnable("0.20 0.18 0.12 3/80 11206\n"), Some(2.0));
        assert_eq!(runnable("0.20 0.18 0.12 0/80 11206\n"), Some(0.0));
        assert_eq!(runnable(""), None);
        let io = "some avg10=0.00 avg60=0.00 avg300=0.00 total=3842\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=17\n";
        assert_eq!(stalled_us(io, false), Some(3842));
        assert_eq!(stalled_us(io, true), Some(17));
        assert_eq!(stalled_us("some total=x", false), None);
    }

    /// Readings every 250 ms with these values; returns at which the condition fired.
    fn fired(text: &str, values: &[f64]) -> Vec<usize> {
        let mut watched = Watched::new(load(text).unwrap());
        let begin = Instant::now();
        let mut reading = Reading::default();
        let mut fired = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let now = begin + Duration::from_millis(250) * index as u32;
            reading.part += value;
            reading.whole += 1.0;
            watched.add(now, reading);
            fired.extend(watched.fires(now).map(|_| index));
        }
        fired
    }

    #[test]
    fn fires_once_until_the_value_has_fallen() {
        // The first value covers a second, four intervals.
        assert_eq!(fired("runqueue>8", &[9.0; 20]), [4]);
        assert_eq!(fired("runqueue>9", &[9.0; 20]), [] as [usize; 0]);
        let twice = [vec![9.0; 8], vec![0.0; 8], vec![9.0; 8]].concat();
        assert_eq!(fired("runqueue>5", &twice), [4, 18]);
        // A single peak is not a mean.
        let mut peak = [1.0; 20];
        peak[10] = 20.0;
        assert_eq!(fired("runqueue>8", &peak), [] as [usize; 0]);
    }

    #[test]
    fn the_condition_must_last() {
        assert_eq!(fired("cpu>50% for 3s", &[1.0; 20]), [12]);
        let interrupted = [vec![1.0; 10], vec![0.0; 4], vec![1.0; 9]].concat();
        assert_eq!(fired("cpu>50% for 3s", &interrupted), [] as [usize; 0]);
    }

    #[test]
    fn counters_that_decrease_are_no_load() {
        let mut watched = Watched::new(load("cpu>0%").unwrap());
        let begin = Instant::now();
        for (seconds, part) in [(0, 100.0), (2, 90.0)] {
            let now = begin + Duration::from_secs(seconds);
            let whole = 100.0 + seconds as f64;
            watched.add(now, Reading { part, whole });
            assert_eq!(watched.fires(now), None);
        }
    }
}
