//! The closing lines: output path, counts, losses and read errors.
//!
//! ```text
//! perf.pqt: 1,285,402 events, 20,911 stack nodes (812 of 930 frames named); perf.data 180 MiB, trace 7.1 MiB
//! perf.pqt: 1,200 events lost; see table losses
//! perf.pqt: 2 read errors; see table problems
//! perf.data: 2 read errors                            after an export, which keeps no trace
//! ```

use std::path::{Path, PathBuf};

use perfquet_cli::terminal::say;
use perfquet_trace::Report;
use perfquet_trace::count::{counted, grouped};
use perfquet_trace::symbols::{DebuginfodCounts, unverified_sentence, without_line_sentence};

use crate::cli::Arguments;
use crate::export::lake::Summary;
use crate::export::{Excluded, Exporter, Output, Tally};

/// Maximum number of modules listed.
const LISTED: usize = 20;

/// Prints the closing lines of an import.
pub(crate) fn imported(output: &Path, report: &Report) {
    let name = output.display().to_string();
    let mut formats: Vec<&str> = Vec::new();
    for &format in &report.formats {
        if !formats.contains(&format) {
            formats.push(format);
        }
    }
    say(format_args!(
        "{name}: {}; {} {}, trace {}",
        contents(report),
        formats.join(" and "),
        bytes(report.input_bytes),
        bytes(report.output_bytes),
    ));
    missing(&name, report, true);
}

/// Prints the losses and read errors of an export from files, which keeps no trace.
pub(crate) fn exported(inputs: &[PathBuf], report: &Report) {
    let names: Vec<String> = inputs
        .iter()
        .map(|input| input.display().to_string())
        .collect();
    missing(&names.join(", "), report, false);
    fetched(report);
}

/// Prints what an export wrote, what it omitted, and why.
pub(crate) fn written(name: &str, bytes: u64, exporter: &Exporter, tally: &Tally) {
    let mut counts: Vec<String> = tally
        .written()
        .iter()
        .map(|(noun, count)| counted(*count, noun))
        .collect();
    if counts.is_empty() {
        counts.push("nothing to export".to_owned());
    }
    let next = match exporter.output {
        Output::File { next, .. }
        | Output::Timeline { next, .. }
        | Output::Directory { next, .. }
        | Output::Archive { next, .. }
            if name != "stdout" =>
        {
            format!("; next: {}", next.replace("FILE", name))
        }
        _ => String::new(),
    };
    say(format_args!(
        "{name}: {}; {}{next}",
        counts.join(", "),
        self::bytes(bytes)
    ));
    for (noun, reason, count) in tally.omissions() {
        say(format_args!(
            "{name}: {} omitted: {reason}",
            counted(count, noun)
        ));
    }
    for note in tally.notes() {
        say(format_args!("{name}: {note}"));
    }
}

/// Prints how many rows were not selected.
pub(crate) fn excluded(name: &str, excluded: Excluded) {
    for (count, reason) in [
        (excluded.events, "of events not in --event"),
        (excluded.untimed, "without a time, which no --time selects"),
        (excluded.time, "outside of --time"),
        (excluded.condition, "not matching --where"),
    ] {
        if count > 0 {
            say(format_args!("{name}: {} {reason}", counted(count, "row")));
        }
    }
}

/// Prints what was unpacked.
pub(crate) fn unpacked(name: &str, parts: u64, size: u64) {
    say(format_args!(
        "{name}: {}; {}; next: perfquet-query info {name}",
        counted(parts, "part"),
        bytes(size)
    ));
}

/// Prints what became of a lake.
pub(crate) fn published(lake: &Path, summary: &Summary) {
    let name = lake.display();
    say(format_args!(
        "{name}: {}; {}",
        summary.sentence(),
        bytes(summary.bytes)
    ));
    if summary.unsummarized > 0 {
        say(format_args!(
            "{name}: {} without summaries, published before; publish again, or query the tables themselves",
            counted(summary.unsummarized, "trace")
        ));
    }
    let mut omitted = summary.omitted.clone();
    omitted.sort();
    omitted.dedup();
    for table in omitted {
        say(format_args!(
            "{name}: table {} omitted: expected a fixed table or events/SYSTEM/NAME",
            perfquet_cli::escaped(&table)
        ));
    }
}

fn missing(name: &str, report: &Report, is_kept: bool) {
    let counts = &report.counts;
    let see = |table| match is_kept {
        true => format!("; see table {table}"),
        false => String::new(),
    };
    if counts.losses > 0 {
        let lost = match (counts.lost, counts.uncounted_losses) {
            (0, _) => "events".to_owned(),
            (lost, 0) => counted(lost, "event"),
            (lost, _) => format!("at least {}", counted(lost, "event")),
        };
        say(format_args!("{name}: {lost} lost{}", see("losses")));
    }
    if let Some(sentence) = counts.unrecorded_sentence() {
        say(format_args!("{name}: {sentence}"));
    }
    if counts.left_out > 0 {
        say(format_args!(
            "{name}: {} outside of --time dropped",
            counted(counts.left_out, "event")
        ));
    }
    if counts.filtered > 0 {
        say(format_args!(
            "{name}: {} filtered while recording{}",
            grouped(counts.filtered),
            see("losses")
        ));
    }
    if counts.problems > 0 {
        say(format_args!(
            "{name}: {}{}",
            counted(counts.problems, "read error"),
            see("problems")
        ));
        if !is_kept {
            say("hint: for details, import without --to and query the table problems");
        }
    }
}

