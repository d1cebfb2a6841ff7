//! A line on stderr while a long query has not returned a row yet.
//!
//! ```text
//! 12 s, 34,100,224 of 49,000,000 rows read
//! ```
//! Only on a terminal, after a second; it disappears with the first row of the result.

use std::io::{IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use perfquet_trace::count::{counted, grouped};

/// Most queries have answered by then.
const PATIENCE: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(250);
/// Returns to the start of the line, and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The line, while it may appear.
pub(crate) struct Progress {
    is_over: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts the clock of a query; `None` if stderr is no terminal.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Progress> {
        if !std::io::stderr().is_terminal() {
            return None;
        }
        let plan = Arc::clone(plan);
        let is_over = Arc::new((Mutex::new(false), Condvar::new()));
        let shared = Arc::clone(&is_over);
        let thread = std::thread::Builder::new()
            .name("progress".to_owned())
            .spawn(move || show(&plan, &shared))
            .ok()?;
        Some(Progress {
            is_over,
            thread: Some(thread),
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let (is_over, changed) = &*self.is_over;
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        // The line must be gone before anything else is written.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn show(plan: &Arc<dyn ExecutionPlan>, shared: &(Mutex<bool>, Condvar)) {
    let (is_over, changed) = shared;
    let start = Instant::now();
    let mut pause = PATIENCE;
    let mut is_shown = false;
    loop {
        let over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(over, pause, |over| !*over);
        let (over, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut err = std::io::stderr().lock();
        if *over {
            if is_shown {
                let _ = write!(err, "{CLEAR}");
            }
            return;
        }
        drop(over);
        is_shown = true;
        pause = INTERVAL;
        let _ = write!(err, "{CLEAR}{}", text(start.elapsed(), read(plan)));
        let _ = err.flush();
    }
}

/// Rows that the scans of a plan have returned, and all rows of their files, if known.
fn read(plan: &Arc<dyn ExecutionPlan>) -> (usize, Option<usize>) {
    if plan.children().is_empty() {
        let rows = plan.metrics().and_then(|metrics| metrics.output_rows());
        let statistics = StatisticsContext::new().compute(plan.as_ref(), &StatisticsArgs::new());
        let statistics = statistics.ok();
        let all = statistics.and_then(|all| all.num_rows.get_value().copied());
        return (rows.unwrap_or(0), all);
    }
    let children = plan.children().into_iter().map(read);
    let sum = |all: Option<usize>, one: Option<usize>| Some(all?.saturating_add(one?));
    children.fold((0, Some(0)), |(rows, all), (own, of_child)| {
        (rows.saturating_add(own), sum(all, of_child))
    })
}

fn text(elapsed: Duration, (rows, all): (usize, Option<usize>)) -> String {
    let seconds = elapsed.as_secs();
    match all {
        Some(all) if all > 0 => format!(
            "{seconds} s, {} of {} read",
            grouped(rows as u64),
            counted(all as u64, "row")
        ),
        _ => format!("{seconds} s, {} read", counted(rows as u64, "row")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line() {
        let after = Duration::from_millis(12_900);
        assert_eq!(
            text(after, (1_500, Some(20_000))),
            "12 s, 1,500 of 20,000 rows read"
        );
        assert_eq!(text(after, (1, None)), "12 s, 1 row read");
    }
}
