//! The closing line: what was imported, what was not, and where it is.
//!
//! ```text
//! perf.pqt: 1,285,402 events, 20,911 stack nodes (812 of 930 frames named); 180 MiB of perf.data became 7.1 MiB
//! perf.pqt: 1,200 events were lost while recording: see the table losses
//! perf.pqt: 2 places could not be read: see the table problems
//! perf.data: 2 places could not be read                                  of an export, whose trace does not stay
//! ```

use std::path::{Path, PathBuf};

use perfquet_formats::import::Report;
use perfquet_formats::symbols::{unverified_sentence, without_line_sentence};

use crate::cli::Arguments;
use crate::terminal::{hint, put};

/// Modules without names that are listed.
const LISTED: usize = 20;

/// Tells what an import did.
pub(crate) fn imported(output: &Path, report: &Report) {
    let name = output.display().to_string();
    let mut formats = report.formats.clone();
    formats.dedup();
    put(&format!(
        "{name}: {}; {} of {} became {}",
        contents(report),
        bytes(report.input_bytes),
        formats.join(" and "),
        bytes(report.output_bytes),
    ));
    missing(&name, report, true);
}

/// Tells what an import for an export left out. The trace with its tables is gone then.
pub(crate) fn exported(inputs: &[PathBuf], report: &Report) {
    let names: Vec<String> = inputs
        .iter()
        .map(|input| input.display().to_string())
        .collect();
    missing(&names.join(", "), report, false);
}

fn missing(name: &str, report: &Report, is_kept: bool) {
    let counts = &report.counts;
    let see = |table| match is_kept {
        true => format!(": see the table {table}"),
        false => String::new(),
    };
    if counts.losses > 0 {
        let lost = match counts.lost {
            0 => "events".to_owned(),
            lost => format!("{} events", number(lost)),
        };
        put(&format!("{name}: {lost} are missing{}", see("losses")));
    }
    if counts.left_out > 0 {
        put(&format!(
            "{name}: {} events outside the time asked for were left out",
            number(counts.left_out)
        ));
    }
    if counts.filtered > 0 {
        put(&format!(
            "{name}: {} calls and events were not asked for{}",
            number(counts.filtered),
            see("losses")
        ));
    }
    if counts.problems > 0 {
        let places = match counts.problems {
            1 => "1 place".to_owned(),
            count => format!("{} places", number(count)),
        };
        put(&format!(
            "{name}: {places} could not be read{}",
            see("problems")
        ));
        if !is_kept {
            hint("without --to the trace stays, and its table problems says which and why");
        }
    }
}

/// Tells how many user stacks could not be unwound to their start.
pub(crate) fn unwound(report: &Report) {
    for counts in &report.unwound {
        let cut = counts.memory_ended + counts.lost + counts.unsupported;
        let all = cut + counts.complete;
        if cut > 0 {
            put(&format!(
                "{} of {} copied user stacks end before their start: the copy in {}, unwinding in {}{}",
                number(cut),
                number(all),
                number(counts.memory_ended),
                number(counts.lost),
                match counts.unsupported {
                    0 => String::new(),
                    count => format!(", not supported {}", number(count)),
                }
            ));
        }
    }
}

/// Tells what naming a trace again did.
pub(crate) fn named(output: &Path, report: &Report) {
    put(&format!(
        "{}: {} of {} frames named",
        output.display(),
        number(report.counts.named_frames),
        number(report.counts.frames)
    ));
}

/// Tells what has no name, and why: at length with `-v`.
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
                put(&format!("symbols of the kernel: {kernel}"));
            }
            let unnamed = symbols.unnamed();
            for module in unnamed.iter().take(LISTED) {
                put(&module.to_string());
            }
            for module in symbols.without_line().iter().take(LISTED) {
                put(&module.to_string().replacen("symbols of", "lines of", 1));
            }
            if unnamed.len() > LISTED {
                put(&format!("and of {} modules more", unnamed.len() - LISTED));
            }
        }
    }
    if let Some(sentence) = unverified_sentence(&report.symbols) {
        put(&sentence);
    }
    if let Some(sentence) = without_line_sentence(&report.symbols) {
        put(&sentence);
        hint(
            "install the debug packages of these files, or name a directory with their debug info by --symbols",
        );
    }
    let wanted = verbose == 0 && !arguments.no_symbols;
    if wanted && without > 0 && report.counts.named_frames * 2 < report.counts.frames {
        hint("most frames have no name; -v says why, --symbols names a System.map or a directory");
    }
}

/// "12 events, 1,310 calls, 9 stack nodes (8 of 9 frames named)"
fn contents(report: &Report) -> String {
    let counts = &report.counts;
    let mut parts = Vec::new();
    let only_others = counts.events == 0 && counts.calls + counts.aggregates > 0;
    if !only_others {
        parts.push(format!("{} events", number(counts.events)));
    }
    for (count, what) in [(counts.calls, "calls"), (counts.aggregates, "aggregates")] {
        if count > 0 {
            parts.push(format!("{} {what}", number(count)));
        }
    }
    if counts.frames > 0 {
        parts.push(format!(
            "{} stack nodes ({} of {} frames named)",
            number(counts.stacks),
            number(counts.named_frames),
            number(counts.frames)
        ));
    }
    parts.join(", ")
}

/// "1,234,567"
fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// "7.1 MiB"
fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
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
    fn numbers_are_readable() {
        assert_eq!(number(0), "0");
        assert_eq!(number(999), "999");
        assert_eq!(number(1_234_567), "1,234,567");
        assert_eq!(bytes(12), "12 bytes");
        assert_eq!(bytes(7_444_890), "7.1 MiB");
        assert_eq!(bytes(180 << 20), "180 MiB");
        assert_eq!(bytes(1023 << 10), "1.0 MiB");
    }
}
