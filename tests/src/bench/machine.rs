//! The host of the measurements, without which a figure has no meaning.

use std::process::Command;

/// Processor, kernel, and the versions of all compared programs, in one paragraph.
pub(super) fn describe() -> String {
    let cpus = std::thread::available_parallelism().map_or(0, |count| count.get());
    let facts = [
        format!(
            "{} × {}",
            cpus,
            field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".into())
        ),
        memory(),
        format!("Linux {}", first_line("/proc/sys/kernel/osrelease")),
        if std::path::Path::new("/sys/bus/event_source/devices/cpu").exists() {
            "hardware counters".to_owned()
        } else {
            "no hardware counters (cpu-clock)".to_owned()
        },
        output_of("perf", &["--version"]),
        output_of("rustc", &["--version"]),
        output_of(
            "python3",
            &["-c", "import duckdb; print('DuckDB', duckdb.__version__)"],
        ),
        format!(
            "load before {}",
            first_line("/proc/loadavg").split(' ').next().unwrap_or("?")
        ),
    ];
    let facts: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
    facts.join("; ")
}

fn memory() -> String {
    let kilobytes = field("/proc/meminfo", "MemTotal")
        .and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
    kilobytes.map_or(String::new(), |kilobytes| {
        format!("{:.0} GB", kilobytes as f64 / 1e6)
    })
}

/// The value of a line `NAME : VALUE`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn first_line(path: &str) -> String {
    std::fs::read_to_string(path)
        .unwrap_or_default()
        .lines()
        .next()
        .unwrap_or("unknown")
        .to_owned()
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output
        .ok()
        .filter(|output| output.status.success())
        .map_or(String::new(), |output| {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        })
}
