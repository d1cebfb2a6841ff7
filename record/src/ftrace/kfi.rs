//! `--kfi-config`: translation of a KFI configuration into options.
//!
//! ```text
//! begin                                 --function-graph '*'
//!   trigger start entry do_fork         --start-on entry:do_fork
//!   trigger stop time 5000000           --stop-on time:5000000us
//!   filter mintime 10                   --min-duration 10us
//!   filter noints                       --context task
//!   filter funclist a b fend            (in place of all functions)  a, b
//!   logentries 500                      --max-events 500
//! end
//! ```
//! Lines without a counterpart are reported; with `-v`, so are the options that the others became.

use std::path::Path;
use std::time::Duration;

use perfquet_readers::kfi::config::{self, Config, Run, Trigger};
use perfquet_trace::count::counted;

use crate::failure::{Failure, failed, misuse};

/// Maximum size; no configuration is longer.
const BYTES_MAX: u64 = 1 << 20;

/// The options of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Kfi {
    /// `entry:FUNC`, `exit:FUNC`, `time:T`
    pub(crate) start_on: Option<String>,
    /// `entry:FUNC`, `exit:FUNC`, `time:T`
    pub(crate) stop_on: Option<String>,
    /// Shorter calls are dropped.
    pub(crate) min_duration: Option<Duration>,
    /// Longer calls are dropped.
    pub(crate) max_duration: Option<Duration>,
    /// Contexts, as `--context` has them.
    pub(crate) context: Option<&'static str>,
    /// Only these functions; empty: all.
    pub(crate) functions: Vec<String>,
    /// Maximum number of calls.
    pub(crate) max_events: Option<u64>,
    /// Translation of each line.
    outcomes: Vec<LineOutcome>,
}

/// Translation of one line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LineOutcome {
    line: u64,
    text: String,
    /// Whether the line is not applied, or applied differently from KFI.
    is_lacking: bool,
}

/// Properties of the host.
pub(super) struct Machine<'a> {
    /// Time since boot.
    pub(super) uptime: Duration,
    /// The function at an address.
    pub(super) name_at: &'a dyn Fn(u64) -> Option<String>,
}

/// Reads a configuration and reports its translation.
pub(super) fn read(path: &Path, machine: &Machine<'_>) -> Result<Kfi, Failure> {
    let unreadable = |why: String| failed(format!("cannot read {}: {why}", path.display()));
    let bytes = path
        .metadata()
        .map_err(|error| unreadable(error.to_string()))?
        .len();
    if bytes > BYTES_MAX {
        return Err(unreadable(format!("{bytes} bytes are no configuration")));
    }
    let text = std::fs::read(path).map_err(|error| unreadable(error.to_string()))?;
    let config = config::check(&String::from_utf8_lossy(&text));
    let file = path.display();
    let kfi = options(&config, machine).ok_or_else(|| {
        misuse(format!("{file}: not a KFI configuration"))
            .hint("start the file with \"begin\" and end it with \"end\"")
    })?;
    for problem in &config.problems {
        // Names are supported here, whichever interface the file was written for.
        if !problem
            .message
            .contains("is a name: /proc/kft takes addresses")
        {
            log::warn!("{file}:{}: {}", problem.line, problem.message);
        }
    }
    for outcome in &kfi.outcomes {
        match outcome.is_lacking {
            true => log::warn!("{file}:{}: {}", outcome.line, outcome.text),
            false => log::info!("{file}:{}: {}", outcome.line, outcome.text),
        }
    }
    Ok(kfi)
}

