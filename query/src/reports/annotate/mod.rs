//! `annotate`: instructions and source lines of the hottest function, with their share of its samples.
//!
//! ```text
//! work_inner: 45.21% of cpu-clock, 1,203 samples
//!   /tmp/w/workload
//!                    workload.c
//!                 16 for (int i = 0; i < rounds; i++)
//!    1.20   11a0  ╭► cmp     %eax,-0x4(%rbp)
//!   45.30   11a3  │  imul    %rdx,%rax
//!   12.00   11a7  ╰─ jb     11a0
//! ```
//! The code is that of the recorded file, found by its build ID, or what the recorder kept of it; percentages are of the function, as in `perf annotate`.

mod code;
pub(super) mod embedded;
mod instructions;
mod listed;
mod sampled;
mod source_text;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use perfquet::Session;
use perfquet::failure::Misuse;
use perfquet_cli::{nearest, suggestion};
use perfquet_trace::count::counted;
use perfquet_trace::symbols::{self, GENERATED, LineReader, Origin};

use super::event_weight::{EventChoice, WeightedEvent};
use crate::commands::Subcommand;
use crate::filter::Filters;
use crate::limits::Limits;
use crate::render::{Answered, Form, Listing, Section};
use crate::report::{self, Report};
use crate::settings::Output;
use crate::text::own_name;
use code::Codes;
use instructions::Syntax;
use listed::Annotated;
use sampled::{Function, Hits, Sampled};
use source_text::SourceText;

pub(super) const REPORT: Subcommand = report::subcommand::<Annotate>();

/// This program, also as the reader of debug info.
const OWN_PROGRAM: &str = "/proc/self/exe";
/// Functions whose code was not found, before the search for another one ends.
const SKIPPED_MAX: usize = 20;

/// Show the instructions and source lines of a function with their share of samples
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # The hottest function
  perfquet-query annotate a.pqt
  # One function, all of its instructions, in Intel's syntax
  perfquet-query annotate a.pqt memcpy --all --intel
  # Source lines alone, of the five hottest functions
  perfquet-query annotate a.pqt --by line -n 5
  # Two events side by side
  perfquet-query annotate a.pqt -e cycles -e cache-misses
  # With programs and sources of another host
  perfquet-query annotate a.pqt --symbols sysroot --source ~/src/app")]
struct Annotate {
    /// Trace directory, or a pattern such as 'runs/*.pqt'
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Function to show, as in `top` [default: the hottest]
    #[arg(value_name = "FUNCTION")]
    function: Option<String>,
    /// Show instructions, or source lines alone
    #[arg(long, value_enum, value_name = "KEY", default_value_t = By::Instruction)]
    by: By,
    /// Number of functions
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Show all instructions, also where there are no samples
    #[arg(long)]
    all: bool,
    /// Use Intel's syntax for x86
    #[arg(long)]
    intel: bool,
    /// Only functions of this module
    #[arg(long, value_name = "PATH")]
    module: Option<String>,
    /// Sampled event to analyze; repeatable [default: the one with the most rows]
    #[arg(short = 'e', long, value_name = "EVENT")]
    event: Vec<String>,
    #[command(flatten)]
    code: CodeOptions,
    #[command(flatten)]
    filters: Filters,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    limits: Limits,
}

/// Where code and sources are.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Code and sources")]
struct CodeOptions {
    /// Vmlinux, or directory with programs and debug info; repeatable
    #[arg(long, value_name = "PATH")]
    symbols: Vec<PathBuf>,
    /// Directory with source files; repeatable
    ///
    /// /build/app-1.2/src/a.c is searched as build/app-1.2/src/a.c, app-1.2/src/a.c, src/a.c and a.c below it, and last where it was
    /// compiled.
    #[arg(long, value_name = "DIR")]
    source: Vec<PathBuf>,
    /// Do not read source lines from debug info
    #[arg(long)]
    no_source: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Instruction,
    Line,
}

impl Report for Annotate {
    const NAME: &'static str = "annotate";

