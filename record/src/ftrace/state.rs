//! Settings to restore at the top of tracefs, kept where they outlive the recorder; and leftovers of dead recorders.
//!
//! ```text
//! /run/perfquet/ftrace
//!   pq_4711_88123
//!   value  tracing_on  1  0                   file, its previous value, our value
//!   list   set_graph_function                 was empty
//!   held   function_graph  9f3a…              the tracer that comes next, and a sum over the lists
//! ```
//! The file is also the claim: its creator holds the top level. It disappears at reboot, as do the settings. Each line
//! is written before the setting is changed, so that a kill at any moment leaves no unrecorded change.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::settings::{current, read, remove_instance, write};
use crate::failure::{Failure, failed};
use crate::probe::definition::{is_stale, own_group, pid_of};
use crate::sys::tracefs::Tracefs;

const FOLDER: &str = "/run/perfquet";
const FILE: &str = "ftrace";
/// The name of no tracer.
const NOP: &str = "nop";

/// The settings to restore, in the order in which they were changed.
pub(super) struct Saved {
    path: PathBuf,
    file: File,
    undo: Vec<Undo>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Undo {
    /// A one-word setting.
    Value {
        file: String,
        before: String,
        ours: String,
    },
    /// A list that was empty.
    List(String),
}

impl Saved {
    /// Claims the top level for this recorder.
    pub(super) fn claim() -> Result<Saved, Failure> {
        let path = Path::new(FOLDER).join(FILE);
        let unwritable = |error: io::Error| {
            failed(format!("cannot write {}: {error}", path.display()))
                .hint("make it writable; it holds the settings to restore after a crash")
        };
        match fs::DirBuilder::new().mode(0o700).create(FOLDER) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(unwritable(error));
            }
            _ => {}
        }
        // Renamed once it contains the owner, so that a kill in between leaves no claim without an owner.
        let unnamed = path.with_file_name(own_group());
        let written = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&unnamed)
            .and_then(|mut file| writeln!(file, "{}", own_group()).map(|()| file));
        let named = written.and_then(|file| fs::hard_link(&unnamed, &path).map(|()| file));
        let _ = fs::remove_file(&unnamed);
        let file = match named {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(taken(&path)),
            Err(error) => return Err(unwritable(error)),
        };
        Ok(Saved {
            path,
            file,
            undo: Vec::new(),
        })
    }

    /// A setting is about to be changed.
    pub(super) fn note_value(&mut self, file: &str, before: &str, ours: &str) -> io::Result<()> {
        writeln!(self.file, "value\t{file}\t{before}\t{ours}")?;
        self.undo.push(Undo::Value {
            file: file.to_owned(),
            before: before.to_owned(),
            ours: ours.to_owned(),
        });
        Ok(())
    }

    /// An empty list is about to be filled.
    pub(super) fn note_list(&mut self, file: &str) -> io::Result<()> {
        let undo = Undo::List(file.to_owned());
        if !self.undo.contains(&undo) {
            writeln!(self.file, "list\t{file}")?;
            self.undo.push(undo);
        }
        Ok(())
    }

    /// Records that everything but the tracer is set; the tracer comes next.
    pub(super) fn note_held(&mut self, root: &Path, tracer: &str) -> io::Result<()> {
        let (_, sum) = held(root);
        writeln!(self.file, "held\t{tracer}\t{sum}")
    }

    /// Restores everything and releases the claim.
    pub(super) fn put_back(self, root: &Path) -> io::Result<()> {
        put_back(root, &self.undo)?;
        fs::remove_file(&self.path)
    }
}

/// Returns the error for a claim held by another process.
fn taken(path: &Path) -> Failure {
    let owner = first_line(path);
    let who = pid_of(&owner).map_or(String::new(), |pid| format!(", process {pid},"));
    if is_stale(&owner) {
        return failed(format!(
            "another perfquet-record{who} was killed, and its function tracer settings could not be restored"
        ))
        .hint(format!(
            "run: trace-cmd reset; then remove {}",
            path.display()
        ));
    }
    failed(format!(
        "another perfquet-record{who} uses the kernel's only function graph tracer"
    ))
    .hint("wait until it ends")
}

/// Restores the last change first. Reports errors and continues.
fn put_back(root: &Path, undo: &[Undo]) -> io::Result<()> {
    let mut result = Ok(());
    for step in undo.iter().rev() {
        let done = match step {
            Undo::Value { file, before, ours } => {
                let path = root.join(file);
                // Settings that another user changed since are not restored.
                match current(&read(&path)) == *ours {
                    true => write(&path, before),
                    false => Ok(()),
                }
            }
            Undo::List(file) => write(&root.join(file), ""),
        };
        if let Err(error) = done {
            result = Err(error);
        }
    }
    result
}

