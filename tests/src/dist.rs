//! `cargo xtask dist`: packages of the three programs with manual pages and completions: a `.tar.zst` for any
//! distribution and a `.deb`.
//!
//! ```text
//! perfquet-0.1.0-x86_64-linux.tar.zst    bin/ lib/systemd/system/ share/{man,doc,bash-completion,fish,zsh}/
//! perfquet_0.1.0_amd64.deb               the same below usr/
//! ```
//! The same commit makes the same packages: files have the commit's time and belong to root.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{place, say};

/// The programs of a package.
pub const PROGRAMS: [&str; 3] = ["perfquet-record", "perfquet-convert", "perfquet-query"];

/// The service, which is installed but not enabled.
pub const SERVICE: &str = "lib/systemd/system/perfquet.service";

/// Content and destination of a package.
#[derive(Debug, Clone)]
struct Options {
    /// Whether the packages are for testing: time matters more than size.
    is_quick: bool,
    output: PathBuf,
}

/// Builds the programs and packs them.
pub fn run(arguments: &[&str]) -> Result<()> {
    let mut options = Options {
        is_quick: false,
        output: place::target_directory().join("packages"),
    };
    let mut words = arguments.iter();
    while let Some(&word) = words.next() {
        match word {
            "--quick" => options.is_quick = true,
            "--output" => {
                let value = words.next().context("--output: expected a directory")?;
                options.output = std::path::absolute(value)?;
            }
            _ => bail!("no such option: {word}\nhint: cargo xtask dist [--quick] [--output DIR]"),
        }
    }
    say::need_c_compiler()?;
    for package in pack(&options)? {
        let size = fs::metadata(&package)?.len();
        println!("{} {}", package.display(), say::bytes(size));
    }
    Ok(())
}

/// Returns the paths of the packages.
fn pack(options: &Options) -> Result<Vec<PathBuf>> {
    let programs = build()?;
    let stage = place::target_directory().join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).context("cannot remove the last packages' files")?;
    }
    let (version, arch) = (env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let name = format!("perfquet-{version}-{arch}-linux");
    let tree = stage.join(&name);
    say::step("manual pages and completions");
    fill(&tree, &programs)?;
    fs::create_dir_all(&options.output)
        .with_context(|| format!("cannot create {}", options.output.display()))?;
    let mut packages = vec![tar(&stage, &name, options)?];
    match say::has("dpkg-deb") {
        true => packages.push(deb(&stage, &tree, options)?),
        false => say::note("without a .deb: dpkg-deb is not in PATH"),
    }
    Ok(packages)
}

/// Builds each program separately, like the tests, so that packages have the programs that were tested. Returns their paths.
fn build() -> Result<Vec<PathBuf>> {
    if let Some(directory) = std::env::var_os("PERFQUET_BIN_DIR") {
        return Ok(PROGRAMS
            .map(|name| Path::new(&directory).join(name))
            .to_vec());
    }
    say::step("the programs in release");
    let mut paths = Vec::new();
    for name in PROGRAMS {
        let status = place::cargo()
            .args(["build", "--release", "--package", name])
            .status()
            .context("cannot run cargo")?;
        ensure!(status.success(), "cannot build {name}");
        paths.push(place::target_directory().join("release").join(name));
    }
    Ok(paths)
}

/// Writes all files installed below `/usr`.
fn fill(tree: &Path, programs: &[PathBuf]) -> Result<()> {
    let (bin, share) = (tree.join("bin"), tree.join("share"));
    let doc = share.join("doc/perfquet");
    let service = tree.join(SERVICE);
    for folder in [&bin, &doc, &service.with_file_name("")] {
        fs::create_dir_all(folder)?;
    }
    for program in programs {
        let name = program.file_name().context("a program has a name")?;
        fs::copy(program, bin.join(name))
            .with_context(|| format!("cannot copy {}", program.display()))?;
        run_tool(Command::new(program).arg("--generate").arg(&share))?;
    }
    let root = place::root();
    fs::copy(root.join("record/perfquet.service"), &service).context("cannot copy the service")?;
    for name in ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        fs::copy(root.join(name), doc.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    for entry in fs::read_dir(root.join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let name = path.file_name().context("a page has a name")?;
            fs::copy(&path, doc.join(name))?;
        }
    }
    // Debian's name for the licenses.
    fs::write(
        doc.join("copyright"),
        "Licensed under either of the Apache License 2.0 (LICENSE-APACHE) or the MIT license (LICENSE-MIT), at your option.\n",
    )?;
    for_readers(tree)
}

