//! The command line, modeled on perf's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use perfquet_cli::quantity::duration;
use perfquet_events::event::Contexts;

use crate::bpf;
use crate::control;
use crate::cpu_limit::CpuLimitOptions;
use crate::failure::{Failure, misuse};
use crate::flight;
use crate::ftrace;
use crate::limit;
use crate::output::closing_line::Next;
use crate::output::{self, Form, Format};
use crate::preset::{self, PRESETS};
use crate::probe::ProbeOption;
use crate::probe::extras::ExtraOptions;
use crate::probe::stacks::StackOptions;
use crate::probe::vmlinux::KernelOptions;
use crate::process_names;
use crate::recording::DEFAULT_FREQUENCY_HZ;
use crate::remote::RemoteOptions;
use crate::rotation;
use crate::runtimes;
use crate::selection::CallOptions;
use crate::service::ServiceOptions;
use crate::stat::StatOptions;
use crate::sys::{host, privileges};
use crate::target::{Target, TargetOptions};
use crate::trigger::TriggerOptions;

/// Headings of `--help`.
const WHAT: &str = "Events and probes";
const CALLS: &str = "Calls and triggers";
const BOOT: &str = "Boot";
const FILTERS: &str = "Filters";
const SUMS: &str = "In-kernel aggregation";
const WHOM: &str = "Target";
const SAMPLING: &str = "Samples and stacks";
const FLIGHT: &str = "Flight recorder";
const OUTPUT: &str = "Output";
const LISTS: &str = "Listing and cleanup";

const EXAMPLES: &str = "\
Sampling:
  # Sample a command with stacks
  perfquet-record -g -- make -j8
  # Sample the whole system for 10 seconds
  perfquet-record -a -g -F 997 --duration 10s
Events and probes:
  # Show how long threads wait for a CPU
  perfquet-record --preset runqlat --duration 10s
  # Record every context switch and interrupt until Ctrl-C
  perfquet-record -a -e 'sched:sched_switch,irq:*'
  # Record large writes of a process
  perfquet-record -e syscalls:sys_enter_write --filter 'count > 4096' -p 1234
  # Record the argument of a kernel function
  perfquet-record --kprobe 'tcp_sendmsg size' -- curl -s example.org
  # Record every malloc() on the system
  perfquet-record -a --uprobe 'libc.so.6:malloc bytes=%di:u64' --duration 5s
Calls and triggers:
  # Record kernel functions and their callees, with durations
  perfquet-record --function-graph ksys_write --max-depth 2 -- dd if=a of=b
  # Record slow calls, starting with the first open
  perfquet-record -a --call 'vfs_*' --min-duration 500us \\
    --start-on entry:do_sys_openat2 --stop-on time:5s
Boot:
  # Print the kernel parameters that trace slow functions of the next boot
  perfquet-record --boot --function-graph '*' --min-duration 500us
  # After the reboot
  perfquet-record --collect-boot -o boot.pqt
In-kernel aggregation:
  # Aggregate the sizes of malloc() by program
  perfquet-record -a --uprobe 'libc.so.6:malloc bytes=%di:u64' \\
    --agg 'quantize(bytes) by comm' --duration 5s
  # Aggregate the time that threads spend off the CPU
  perfquet-record -a --off-cpu --duration 10s
Flight recorder:
  # Write the last 30 seconds whenever SIGUSR1 arrives
  perfquet-record -a -g --ring 30s --snapshot-on SIGUSR1
Listing:
  # List tracepoints by name
  perfquet-record --list 'block:*'
Query the result with: perfquet-query top trace.pqt

Exit status:
  0    success without a command, or the recording ended before the command
  N    status of the command: 128 + N if signal N killed it, 127 if not found,
       126 if not executable
  1    recording failed
  2    invalid command line
  130  interrupted twice; perfquet-convert DIR completes the trace";

