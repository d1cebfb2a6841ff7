//! Opens the address in the user's browser.
//!
//! Command lines can be read by other users of the host, so the browser gets a file that only this user can read, and that
//! redirects to the address. It is removed as soon as it has been used.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use perfquet::interrupt;

use super::access;

/// Time for the browser to read the file.
const READING: Duration = Duration::from_secs(20);

pub(super) fn open(address: &str) -> Result<()> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        bail!("neither DISPLAY nor WAYLAND_DISPLAY is set");
    }
    // The name is random and independent of the token; an existing file is an error.
    let name = format!("perfquet-{}.html", access::secret()?);
    let path = std::env::temp_dir().join(name);
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot create {}", path.display()))?;
    let removed = path.clone();
    interrupt::remove_at_end(move || vec![removed.clone()]);
    write!(
        file,
        "<!doctype html><meta charset=\"utf-8\"><meta name=\"referrer\" content=\"no-referrer\">\
         <meta http-equiv=\"refresh\" content=\"0; url={address}\"><title>perfquet</title>"
    )?;
    drop(file);
    let mut child = Command::new("xdg-open")
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run xdg-open")?;
    std::thread::spawn(move || {
        // Waiting for it frees its entry in the process table; its status says nothing about the browser.
        let _ = child.wait();
        std::thread::sleep(READING);
        let _ = std::fs::remove_file(path);
    });
    Ok(())
}