/// Translates the first block; `None` if there is none.
fn options(config: &Config, machine: &Machine<'_>) -> Option<Kfi> {
    let (run, others) = config.runs.split_first()?;
    let mut kfi = Kfi::default();
    let mut mapper = Mapper {
        run,
        is_command: config.is_command,
        machine,
        outcomes: Vec::new(),
    };
    kfi.start_on = mapper.start();
    kfi.stop_on = mapper.stop();
    mapper.durations(&mut kfi);
    kfi.context = mapper.context();
    kfi.functions = mapper.functions();
    kfi.max_events = run.log_entries.filter(|entries| *entries > 0);
    if let Some(entries) = kfi.max_events {
        mapper.became("logentries", format!("--max-events {entries}"));
    }
    if run.autorepeat {
        mapper.lacks(
            "autorepeat",
            "autorepeat is not supported: one run is recorded, from the first start to the first stop",
        );
    }
    if run.watch.is_some() {
        mapper.lacks("watch", "watch: the stack is not watched");
    }
    for other in others {
        let line = other.lines.get("begin").copied().unwrap_or(1);
        mapper.outcomes.push(LineOutcome {
            line,
            text: "a second block: only the first one is used".to_owned(),
            is_lacking: true,
        });
    }
    kfi.outcomes = mapper.outcomes;
    kfi.outcomes.sort_by_key(|outcome| outcome.line);
    Some(kfi)
}

struct Mapper<'a> {
    run: &'a Run,
    is_command: bool,
    machine: &'a Machine<'a>,
    outcomes: Vec<LineOutcome>,
}

impl Mapper<'_> {
    fn became(&mut self, item: &str, text: String) {
        self.add(item, text, false);
    }

    fn lacks(&mut self, item: &str, text: impl Into<String>) {
        self.add(item, text.into(), true);
    }

    fn add(&mut self, item: &str, text: String, is_lacking: bool) {
        let line = self.run.lines.get(item).copied().unwrap_or(1);
        self.outcomes.push(LineOutcome {
            line,
            text,
            is_lacking,
        });
    }

    fn start(&mut self) -> Option<String> {
        let trigger = match self.run.start.as_ref()? {
            // Since boot.
            Trigger::Time(us) => {
                let at = Duration::from_micros(*us);
                let Some(left) = at
                    .checked_sub(self.machine.uptime)
                    .filter(|left| !left.is_zero())
                else {
                    let uptime = self.machine.uptime.as_secs();
                    self.lacks(
                        "start",
                        format!("trigger start time {us}: the host is up for {uptime} s, so the trace starts immediately"),
                    );
                    return None;
                };
                format!("time:{}us", left.as_micros())
            }
            trigger => self.edge("start", trigger)?,
        };
        self.became("start", format!("--start-on {trigger}"));
        Some(trigger)
    }

    fn stop(&mut self) -> Option<String> {
        let trigger = match self.run.stop.as_ref()? {
            Trigger::Time(us) => format!("time:{us}us"),
            trigger => self.edge("stop", trigger)?,
        };
        self.became("stop", format!("--stop-on {trigger}"));
        Some(trigger)
    }

    fn edge(&mut self, item: &str, trigger: &Trigger) -> Option<String> {
        let (edge, name) = match trigger {
            Trigger::Entry(name) => ("entry", name),
            Trigger::Exit(name) => ("exit", name),
            Trigger::Time(_) => return None,
        };
        let function = self.function(item, name)?;
        Some(format!("{edge}:{function}"))
    }

    fn durations(&mut self, kfi: &mut Kfi) {
        if let Some(us) = self.run.mintime_us.filter(|us| *us > 0) {
            kfi.min_duration = Some(Duration::from_micros(us));
            self.became("mintime", format!("--min-duration {us}us"));
        }
        if let Some(us) = self.run.maxtime_us {
            kfi.max_duration = Some(Duration::from_micros(us));
            self.became("maxtime", format!("--max-duration {us}us"));
        }
    }

    fn context(&mut self) -> Option<&'static str> {
        let (item, context) = match (self.run.noints, self.run.onlyints) {
            (false, false) => return None,
            (true, false) => ("noints", "task"),
            (false, true) => ("onlyints", "softirq,irq,nmi"),
            (true, true) => {
                self.lacks(
                    "onlyints",
                    "noints and onlyints exclude every call; using noints",
                );
                ("noints", "task")
            }
        };
        self.became(item, format!("--context {context}"));
        Some(context)
    }

    fn functions(&mut self) -> Vec<String> {
        let names = self.run.functions.iter();
        let functions: Vec<String> = names
            .filter_map(|name| self.function("funclist", name))
            .collect();
        match (functions.len(), self.run.functions.len()) {
            (0, 0) => self.became("begin", "--function-graph '*'".to_owned()),
            (0, _) => self.lacks(
                "funclist",
                "no function of the list is known: all are recorded",
            ),
            (count, _) => self.became(
                "funclist",
                format!("only {}", counted(count as u64, "function")),
            ),
        }
        functions
    }

    /// A name, even if an address is given.
    fn function(&mut self, item: &str, name: &str) -> Option<String> {
        let Some(address) = address(name, self.is_command) else {
            return Some(name.to_owned());
        };
        let found = (self.machine.name_at)(address);
        match &found {
            Some(found) => self.became(item, format!("{name} is {found}")),
            None => self.lacks(item, format!("{name}: no kernel function at this address")),
        }
        found
    }
}