/// Record events, probes, calls and sampled stacks into a trace directory
#[derive(Debug, Parser)]
#[command(name = "perfquet-record", version, after_help = EXAMPLES, args_override_self = true)]
pub(crate) struct Cli {
    /// Event to record; repeatable or comma-separated [default: cycles]
    ///
    /// A tracepoint, with wildcards (sched:*), a counter or clock (cycles:u, cpu-clock), a raw event (rNNN), pmu/term=…/, or a breakpoint
    /// at an address (mem:ADDR[/LEN][:rwx][:u]), which records every access.
    #[arg(short = 'e', long = "event", value_name = "EVENT", help_heading = WHAT)]
    pub(crate) events: Vec<String>,
    /// Probe a kernel function or line; repeatable
    ///
    /// PROBE is FUNC[+OFFSET|:LINE] [NAME=]ARG... and FUNC may contain wildcards. ARG is a parameter (size, skb->len), a
    /// register (%di) or $comm.
    #[arg(long = "kprobe", value_name = "PROBE", help_heading = WHAT)]
    pub(crate) kprobes: Vec<String>,
    /// Probe the return of a kernel function; repeatable
    ///
    /// $retval is the return value. Parameters have their values at entry (requires Linux 6.9).
    #[arg(long = "kretprobe", value_name = "PROBE", help_heading = WHAT)]
    pub(crate) kretprobes: Vec<String>,
    /// Probe a function or line of a program or library; repeatable
    ///
    /// PROBE is OBJECT:FUNC[+OFFSET|:LINE] [NAME=]ARG... where OBJECT is a path, a name (libc.so.6) or a PID. ARG is a
    /// variable (requires debug info) or a register.
    #[arg(long = "uprobe", value_name = "PROBE", help_heading = WHAT)]
    pub(crate) uprobes: Vec<String>,
    /// Probe the return of a function of a program or library; repeatable
    ///
    /// $retval is the return value. OBJECT is as for --uprobe.
    #[arg(long = "uretprobe", value_name = "PROBE", help_heading = WHAT)]
    pub(crate) uretprobes: Vec<String>,
    /// Record a USDT probe and its arguments; repeatable
    ///
    /// PROVIDER and NAME may contain wildcards. OBJECT is as for --uprobe.
    #[arg(long = "usdt", value_name = "OBJECT:PROVIDER:NAME", help_heading = WHAT)]
    pub(crate) usdts: Vec<String>,
    /// Add the options of a preset; repeatable
    ///
    /// Without a target, records the whole system. --list presets describes the presets and prints their options.
    #[arg(long = "preset", value_name = "NAME", value_parser = preset_names(), help_heading = WHAT)]
    pub(crate) presets: Vec<String>,
    #[command(flatten, next_help_heading = WHAT)]
    pub(crate) stat: StatOptions,
    #[command(flatten, next_help_heading = CALLS)]
    pub(crate) functions_traced: ftrace::FunctionOptions,
    #[command(flatten, next_help_heading = CALLS)]
    pub(crate) calls: CallOptions,
    #[command(flatten, next_help_heading = CALLS)]
    pub(crate) triggers: TriggerOptions,
    #[command(flatten, next_help_heading = CALLS)]
    pub(crate) control: control::ControlOptions,
    #[command(flatten, next_help_heading = WHAT)]
    pub(crate) kernel: KernelOptions,
    #[command(flatten, next_help_heading = BOOT)]
    pub(crate) boot: ftrace::BootOptions,
    /// Record only hits matching this kernel filter
    ///
    /// Applies to the preceding event or probe. Aggregated calls are filtered by their arguments, retval and duration.
    #[arg(long = "filter", visible_alias = "where", value_name = "EXPR", help_heading = FILTERS)]
    pub(crate) filters: Vec<String>,
    /// Aggregate the time from START to END with the same KEY; repeatable
    ///
    /// START and END are tracepoints followed by [KEY,...], where KEY is a field, cpu or tid: 'block:block_rq_issue[dev,sector] ->
    /// block:block_rq_complete[dev,sector]'. Separate several STARTs by commas; each may have a /FILTER/. In --agg, NAME is a
    /// field of END, start.NAME a field of START. [default aggregation: 'quantize(duration)']
    #[arg(long = "latency", value_name = "START -> END", help_heading = SUMS)]
    pub(crate) latencies: Vec<String>,
    #[command(flatten, next_help_heading = SUMS)]
    pub(crate) bpf: bpf::Options,
    /// Record the whole system
    #[arg(short = 'a', long = "all-cpus", help_heading = WHOM)]
    pub(crate) all_cpus: bool,
    /// Record only on these CPUs (0-3,8)
    ///
    /// Without another target, records the whole system on these CPUs. [default: all online CPUs]
    #[arg(short = 'C', long = "cpu", value_name = "CPUS", help_heading = WHOM)]
    pub(crate) cpus: Option<String>,
    /// Record these processes, their threads and children; comma-separated
    ///
    /// NAME stands for all running processes with this comm or executable. Processes that start later are recorded only if a
    /// recorded one starts them; -G and -u also record others.
    #[arg(short = 'p', long = "pid", value_name = "PID|NAME", value_delimiter = ',', help_heading = WHOM)]
    pub(crate) pids: Vec<String>,
    /// Record these threads and their children; comma-separated
    #[arg(short = 't', long = "tid", value_name = "TID", value_delimiter = ',', help_heading = WHOM)]
    pub(crate) tids: Vec<i32>,
    #[command(flatten, next_help_heading = WHOM)]
    pub(crate) target_options: TargetOptions,
    #[command(flatten, next_help_heading = WHOM)]
    pub(crate) remote: RemoteOptions,
    /// Samples per second of counters and clocks, or max [default: 997]
    ///
    /// max is the kernel's limit (kernel.perf_event_max_sample_rate). Adds cycles if only tracepoints are given.
    #[arg(
        short = 'F',
        long = "freq",
        value_name = "HZ",
        conflicts_with = "count", help_heading = SAMPLING)]
    pub(crate) frequency: Option<String>,
    /// Sample every N events of counters and clocks
    #[arg(short = 'c', long = "count", value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = SAMPLING)]
    pub(crate) count: Option<u64>,
    #[command(flatten, next_help_heading = SAMPLING)]
    pub(crate) cpu_limit: CpuLimitOptions,
    #[command(flatten, next_help_heading = SAMPLING)]
    pub(crate) stacks: StackOptions,
    #[command(flatten, next_help_heading = SAMPLING)]
    pub(crate) extras: ExtraOptions,
    #[command(flatten, next_help_heading = SAMPLING)]
    pub(crate) runtimes: runtimes::Options,
    #[command(flatten, next_help_heading = FLIGHT)]
    pub(crate) flight: flight::Options,
    #[command(flatten, next_help_heading = FLIGHT)]
    pub(crate) rotation: rotation::RotationOptions,
    #[command(flatten, next_help_heading = FLIGHT)]
    pub(crate) service: ServiceOptions,
    /// Ring buffer size per CPU (512K, 64M); a bare number counts pages
    ///
    /// [default: 32M as root, at most 1/32 of memory for all rings; otherwise the locked-memory limit]
    #[arg(short = 'm', long = "ring-size", alias = "mmap-pages", value_name = "SIZE", value_parser = limit::ring_bytes, help_heading = OUTPUT)]
    pub(crate) ring_bytes: Option<usize>,
    /// Output path [default: trace.pqt; perf.data with --format perf.data]
    #[arg(short = 'o', long = "output", value_name = "PATH", help_heading = OUTPUT)]
    pub(crate) output: Option<PathBuf>,
    /// Overwrite an existing trace
    ///
    /// The old trace is kept as PATH.perfquet-old until the new one is complete.
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) force: bool,
    /// Permissions of the complete trace, in octal [default: 0600]
    ///
    /// Directories are searchable by those who may read them. A recording exposes the activity of the whole system, so it is
    /// always private until it is complete. Imports by perfquet-convert follow the umask instead.
    #[arg(long, value_name = "MODE", value_parser = output::mode, help_heading = OUTPUT)]
    pub(crate) mode: Option<u32>,
    /// Stop after TIME (10s, 500ms, 2m)
    ///
    /// [default: stop when the command or all targets end, or on Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = OUTPUT)]
    pub(crate) duration: Option<Duration>,
    /// Keep the journal, which perf can read, in PATH/journal
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) keep_raw: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "pqt", help_heading = OUTPUT)]
    pub(crate) format: Format,
    /// List events matching PATTERN, all without it; or presets
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "*", help_heading = LISTS)]
    pub(crate) list: Option<String>,
    /// List functions that can be probed
    ///
    /// PATTERN lists functions of the kernel, OBJECT:PATTERN those of a program or library.
    #[arg(long, value_name = "PATTERN", help_heading = LISTS)]
    pub(crate) functions: Option<String>,
    /// List the lines of a function that can be probed
    ///
    /// FUNC is a kernel function, OBJECT:FUNC a function of a program or library.
    #[arg(long, value_name = "FUNC", help_heading = LISTS)]
    pub(crate) lines: Option<String>,
    /// List the variables that can be recorded
    ///
    /// FUNC[:LINE] is a kernel function, OBJECT:FUNC[:LINE] a function of a program or library.
    #[arg(long, value_name = "FUNC", help_heading = LISTS)]
    pub(crate) vars: Option<String>,
    /// Clean up after killed recorders
    ///
    /// Removes their probes and tracefs instances, and restores function tracer settings.
    #[arg(long, help_heading = LISTS)]
    pub(crate) cleanup: bool,
    /// Print what would be recorded, and change nothing
    ///
    /// Events, definitions of probes, filters, aggregations, stacks, output, and the required privileges.
    #[arg(long = "dry-run", help_heading = LISTS)]
    pub(crate) is_dry_run: bool,
    /// Verbose output; -vv for more
    #[arg(short, long, action = clap::ArgAction::Count, help_heading = None::<&str>)]
    pub(crate) verbose: u8,
    /// Print nothing but errors
    ///
    /// Losses are in the tables losses and problems, as always.
    #[arg(short = 'q', long = "quiet", conflicts_with = "verbose", help_heading = None::<&str>)]
    pub(crate) is_quiet: bool,
    /// Command to run and record, with its children
    #[arg(trailing_var_arg = true, value_name = "COMMAND", help_heading = None::<&str>)]
    pub(crate) command: Vec<OsString>,
    /// Long names of the options on the command line.
    #[arg(skip)]
    pub(crate) given: Vec<String>,
    /// Events and probes in their order, each with its filters.
    #[arg(skip)]
    pub(crate) requests: Vec<ProbeRequest>,
    /// A filter that no event or probe precedes.
    #[arg(skip)]
    pub(crate) has_lonely_filter: bool,
    /// An aggregation whose probe is ambiguous or missing.
    #[arg(skip)]
    pub(crate) has_lonely_aggregation: bool,
}