    fn traces(&self) -> Vec<PathBuf> {
        vec![self.trace.clone()]
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        if self.by == By::Line && self.code.no_source {
            bail!(Misuse(
                "--by line needs source lines\nhint: leave out --no-source".to_owned()
            ));
        }
        Ok(Form::rows(self.output.format))
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let subjects = self.subjects(session)?;
        let condition = self.filters.condition(session)?;
        let sampled = Sampled::query(session, &subjects, &condition)?;
        let wanted = self.wanted(session, &subjects, &sampled)?;
        let mut codes = Codes::new(session, &subjects, &condition, &self.symbol_options()?);
        let mut source = SourceText::new(self.code.source.clone());
        let (mut shown, mut skipped) = (Vec::new(), Vec::new());
        for (function, hits) in wanted {
            if shown.len() == usize::from(self.limit) || skipped.len() == SKIPPED_MAX {
                break;
            }
            match self.annotated(&mut codes, &mut source, (function, hits), &sampled)? {
                Ok(annotated) => shown.push(annotated),
                Err(reason) => skipped.push(skipped_sentence(function, hits, &sampled, &reason)),
            }
        }
        if shown.is_empty() && !skipped.is_empty() {
            bail!("{}{}", skipped.join("\n"), self.hint(&skipped));
        }
        for sentence in skipped {
            say!("{sentence}");
        }
        let names: Vec<&str> = subjects
            .iter()
            .map(|subject| subject.name.as_str())
            .collect();
        let units: Vec<&str> = subjects.iter().map(|subject| subject.unit).collect();
        let rows = match self.by {
            By::Instruction => listed::instruction_rows(&names, &units, &shown)?,
            By::Line => listed::line_rows(&names, &units, &shown, &mut source)?,
        };
        let total = sampled.total.iter().map(|total| u128::from(total.samples));
        let functions = sampled.functions.len() as u64;
        let summary = format!(
            "{} of {}, in {}",
            counted(total.sum::<u128>(), "sample"),
            names.join(", "),
            counted(functions, "function")
        );
        let unplaced: u64 = sampled.unplaced.iter().map(|weight| weight.samples).sum();
        let omitted = (unplaced > 0)
            .then(|| format!("{} in code without a function", counted(unplaced, "sample")));
        let functions = shown
            .iter()
            .map(|annotated| match self.by {
                By::Instruction => listed::instructions(annotated, &names, &mut source, self.all),
                By::Line => listed::lines(annotated, &names, &mut source),
            })
            .collect();
        let section = Section::Listing(Listing { rows, functions });
        Ok(Answered::new(section)
            .with_summary(summary)
            .with_omitted(omitted))
    }
}

impl Annotate {
    fn subjects(&self, session: &Session) -> Result<Vec<WeightedEvent>> {
        let choice = |event: Option<String>| EventChoice {
            event,
            filters: self.filters.clone(),
        };
        if self.event.is_empty() {
            return Ok(vec![choice(None).subject(session)?]);
        }
        let events = self.event.iter();
        events
            .map(|event| choice(Some(event.clone())).subject(session))
            .collect()
    }