/// Parses an address. `/proc/kft` accepts only addresses; elsewhere "add" is a function, and `0xc0010000` or `c0010000`
/// an address.
fn address(name: &str, is_command: bool) -> Option<u64> {
    let prefixed = name.strip_prefix("0x").or_else(|| name.strip_prefix("0X"));
    let is_long = matches!(name.len(), 8 | 16);
    match prefixed {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None if is_command || is_long => u64::from_str_radix(name, 16).ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Kfi {
        let name_at = |address: u64| (address == 0xc001_0000).then(|| "do_fork".to_owned());
        let machine = Machine {
            uptime: Duration::from_secs(100),
            name_at: &name_at,
        };
        options(&config::check(text), &machine).expect("a block")
    }

    fn lacking(kfi: &Kfi) -> Vec<String> {
        let lacking = kfi.outcomes.iter().filter(|outcome| outcome.is_lacking);
        lacking
            .map(|outcome| format!("{}: {}", outcome.line, outcome.text))
            .collect()
    }

    #[test]
    fn supported_lines() {
        let kfi = read(
            "new\nbegin\n trigger start entry c0010000\n trigger stop exit c0010000\n filter mintime 10\n \
             filter maxtime 400\n filter noints\n logentries 500\nend\n",
        );
        assert_eq!(lacking(&kfi), [""; 0]);
        let expected = Kfi {
            start_on: Some("entry:do_fork".into()),
            stop_on: Some("exit:do_fork".into()),
            min_duration: Some(Duration::from_micros(10)),
            max_duration: Some(Duration::from_micros(400)),
            context: Some("task"),
            max_events: Some(500),
            outcomes: kfi.outcomes.clone(),
            ..Kfi::default()
        };
        assert_eq!(kfi, expected);
        let lines: Vec<u64> = kfi.outcomes.iter().map(|outcome| outcome.line).collect();
        assert_eq!(lines, [2, 3, 3, 4, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn times_and_lists() {
        let kfi = read(
            "begin\ntrigger start time 160000000\ntrigger stop time 5000\nfilter onlyints\n\
             filter funclist add, vfs_read, 0xc0010000\nend",
        );
        assert_eq!(kfi.start_on.as_deref(), Some("time:60000000us"));
        assert_eq!(kfi.stop_on.as_deref(), Some("time:5000us"));
        assert_eq!(kfi.context, Some("softirq,irq,nmi"));
        assert_eq!(kfi.functions, ["add", "vfs_read", "do_fork"]);
    }

    #[test]
    fn unsupported_lines_are_reported() {
        let kfi = read(
            "begin\ntrigger start time 5\ntrigger stop entry 0xdead\nautorepeat\nwatch stack 4096\nend\nbegin\nend",
        );
        assert_eq!((kfi.start_on.as_ref(), kfi.stop_on.as_ref()), (None, None));
        assert_eq!(
            lacking(&kfi),
            [
                "2: trigger start time 5: the host is up for 100 s, so the trace starts immediately",
                "3: 0xdead: no kernel function at this address",
                "4: autorepeat is not supported: one run is recorded, from the first start to the first stop",
                "5: watch: the stack is not watched",
                "7: a second block: only the first one is used",
            ]
        );
    }
}