/// One event or probe option with its filters and aggregations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProbeRequest {
    pub(crate) option: ProbeOption,
    /// The value of the option.
    pub(crate) text: String,
    /// Values of the options `--call` directly before it, which are aggregated together with it.
    pub(crate) earlier: Vec<String>,
    /// The filters that follow it.
    pub(crate) filters: Vec<String>,
    /// Aggregations of the event or probe.
    pub(crate) aggregations: Vec<String>,
}

impl Cli {
    /// Reads the command line; exits after `--help`, `--version` and errors.
    pub(crate) fn read() -> Cli {
        let matches = perfquet_cli::with_width(Cli::command()).get_matches();
        Cli::of(&matches).unwrap_or_else(|error| error.exit())
    }

    /// Takes the values of the options, in their order.
    pub(crate) fn of(matches: &ArgMatches) -> Result<Cli, clap::Error> {
        Ok(Cli::from_arg_matches(matches)?.with_filters(matches))
    }

    /// Puts the options of the presets before the words of the command line; exits after errors.
    pub(crate) fn with_presets(self, words: impl Iterator<Item = OsString>) -> Cli {
        match self.presets.is_empty() || self.remote.host().is_some() {
            true => self,
            false => self
                .read_with_presets(words)
                .unwrap_or_else(|error| error.exit()),
        }
    }

