//! Filters of the recording: `--min-duration`, `--max-duration`, `--context`, `--max-events`.
//!
//! The filters are stored in the journal's header, so that the encoder and a recovery apply the same ones.

use std::time::Duration;

use clap::Args;
use perfquet_cli::quantity::duration;
use perfquet_events::event::{Contexts, Selection};

use crate::failure::{Failure, misuse};

/// Calls to record, and filters.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CallOptions {
    /// Record calls of a kernel function or OBJECT:FUNC in table calls; repeatable
    ///
    /// FUNC may contain wildcards. ARG is a value to record: an argument as for --kprobe and --uprobe, or $retval.
    #[arg(long = "call", value_name = "FUNC [ARG...]")]
    pub(crate) calls: Vec<String>,
    /// Keep only calls lasting at least TIME (500us, 10ms)
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) min_duration: Option<Duration>,
    /// Keep only calls lasting at most TIME (500us, 10ms)
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = "Filters")]
    pub(crate) max_duration: Option<Duration>,
    /// Keep only these contexts: task, softirq, irq, nmi; comma-separated
    ///
    /// Events without a context, such as clock samples, are kept. [default: all]
    #[arg(long, value_name = "CONTEXTS", value_parser = contexts, help_heading = "Filters")]
    pub(crate) context: Option<Contexts>,
    /// Stop after N events, or N calls with --call [default: unlimited]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,
}

impl CallOptions {
    /// Returns the filters as the journal stores them.
    pub(crate) fn selection(&self) -> Result<Selection, Failure> {
        let nanoseconds = |time: Option<Duration>| {
            time.map(|time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX))
        };
        let selection = Selection {
            min_duration: nanoseconds(self.min_duration),
            max_duration: nanoseconds(self.max_duration),
            contexts: self.context,
            max_events: self.max_events,
            ..Selection::default()
        };
        if let (Some(least), Some(most)) = (selection.min_duration, selection.max_duration)
            && least > most
        {
            return Err(misuse("--min-duration exceeds --max-duration")
                .hint("use a --min-duration of at most --max-duration"));
        }
        Ok(selection)
    }
}

fn contexts(text: &str) -> Result<Contexts, String> {
    Contexts::parse(text)
        .map_err(|word| format!("no context {word:?}, expected task, softirq, irq or nmi"))
}
