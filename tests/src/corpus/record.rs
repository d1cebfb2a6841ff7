//! `cargo xtask corpus --record [NAME]...`: records the traces of `tests/corpus` again.
//!
//! The scripts of `tests/corpus/record` run as root in a virtual machine with a Debian kernel (`cargo xtask vm
//! --fetch`), some of perf's on this host; next to each trace they leave the output of perf and trace-cmd. That
//! directory has no files from elsewhere.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::dump;
use crate::vm::{Clock, Job};
use crate::{place, say, vm};

/// The recordings of one machine.
struct Recording {
    /// The directory in `tests/corpus`.
    name: &'static str,
    /// `None` for this host.
    kernel: Option<&'static str>,
    programs: &'static [&'static str],
    commands: &'static [&'static str],
    /// Whether our own recorder makes them.
    is_own: bool,
}

const RECORDINGS: &[Recording] = &[
    Recording {
        name: "perf-data/6.12",
        kernel: Some("6.12"),
        programs: &["perf", "dd", "taskset", "ls", "unshare"],
        commands: &[
            "bash ./perf.sh events",
            "bash ./perf.sh probes",
            "bash ./perf.sh samples",
            "bash ./perf.sh forms",
            "bash ./perf.sh symbols",
        ],
        is_own: false,
    },
    Recording {
        name: "perf-data/host",
        kernel: None,
        programs: &["perf", "dd"],
        commands: &["bash ./perf.sh host"],
        is_own: false,
    },
    Recording {
        name: "trace-cmd/6.1",
        kernel: Some("6.1"),
        programs: &["trace-cmd", "dd", "taskset"],
        commands: &["bash ./trace-cmd.sh few"],
        is_own: false,
    },
    Recording {
        name: "trace-cmd/6.12",
        kernel: Some("6.12"),
        programs: &["trace-cmd", "dd", "taskset", "ls", "cat"],
        commands: &[
            "bash ./trace-cmd.sh events",
            "bash ./trace-cmd.sh functions",
        ],
        is_own: false,
    },
    Recording {
        name: "trace-cmd/7.3",
        kernel: Some("7.3"),
        programs: &["trace-cmd", "dd", "taskset"],
        commands: &["bash ./trace-cmd.sh few"],
        is_own: false,
    },
    Recording {
        name: "ftrace/6.12",
        kernel: Some("6.12"),
        programs: &["dd", "taskset"],
        commands: &[
            "bash ./ftrace.sh events",
            "bash ./ftrace.sh functions",
            "bash ./ftrace.sh probes",
        ],
        is_own: false,
    },
    Recording {
        name: "ftrace/7.3",
        kernel: Some("7.3"),
        programs: &["dd", "taskset"],
        commands: &["bash ./ftrace.sh new"],
        is_own: false,
    },
    Recording {
        name: "scopes/6.12",
        kernel: Some("6.12"),
        programs: &["dd", "ls", "cat", "wc", "mkfifo", "pidof", "sleep"],
        commands: &["bash ./scopes.sh"],
        is_own: true,
    },
];

const SCRIPTS: [&str; 6] = [
    "common.sh",
    "perf.sh",
    "trace-cmd.sh",
    "ftrace.sh",
    "scopes.sh",
    "names.txt",
];

/// How the traced program is compiled, and how without frame pointers.
const COMPILE: &str = "-O1 -g -static -nostdlib -no-pie -fno-inline -fcf-protection=none -fno-stack-protector \
    -Wl,--build-id,--eh-frame-hdr";
const FRAMES: [(&str, &str); 2] = [
    ("workload", "-fno-omit-frame-pointer"),
    ("workload-nofp", "-fomit-frame-pointer"),
];

/// Records all directories, or those with these names.
pub fn record(names: &[&str]) -> Result<()> {
    for name in names {
        let is_known = RECORDINGS.iter().any(|recording| recording.name == *name);
        ensure!(is_known, "{name}: no such folder in tests/corpus");
    }
    let programs = corpus().join("perf-data/programs");
    fs::create_dir_all(&programs)?;
    // Names in older recordings belong to the existing programs.
    for (program, frames) in FRAMES {
        if !programs.join(program).is_file() {
            compile(&programs.join(program), frames)?;
        }
    }
    let wanted = |recording: &&Recording| names.is_empty() || names.contains(&recording.name);
    for recording in RECORDINGS.iter().filter(wanted) {
        say::step(recording.name);
        let out = match recording.kernel {
            Some(kernel) => in_a_machine(recording, kernel, &programs)?,
            None => here(recording, &programs)?,
        };
        keep(recording, &out)?;
    }
    Ok(())
}

fn corpus() -> PathBuf {
    place::root().join("tests/corpus")
}

fn compile(program: &Path, frames: &str) -> Result<()> {
    let mut command = Command::new("cc");
    command.args(COMPILE.split_whitespace()).arg(frames);
    command.arg("-o").arg(program).arg("workload.c");
    let status = command.current_dir(corpus().join("record")).status();
    ensure!(status.context("cannot run cc")?.success(), "workload.c");
    Ok(())
}

/// File offset of the probed function: the linker maps the file at 4 MiB.
fn offset(program: &Path) -> Result<String> {
    let output = Command::new("nm")
        .arg(program)
        .output()
        .context("cannot run nm")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.ends_with(" work_inner"));
    let address = line
        .and_then(|line| line.split(' ').next())
        .context("no work_inner")?;
    let address = u64::from_str_radix(address, 16)?;
    Ok(format!("{:#x}\n", address - 0x40_0000))
}

