//! `cargo xtask vm`: scenarios on real Debian kernels, in virtual machines emulated by QEMU.
//!
//! ```text
//! cargo xtask vm --fetch                 QEMU and the kernels, into ~/.cache/perfquet-vm
//! cargo xtask vm --kernel 6.12 kprobe    one scenario on one kernel
//! ```
//! A developer's own kernel may lack kprobes, fprobes or function tracing, and other kernels behave differently. A
//! scenario is a page (`tests/vm/NAME.md`, `scenario`); its commands run as root in a virtual machine with one of
//! those kernels and programs of this host, and then here, on the results.

mod cache;
mod cpio;
mod fetch;
mod image;
mod machine;
mod report;
mod scenario;
mod suite;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

pub use cache::KERNELS;
pub(crate) use machine::Clock;
pub use report::{Cell, Report, Verdict};
pub use scenario::{Scenario, scenarios};
pub(crate) use suite::{Job, run_job};
pub use suite::{missing, run as run_on};

use crate::place::bin;

const USAGE: &str = "\
usage: cargo xtask vm [--kernel K]... [--recorder PATH] [SCENARIO]...
       cargo xtask vm --fetch [K]...";

/// The chore.
pub fn run(arguments: &[&str]) -> Result<()> {
    if let ["--help" | "-h"] = arguments {
        println!("{USAGE}");
        return Ok(());
    }
    if let ["--fetch", kernels @ ..] = arguments {
        return fetch::run(if kernels.is_empty() {
            &KERNELS
        } else {
            kernels
        });
    }
    let (mut kernels, mut names, mut recorder) = (Vec::new(), Vec::new(), None);
    let mut arguments = arguments.iter();
    while let Some(&argument) = arguments.next() {
        let mut value = || arguments.next().copied().context(USAGE);
        match argument {
            "--kernel" => kernels.push(value()?),
            "--recorder" => recorder = Some(PathBuf::from(value()?)),
            option if option.starts_with('-') => bail!("{option}: no such option\n{USAGE}"),
            name => names.push(name.trim_end_matches(".md")),
        }
    }
    if kernels.is_empty() {
        kernels.extend(KERNELS);
    }
    let recorder = recorder.unwrap_or_else(|| bin("perfquet-record"));
    let report = suite::run(&scenarios(&names)?, &kernels, &recorder)?;
    for failure in report.failures() {
        println!("{failure}\n");
    }
    for line in report.table() {
        println!("{line}");
    }
    match report.failures().len() {
        0 => Ok(()),
        count => bail!("{count} failed"),
    }
}
