//! The file system of the virtual machine: programs of this host with their libraries, and the scenarios.
//!
//! Its /usr is merged like Debian's: `bin`, `sbin`, `lib`, `lib64` are links. Busybox replaces missing programs, but
//! its shell prefers its own applets to programs in `PATH`, so `sh` is bash.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::cache::Kernel;
use super::cpio::Archive;

const FOLDERS: &str = "dev etc home/tester proc root run sys tmp usr/bin usr/sbin usr/lib usr/lib64 vm/applets \
    vm/modules vm/scenarios var/tmp";
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
const PASSWD: &str =
    "root:x:0:0:root:/root:/bin/sh\ntester:x:1000:1000:tester:/home/tester:/bin/sh\n";
const GROUP: &str = "root:x:0:\ntester:x:1000:\n";

enum Node {
    Directory,
    Link(String),
    File { content: Content, permissions: u32 },
}

enum Content {
    Here(PathBuf),
    Bytes(Vec<u8>),
}

/// A file system being built. Paths have no leading slash.
pub(crate) struct Image {
    nodes: BTreeMap<String, Node>,
    module_order: Vec<String>,
}

impl Image {
    /// Contents of every machine: the init process, busybox, bash, setpriv.
    pub(crate) fn new(init: &Path) -> Result<Image> {
        let mut image = Image {
            nodes: BTreeMap::new(),
            module_order: Vec::new(),
        };
        for folder in FOLDERS.split_whitespace() {
            image.directory(folder);
        }
        for name in MERGED {
            image.link(name, &format!("usr/{name}"));
        }
        image.copy(init, "init")?;
        for program in ["busybox", "bash", "setpriv"] {
            image.program(program)?;
        }
        image.link("usr/bin/sh", "bash");
        for (path, text) in [
            ("etc/passwd", PASSWD),
            ("etc/group", GROUP),
            ("etc/hosts", "127.0.0.1 localhost vm\n"),
        ] {
            image.text(path, text);
        }
        Ok(image)
    }

    /// A program of this host and its libraries: in /usr/bin, and at its own path if that differs.
    pub(crate) fn program(&mut self, name: &str) -> Result<()> {
        let path = find(name).with_context(|| format!("no program {name}"))?;
        let own = path.to_string_lossy().into_owned();
        self.program_at(&path, &format!("usr/bin/{name}"))?;
        if own.starts_with("/usr/") {
            self.copy(&path, &own)?;
        }
        Ok(())
    }

    /// A program under another name.
    pub(crate) fn program_at(&mut self, path: &Path, to: &str) -> Result<()> {
        self.copy(path, to)?;
        for library in libraries(path) {
            self.copy(Path::new(&library), &library)?;
        }
        Ok(())
    }

