//! What of the recording is to be kept: `--min-duration`, `--max-duration`, `--context`, `--max-events`.
//!
//! The journal says it in its head, so that the encoder keeps just that, and so does a recovery.

use std::time::Duration;

use clap::Args;
use perfquet_events::event::{Contexts, Selection};

use crate::cli::duration;
use crate::failure::{Failure, misuse};

/// Which calls, and what of them.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CallOptions {
    /// Calls of a function: FUNC of the kernel or OBJECT:FUNC, with wildcards; behind it what is told with them,
    /// parameters as for --kprobe and --uprobe, and $retval. They are rows of the table calls
    #[arg(long = "call", value_name = "FUNC [ARG...]")]
    pub(crate) calls: Vec<String>,
    /// Keep only calls that last at least so long: 500us, 10ms
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) min_duration: Option<Duration>,
    /// Keep only calls that last at most so long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_duration: Option<Duration>,
    /// Keep only what happens in these contexts: task, softirq, irq, nmi; several separated by commas. What has no
    /// context (samples of clocks) stays
    #[arg(long, value_name = "CONTEXTS", value_parser = contexts)]
    pub(crate) context: Option<Contexts>,
    /// End after so many events, or calls of --call
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_events: Option<u64>,
}

impl CallOptions {
    /// As the journal has it.
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
            return Err(
                misuse("no call lasts at least --min-duration and at most --max-duration")
                    .hint("the first must not be longer than the second"),
            );
        }
        Ok(selection)
    }
}

fn contexts(text: &str) -> Result<Contexts, String> {
    Contexts::parse(text)
        .map_err(|word| format!("no context {word:?}, expected task, softirq, irq or nmi"))
}
