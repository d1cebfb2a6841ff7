//! One boot: QEMU with a kernel and a file system, watched until it ends or hangs.
//!
//! KVM is not required: the processor is emulated, by one thread for all its CPUs, which is no slower on a busy host
//! and more reliable than one thread each. A boot takes two to three seconds, many times that under load.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::cache::{Kernel, Qemu};

/// Kernel parameters: `nokaslr` gives the same addresses in every run; without mitigations, audit and security modules
/// there is less to emulate; `tsc=reliable` avoids a slow clock device; a kernel bug ends the machine at once
/// (`oops=panic panic=-1`, with QEMU's `-no-reboot`).
const KERNEL_WORDS: &str = "console=ttyS0 quiet nokaslr mitigations=off audit=0 lsm=capability tsc=reliable \
    no_timer_check rcupdate.rcu_expedited=1 cryptomgr.notests oops=panic panic=-1";

/// A machine without output for this long hangs; it may be waiting for CPU time of a busy host.
const PATIENCE: Duration = Duration::from_secs(500);
/// Limit until the first scenario begins.
const BOOT_PATIENCE: Duration = Duration::from_secs(200);

/// The clock of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clock {
    /// Real time; two CPUs.
    Hosts,
    /// Instructions, two nanoseconds each, of all CPUs together: durations do not depend on the host.
    Instructions { cpus: u32 },
}

/// A machine to boot.
pub(crate) struct Machine<'a> {
    pub(crate) qemu: &'a Qemu,
    pub(crate) kernel: &'a Kernel,
    pub(crate) file_system: &'a Path,
    pub(crate) file_system_bytes: u64,
    pub(crate) clock: Clock,
    /// Kernel parameters besides those of every machine.
    pub(crate) parameters: &'a str,
    /// Directory for the output of its console and ports.
    pub(crate) folder: &'a Path,
}

/// The result of a boot.
pub(crate) struct Ended {
    /// Completed scenarios.
    pub(crate) finished: Vec<String>,
    /// The scenario that had begun.
    pub(crate) interrupted: Option<String>,
    /// Whether the init process ran.
    pub(crate) is_ready: bool,
    /// The error, with the end of the console output.
    pub(crate) trouble: Option<String>,
}

impl Machine<'_> {
    /// Boots the machine; the results are in the directory afterwards.
    pub(crate) fn run(&self) -> Result<Ended> {
        for port in ["status", "out", "console", "qemu"] {
            let _ = fs::remove_file(self.folder.join(port));
        }
        let mut child = Guard(self.command()?.spawn().context("cannot run QEMU")?);
        let mut trouble = None;
        let mut seen = (0, Instant::now());
        loop {
            if let Some(status) = child.0.try_wait()? {
                if !status.success() {
                    trouble = Some(format!("QEMU ended with {status}: {}", self.text("qemu")));
                }
                break;
            }
            let size = fs::metadata(self.folder.join("status")).map_or(0, |about| about.len());
            if size != seen.0 {
                seen = (size, Instant::now());
            }
            let patience = if size == 0 { BOOT_PATIENCE } else { PATIENCE };
            if seen.1.elapsed() > patience {
                trouble = Some(format!("nothing moved for {} s", patience.as_secs()));
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(child);
        Ok(self.ended(trouble))
    }

    fn command(&self) -> Result<Command> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let mut command = self.qemu.command();
        command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-no-reboot", "-accel", "tcg,thread=single,tb-size=256"]);
        let cpus = match self.clock {
            Clock::Hosts => 2,
            Clock::Instructions { cpus } => {
                command.args(["-icount", "shift=1,sleep=off"]);
                command.args(["-rtc", "base=2024-01-01,clock=vm"]);
                cpus
            }
        };
        // The archive is in memory twice while it is unpacked.
        let memory_mib = 1024 + 2 * (self.file_system_bytes >> 20);
        command.args(["-cpu", "max", "-smp", &cpus.to_string()]);
        command.args(["-m", &memory_mib.to_string()]);
        command.arg("-kernel").arg(self.kernel.image());
        command.arg("-initrd").arg(self.file_system);
        let words = format!("{KERNEL_WORDS} {}", self.parameters);
        command.args(["-append", words.trim_end()]);
        command.args(["-serial", &format!("file:{}", path("console"))]);
        command.args(["-device", "virtio-serial-pci"]);
        for port in ["status", "out"] {
            let file = format!("file,id={port},path={}", path(port));
            let device = format!("virtserialport,chardev={port},name={port}");
            command.args(["-chardev", &file, "-device", &device]);
        }
        let log = File::create(self.folder.join("qemu"))?;
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        Ok(command)
    }

    fn ended(&self, trouble: Option<String>) -> Ended {
        let status = self.text("status");
        let lines: Vec<&str> = status.lines().collect();
        let finished: Vec<String> = lines
            .iter()
            .filter_map(|line| line.strip_prefix("end "))
            .map(str::to_owned)
            .collect();
        let mut begun = lines.iter().filter_map(|line| line.strip_prefix("begin "));
        let interrupted = begun
            .next_back()
            .filter(|name| !finished.iter().any(|finished| finished == name));
        let console = self.text("console");
        let broken = console.lines().find(|line| {
            ["Kernel panic", "Oops:", "BUG:"]
                .iter()
                .any(|word| line.contains(word))
        });
        let is_done = lines.last() == Some(&"done");
        let trouble = match (broken, trouble) {
            (Some(line), _) => Some(format!("the kernel broke: {line}")),
            (None, None) if !is_done => Some("the virtual machine ended early".to_owned()),
            (None, trouble) => trouble,
        };
        Ended {
            interrupted: interrupted.map(str::to_owned),
            is_ready: lines.first() == Some(&"ready"),
            trouble: trouble.map(|reason| match end_of(&console) {
                end if end.is_empty() => reason,
                end => format!("{reason}\n{end}"),
            }),
            finished,
        }
    }

    fn text(&self, name: &str) -> String {
        let bytes = fs::read(self.folder.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).replace('\r', "")
    }
}

fn end_of(console: &str) -> String {
    let lines: Vec<&str> = console.lines().collect();
    let start = lines.len().saturating_sub(40);
    lines[start..]
        .iter()
        .map(|line| format!("console: {line}\n"))
        .collect()
}

/// No emulator outlives the test.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
