//! The recorder under stress: starved, next to twenty busy processes, for half an hour.
//!
//! ```text
//! cargo xtask starve --runs 200        -p on a process that starts threads, with a starved recorder
//! cargo xtask storms --rounds 100      a storm of system calls beside 20 busy processes
//! cargo xtask marathon --minutes 30    -a -g -F 199 with sched_switch: memory and journal over time
//! ```
//! Each prints a line per run and fails at the end if any run was wrong.

mod marathon;
mod starve;
mod storms;

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

pub use marathon::run as marathon;
pub use starve::run as starve;
pub use storms::run as storms;

/// Processes that use all available CPU time; dropping this ends them.
struct Busy(Vec<Child>);

impl Busy {
    fn start(count: usize) -> Result<Busy> {
        let mut busy = Busy(Vec::new());
        for _ in 0..count {
            let child = Command::new("sh")
                .args(["-c", "while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .context("cannot run sh")?;
            busy.0.push(child);
        }
        Ok(busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The number after `name`, or `default` without arguments.
fn number_of(arguments: &[&str], name: &str, default: u64) -> Result<u64> {
    match arguments {
        [] => Ok(default),
        [option, number] if *option == name => number
            .parse()
            .ok()
            .filter(|&number| number > 0)
            .with_context(|| format!("{name}: expected a number above 0, found {number:?}")),
        _ => bail!("expected {name} N, found {}", arguments.join(" ")),
    }
}

/// Fails if the host lacks a requirement.
fn require(needs: &[&str]) -> Result<()> {
    match needs.iter().find_map(|need| crate::needs::missing(need)) {
        None => Ok(()),
        Some(reason) => bail!("{reason}"),
    }
}
