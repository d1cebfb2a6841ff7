//! `cargo xtask bpf`: compiles the programs for the kernel, `ebpf/src/NAME.bpf.c`, to `ebpf/objects/NAME.bpf.o`.
//!
//! The objects are committed, so that building perfquet needs no clang. They keep their BTF, from which the loader
//! adapts them to the running kernel, and lose their debug sections.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::root;

/// Directory of the sources.
pub const SOURCES: &str = "ebpf/src";
/// Directory of the objects.
pub const OBJECTS: &str = "ebpf/objects";

/// `cargo xtask bpf`.
pub fn run() -> Result<()> {
    let objects = root().join(OBJECTS);
    std::fs::create_dir_all(&objects)?;
    for name in names()? {
        let object = objects.join(format!("{name}.bpf.o"));
        compile(&name, &object)?;
        println!("{}", object.display());
    }
    Ok(())
}

/// Names of the programs.
pub fn names() -> Result<Vec<String>> {
    let folder = root().join(SOURCES);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("cannot read {SOURCES}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".bpf.c").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Compiles one program. The object has no path of this host: its BTF names the sources relative to their directory.
pub fn compile(name: &str, object: &Path) -> Result<()> {
    let status = Command::new("clang")
        .args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror",
        ])
        .args(["-Wno-unused-function", "-Wno-unused-const-variable"])
        .arg("-ffile-compilation-dir=.")
        // Only newer kernels have jump tables.
        .args(["-fno-jump-tables", "-c", &format!("{name}.bpf.c"), "-o"])
        .arg(object)
        .current_dir(root().join(SOURCES))
        .status()
        .context("cannot run clang: install it (Debian: clang, llvm)")?;
    ensure!(status.success(), "clang could not compile {name}.bpf.c");
    let status = Command::new("llvm-strip")
        .arg("-g")
        .arg(object)
        .status()
        .context("cannot run llvm-strip: install it (Debian: llvm)")?;
    ensure!(
        status.success(),
        "llvm-strip could not strip {}",
        object.display()
    );
    Ok(())
}

/// The committed object.
pub fn committed(name: &str) -> PathBuf {
    root().join(OBJECTS).join(format!("{name}.bpf.o"))
}

/// The major version of clang, if there is one.
pub fn clang() -> Option<u32> {
    let output = Command::new("clang").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (_, version) = text.split_once("clang version ")?;
    version.split('.').next()?.parse().ok()
}

/// A section of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// "kprobe", ".rodata"
    pub name: String,
    /// Whether it contains instructions.
    pub is_code: bool,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// The sections of an object, in order (ELF, 64-bit, little-endian, as written by clang).
pub fn sections(object: &[u8]) -> Result<Vec<Section>> {
    let number = |place: usize, size: usize| -> Result<usize> {
        let bytes = object
            .get(place..place + size)
            .context("the object is cut short")?;
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes);
        Ok(usize::try_from(u64::from_le_bytes(word))?)
    };
    if object.get(..6) != Some(b"\x7fELF\x02\x01") {
        bail!("expected an ELF object of 64 bits");
    }
    let (table, entry_bytes) = (number(0x28, 8)?, number(0x3a, 2)?);
    let (count, names) = (number(0x3c, 2)?, number(0x3e, 2)?);
    let names_at = number(table + names * entry_bytes + 0x18, 8)?;
    let mut found = Vec::new();
    for index in 0..count {
        let header = table + index * entry_bytes;
        let name_at = names_at + number(header, 4)?;
        let name: Vec<u8> = object[name_at..]
            .iter()
            .copied()
            .take_while(|&byte| byte != 0)
            .collect();
        let (offset, size) = (number(header + 0x18, 8)?, number(header + 0x20, 8)?);
        const NO_BYTES: usize = 8;
        let bytes = match number(header + 4, 4)? {
            NO_BYTES => &[][..],
            _ => object
                .get(offset..offset + size)
                .context("a section is cut short")?,
        };
        const EXECUTABLE: usize = 4;
        found.push(Section {
            name: String::from_utf8_lossy(&name).into_owned(),
            is_code: number(header + 8, 8)? & EXECUTABLE != 0,
            bytes: bytes.to_vec(),
        });
    }
    Ok(found)
}
