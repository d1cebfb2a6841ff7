//! A flight recorder: keeps the last events and writes a trace when something happens.
//!
//! ```text
//! --ring 30s                            what the last 30 seconds held; 64M: the last 64 MiB; 30s,64M: whichever is less
//! --snapshot-on SIGUSR1                 written to OUT.1.pqt, OUT.2.pqt, …; recording continues
//! --snapshot-on 'slow:vfs_read>10ms'    when a call took longer
//! --snapshot-on 'cpu>90% for 5s'        when the whole system was busy
//! ```
//! At the end, the recording writes the remaining events to OUT. [`buffer`] takes the bytes of the rings, [`memory`]
//! keeps them in files that survive a killed recorder, [`side_band`] keeps what the events depend on (thread names,
//! mappings), [`slow`] finds calls that took too long, [`load`] watches the load of the system, and [`snapshot`] writes a
//! trace of it all.

mod buffer;
mod held;
mod load;
mod memory;
mod side_band;
mod slow;
mod snapshot;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use perfquet_cli::quantity::duration;

use crate::failure::Failure;
use crate::limit;
use crate::output::Format;
use crate::probe::definition::Definitions;
use crate::probe::{self, Probe, ProbeOption, Usage};
use crate::sys::signals::User;
use load::Load;
pub(crate) use slow::Watched;

pub(crate) use buffer::Buffer;
pub(crate) use load::Loads;
pub(crate) use memory::Memory;
pub(crate) use slow::Watch;
pub(crate) use snapshot::{Last, Snapshots};

/// Maximum size if only a time is given.
const BYTES_MAX: usize = 1 << 30;

/// Command-line options.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Keep only the last TIME or SIZE (30s, 64M, or 30s,64M)
    ///
    /// Writes a trace of the retained events at the end, and on --snapshot-on. Events are retained in PATH/journal, so
    /// perfquet-convert PATH completes the trace of a killed recorder.
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    ring: Option<Limit>,
    /// Write a snapshot on EVENT and continue, with --ring; repeatable
    ///
    /// EVENT is SIGUSR1, SIGUSR2, a call longer than TIME ('slow:FUNC>TIME', 'slow:OBJECT:FUNC>TIME'), or a load of the system:
    /// 'cpu>90%', 'runqueue>8' (threads that run or wait for a CPU), 'psi.io>10%' (also cpu, memory, irq and .full). Loads are
    /// means of one second; with ' for TIME', they must last.
    #[arg(long, visible_alias = "trigger", value_name = "EVENT", value_parser = trigger, requires = "ring")]
    snapshot_on: Vec<Trigger>,
}

/// Limits of the kept events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    /// Older events are discarded.
    pub(crate) age: Option<Duration>,
    /// The oldest events are dropped beyond this.
    pub(crate) bytes: usize,
}

/// Cause of a snapshot.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Trigger {
    /// A signal to the recorder.
    Signal(User),
    /// A call longer than this.
    Slow {
        /// FUNC or OBJECT:FUNC.
        function: String,
        /// The limit of the duration.
        longer_than: Duration,
    },
    /// A load of the system.
    Load(Load),
}

impl Options {
    /// Returns the limits; `None` if this is not a flight recorder.
    pub(crate) fn limit(&self) -> Option<Limit> {
        self.ring
    }

    /// Signals that make a snapshot.
    pub(crate) fn signals(&self) -> Vec<User> {
        let signal = |trigger: &Trigger| match trigger {
            Trigger::Signal(signal) => Some(*signal),
            Trigger::Slow { .. } | Trigger::Load(_) => None,
        };
        self.snapshot_on.iter().filter_map(signal).collect()
    }

    /// Returns the functions whose slow calls cause a snapshot, with their limits.
    pub(crate) fn slow(&self) -> impl Iterator<Item = (&str, Duration)> {
        self.snapshot_on.iter().filter_map(|trigger| match trigger {
            Trigger::Signal(_) | Trigger::Load(_) => None,
            Trigger::Slow {
                function,
                longer_than,
            } => Some((function.as_str(), *longer_than)),
        })
    }
}

impl Options {
    /// Starts to watch the loads that cause a snapshot; fails if the kernel does not tell one of them.
    pub(crate) fn loads(&self) -> Result<Loads, Failure> {
        Loads::open(self.snapshot_on.iter().filter_map(|trigger| match trigger {
            Trigger::Load(load) => Some(load.clone()),
            Trigger::Signal(_) | Trigger::Slow { .. } => None,
        }))
    }
}

/// `30s`, `64M`, `30s,64M`.
fn limit(text: &str) -> Result<Limit, String> {
    let limit::Limit { time, bytes } = limit::limit(text)?;
    Ok(Limit {
        age: time,
        bytes: bytes.map_or(BYTES_MAX, |bytes| {
            usize::try_from(bytes).unwrap_or(usize::MAX)
        }),
    })
}

