//! Running one command of a page.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bin;

/// Status and output, including stderr, of a shell command that finds the programs under test in `PATH`.
pub fn run(command: &str, directory: &Path) -> (i32, String) {
    let programs = programs(directory);
    let path = format!(
        "{}:{}",
        programs.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output_path = programs.join("output");
    let output = std::fs::File::create(&output_path).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", command])
        .current_dir(directory)
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .env("COLUMNS", "100")
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", directory)
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status.code().unwrap_or(-1);
        }
        if started.elapsed() > Duration::from_secs(600) {
            let _ = child.kill();
            break -1;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let output = std::fs::read(&output_path).unwrap();
    (status, String::from_utf8_lossy(&output).into_owned())
}

/// A directory with links to the three programs, so that `sh` finds them by name.
fn programs(directory: &Path) -> PathBuf {
    let folder = directory.join(".programs");
    if !folder.is_dir() {
        std::fs::create_dir(&folder).unwrap();
        for name in ["perfquet-record", "perfquet-convert", "perfquet-query"] {
            std::os::unix::fs::symlink(bin(name), folder.join(name)).unwrap();
        }
    }
    folder
}