    /// Returns the functions that may be shown, the hottest first.
    fn wanted<'a>(
        &self,
        session: &Session,
        subjects: &[WeightedEvent],
        sampled: &'a Sampled,
    ) -> Result<Vec<(&'a Function, &'a Hits)>> {
        let mut all = sampled.by_weight();
        if all.is_empty() {
            let subject = &subjects[0];
            let choice = EventChoice {
                event: Some(subject.name.clone()),
                filters: self.filters.clone(),
            };
            choice.fail_if_nothing_fits(session)?;
            bail!(
                "no sample of {} is in a function with a name\nhint: name them first with: perfquet-convert TRACE --symbols PATH",
                subject.name
            );
        }
        if let Some(module) = &self.module {
            all.retain(|(function, _)| {
                let path = &function.module;
                path == module || path.rsplit('/').next() == Some(module)
            });
            if all.is_empty() {
                let hottest = sampled.by_weight();
                let mut modules: Vec<&str> = Vec::new();
                for (function, _) in hottest {
                    if !modules.contains(&function.module.as_str()) {
                        modules.push(&function.module);
                    }
                }
                let mut near = nearest(module, modules.iter().copied());
                if near.is_empty() {
                    near = modules.into_iter().take(5).collect();
                }
                bail!(
                    "no sample is in a module {module}\nhint: {}",
                    suggestion(&near)
                );
            }
        }
        let Some(name) = &self.function else {
            return Ok(all);
        };
        type Fits<'f> = &'f dyn Fn(&Function, &Hits) -> bool;
        let rules: [Fits<'_>; 3] = [
            &|function, _| function.name == *name,
            &|function, _| own_name(&function.name) == name,
            &|_, hits| {
                hits.inlined
                    .iter()
                    .any(|inlined| inlined == name || own_name(inlined) == name)
            },
        ];
        for (rule, fits) in rules.iter().enumerate() {
            let found: Vec<_> = all
                .iter()
                .filter(|(function, hits)| fits(function, hits))
                .copied()
                .collect();
            if found.is_empty() {
                continue;
            }
            if rule == 2 {
                let into: Vec<&str> = found.iter().map(|(f, _)| f.name.as_str()).collect();
                say!("{name} was inlined into {}", into.join(", "));
            } else if found.len() > usize::from(self.limit) {
                let modules: Vec<&str> = found.iter().map(|(f, _)| f.module.as_str()).collect();
                say!(
                    "{} are called {name} (--module, -n): {}",
                    counted(found.len() as u64, "function"),
                    modules.join(", ")
                );
            }
            return Ok(found);
        }
        let near = nearest(name, all.iter().map(|(function, _)| function.name.as_str()));
        let names = match near.is_empty() {
            true => all.iter().take(5).map(|(f, _)| f.name.as_str()).collect(),
            false => near,
        };
        bail!(
            "no sample is in a function {name}\nhint: {}; inlined functions are known after perfquet-convert {} --lines",
            suggestion(&names),
            self.trace.display()
        )
    }

    fn symbol_options(&self) -> Result<symbols::Options> {
        let mut options = symbols::Options {
            lines: (!self.code.no_source).then(|| LineReader::Program(OWN_PROGRAM.into())),
            ..symbols::Options::default()
        };
        for path in &self.code.symbols {
            options.add(path)?;
        }
        Ok(options)
    }

    /// Reads a function's code and its lines; or the reason why not.
    fn annotated(
        &self,
        codes: &mut Codes<'_>,
        source: &mut SourceText,
        (function, hits): (&Function, &Hits),
        sampled: &Sampled,
    ) -> Result<Result<Annotated, String>> {
        let (code, notes) = match codes.of(function, hits)? {
            Ok(found) => found,
            Err(reason) => return Ok(Err(reason)),
        };
        let syntax = match self.intel {
            true => Syntax::Intel,
            false => Syntax::Att,
        };
        let instructions = match instructions::disassembled(&code, syntax) {
            Ok(instructions) => instructions,
            Err(reason) => return Ok(Err(reason)),
        };
        let addresses: Vec<u64> = instructions.iter().map(|one| one.address).collect();
        let (places, without) = codes.reader.lines(&code, &addresses);
        let mut annotated = Annotated::new(function, hits, &code, instructions, places, sampled);
        if self.by == By::Line && annotated.has_no_lines() {
            return Ok(Err(without.unwrap_or("it has no source lines").to_owned()));
        }
        annotated.note(notes, &code, source);
        Ok(Ok(annotated))
    }

    fn hint(&self, skipped: &[String]) -> &'static str {
        if skipped.iter().any(|sentence| sentence.contains("vmlinux")) {
            return "\nhint: use --symbols VMLINUX, with that of the recorded kernel, or record with --keep-code as root";
        }
        if skipped.iter().all(|sentence| sentence.ends_with(GENERATED)) {
            return "\nhint: record with perfquet-record --keep-code";
        }
        // Frames that the recorder has named from the memory of V8 have no instructions.
        let is_named_from_memory = |sentence: &String| sentence.contains(" in [javascript] (");
        if skipped.iter().all(is_named_from_memory) {
            return "\nhint: record with perfquet-record --keep-code --no-interpreter-frames";
        }
        match self.code.symbols.is_empty() {
            true => "\nhint: use --symbols DIR, with the recorded programs below it",
            false => "",
        }
    }
}

/// A sentence about a function that is not shown.
fn skipped_sentence(function: &Function, hits: &Hits, sampled: &Sampled, reason: &str) -> String {
    let percent = match (hits.total.first(), sampled.total.first()) {
        (Some(own), Some(all)) => own.percent_of(*all),
        _ => 0.0,
    };
    format!(
        "{} in {} ({percent:.2}%) is not shown: {reason}",
        function.name, function.module
    )
}

/// Host and time of the first trace, to judge files without a build ID.
fn origin(session: &Session) -> Origin {
    let traces = session.traces();
    let Some(trace) = traces.iter().next() else {
        return Origin::default();
    };
    Origin {
        host: trace.fact("host").map(str::to_owned),
        wall_offset: trace.wall_offset,
        is_estimated: false,
        began: trace.time_range().map(|(start, _)| start),
    }
}

/// The bytes of a number in hexadecimal.
fn bytes_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    (!text.is_empty() && text.len().is_multiple_of(2))
        .then(|| digits.map(byte).collect())
        .flatten()
}