/// Removes instances of dead recorders, restores their changes at the top level, and returns a description of both.
pub(super) fn clean_up(tracefs: &Tracefs) -> Vec<String> {
    let mut removed = Vec::new();
    let instances = tracefs.path("instances");
    for entry in fs::read_dir(&instances).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_stale(&name) {
            match remove_instance(&entry.path()) {
                Ok(()) => removed.push(format!("instances/{name}")),
                Err(error) => log::warn!("cannot remove the instance {name}: {error}"),
            }
        }
    }
    let path = Path::new(FOLDER).join(FILE);
    let owner = first_line(&path);
    if is_stale(&owner) {
        match clean_up_top(&tracefs.path(""), &path) {
            Ok(true) => removed.push(format!("{owner}'s settings of the function tracer")),
            Ok(false) => {
                log::info!("{owner} has ended, and another user has claimed the function tracer");
            }
            Err(error) => log::warn!("cannot restore settings changed by {owner}: {error}"),
        }
    }
    removed
}

/// Returns false if another process has claimed the top level since.
fn clean_up_top(root: &Path, path: &Path) -> io::Result<bool> {
    let text = fs::read_to_string(path)?;
    let (undo, known) = parse(&text);
    let (tracer, sum) = held(root);
    let is_ours = tracer == NOP || known.is_some_and(|known| known == (tracer, sum));
    if is_ours {
        put_back(root, &undo)?;
    }
    fs::remove_file(path)?;
    Ok(is_ours)
}

/// The lines of a state file: settings to restore, and uses held.
fn parse(text: &str) -> (Vec<Undo>, Option<(String, String)>) {
    let (mut undo, mut known) = (Vec::new(), None);
    for line in text.lines().skip(1) {
        let words: Vec<&str> = line.split('\t').collect();
        match words.as_slice() {
            ["value", file, before, ours] if is_inside(file) => undo.push(Undo::Value {
                file: (*file).to_owned(),
                before: (*before).to_owned(),
                ours: (*ours).to_owned(),
            }),
            ["list", file] if is_inside(file) => undo.push(Undo::List((*file).to_owned())),
            ["held", tracer, sum] => known = Some(((*tracer).to_owned(), (*sum).to_owned())),
            _ => {} // the line that was being written when it died
        }
    }
    (undo, known)
}

/// A file of tracefs itself.
fn is_inside(file: &str) -> bool {
    !file.starts_with('/') && !file.split('/').any(|part| part == "..")
}

/// Returns the tracer, and a hash (FNV-1a) of the lists, which distinguishes one use from another.
fn held(root: &Path) -> (String, String) {
    let lists = ["set_graph_function", "set_ftrace_filter"].map(|file| read(&root.join(file)));
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for byte in lists.join("\n").bytes() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    (read(&root.join("current_tracer")), format!("{sum:x}"))
}

fn first_line(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a directory that looks like tracefs after a killed recorder.
    fn root(tracer: &str, thresh: &str, graph: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("current_tracer", tracer),
            ("tracing_thresh", thresh),
            ("set_graph_function", graph),
            ("trace_clock", "local [mono] global"),
        ] {
            fs::write(folder.path().join(file), format!("{text}\n")).unwrap();
        }
        folder
    }

    const TEXT: &str = "pq_1_2\nvalue\ttrace_clock\tlocal\tmono\nlist\tset_graph_function\n\
        value\ttracing_thresh\t0\t10\nvalue\tcurrent_tracer\tnop\tfunction_graph\n";

    fn state(root: &Path, more: &str) -> PathBuf {
        let path = root.join("state");
        fs::write(&path, format!("{TEXT}{more}")).unwrap();
        path
    }

    fn now(root: &tempfile::TempDir) -> [String; 4] {
        [
            "current_tracer",
            "tracing_thresh",
            "set_graph_function",
            "trace_clock",
        ]
        .map(|file| read(&root.path().join(file)))
    }

    #[test]
    fn settings_of_a_killed_recorder_are_restored() {
        let root = root("function_graph", "10", "ksys_write");
        let (tracer, sum) = held(root.path());
        let state = state(root.path(), &format!("held\t{tracer}\t{sum}\nval"));
        assert!(clean_up_top(root.path(), &state).unwrap());
        assert_eq!(now(&root), ["nop", "0", "", "local"]);
        assert!(!state.exists());
    }

    #[test]
    fn killed_before_all_settings_were_changed() {
        let root = root("nop", "10", "ksys_write");
        let state = state(root.path(), "");
        assert!(clean_up_top(root.path(), &state).unwrap());
        assert_eq!(now(&root), ["nop", "0", "", "local"]);
    }

    #[test]
    fn settings_in_use_by_another_tool_are_kept() {
        let root = root("function_graph", "5", "vfs_read");
        let state = state(root.path(), "held\tfunction_graph\t1234\n");
        assert!(!clean_up_top(root.path(), &state).unwrap());
        assert_eq!(
            now(&root),
            ["function_graph", "5", "vfs_read", "local [mono] global"]
        );
        assert!(!state.exists());
    }

    #[test]
    fn settings_changed_since_are_kept() {
        let root = root("nop", "77", "");
        let state = state(root.path(), "");
        assert!(clean_up_top(root.path(), &state).unwrap());
        assert_eq!(now(&root)[1], "77");
    }

    #[test]
    fn nothing_outside_tracefs_is_written() {
        let (undo, _) = parse("pq_1_2\nlist\t/etc/passwd\nlist\t../x\nvalue\ta/../../b\t1\t2\n");
        assert_eq!(undo, []);
    }
}
