//! Fetches kernels and QEMU: packages of Debian, unpacked into the cache and installed nowhere.
//!
//! apt gets a separate list of sources and a separate state, so those of the system stay unchanged. Debian 12 has Linux
//! 6.1 and a QEMU that crashes its guests; newer ones are in its security updates and in backports.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::cache;
use crate::say;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const SUITES: [&str; 3] = ["bookworm", "bookworm-backports", "trixie-backports"];
const QEMU_SUITE: &str = "bookworm-backports";
const QEMU_PACKAGES: [&str; 3] = ["qemu-system-x86", "qemu-system-data", "seabios"];

/// Fetches QEMU and these kernels; existing ones stay.
pub(crate) fn run(versions: &[&str]) -> Result<()> {
    for (tool, package) in [
        ("apt-get", "apt"),
        ("dpkg-deb", "dpkg"),
        ("zstd", "zstd"),
        ("lz4", "lz4"),
    ] {
        if !say::has(tool) {
            bail!(
                "no {tool}\nhint: only Debian and its kin; apt-get install --no-install-recommends {package}"
            );
        }
    }
    let folder = cache::folder()?;
    let has_qemu = folder.join("qemu/usr/bin/qemu-system-x86_64").is_file();
    let mut missing = Vec::new();
    for &version in versions {
        match cache::kernel(version)? {
            Some(kernel) => println!("{version}: {} is there", kernel.release),
            None => missing.push(version),
        }
    }
    if !has_qemu || !missing.is_empty() {
        let apt = Apt::new(&folder)?;
        if !has_qemu {
            fetch_qemu(&apt, &folder)?;
        }
        for version in missing {
            fetch_kernel(&apt, &folder, version)
                .with_context(|| format!("cannot fetch the kernel {version}"))?;
        }
    }
    cache::qemu().map(|_| ())
}

/// apt with its own sources and state.
struct Apt {
    folder: PathBuf,
    packages: PathBuf,
}

impl Apt {
    fn new(cache: &Path) -> Result<Apt> {
        let folder = cache.join("apt");
        let packages = folder.join("deb");
        for name in ["lists/partial", "archives/partial", "deb"] {
            fs::create_dir_all(folder.join(name))?;
        }
        let main = site("bookworm", "http://deb.debian.org/debian")?;
        let security = site("bookworm-security", "http://deb.debian.org/debian-security")?;
        let mut sources: String = SUITES
            .iter()
            .map(|suite| format!("deb [signed-by={KEYRING}] {main} {suite} main\n"))
            .collect();
        sources += &format!("deb [signed-by={KEYRING}] {security} bookworm-security main\n");
        fs::write(folder.join("sources.list"), sources)?;
        let apt = Apt { folder, packages };
        apt.ask("apt-get", &["update"])?;
        Ok(apt)
    }

    fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let path = |name: &str| self.folder.join(name).display().to_string();
        let options = [
            format!("Dir::Etc::sourcelist={}", path("sources.list")),
            "Dir::Etc::sourceparts=/dev/null".to_owned(),
            format!("Dir::State::Lists={}", path("lists")),
            format!("Dir::Cache={}", self.folder.display()),
            "APT::Sandbox::User=root".to_owned(),
            "Acquire::Retries=3".to_owned(),
        ];
        let mut command = Command::new(program);
        command.arg("-q").current_dir(&self.packages);
        for option in &options {
            command.args(["-o", option]);
        }
        output_of(command.args(arguments))
    }

    /// Unpacks a package (`NAME`, `NAME=VERSION`).
    fn unpack(&self, package: &str, to: &Path) -> Result<()> {
        let name = package.split('=').next().unwrap_or(package);
        let is_it = |path: &PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.starts_with(&format!("{name}_")) && file.ends_with(".deb")
        };
        let files = || -> Result<Vec<PathBuf>> {
            let entries = fs::read_dir(&self.packages)?.flatten();
            Ok(entries.map(|entry| entry.path()).filter(is_it).collect())
        };
        for old in files()? {
            fs::remove_file(old)?;
        }
        println!("fetching {package}");
        self.ask("apt-get", &["download", package])?;
        let fetched = files()?;
        let file = fetched
            .first()
            .with_context(|| format!("{package}: no file"))?;
        output_of(Command::new("dpkg-deb").arg("-x").arg(file).arg(to))?;
        fs::remove_file(file)?;
        Ok(())
    }
}

/// The mirror that this system's apt uses for a release, else the default one.
fn site(release: &str, usual: &str) -> Result<String> {
    let format = ["indextargets", "--format", "$(SITE) $(RELEASE)"];
    let text = output_of(Command::new("apt-get").args(format))?;
    let found = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(_, of)| *of == release);
    Ok(found.map_or(usual, |(site, _)| site).to_owned())
}

/// The output of a command; an error with its stderr.
fn output_of(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}", errors.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn fetch_qemu(apt: &Apt, folder: &Path) -> Result<()> {
    let fresh = folder.join("qemu.new");
    let _ = fs::remove_dir_all(&fresh);
    for package in QEMU_PACKAGES {
        // "qemu-system-x86 | 1:10.0.2+ds-2 | http://… bookworm-backports/main amd64 Packages"
        let versions = apt.ask("apt-cache", &["madison", package])?;
        let version = versions
            .lines()
            .find(|line| line.contains(QEMU_SUITE))
            .and_then(|line| line.split('|').nth(1))
            .with_context(|| format!("{package}: not in {QEMU_SUITE}"))?;
        apt.unpack(&format!("{package}={}", version.trim()), &fresh)?;
    }
    let place = folder.join("qemu");
    let _ = fs::remove_dir_all(&place);
    fs::rename(&fresh, &place)?;
    Ok(())
}

