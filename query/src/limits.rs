//! Resource limits of a query: `--memory`, `--threads`, and the views and macros to define.

use std::path::PathBuf;

use clap::Args;
use perfquet::failure::Misuse;
use perfquet::{Definitions, Options};
use perfquet_cli::quantity;

/// Resource limits of a query.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// Memory limit, at least 128M [default: half of the system's memory]
    ///
    /// Sorts, groups and joins beyond the limit spill to temporary files.
    #[arg(long, value_name = "SIZE", value_parser = memory)]
    memory: Option<usize>,
    /// Number of threads [default: number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    #[command(flatten)]
    definitions: DefinitionOptions,
}

/// Which views and macros to define.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Views and macros")]
struct DefinitionOptions {
    /// SQL file with views and macros to define; repeatable
    ///
    /// CREATE VIEW, CREATE MACRO and CREATE FUNCTION, or one query, which becomes a view with the name of the file.
    #[arg(long, value_name = "PATH")]
    init: Vec<PathBuf>,
    /// Ignore the files in ~/.config/perfquet/views
    #[arg(long)]
    no_views: bool,
}

impl Limits {
    /// The command-line arguments that give another command the same limits.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let memory = self.memory.iter().map(|bytes| format!("--memory={bytes}"));
        let threads = self
            .threads
            .iter()
            .map(|count| format!("--threads={count}"));
        let files = self.definitions.init.iter();
        let files = files.map(|path| format!("--init={}", path.display()));
        let without = self.definitions.no_views.then(|| "--no-views".to_owned());
        memory.chain(threads).chain(files).chain(without).collect()
    }

    /// The options of a session with these limits.
    pub(crate) fn options(&self) -> Options {
        Options {
            memory: self.memory,
            threads: self.threads.map(usize::from),
            definitions: Definitions {
                files: self.definitions.init.clone(),
                without_own: self.definitions.no_views,
            },
            progress: true,
            queries_only: false,
            is_report: false,
        }
    }
}

/// Parses a memory limit.
fn memory(text: &str) -> Result<usize, Misuse> {
    // Less could not be kept: the program itself, and a row group for each thread.
    const LEAST: u64 = 128 << 20;
    match quantity::size_bytes(text, 1) {
        Ok(bytes) if bytes < LEAST => Err(Misuse("expected at least 128M".to_owned())),
        Ok(bytes) => Ok(usize::try_from(bytes).unwrap_or(usize::MAX)),
        Err(error) => Err(Misuse(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits() {
        assert_eq!(memory("512M").unwrap(), 512 << 20);
        assert_eq!(memory("1.5GiB").unwrap(), 3 << 29);
        assert_eq!(memory("268435456").unwrap(), 256 << 20);
        for wrong in ["", "M", "12 apples", "1K", "64M", "-1G", "nan"] {
            assert!(memory(wrong).is_err(), "{wrong}");
        }
    }
}