/// `SIGUSR1`, `USR2`, `slow:FUNC>TIME`, `cpu>90% for 5s`.
fn trigger(text: &str) -> Result<Trigger, String> {
    match text.trim_start_matches("SIG") {
        "USR1" => return Ok(Trigger::Signal(User::One)),
        "USR2" => return Ok(Trigger::Signal(User::Two)),
        _ => {}
    }
    if let Some(load) = Load::parse(text) {
        return load.map(Trigger::Load);
    }
    let expected = || {
        "expected SIGUSR1, SIGUSR2, slow:FUNC>TIME, cpu>PERCENT%, runqueue>N or psi.io>PERCENT%"
            .to_owned()
    };
    let slow = text.strip_prefix("slow:").ok_or_else(expected)?;
    let (function, time) = slow.rsplit_once('>').ok_or_else(expected)?;
    let function = function.trim();
    if function.is_empty() {
        return Err(expected());
    }
    Ok(Trigger::Slow {
        function: function.to_owned(),
        longer_than: duration(time.trim())?,
    })
}

/// The probes of `--snapshot-on slow:…`, and their thresholds.
pub(crate) fn watched(
    options: &Options,
    definitions: &mut Option<Definitions>,
) -> Result<(Vec<Probe>, Vec<Watched>), Failure> {
    let (mut probes, mut watched) = (Vec::new(), Vec::new());
    for (function, longer_than) in options.slow() {
        let (entry, exit) = match probe::is_of_program(function) {
            true => (ProbeOption::Uprobe, ProbeOption::Uretprobe),
            false => (ProbeOption::Kprobe, ProbeOption::Kretprobe),
        };
        let define = |option, definitions: &mut Option<Definitions>| {
            probe::wanted(option, function, Usage::Rows)?.define(definitions, Usage::Rows)
        };
        let entries = define(entry, definitions)?;
        let returns = define(exit, definitions)?;
        watched.extend(entries.iter().zip(&returns).map(|(entry, exit)| Watched {
            function: function.to_owned(),
            longer_than,
            probes: (entry.name.clone(), exit.name.clone()),
        }));
        probes.extend(entries.into_iter().chain(returns));
    }
    Ok((probes, watched))
}

/// Returns the directory of the kept events: the journal of the trace, or a directory next to a file.
pub(crate) fn folder_of(output: &Path, format: Format) -> PathBuf {
    match format {
        Format::Pqt => output.to_owned(),
        Format::PerfData => {
            let mut name = output.as_os_str().to_owned();
            name.push(".ring");
            name.into()
        }
    }
}

/// Returns the path of a snapshot: `a.pqt` → `a.1.pqt`.
fn numbered(output: &Path, number: u32) -> PathBuf {
    match (output.file_stem(), output.extension()) {
        (Some(stem), Some(extension)) => {
            let mut name = stem.to_owned();
            name.push(format!(".{number}."));
            name.push(extension);
            output.with_file_name(name)
        }
        _ => {
            let mut name = output.as_os_str().to_owned();
            name.push(format!(".{number}"));
            name.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        let of = |age, bytes| Ok(Limit { age, bytes });
        assert_eq!(limit("30s"), of(seconds(30), BYTES_MAX));
        assert_eq!(limit("2m"), of(seconds(120), BYTES_MAX));
        assert_eq!(limit("64M"), of(None, 64 << 20));
        assert_eq!(limit("1.5s,512KiB").unwrap().bytes, 512 << 10);
        assert!(limit("0s").is_err() && limit("much").is_err() && limit("").is_err());
    }

    #[test]
    fn triggers() {
        assert_eq!(trigger("SIGUSR1"), Ok(Trigger::Signal(User::One)));
        assert_eq!(trigger("USR2"), Ok(Trigger::Signal(User::Two)));
        assert_eq!(
            trigger("slow:./prog:work > 1.5ms"),
            Ok(Trigger::Slow {
                function: "./prog:work".to_owned(),
                longer_than: Duration::from_micros(1500),
            })
        );
        let load = trigger("runqueue>8 for 2s").unwrap();
        assert!(matches!(load, Trigger::Load(_)));
        for wrong in [
            "SIGKILL",
            "cpu>100%",
            "load>3",
            "slow:vfs_read",
            "slow:>1s",
            "slow:f>often",
        ] {
            assert!(trigger(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_snapshots() {
        let name = |path| numbered(Path::new(path), 2);
        assert_eq!(name("/a/trace.pqt"), Path::new("/a/trace.2.pqt"));
        assert_eq!(name("trace"), Path::new("trace.2"));
    }
}