/// Makes the files readable, and the programs executable, for all users.
fn for_readers(directory: &Path) -> Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            for_readers(&path)?;
        } else {
            let is_program = directory.ends_with("bin");
            let mode = if is_program { 0o755 } else { 0o644 };
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

fn tar(stage: &Path, name: &str, options: &Options) -> Result<PathBuf> {
    let Options { output, .. } = options;
    let level = if options.is_quick { 3 } else { 19 };
    let package = output.join(format!("{name}.tar.zst"));
    say::step(&package.display().to_string());
    run_tool(
        Command::new("tar")
            .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
            .arg(format!("--mtime=@{}", commit_time()))
            .args([
                "--use-compress-program",
                &format!("zstd -T0 -{level} --quiet"),
            ])
            .arg("--directory")
            .arg(stage)
            .arg("--create")
            .arg("--file")
            .arg(&package)
            .arg(name),
    )?;
    Ok(package)
}

fn deb(stage: &Path, tree: &Path, options: &Options) -> Result<PathBuf> {
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let version = env!("CARGO_PKG_VERSION");
    let package = options
        .output
        .join(format!("perfquet_{version}_{arch}.deb"));
    say::step(&package.display().to_string());
    let root = stage.join("deb");
    fs::create_dir_all(root.join("DEBIAN"))?;
    run_tool(
        Command::new("cp")
            .arg("--archive")
            .arg(tree)
            .arg(root.join("usr")),
    )?;
    // Debian's zsh searches here.
    let zsh = root.join("usr/share/zsh");
    fs::rename(zsh.join("site-functions"), zsh.join("vendor-completions"))?;
    fs::write(
        root.join("DEBIAN/control"),
        control(version, arch, size_of(tree)?),
    )?;
    for_readers(&root)?;
    run_tool(
        Command::new("dpkg-deb")
            .env("SOURCE_DATE_EPOCH", commit_time())
            .arg(if options.is_quick { "-z1" } else { "-z9" })
            .args(["-Zxz", "--root-owner-group", "--build"])
            .arg(&root)
            .arg(&package),
    )?;
    Ok(package)
}

/// Returns the description of the package. The programs require at least the C library that they were linked with.
fn control(version: &str, arch: &str, bytes: u64) -> String {
    let libc = libc_version();
    format!(
        "Package: perfquet\n\
         Version: {version}\n\
         Architecture: {arch}\n\
         Maintainer: The perfquet developers <perfquet@localhost>\n\
         Installed-Size: {}\n\
         Depends: libc6 (>= {libc}), libgcc-s1\n\
         Section: devel\n\
         Priority: optional\n\
         Description: performance traces as typed Parquet tables, with answers in SQL\n \
         perfquet-record captures kprobes, uprobes, tracepoints and sampled stacks into\n \
         a compressed columnar trace. perfquet-convert imports perf.data, ftrace,\n \
         trace-cmd, DTrace and KFI outputs into the same tables and exports them again.\n \
         perfquet-query computes aggregations, function durations and flame graphs.\n",
        bytes.div_ceil(1024)
    )
}

/// The version of the C library of this system, as `2.36`.
fn libc_version() -> String {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = text
        .ok()
        .and_then(|text| Some(text.trim().rsplit_once(' ')?.1.to_owned()));
    version.unwrap_or_else(|| "2.31".to_owned())
}

/// Seconds since 1970 of the commit; of now outside a clone.
fn commit_time() -> String {
    let output = Command::new("git")
        .args(["log", "-1", "--format=%ct"])
        .current_dir(place::root())
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok()
        .filter(|text| !text.is_empty())
        .unwrap_or_else(|| {
            let now = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
            now.as_secs().to_string()
        })
}

fn size_of(directory: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        bytes += match path.is_dir() {
            true => size_of(&path)?,
            false => fs::metadata(&path)?.len(),
        };
    }
    Ok(bytes)
}

fn run_tool(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{name} failed: {stderr}");
    Ok(())
}
