//! Output of the chores: steps, commands, sizes; and checks whose failure needs an explanation.

use std::io::IsTerminal;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// Announces the next step.
pub fn step(title: &str) {
    println!("\n{} {}", paint("36;1", "▸"), paint("1", title));
}

/// A line of explanation below a step.
pub fn note(text: &str) {
    println!("  {text}");
}

/// A command line, before its output.
pub fn command_line(text: &str) {
    println!("\n{} {}", paint("32", "$"), paint("1", text));
}

/// The text in the color of the ANSI code, if the output is a terminal and `NO_COLOR` is not set.
pub fn paint(code: &str, text: &str) -> String {
    let wanted = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    if wanted {
        format!("\x1b[{code}m{text}\x1b[0m")
    } else {
        text.to_owned()
    }
}

/// 1234567 → "1.2 MB".
pub fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "kB", "MB"] {
        if value < 1000.0 {
            return if unit == "B" {
                format!("{count} B")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} GB")
}

/// 187 → "3 min 7 s".
pub fn seconds(count: u64) -> String {
    if count < 60 {
        format!("{count} s")
    } else {
        format!("{} min {} s", count / 60, count % 60)
    }
}

/// Whether a program runs from `PATH`.
pub fn has(program: &str) -> bool {
    let outcome = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    outcome.is_ok()
}

/// zstd is C, and rustc links with `cc`: without a C compiler, the build fails with an obscure error.
pub fn need_c_compiler() -> Result<()> {
    if has("cc") {
        return Ok(());
    }
    bail!(
        "no C compiler: `cc` is not in PATH (zstd is written in C, and Rust links with it)\n\
         hint: on Debian and Ubuntu: apt install gcc libc6-dev; on Fedora: dnf install gcc"
    )
}