fn fetch_kernel(apt: &Apt, folder: &Path, version: &str) -> Result<()> {
    let image = newest_image(apt, version)?;
    let release = image.trim_start_matches("linux-image-");
    let fresh = folder.join("kernel").join(format!(".new-{version}"));
    let _ = fs::remove_dir_all(&fresh);
    let unpacked = fresh.join("root");
    fs::create_dir_all(&unpacked)?;
    // Up to 6.x, everything is in one package; 7.x has three, and an image package that only depends on them.
    let depends = apt.ask("apt-cache", &["depends", &image])?;
    let parts = depends
        .lines()
        .filter_map(|line| line.split_once("Depends: "))
        .map(|(_, name)| name.trim())
        .filter(|name| {
            let kinds = ["linux-base-", "linux-binary-", "linux-modules-"];
            let rest = kinds.iter().find_map(|kind| name.strip_prefix(kind));
            rest == Some(release)
        });
    for part in std::iter::once(image.as_str()).chain(parts) {
        apt.unpack(part, &unpacked)?;
    }
    let boot_image = find(&unpacked, &|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.is_file() && name.starts_with("vmlinuz")
    });
    let boot_image = boot_image.context("the package has no kernel")?;
    fs::write(fresh.join("vmlinux"), kernel_in(&fs::read(boot_image)?)?)?;
    let modules = find(&unpacked, &|path| {
        path.is_dir() && path.ends_with(format!("modules/{release}/kernel"))
    });
    fs::rename(
        modules.context("the package has no modules")?,
        fresh.join("modules"),
    )?;
    let config = find(&unpacked, &|path| {
        path.ends_with(format!("config-{release}")) || path.ends_with(format!("{release}/config"))
    });
    fs::copy(
        config.context("the package has no config")?,
        fresh.join("config"),
    )?;
    fs::remove_dir_all(&unpacked)?;
    fs::write(fresh.join("release"), format!("{release}\n"))?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o755))?;
    let place = folder.join("kernel").join(version);
    let _ = fs::remove_dir_all(&place);
    fs::rename(&fresh, &place)?;
    println!("{version}: {release}");
    Ok(())
}

/// The newest `linux-image-VERSION…-cloud-amd64`; cloud kernels have few drivers and boot fastest.
fn newest_image(apt: &Apt, version: &str) -> Result<String> {
    let prefix = format!("linux-image-{version}");
    let names = apt.ask("apt-cache", &["pkgnames", &prefix])?;
    let images = names.lines().filter(|name| {
        let rest = name.strip_prefix(&prefix).unwrap_or_default();
        rest.starts_with(['.', '+']) && rest.ends_with("-cloud-amd64")
    });
    images
        .max_by_key(|name| numbers(name))
        .map(str::to_owned)
        .with_context(|| format!("no kernel {version} for clouds in {}", SUITES.join(", ")))
}

/// 6.1.0-56 sorts after 6.1.0-9.
fn numbers(name: &str) -> Vec<u64> {
    let words = name.split(|letter: char| !letter.is_ascii_digit());
    words.filter_map(|word| word.parse().ok()).collect()
}

fn find(folder: &Path, is_it: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    entries.sort();
    entries.into_iter().find_map(|path| {
        if is_it(&path) {
            return Some(path);
        }
        (path.is_dir() && !path.is_symlink())
            .then(|| find(&path, is_it))
            .flatten()
    })
}

/// Extracts the compressed kernel from a bzImage (Documentation/arch/x86/boot.rst: `setup_sects`, `payload_offset`,
/// `payload_length`) and decompresses it.
fn kernel_in(image: &[u8]) -> Result<Vec<u8>> {
    let number = |at: usize| -> Option<usize> {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let setup_sectors = match image.get(0x1f1).context("no boot sector")? {
        0 => 4,
        &sectors => usize::from(sectors),
    };
    let (offset, length) = number(0x248).zip(number(0x24c)).context("no boot sector")?;
    let start = (setup_sectors + 1) * 512 + offset;
    let payload = image
        .get(start..start + length)
        .context("its payload is not in it")?;
    let tool = match payload {
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "zstd",
        [0x02, 0x21, 0x4c, 0x18, ..] => "lz4",
        [0xfd, b'7', b'z', b'X', ..] => "xz",
        [0x1f, 0x8b, ..] => "gzip",
        _ => bail!("a kernel packed in a way that is not known"),
    };
    // The last four bytes are the decompressed size, which the tools report as garbage. So completeness follows from
    // the length of their output, not from their status.
    let size = number(start + length - 4).context("no size")?;
    let mut kernel = through(tool, payload)?;
    if !kernel.starts_with(b"\x7fELF") || kernel.len() < size {
        bail!("{tool} unpacked {} of {size} bytes", kernel.len());
    }
    kernel.truncate(size);
    Ok(kernel)
}

fn through(tool: &str, input: &[u8]) -> Result<Vec<u8>> {
    let mut child = Command::new(tool)
        .arg("-dc")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {tool}"))?;
    let mut stdin = child.stdin.take().context("no pipe")?;
    std::thread::scope(|scope| {
        // The tool may stop reading at the garbage.
        scope.spawn(move || std::io::Write::write_all(&mut stdin, input));
        Ok(child.wait_with_output()?.stdout)
    })
}

#[test]
fn versions_are_compared_as_numbers() {
    let names = [
        "linux-image-6.1.0-9-cloud-amd64",
        "linux-image-6.1.0-56-cloud-amd64",
    ];
    assert!(numbers(names[1]) > numbers(names[0]));
}
