//! The parts of a virtual machine: kernels and QEMU, fetched once and installed nowhere.
//!
//! ```text
//! ~/.cache/perfquet-vm/kernel/6.12/{release,config,vmlinux,modules/}
//! ~/.cache/perfquet-vm/qemu/usr/bin/qemu-system-x86_64
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::say;

/// Debian kernels for the scenarios: the oldest in use, the newest stable one, and the newest of all.
pub const KERNELS: [&str; 3] = ["6.1", "6.12", "7.3"];

/// Older emulators crash their guests: 7.2 did so in 8 of 33 boots of Linux 6.12, mostly in slab code.
const OLDEST_QEMU: u32 = 8;

/// The command that fetches missing parts.
pub(crate) const FETCH: &str = "cargo xtask vm --fetch";

/// A kernel in the cache.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// "6.12"
    pub(crate) version: String,
    /// "6.12.117+deb12-cloud-amd64"
    pub(crate) release: String,
    folder: PathBuf,
}

impl Kernel {
    /// The uncompressed image: decompressing it here saves the largest part of the boot time.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }

    pub(crate) fn modules(&self) -> PathBuf {
        self.folder.join("modules")
    }
}

/// An emulator, and the way it finds its own files.
#[derive(Debug, Clone)]
pub(crate) struct Qemu {
    program: PathBuf,
    data: Vec<PathBuf>,
}

impl Qemu {
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        for folder in &self.data {
            command.arg("-L").arg(folder);
        }
        command
    }
}

/// The directory: `PERFQUET_VM_CACHE`, or `perfquet-vm` in the user's cache.
pub(crate) fn folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("PERFQUET_VM_CACHE") {
        return Ok(PathBuf::from(folder));
    }
    if let Some(cache) = std::env::var_os("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(cache).join("perfquet-vm"));
    }
    let home = std::env::var_os("HOME").context("no HOME: set PERFQUET_VM_CACHE")?;
    Ok(PathBuf::from(home).join(".cache/perfquet-vm"))
}

/// A fetched kernel, if it is there.
pub(crate) fn kernel(version: &str) -> Result<Option<Kernel>> {
    let folder = folder()?.join("kernel").join(version);
    let Ok(release) = std::fs::read_to_string(folder.join("release")) else {
        return Ok(None);
    };
    Ok(Some(Kernel {
        version: version.to_owned(),
        release: release.trim().to_owned(),
        folder,
    }))
}

/// The fetched emulator, else that of the system if it is recent enough.
pub(crate) fn qemu() -> Result<Qemu> {
    let fetched = folder()?.join("qemu/usr");
    let program = fetched.join("bin/qemu-system-x86_64");
    if program.is_file() {
        let qemu = Qemu {
            program,
            data: vec![fetched.join("share/qemu"), fetched.join("share/seabios")],
        };
        version_of(&qemu.program).context(
            "the fetched QEMU does not run here\n\
             hint: apt-get install --no-install-recommends qemu-system-x86 brings its libraries",
        )?;
        return Ok(qemu);
    }
    let program = PathBuf::from("qemu-system-x86_64");
    if !say::has("qemu-system-x86_64") {
        bail!("no QEMU: {FETCH}");
    }
    let version = version_of(&program)?;
    if version < OLDEST_QEMU {
        bail!("QEMU {version} crashes its guests: {FETCH}");
    }
    Ok(Qemu {
        program,
        data: Vec::new(),
    })
}

/// 10 of "QEMU emulator version 10.0.2 (Debian …)"
fn version_of(program: &Path) -> Result<u32> {
    let output = Command::new(program).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text
        .split_once("version ")
        .and_then(|(_, rest)| rest.split('.').next());
    version
        .and_then(|version| version.parse().ok())
        .with_context(|| {
            let stderr = String::from_utf8_lossy(&output.stderr);
            format!("{}: no version: {}", program.display(), stderr.trim())
        })
}

/// Requirements besides kernels and QEMU, with the packages that provide them.
pub(crate) fn missing_packages() -> Vec<&'static str> {
    let needed = [
        ("/bin/busybox", "busybox-static"),
        ("/bin/bash", "bash"),
        ("/usr/bin/setpriv", "util-linux"),
        ("/usr/bin/ldd", "libc-bin"),
        ("/usr/bin/xz", "xz-utils"),
        ("/usr/bin/tar", "tar"),
    ];
    let missing = needed.iter().filter(|(path, _)| !Path::new(path).exists());
    missing.map(|(_, package)| *package).collect()
}