    fn read_with_presets(
        &self,
        mut words: impl Iterator<Item = OsString>,
    ) -> Result<Cli, clap::Error> {
        let program = words.next();
        let names = self.presets.iter().map(String::as_str);
        let words = program
            .into_iter()
            .chain(preset::options(names))
            .chain(words);
        let matches = Cli::command().try_get_matches_from(words)?;
        let mut cli = Cli::of(&matches)?;
        if cli.has_no_target() {
            cli.all_cpus = true;
        }
        if let Some(preset) = preset::system_wide(self.presets.iter().map(String::as_str)) {
            cli.record_other_threads(preset);
        }
        Ok(cli)
    }

    /// Records the whole system for a preset whose events also occur in other threads than the command's: on Linux 6.1,
    /// kernel workers issue the command's block requests.
    fn record_other_threads(&mut self, preset: &str) {
        if self.all_cpus || self.cpus.is_some() {
            return;
        }
        if !self.names_tasks() {
            log::warn!(
                "--preset {preset}: recording the whole system, since its events occur in other threads, too"
            );
            self.all_cpus = true;
        } else {
            log::warn!(
                "--preset {preset}: events in other threads than the target's, such as kernel workers, are not recorded"
            );
        }
    }

    /// Assigns each filter and aggregation to the event or probe before it.
    fn with_filters(mut self, matches: &ArgMatches) -> Cli {
        self.given = given(matches);
        let options = [
            (ProbeOption::Event, "events", &self.events),
            (ProbeOption::Kprobe, "kprobes", &self.kprobes),
            (ProbeOption::Kretprobe, "kretprobes", &self.kretprobes),
            (ProbeOption::Uprobe, "uprobes", &self.uprobes),
            (ProbeOption::Uretprobe, "uretprobes", &self.uretprobes),
            (ProbeOption::Usdt, "usdts", &self.usdts),
            (ProbeOption::Call, "calls", &self.calls.calls),
            (ProbeOption::Latency, "latencies", &self.latencies),
        ];
        let mut placed = Vec::new();
        for (option, id, texts) in options {
            let places = matches.indices_of(id).into_iter().flatten();
            placed.extend(places.zip(texts).map(|(place, text)| {
                let request = ProbeRequest {
                    option,
                    text: text.clone(),
                    earlier: Vec::new(),
                    filters: Vec::new(),
                    aggregations: Vec::new(),
                };
                (place, request)
            }));
        }
        placed.sort_by_key(|(place, _)| *place);
        let places = matches.indices_of("filters").into_iter().flatten();
        for (place, filter) in places.zip(&self.filters) {
            match placed.iter_mut().rfind(|(before, _)| *before < place) {
                Some((_, request)) => request.filters.push(filter.clone()),
                None => self.has_lonely_filter = true,
            }
        }
        let texts = self.bpf.aggregations();
        let places = matches.indices_of(bpf::AGGREGATIONS).into_iter().flatten();
        for (place, text) in places.zip(texts) {
            let before = placed.iter().rposition(|(before, _)| *before < place);
            // Before a single probe, an aggregation can only mean that one.
            let only = (placed.len() == 1).then_some(0);
            match before.or(only) {
                Some(index) => placed[index].1.aggregations.push(text.clone()),
                None => self.has_lonely_aggregation = true,
            }
        }
        self.requests = joined(placed.into_iter().map(|(_, request)| request));
        self
    }