/// Prints how many user stacks could not be unwound completely.
pub(crate) fn unwound(report: &Report) {
    for counts in &report.unwound {
        let cut = counts.cut();
        let all = cut + counts.complete;
        if cut > 0 {
            say(format_args!(
                "{} of {} incomplete: copy too short {}, unwinding failed {}{}",
                grouped(cut),
                counted(all, "copied user stack"),
                grouped(counts.memory_ended),
                grouped(counts.lost + counts.no_rule + counts.too_deep),
                match counts.unsupported {
                    0 => String::new(),
                    count => format!(", not supported {}", grouped(count)),
                }
            ));
        }
    }
}

/// Prints the result of symbolizing a trace.
pub(crate) fn named(output: &Path, report: &Report) {
    say(format_args!(
        "{}: {} of {} named",
        output.display(),
        grouped(report.counts.named_frames),
        counted(report.counts.frames, "frame")
    ));
}

/// Prints which frames have no name and why; in detail with `-v`.
pub(crate) fn unnamed(report: &Report, arguments: &Arguments) {
    let verbose = arguments.verbose;
    let without = report
        .symbols
        .iter()
        .map(|symbols| symbols.frames.saturating_sub(symbols.named))
        .sum::<u64>();
    for symbols in &report.symbols {
        if verbose > 0 {
            if let Some(kernel) = &symbols.kernel {
                say(format_args!("kernel symbols: {kernel}"));
            }
            let unnamed = symbols.unnamed();
            for module in unnamed.iter().take(LISTED) {
                say(module);
            }
            for module in symbols.without_line().iter().take(LISTED) {
                say(module.to_string().replacen("symbols of", "lines of", 1));
            }
            if unnamed.len() > LISTED {
                let more = (unnamed.len() - LISTED) as u64;
                say(format_args!("and {}", counted(more, "more module")));
            }
        }
    }
    fetched(report);
    if let Some(sentence) = unverified_sentence(&report.symbols) {
        say(sentence);
    }
    if let Some(sentence) = without_line_sentence(&report.symbols) {
        say(sentence);
        say(
            "hint: install the debug packages of these files, or use --symbols DIR with their debug info",
        );
    }
    let wanted = verbose == 0 && !arguments.no_symbols;
    if wanted && without > 0 && report.counts.named_frames * 2 < report.counts.frames {
        say(
            "hint: most frames have no name; use -v for the reasons, --symbols PATH to add symbols",
        );
    }
}

/// Prints what was fetched from debuginfod's servers.
fn fetched(report: &Report) {
    // Counts include those of earlier inputs.
    let mut latest = report.symbols.iter().rev();
    if let Some(counts) = latest.find_map(|symbols| symbols.debuginfod.as_ref()) {
        say(debuginfod(counts));
    }
}

/// "debuginfod: 3 files fetched, 7.1 MiB; 1 file on no server"
fn debuginfod(counts: &DebuginfodCounts) -> String {
    let mut parts = vec![match counts.fetched {
        0 => "nothing fetched".to_owned(),
        files => format!(
            "{} fetched, {}",
            counted(files, "file"),
            bytes(counts.bytes)
        ),
    }];
    if counts.absent > 0 {
        parts.push(format!("{} on no server", counted(counts.absent, "file")));
    }
    if counts.not_asked > 0 {
        let reason = match counts.failures.is_empty() {
            true => "a limit was reached",
            false => "a server failed",
        };
        parts.push(format!(
            "{} not fetched: {reason}",
            counted(counts.not_asked, "file")
        ));
    }
    format!("debuginfod: {}", parts.join("; "))
}

/// "12 events, 1,310 calls, 9 stack nodes (8 of 9 frames named)"; "12 events, 8 of 9 addresses named"
fn contents(report: &Report) -> String {
    let counts = &report.counts;
    let mut parts = Vec::new();
    let events = counts.recorded_events();
    let only_others = events == 0 && counts.calls + counts.aggregates > 0;
    if !only_others {
        parts.push(counted(events, "event"));
    }
    for (count, what) in [(counts.calls, "call"), (counts.aggregates, "aggregate")] {
        if count > 0 {
            parts.push(counted(count, what));
        }
    }
    if counts.frames > 0 {
        let named = grouped(counts.named_frames);
        parts.push(match counts.stacks {
            // Fields may refer to functions where nothing has a stack.
            0 => format!("{named} of {} named", counted(counts.frames, "address")),
            stacks => format!(
                "{} ({named} of {} named)",
                counted(stacks, "stack node"),
                counted(counts.frames, "frame")
            ),
        });
    }
    parts.join(", ")
}

/// "7.1 MiB"
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return counted(bytes, "byte");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match value {
        value if value < 10.0 => format!("{value:.1} {}", UNITS[unit]),
        value => format!("{value:.0} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(bytes(1), "1 byte");
        assert_eq!(bytes(12), "12 bytes");
        assert_eq!(bytes(7_444_890), "7.1 MiB");
        assert_eq!(bytes(180 << 20), "180 MiB");
        assert_eq!(bytes(1023 << 10), "1.0 MiB");
    }
}