    /// All files of a directory, and the libraries of the programs among them.
    pub(crate) fn folder(&mut self, from: &Path, to: &str) -> Result<()> {
        for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
            let entry = entry?;
            let name = format!("{to}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                self.folder(&entry.path(), &name)?;
            } else if is_program(&entry.path()) {
                self.program_at(&entry.path(), &name)?;
            } else {
                self.copy(&entry.path(), &name)?;
            }
        }
        Ok(())
    }

    pub(crate) fn text(&mut self, to: &str, text: &str) {
        let content = Content::Bytes(text.as_bytes().to_vec());
        self.add_file(to, content, 0o644);
    }

    pub(crate) fn directory(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            let parent = path[..at].to_owned();
            self.nodes.entry(parent).or_insert(Node::Directory);
        }
        self.nodes.entry(path.to_owned()).or_insert(Node::Directory);
    }

    fn link(&mut self, path: &str, target: &str) {
        self.nodes
            .insert(path.to_owned(), Node::Link(target.to_owned()));
    }

    fn copy(&mut self, from: &Path, to: &str) -> Result<()> {
        let about = fs::metadata(from).with_context(|| from.display().to_string())?;
        let permissions = about.permissions().mode() & 0o777;
        self.add_file(to, Content::Here(from.to_path_buf()), permissions | 0o444);
        Ok(())
    }

    fn add_file(&mut self, to: &str, content: Content, permissions: u32) {
        let to = merged(to);
        if let Some((parent, _)) = to.rsplit_once('/') {
            self.directory(parent);
        }
        let file = Node::File {
            content,
            permissions,
        };
        self.nodes.entry(to).or_insert(file);
    }

    /// A kernel module, after its dependencies. Returns false if the kernel lacks it, or has it built in.
    pub(crate) fn module(&mut self, kernel: &Kernel, name: &str) -> Result<bool> {
        let name = name.replace('-', "_");
        if self.module_order.contains(&name) {
            return Ok(true);
        }
        let Some(path) = find_module(&kernel.modules(), &name)? else {
            return Ok(false);
        };
        let bytes = unpacked(&path)?;
        for needed in depends(&bytes) {
            self.module(kernel, &needed)?;
        }
        let number = self.module_order.len();
        self.module_order.push(name.clone());
        let to = format!("vm/modules/{number:02}-{name}.ko");
        self.add_file(&to, Content::Bytes(bytes), 0o644);
        Ok(true)
    }

    /// Writes the archive; returns its size in bytes.
    pub(crate) fn write(&self, path: &Path) -> Result<u64> {
        let file = File::create(path).with_context(|| path.display().to_string())?;
        let mut archive = Archive::new(BufWriter::new(file));
        for (name, node) in &self.nodes {
            match node {
                Node::Directory => archive.directory(name, 0o755)?,
                Node::Link(target) => archive.link(name, target)?,
                Node::File {
                    content: Content::Bytes(bytes),
                    permissions,
                } => archive.file(name, *permissions, bytes)?,
                Node::File {
                    content: Content::Here(path),
                    permissions,
                } => {
                    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
                    archive.file(name, *permissions, &bytes)?;
                }
            }
        }
        archive.end()?;
        Ok(fs::metadata(path)?.len())
    }
}

/// `/lib/x.so` is `usr/lib/x.so`.
fn merged(path: &str) -> String {
    let path = path.trim_start_matches('/');
    match path.split_once('/') {
        Some((top, _)) if MERGED.contains(&top) => format!("usr/{path}"),
        _ => path.to_owned(),
    }
}

/// A program in `PATH`, or in the directories for administrators.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let folders = path.split(':').chain(["/usr/sbin", "/sbin", "/bin"]);
    folders
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
}

fn is_program(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}

/// `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`; none for a static
/// program.
fn libraries(program: &Path) -> Vec<String> {
    let output = Command::new("ldd")
        .arg(program)
        .stderr(Stdio::null())
        .output();
    let text = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&text)
        .lines()
        .filter_map(|line| {
            let line = line.split_once("=> ").map_or(line, |(_, path)| path);
            let path = line.trim().split(" (").next()?;
            path.starts_with('/').then(|| path.to_owned())
        })
        .collect()
}

fn find_module(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            if let Some(found) = find_module(&path, name)? {
                return Ok(Some(found));
            }
            continue;
        }
        let file_name = path.file_name().unwrap_or_default().to_string_lossy();
        if file_name
            .split_once(".ko")
            .is_some_and(|(stem, _)| stem.replace('-', "_") == name)
        {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return Ok(fs::read(path)?),
    };
    let output = Command::new(tool)
        .arg("-dc")
        .arg(path)
        .output()
        .with_context(|| format!("cannot run {tool}"))?;
    if !output.status.success() {
        bail!("{tool} cannot unpack {}", path.display());
    }
    Ok(output.stdout)
}

/// The list after `depends=` in a module's section .modinfo.
fn depends(module: &[u8]) -> Vec<String> {
    let field = module
        .split(|&byte| byte == 0)
        .find_map(|field| field.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(field.unwrap_or_default()).into_owned();
    let names = names.split(',').filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}
