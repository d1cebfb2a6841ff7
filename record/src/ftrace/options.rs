//! Options of function tracing.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use perfquet_events::event::Selection;

use super::kfi::{self, Kfi};
use super::plan::{Plan, Tracer};
use crate::failure::{Failure, misuse};
use crate::sys::{clock, kallsyms};

/// The pattern for every function.
const ALL: &str = "*";

/// Options of function tracing.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FunctionOptions {
    /// Trace these kernel functions and their callees, with durations
    ///
    /// FUNC may contain wildcards; * traces every function. Repeatable or comma-separated.
    #[arg(
        long = "function-graph",
        value_name = "FUNC",
        value_delimiter = ',',
        conflicts_with = "entered"
    )]
    pub(crate) roots: Vec<String>,
    /// Maximum depth for --function-graph [default: unlimited]
    ///
    /// 1 is FUNC itself; 2 adds its direct callees.
    #[arg(long = "max-depth", value_name = "N", requires = "roots",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) max_depth: Option<u32>,
    /// Trace calls of these kernel functions, without durations
    ///
    /// FUNC may contain wildcards. Repeatable or comma-separated.
    #[arg(long = "function", value_name = "FUNC", value_delimiter = ',')]
    pub(crate) entered: Vec<String>,
    /// Record argument registers (Linux 6.15) and return values of traced functions
    ///
    /// Return values require a kernel with CONFIG_FUNCTION_GRAPH_RETVAL.
    #[arg(long = "function-args")]
    pub(crate) has_args: bool,
    /// Apply a KFI configuration: triggers, filters, functions, call limit
    ///
    /// -v prints the equivalent options.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["roots", "entered"])]
    pub(crate) kfi_config: Option<PathBuf>,
    /// The parsed configuration.
    #[arg(skip)]
    pub(crate) kfi: Option<Kfi>,
}

impl FunctionOptions {
    /// Whether function tracing is requested.
    pub(crate) fn is_requested(&self) -> bool {
        !self.roots.is_empty() || !self.entered.is_empty() || self.kfi_config.is_some()
    }

    /// Returns the traced functions, in words.
    pub(crate) fn names(&self) -> Vec<String> {
        let of = |names: &[String], what: &str| {
            (!names.is_empty()).then(|| format!("{}: {what}", names.join(", ")))
        };
        let config = self.kfi_config.as_ref().map(|path| path.display());
        [
            of(&self.roots, "with callees and durations"),
            of(&self.entered, "calls"),
            config.map(|path| format!("those of {path}")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Reads the KFI configuration, if given.
    pub(crate) fn read_kfi(&mut self) -> Result<Option<&Kfi>, Failure> {
        if let Some(path) = &self.kfi_config {
            let machine = kfi::Machine {
                uptime: Duration::from_nanos(clock::since_boot()),
                name_at: &kallsyms::name_at,
            };
            self.kfi = Some(kfi::read(path, &machine)?);
        }
        Ok(self.kfi.as_ref())
    }

    /// Fails for outputs that cannot hold calls.
    pub(crate) fn check(&self, has_tables: bool, is_flight: bool) -> Result<(), Failure> {
        if !has_tables {
            return Err(
                misuse("--format perf.data cannot hold calls of function tracing")
                    .hint("drop --format to write a trace directory"),
            );
        }
        if is_flight {
            return Err(misuse("--ring cannot keep calls of function tracing").hint("drop --ring"));
        }
        Ok(())
    }

    /// Returns the functions to trace; `None` if there are none.
    pub(super) fn plan(&self, selection: &Selection) -> Result<Option<Plan>, Failure> {
        let plan = match &self.kfi {
            Some(kfi) => Some(Plan {
                only: kfi.functions.clone(),
                ..Plan::of(Tracer::Graph)
            }),
            None => self.named()?,
        };
        if plan.is_none() && self.has_args {
            return Err(misuse(
                "--function-args: requires --function, --function-graph or --kfi-config",
            ));
        }
        let plan = plan.map(|plan| plan.select(selection));
        Ok(plan.map(|plan| Plan {
            has_args: self.has_args,
            ..plan
        }))
    }

    /// Returns the plan that the function names describe.
    fn named(&self) -> Result<Option<Plan>, Failure> {
        if self.roots.is_empty() && self.entered.is_empty() {
            return Ok(None);
        }
        let (option, names) = match self.entered.is_empty() {
            true => ("--function-graph", &self.roots),
            false => ("--function", &self.entered),
        };
        let names = functions(option, names)?;
        Ok(Some(match self.entered.is_empty() {
            true => Plan {
                roots: names,
                max_depth: self.max_depth,
                ..Plan::of(Tracer::Graph)
            },
            false => Plan {
                only: names,
                ..Plan::of(Tracer::Function)
            },
        }))
    }
}

/// Returns the functions named by an option; none means all.
fn functions(option: &str, names: &[String]) -> Result<Vec<String>, Failure> {
    if names.iter().any(|name| name == ALL) {
        return Ok(Vec::new());
    }
    for name in names {
        // tracefs splits at spaces and runs commands after colons; a name must not smuggle in either.
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_.$*?[]-".contains(letter);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(
                misuse(format!("{option} {name}: expected a function name")).hint(
                    "use the wildcards * ? [abc], or list functions: perfquet-record --functions 'vfs_*'",
                ),
            );
        }
    }
    Ok(names.to_vec())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: FunctionOptions,
    }

    fn plan(line: &str) -> Result<Option<Plan>, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let plan = line.options.plan(&Selection::default());
        plan.map_err(|failure| failure.to_string())
    }

    #[test]
    fn requested_functions() {
        assert_eq!(plan("").unwrap(), None);
        let found = plan("--function-graph ksys_write,vfs_* --max-depth 2").unwrap();
        let expected = Plan {
            roots: vec!["ksys_write".into(), "vfs_*".into()],
            max_depth: Some(2),
            ..Plan::of(Tracer::Graph)
        };
        assert_eq!(found, Some(expected));
        assert_eq!(
            plan("--function-graph *").unwrap(),
            Some(Plan::of(Tracer::Graph))
        );
        let found = plan("--function schedule").unwrap();
        assert_eq!(found.unwrap().only, ["schedule"]);
        for wrong in [
            "--max-depth 2",
            "--function-graph f --max-depth 0",
            "--function-graph f --function g",
            "--function-graph f:traceoff",
            "--function-graph !f",
        ] {
            assert!(plan(wrong).is_err(), "{wrong}");
        }
    }
}
