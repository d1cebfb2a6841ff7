//! Progress of an import or export: one line that is rewritten, on a terminal only.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use perfquet_cli::terminal;
use perfquet_events::event::Progress;
use perfquet_import::Listener;

/// The line; cleared when dropped.
pub(crate) struct Line {
    bar: Option<ProgressBar>,
}

impl Line {
    /// A line on stderr, if that is a terminal and the program is not quiet.
    pub(crate) fn new() -> Line {
        let is_visible = std::io::stderr().is_terminal() && !terminal::is_quiet();
        let bar = is_visible.then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Line { bar }
    }

    /// Returns a callback for the progress of an import.
    pub(crate) fn listener(&self) -> Option<Listener> {
        let bar = self.bar.clone()?;
        Some(Box::new(move |progress| show(&bar, progress)))
    }

    /// Returns a callback for the rows read by an export.
    pub(crate) fn rows(&self) -> impl Fn(u64) + use<> {
        let bar = self.bar.clone();
        if let Some(bar) = &bar
            && let Ok(style) = ProgressStyle::with_template("{spinner} {human_pos} rows, {per_sec}")
        {
            bar.set_style(style);
        }
        move |rows| {
            if let Some(bar) = &bar {
                bar.inc(rows);
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn show(bar: &ProgressBar, progress: Progress) {
    if let Some(total) = progress.total
        && bar.length() != Some(total)
    {
        bar.set_length(total);
        let style =
            "{bar:30} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
    } else if progress.total.is_none() && bar.position() == 0 {
        let style = "{spinner} {binary_bytes}, {binary_bytes_per_sec}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
    }
    bar.set_position(progress.done);
}
