//! What is loaded before programs count by stack: tables and mappings of the processes that they will probably meet. Until a process
//! has them, its stacks follow frame pointers and are marked as cut.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use perfquet_trace::symbols::FileIdentity;

use crate::sys::{file, procfs};
use crate::target::Target;

/// Of all processes, as many as took the most CPU time lately.
const MOST_PROCESSES: usize = 64;
/// Longest first line of a script.
const SCRIPT_HEAD_BYTES: u64 = 4096;

/// What is loaded first.
pub(crate) struct First {
    /// Processes, the busiest first.
    pub(super) pids: Vec<i32>,
    /// Files that a command will map.
    pub(super) files: Vec<ExpectedFile>,
    /// Receives a message when all is loaded.
    pub(super) loaded: Sender<()>,
}

/// A file that a process will map.
pub(super) struct ExpectedFile {
    pub(super) path: PathBuf,
    pub(super) identity: FileIdentity,
    pub(super) generation: u64,
}

impl First {
    /// What to load for a target; `command` is the command line that waits to start.
    pub(crate) fn of(target: &Target, command: Option<&str>, loaded: Sender<()>) -> First {
        let (pids, files) = match target {
            Target::Command => (Vec::new(), command.map_or(Vec::new(), files_of)),
            _ => (busiest(target.processes(None)), Vec::new()),
        };
        First {
            pids,
            files,
            loaded,
        }
    }
}

/// The processes with the largest share of CPU time since their start, the largest first.
fn busiest(pids: Vec<i32>) -> Vec<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let shares = pids.into_iter().filter(|pid| *pid != own);
    let mut shares: Vec<(f64, i32)> = shares
        .filter_map(|pid| Some((procfs::cpu_share(pid)?, pid)))
        .collect();
    shares.sort_by(|one, other| other.0.total_cmp(&one.0));
    shares.truncate(MOST_PROCESSES);
    shares.into_iter().map(|(_, pid)| pid).collect()
}

/// The program of a command, and the C library and dynamic loader, which it probably shares with this process.
fn files_of(command: &str) -> Vec<ExpectedFile> {
    let program = found_in_path(command).map(|path| interpreter(&path).unwrap_or(path));
    let program = program.and_then(|path| {
        let opened = File::open(&path).ok()?;
        let metadata = opened.metadata().ok()?;
        let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        let inode = metadata.ino();
        expected(path, FileIdentity { device, inode }, &opened)
    });
    let own = std::env::current_exe().unwrap_or_default();
    let mut maps = Vec::new();
    procfs::read_maps(i32::try_from(std::process::id()).unwrap_or(0), &mut maps);
    let shared = procfs::parse_maps(&maps).filter_map(|map| {
        let is_code = map.protection & libc::PROT_EXEC as u32 != 0 && map.path.starts_with(b"/");
        let path = PathBuf::from(OsString::from_vec(map.path.to_vec()));
        let opened = File::open(&path).ok().filter(|_| is_code && path != own)?;
        let identity = FileIdentity {
            device: map.device,
            inode: map.inode,
        };
        expected(path, identity, &opened)
    });
    program.into_iter().chain(shared).collect()
}

fn expected(path: PathBuf, identity: FileIdentity, opened: &File) -> Option<ExpectedFile> {
    opened.metadata().ok().filter(|found| found.is_file())?;
    Some(ExpectedFile {
        path,
        identity,
        generation: file::generation(opened).unwrap_or(0),
    })
}

/// The file that execvp(3) would start.
fn found_in_path(command: &str) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        let metadata = path.metadata().ok();
        metadata.is_some_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if command.contains('/') {
        return Some(PathBuf::from(command)).filter(|path| is_program(path));
    }
    let folders = std::env::var_os("PATH")?;
    let mut candidates = std::env::split_paths(&folders).map(|folder| folder.join(command));
    candidates.find(|path| is_program(path))
}

/// The program that runs a script.
fn interpreter(script: &Path) -> Option<PathBuf> {
    let mut line = Vec::new();
    let head = File::open(script).ok()?.take(SCRIPT_HEAD_BYTES);
    BufReader::new(head).read_until(b'\n', &mut line).ok()?;
    let words = line.strip_prefix(b"#!")?;
    let mut words = words
        .split(|byte| byte.is_ascii_whitespace())
        .filter(|word| !word.is_empty());
    let program = PathBuf::from(OsStr::from_bytes(words.next()?));
    match words.next().and_then(|word| std::str::from_utf8(word).ok()) {
        Some(name) if program.ends_with("env") => found_in_path(name),
        _ => Some(program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_of_a_command() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        let name = script.display().to_string();
        std::fs::write(&script, "#! /bin/sh -e\necho\n").unwrap();
        assert_eq!(found_in_path(&name), None);
        std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found_in_path(&name), Some(script.clone()));
        assert_eq!(interpreter(&script), Some(PathBuf::from("/bin/sh")));
        let shell = found_in_path("sh").unwrap();
        let by_env = folder.path().join("by_env");
        std::fs::write(&by_env, "#!/usr/bin/env sh\n").unwrap();
        assert_eq!(interpreter(&by_env), Some(shell.clone()));
        assert!(shell.ends_with("sh") && shell.is_absolute());
        assert_eq!(interpreter(&shell), None);
        assert_eq!(found_in_path("no such program"), None);
        // The C library is shared with this process.
        let files = files_of(&name);
        let names: Vec<_> = files
            .iter()
            .filter_map(|file| file.path.file_name())
            .collect();
        assert!(
            names
                .iter()
                .any(|name| name.as_bytes().starts_with(b"libc.")),
            "{names:?}"
        );
        assert!(names.len() > 1 && names.iter().all(|name| name.as_bytes() != b"script"));
    }

    #[test]
    fn this_process_is_not_among_the_busiest() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(procfs::cpu_share(own).is_some());
        assert_eq!(busiest(vec![own, i32::MAX]), Vec::<i32>::new());
        assert_eq!(busiest(vec![1]), [1]);
    }
}
