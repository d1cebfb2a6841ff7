//! Options shared by many commands.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use crate::failure::Misuse;
use crate::render::{Form, Format, Shape};

/// Resource limits of a query.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Memory limit, at least 128M [default: half of the system's memory]
    ///
    /// Sorts, groups and joins beyond the limit spill to temporary files.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<usize>,
    /// Number of threads [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Limits {
    /// Returns the memory pool for sorts, groups and joins in bytes. The rest is left for allocations outside the pool: the engine
    /// reserves a hash table only after doubling it, and never reserves rows that it decodes or writes. With all of 512M or 1G in the
    /// pool, it used 851 MB and 1.33 GB.
    pub(crate) fn pool_bytes(&self) -> usize {
        let limit = self.memory.unwrap_or_else(default_memory);
        limit.saturating_sub(PROGRAM_BYTES) / 2
    }

    pub(crate) fn threads(&self) -> usize {
        let available = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(available, usize::from)
    }
}

/// Memory of the program before the first row: its code and its threads.
const PROGRAM_BYTES: usize = 64 << 20;

/// Output format of results.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// Output format
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Table)]
    pub(crate) format: Format,
}

/// Whether an existing image may be overwritten.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Overwriting {
    /// Overwrite an existing output file
    ///
    /// The old file stays until the new one is complete.
    #[arg(long)]
    pub(crate) force: bool,
}

/// Output of a report that is an image.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Image {
    /// Output file [default: stdout]
    #[arg(short = 'o', long, value_name = "PATH")]
    pub(crate) output: Option<PathBuf>,
    /// Write rows in FORMAT instead of an SVG image
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub(crate) format: Option<Format>,
    #[command(flatten)]
    pub(crate) overwriting: Overwriting,
}

impl Image {
    /// Returns the selected form.
    pub(crate) fn form(&self) -> Form {
        Form {
            shape: self.format.map_or(Shape::Svg, Shape::Rows),
            path: self.output.clone(),
            force: self.overwriting.force,
        }
    }
}

/// The traces of a command without other positional arguments.
#[derive(Debug, Clone, Args)]
pub(crate) struct Traces {
    /// Trace directories or patterns, such as 'runs/*.pqt'
    #[arg(value_name = "TRACE", required = true)]
    pub(crate) traces: Vec<PathBuf>,
}

/// Parses a size: a number of bytes, optionally followed by K, M, G or T.
fn size(text: &str) -> Result<usize, Misuse> {
    let wrong = || Misuse("expected a size such as 512M or 4G".to_owned());
    let upper = text.trim().to_ascii_uppercase();
    let upper = upper.strip_suffix('B').unwrap_or(&upper);
    let upper = upper.strip_suffix('I').unwrap_or(upper);
    let (digits, shift) = match upper.chars().last().ok_or_else(wrong)? {
        'K' => (&upper[..upper.len() - 1], 10),
        'M' => (&upper[..upper.len() - 1], 20),
        'G' => (&upper[..upper.len() - 1], 30),
        'T' => (&upper[..upper.len() - 1], 40),
        _ => (upper, 0),
    };
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    let bytes =
        number * f64::from(1u32 << (shift % 32)) * if shift >= 32 { 4_294_967_296.0 } else { 1.0 };
    // Less could not be kept: the program itself, and a row group for each thread.
    if !bytes.is_finite() || bytes < 128.0 * 1024.0 * 1024.0 {
        return Err(Misuse("expected at least 128M".to_owned()));
    }
    Ok(bytes as usize)
}

/// Returns half of the system's memory in bytes; 2 GiB if it cannot be read.
fn default_memory() -> usize {
    let total_kib = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("MemTotal:"))?;
            line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()
        });
    total_kib.map_or(2 << 30, |kib| kib * 1024 / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("512M").unwrap(), 512 << 20);
        assert_eq!(size("1.5GiB").unwrap(), 3 << 29);
        assert_eq!(size("1T").unwrap(), 1 << 40);
        assert_eq!(size("268435456").unwrap(), 256 << 20);
        for wrong in ["", "M", "12 apples", "1K", "64M", "-1G", "nan"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