    /// Whether neither a target nor a command is given.
    fn has_no_target(&self) -> bool {
        let is_of_tasks = self.names_tasks() || !self.command.is_empty();
        !self.all_cpus && self.cpus.is_none() && !is_of_tasks
    }

    /// Whether running processes, threads, a user or cgroups are given.
    fn names_tasks(&self) -> bool {
        !self.pids.is_empty() || !self.tids.is_empty() || self.target_options.are_given()
    }

    /// Returns the target; fails if several exclude each other.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let is_system = self.all_cpus;
        let named = self.target_options.target()?;
        let chosen = [
            is_system,
            !self.pids.is_empty(),
            !self.tids.is_empty(),
            named.is_some(),
        ];
        if chosen.into_iter().filter(|&is_chosen| is_chosen).count() > 1 {
            return Err(misuse("choose one of -a, -p, -t, -u, -G and --container"));
        }
        if self.target_options.excludes_children {
            let is_of_tasks = self.names_tasks() || !self.command.is_empty();
            if is_system || !is_of_tasks || named.as_ref().is_some_and(Target::is_of_cpus) {
                return Err(misuse("--no-inherit: requires a command, -p, -t or -u")
                    .hint("drop --no-inherit"));
            }
        }
        if let Some(named) = named {
            // With whole CPUs, the command only sets the duration, as with -a.
            if !self.command.is_empty() && !named.is_of_cpus() {
                return Err(misuse("a command cannot be combined with -u"));
            }
            return Ok(named);
        }
        if !self.pids.is_empty() || !self.tids.is_empty() {
            if !self.command.is_empty() {
                return Err(misuse("a command cannot be combined with -p or -t"));
            }
            if !self.pids.is_empty() {
                return process_names::pids_of(&self.pids).map(Target::Processes);
            }
            return Ok(Target::Threads(self.tids.clone()));
        }
        match (is_system, self.command.is_empty()) {
            (true, _) => Ok(Target::System),
            (false, false) => Ok(Target::Command),
            (false, true) if self.cpus.is_some() => Ok(Target::System),
            (false, true) => Err(
                misuse("nothing to record: expected a command, -a or -p").hint(
                    "run: perfquet-record -g -- COMMAND, or use -a for the whole system, or -p PID",
                ),
            ),
        }
    }

    /// Returns the CPUs to record on.
    pub(crate) fn cpus(&self) -> Result<Vec<u32>, Failure> {
        let online = host::online_cpus();
        let Some(list) = &self.cpus else {
            return Ok(online);
        };
        let chosen = host::parse_cpus(list)
            .ok_or_else(|| misuse(format!("-C {list}: expected CPUs such as 0-3,8")))?;
        match chosen.iter().find(|cpu| !online.contains(cpu)) {
            Some(cpu) => Err(misuse(format!("-C {list}: CPU {cpu} is not online"))
                .hint(format!("use online CPUs: {online:?}"))),
            None => Ok(chosen),
        }
    }

    /// Returns the options of the output.
    pub(crate) fn form(&self) -> Form {
        Form {
            format: self.format,
            mode: self.mode,
        }
    }

    /// Returns the samples per second, if given.
    pub(crate) fn frequency_hz(&self) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.frequency else {
            return Ok(None);
        };
        let most =
            privileges::perf_sysctl("max_sample_rate").and_then(|rate| u64::try_from(rate).ok());
        if text == "max" {
            return Ok(Some(most.unwrap_or(DEFAULT_FREQUENCY_HZ)));
        }
        let frequency = match text.parse() {
            Ok(frequency) if frequency > 0 => frequency,
            _ => {
                return Err(misuse(format!(
                    "-F {text}: expected a number of samples per second, or max"
                )));
            }
        };
        match most {
            Some(most) if frequency > most => Err(misuse(format!(
                "-F {frequency}: the kernel allows {most} samples per second (kernel.perf_event_max_sample_rate)"
            ))
            .hint("use -F max, or raise it: sysctl kernel.perf_event_max_sample_rate")),
            _ => Ok(Some(frequency)),
        }
    }

    /// Whether the kernel may pair entries and returns of --call: only if calls are filtered by duration and no option
    /// needs data that the BPF program does not report.
    pub(crate) fn may_pair_in_kernel(&self) -> bool {
        let calls = &self.calls;
        let has_limit = calls.min_duration.is_some() || calls.max_duration.is_some();
        let is_more = calls.context.is_some()
            || calls.max_events.is_some()
            || self.stacks.is_requested()
            || self.target_options.excludes_children;
        has_limit && !is_more && self.format == Format::Pqt && self.flight.limit().is_none()
    }

    /// Whether anything is aggregated in the kernel.
    pub(crate) fn aggregates(&self) -> bool {
        let is_summed = |request: &ProbeRequest| !request.aggregations.is_empty();
        let has_latencies = !self.latencies.is_empty();
        self.bpf.report().is_some() || has_latencies || self.requests.iter().any(is_summed)
    }

    /// Whether --live shows functions and threads, because there are no aggregates or counts to print.
    pub(crate) fn displays_samples(&self) -> bool {
        self.bpf.is_live() && !self.aggregates() && !self.stat.is_requested()
    }

    /// Returns the query to suggest first.
    pub(crate) fn next(&self) -> Next {
        let is_summed = |request: &ProbeRequest| !request.aggregations.is_empty();
        if let Some(report) = self.bpf.report()
            && self.requests.iter().all(is_summed)
        {
            return Next::Aggregates(report);
        }

        match self.calls.calls.is_empty() {
            true => Next::Top,
            false => Next::Durations,
        }
    }

    /// Applies the KFI configuration as if given by options; explicit options take precedence.
    pub(crate) fn apply_kfi(&mut self) -> Result<(), Failure> {
        if self.remote.host().is_some() {
            return Ok(()); // its files are on that host
        }
        let Some(kfi) = self.functions_traced.read_kfi()? else {
            return Ok(());
        };
        let calls = &mut self.calls;
        calls.min_duration = calls.min_duration.or(kfi.min_duration);
        calls.max_duration = calls.max_duration.or(kfi.max_duration);
        calls.max_events = calls.max_events.or(kfi.max_events);
        let context = kfi.context.and_then(|text| Contexts::parse(text).ok());
        calls.context = calls.context.or(context);
        self.triggers
            .add(kfi.start_on.as_deref(), kfi.stop_on.as_deref())
    }

    /// Returns the output path.
    pub(crate) fn output(&self) -> PathBuf {
        let requested = self.remote.output().or(self.rotation.segment());
        requested
            .or(self.output.as_deref())
            .unwrap_or_else(|| Path::new(self.format.usual_name()))
            .to_owned()
    }
}