/// The scripts and the programs.
fn files(programs: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for name in SCRIPTS {
        files.push((
            name.to_owned(),
            fs::read(corpus().join("record").join(name))?,
        ));
    }
    for (name, _) in FRAMES {
        files.push((name.to_owned(), fs::read(programs.join(name))?));
    }
    let offset = offset(&programs.join("workload"))?;
    files.push(("offset".to_owned(), offset.into_bytes()));
    Ok(files)
}

fn in_a_machine(recording: &Recording, kernel: &str, programs: &Path) -> Result<PathBuf> {
    let job = Job {
        name: "corpus".to_owned(),
        programs: recording
            .programs
            .iter()
            .map(|&name| name.to_owned())
            .collect(),
        files: files(programs)?,
        commands: recording
            .commands
            .iter()
            .map(|&command| command.to_owned())
            .collect(),
        clock: Clock::Instructions { cpus: 2 },
    };
    let recorder = recording.is_own.then(|| place::bin("perfquet-record"));
    let done = vm::run_job(&job, kernel, recorder.as_deref())?;
    for (command, (status, text)) in job.commands.iter().zip(&done.results) {
        print!("{text}");
        ensure!(
            *status == 0 && !text.contains("FAILED"),
            "{command}: status {status}"
        );
    }
    Ok(done.directory.join("out"))
}

fn here(recording: &Recording, programs: &Path) -> Result<PathBuf> {
    let folder = place::target_directory().join("corpus");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    for (name, content) in files(programs)? {
        fs::write(folder.join(&name), content)?;
        let path = folder.join(&name);
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, permissions)?;
    }
    for command in recording.commands {
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(&folder)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}");
        ensure!(
            output.status.success() && !text.contains("FAILED"),
            "{command}"
        );
    }
    Ok(folder.join("out"))
}

/// Moves the recordings into the corpus, with a list of them.
fn keep(recording: &Recording, out: &Path) -> Result<()> {
    let folder = corpus().join(recording.name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.parent().context("a folder in the corpus")?)?;
    let status = Command::new("cp")
        .arg("-r")
        .arg(out)
        .arg(&folder)
        .status()?;
    ensure!(status.success(), "cannot copy {}", out.display());
    if recording.name.starts_with("perf-data") {
        write_dumps(&folder)?;
    }
    if recording.name.starts_with("trace-cmd") {
        write_reports(&folder)?;
    }
    if recording.name.starts_with("scopes") {
        compress(&folder)?;
    }
    write_list(recording, &folder)
}

/// Recordings with many events.
fn compress(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "data")
        {
            let mut command = Command::new("zstd");
            command.args(["-19", "-q", "--rm"]).arg(&path);
            let status = command.status().context("cannot run zstd")?;
            ensure!(status.success(), "zstd {}", path.display());
        }
    }
    Ok(())
}

/// Every sample of every perf.data, as reported by perf.
fn write_dumps(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "data") {
            continue;
        }
        let output = Command::new("perf")
            .args([
                "script",
                "-f",
                "-D",
                "--no-itrace",
                "--symfs",
                "/nonexistent",
                "-i",
            ])
            .arg(&path)
            .output()
            .context("cannot run perf")?;
        let text = String::from_utf8_lossy(&output.stdout);
        fs::write(path.with_extension("dump"), dump::samples(&text))?;
    }
    Ok(())
}

/// Reports with other options: the file, the name of the variant, the options.
const VARIANTS: [(&str, &str, &[&str]); 5] = [
    ("events-v7", "t", &["-t"]),
    ("events-v7", "N", &["-N"]),
    ("events-v7", "w", &["-w"]),
    ("events-v7", "tsdiff", &["--ts-diff"]),
    ("function", "Oparent", &["-O", "parent"]),
];

/// The output of trace-cmd for every trace.dat.
fn write_reports(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "dat") {
            continue;
        }
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let variants = VARIANTS.iter().filter(|(of, ..)| *of == name);
        let variants =
            variants.map(|(_, variant, options)| (format!("{variant}.report"), *options));
        for (ending, options) in [("report".to_owned(), &[][..])].into_iter().chain(variants) {
            let output = Command::new("trace-cmd")
                .arg("report")
                .args(options)
                .arg("-i")
                .arg(&path)
                .output()
                .context("cannot run trace-cmd")?;
            ensure!(output.status.success(), "trace-cmd report of {name}");
            fs::write(path.with_extension(ending), output.stdout)?;
        }
    }
    Ok(())
}

fn write_list(recording: &Recording, folder: &Path) -> Result<()> {
    let about = folder.join("ABOUT.tsv");
    let mut text = format!("# {}\n\n", recording.name);
    let kernel = fs::read_to_string(folder.join("RELEASE")).context("RELEASE")?;
    let _ = writeln!(
        text,
        "Made by `cargo xtask corpus --record {}` on Linux {}.\n\n| file | contents | made by |\n| --- | --- | --- |",
        recording.name,
        kernel.trim()
    );
    for line in fs::read_to_string(&about).context("ABOUT.tsv")?.lines() {
        let [file, what, how] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("ABOUT.tsv: expected three cells, found {line:?}");
        };
        let _ = writeln!(text, "| {file} | {what} | `{}` |", how.replace('|', "\\|"));
    }
    fs::remove_file(about)?;
    fs::remove_file(folder.join("RELEASE"))?;
    fs::write(folder.join("README.md"), text)?;
    Ok(())
}