/// Returns the long names of the options that the user gave.
fn given(matches: &ArgMatches) -> Vec<String> {
    let command = Cli::command();
    let is_given =
        |id: &str| matches.value_source(id) == Some(clap::parser::ValueSource::CommandLine);
    let options = command.get_arguments();
    let options = options.filter(|option| is_given(option.get_id().as_str()));
    options
        .filter_map(|option| option.get_long().map(str::to_owned))
        .collect()
}

/// Joins several `--call` in a row that an aggregation follows: it is for the calls of all of them.
fn joined(requests: impl Iterator<Item = ProbeRequest>) -> Vec<ProbeRequest> {
    let mut all: Vec<ProbeRequest> = Vec::new();
    for mut request in requests {
        let is_aggregated = !request.aggregations.is_empty();
        if request.option == ProbeOption::Call && is_aggregated {
            let is_plain = |before: &mut ProbeRequest| {
                let has_own = !before.aggregations.is_empty() || !before.filters.is_empty();
                before.option == ProbeOption::Call && !has_own
            };
            while let Some(before) = all.pop_if(is_plain) {
                request.earlier.insert(0, before.text);
            }
        }
        all.push(request);
    }
    all
}

/// Names of the presets, for errors and completions.
fn preset_names() -> PossibleValuesParser {
    PossibleValuesParser::new(PRESETS.iter().map(|preset| preset.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Cli, clap::Error> {
        let words = std::iter::once("perfquet-record").chain(line.split_whitespace());
        let matches = Cli::command().try_get_matches_from(words)?;
        Cli::of(&matches)
    }

    #[test]
    fn clap_agrees_and_help_fits_80_columns() {
        Cli::command().debug_assert();
        assert_eq!(perfquet_cli::wide_lines(Cli::command()), [""; 0]);
    }

    #[test]
    fn filters_belong_to_the_event_before() {
        let cli = read("-e a:b --kprobe f --filter x --filter z -e e:f,g:h --filter y -a").unwrap();
        let requests: Vec<(ProbeOption, &str, usize)> = cli
            .requests
            .iter()
            .map(|request| (request.option, request.text.as_str(), request.filters.len()))
            .collect();
        assert_eq!(
            requests,
            [
                (ProbeOption::Event, "a:b", 0),
                (ProbeOption::Kprobe, "f", 2),
                (ProbeOption::Event, "e:f,g:h", 1)
            ]
        );
        assert!(!cli.has_lonely_filter);
        let of = |line: &str| -> Vec<usize> {
            let cli = read(line).unwrap();
            let counts = cli
                .requests
                .iter()
                .map(|request| request.aggregations.len());
            counts
                .chain(cli.has_lonely_aggregation.then_some(99))
                .collect()
        };
        assert_eq!(of("--agg count() --uprobe a:b -a"), [1]);
        assert_eq!(
            of("-e a:b --agg count() -e c:d --agg count() --agg count() -a"),
            [1, 2]
        );
        assert_eq!(of("--agg count() -e a:b -e c:d -a"), [0, 0, 99]);
        let earlier = |line: &str| -> Vec<(String, Vec<String>)> {
            let requests = read(line).unwrap().requests.into_iter();
            requests
                .map(|request| (request.text, request.earlier))
                .collect()
        };
        let one = |text: &str, earlier: &[&str]| {
            let earlier = earlier.iter().map(|text| (*text).to_owned()).collect();
            (text.to_owned(), earlier)
        };
        assert_eq!(
            earlier("--call f --call g -a --call h --agg count() --agg max(duration) --call i"),
            [one("h", &["f", "g"]), one("i", &[])]
        );
        assert_eq!(
            earlier("--call f --filter x -e a:b --call g --agg count()"),
            [one("f", &[]), one("a:b", &[]), one("g", &[])]
        );
        assert!(read("--filter x -e a:b -a").unwrap().has_lonely_filter);
    }

    #[test]
    fn time_requires_a_unit() {
        for option in ["--duration", "--min-duration", "--max-duration"] {
            let text = read(&format!("{option} 5 -a")).unwrap_err().to_string();
            assert!(text.contains("ns, us, ms, s, m or h"), "{option}: {text}");
            assert!(read(&format!("{option} 5ms -a")).is_ok());
        }
        for line in [
            "--off-cpu=5 -a",
            "--start-on time:5 -a",
            "--stop-on time:5 -a",
            "--ring 5s --snapshot-on slow:f>5 -a",
        ] {
            let text = read(line).unwrap_err().to_string();
            assert!(text.contains("ns, us, ms, s, m or h"), "{line}: {text}");
        }
        assert!(read("--ring 64 -a").is_err());
    }

    #[test]
    fn targets() {
        let target = |line: &str| {
            read(line)
                .unwrap()
                .target()
                .map_err(|failure| failure.to_string())
        };
        assert_eq!(target("-a"), Ok(Target::System));
        assert_eq!(target("-a -- sleep 1"), Ok(Target::System));
        assert_eq!(target("-g -- ls -l -a"), Ok(Target::Command));
        assert_eq!(target("ls -l"), Ok(Target::Command));
        assert_eq!(target("-C 0"), Ok(Target::System));
        assert_eq!(target("-p 1,2"), Ok(Target::Processes(vec![1, 2])));
        assert_eq!(target("-t 7"), Ok(Target::Threads(vec![7])));
        assert_eq!(
            target("-p 1 -a"),
            Err("choose one of -a, -p, -t, -u, -G and --container".into())
        );
        assert_eq!(
            target("-g"),
            Err("nothing to record: expected a command, -a or -p".into())
        );
    }

    #[test]
    fn command_keeps_its_options() {
        let cli = read("-g -- ls -l --filter x").unwrap();
        assert_eq!(cli.command, ["ls", "-l", "--filter", "x"]);
        assert!(cli.filters.is_empty());
    }

    #[test]
    fn presets_come_before_other_options() {
        let with = |line: &str| {
            let words = || std::iter::once("perfquet-record").chain(line.split_whitespace());
            let cli = read(line).unwrap();
            cli.read_with_presets(words().map(OsString::from)).unwrap()
        };
        let cli = with("--preset fleet -F 49 --agg max(duration)");
        assert_eq!((cli.frequency.as_deref(), cli.all_cpus), (Some("49"), true));
        let counts: Vec<_> = cli
            .requests
            .iter()
            .map(|request| request.aggregations.len())
            .collect();
        assert_eq!(counts, [1, 2]);
        let cli = with("--preset runqlat -p 7");
        assert_eq!(
            (cli.all_cpus, &cli.pids[..]),
            (false, &["7".to_owned()][..])
        );
        assert!(!with("--preset off-cpu -- sleep 1").all_cpus);
        assert!(with("--preset io -- sleep 1").all_cpus);
        assert!(!with("--preset io -p 7").all_cpus);
        assert!(read("--preset nothing").is_err());
    }
}
