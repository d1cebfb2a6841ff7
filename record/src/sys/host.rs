//! The host and the user: names, CPUs, memory, build ID of the kernel, the user who ran sudo.

#![expect(unsafe_code, reason = "uname, geteuid, mount")]

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use perfquet_events::bytes::{Cursor, Endian};

/// `uname(2)`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    /// Host name.
    pub(crate) host: String,
    /// `uname -r`
    pub(crate) release: String,
    /// `uname -m`
    pub(crate) machine: String,
}

/// Names of the host and its kernel.
pub(crate) fn names() -> Names {
    let mut names = MaybeUninit::<libc::utsname>::zeroed();
    // SAFETY: the kernel fills the struct; it was zeroed, so it is initialized even after a failure.
    let names = unsafe {
        libc::uname(names.as_mut_ptr());
        names.assume_init()
    };
    Names {
        host: text(&names.nodename),
        release: text(&names.release),
        machine: text(&names.machine),
    }
}

/// The ID of this boot, which other recorders write too; `None` without /proc.
pub(crate) fn boot_id() -> Option<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// Whether the kernel is this version or newer; `false` if its version is unknown.
pub(crate) fn is_linux(major: u32, minor: u32) -> bool {
    is_since(&names().release, (major, minor))
}

fn is_since(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    number()
        .zip(number())
        .is_some_and(|found: (u32, u32)| found >= version)
}

/// Whether the effective user is root.
pub(crate) fn is_root() -> bool {
    // SAFETY: returns a number.
    unsafe { libc::geteuid() == 0 }
}

/// The number of a user, as the system knows users.
pub(crate) fn user_number(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    let mut entry = MaybeUninit::<libc::passwd>::zeroed();
    let mut texts = vec![0; 16 << 10];
    let mut found = std::ptr::null_mut();
    // SAFETY: the name is NUL-terminated, `texts` has the given size, and both outlive the call.
    let result = unsafe {
        libc::getpwnam_r(
            name.as_ptr(),
            entry.as_mut_ptr(),
            texts.as_mut_ptr(),
            texts.len(),
            &mut found,
        )
    };
    if result != 0 || found.is_null() {
        return None;
    }
    // SAFETY: zeroed above, then filled by the call that succeeded.
    Some(unsafe { entry.assume_init() }.pw_uid)
}

/// Mounts tracefs at its usual mount point, as perf and trace-cmd do.
pub(crate) fn mount_tracefs(at: &Path) -> io::Result<()> {
    let target = CString::new(at.as_os_str().as_bytes())?;
    // SAFETY: the kernel reads three strings that end with NUL.
    let mounted = unsafe {
        libc::mount(
            c"tracefs".as_ptr(),
            target.as_ptr(),
            c"tracefs".as_ptr(),
            0,
            std::ptr::null(),
        )
    };
    if mounted < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// One more than the largest number that a CPU can have.
pub(crate) fn possible_cpus() -> u32 {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let cpus = parse_cpus(list.trim()).unwrap_or_default();
    cpus.into_iter().max().map_or(1, |last| last + 1)
}

/// CPUs that are online, from `/sys/devices/system/cpu/online`.
pub(crate) fn online_cpus() -> Vec<u32> {
    cpus_in("/sys/devices/system/cpu/online")
}

/// Returns all CPUs of the host, online or not.
pub(crate) fn present_cpus() -> Vec<u32> {
    cpus_in("/sys/devices/system/cpu/present")
}

fn cpus_in(path: &str) -> Vec<u32> {
    fs::read_to_string(path)
        .ok()
        .and_then(|list| parse_cpus(list.trim()))
        .unwrap_or_else(|| vec![0])
}

/// Parses a list of CPUs, such as "0-3,8".
pub(crate) fn parse_cpus(list: &str) -> Option<Vec<u32>> {
    /// More than any kernel is built for; keeps a typo from filling the memory.
    const MOST: u32 = 1 << 16;
    let mut cpus = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

/// CPU model, from `/proc/cpuinfo`.
pub(crate) fn cpu_model() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = info
        .lines()
        .find(|line| line.starts_with("model name") || line.starts_with("Processor"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Physical memory in KiB.
pub(crate) fn memory_kib() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Build id of the running kernel.
pub(crate) fn kernel_build_id() -> Option<Vec<u8>> {
    build_id_in_notes(&fs::read("/sys/kernel/notes").ok()?)
}

/// The NT_GNU_BUILD_ID among ELF notes, for all architectures that are little-endian like us.
pub(crate) fn build_id_in_notes(notes: &[u8]) -> Option<Vec<u8>> {
    const NT_GNU_BUILD_ID: u32 = 3;
    let mut cursor = Cursor::new(notes, 0, native_endian());
    loop {
        let name_bytes = u64::from(cursor.u32().ok()?);
        let value_bytes = u64::from(cursor.u32().ok()?);
        let kind = cursor.u32().ok()?;
        let name = cursor.bytes(name_bytes.checked_next_multiple_of(4)?).ok()?;
        let value = cursor
            .bytes(value_bytes.checked_next_multiple_of(4)?)
            .ok()?;
        if kind == NT_GNU_BUILD_ID && name.starts_with(b"GNU\0") {
            return Some(value.get(..value_bytes as usize)?.to_vec());
        }
    }
}

/// Returns the byte order of the host.
pub(crate) fn native_endian() -> Endian {
    if cfg!(target_endian = "big") {
        Endian::Big
    } else {
        Endian::Little
    }
}

/// Returns the user and group that ran sudo, if that is how the recorder became root.
pub(crate) fn sudo_caller() -> Option<(u32, u32)> {
    if !is_root() {
        return None;
    }
    let number = |name| std::env::var(name).ok()?.parse().ok();
    Some((number("SUDO_UID")?, number("SUDO_GID")?))
}

fn text(characters: &[libc::c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().map(|&c| c as u8).collect();
    CStr::from_bytes_until_nul(&bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert!(is_since("5.15.0-91-generic", (5, 15)) && is_since("6.1", (5, 15)));
        assert!(!is_since("5.10.0-28-amd64", (5, 15)) && !is_since("linux", (2, 6)));
    }

    #[test]
    fn cpu_lists() {
        assert_eq!(parse_cpus("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_cpus("3,1,1"), Some(vec![1, 3]));
        for wrong in ["", "a", "3-1", "0-99999999", "1,,2"] {
            assert_eq!(parse_cpus(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn notes() {
        let mut notes = Vec::new();
        for (name, kind, value) in [
            (&b"Xen\0"[..], 6u32, &b"abc\0"[..]),
            (b"GNU\0", 3, &[7; 20]),
        ] {
            notes.extend((name.len() as u32).to_ne_bytes());
            notes.extend((value.len() as u32).to_ne_bytes());
            notes.extend(kind.to_ne_bytes());
            notes.extend(name);
            notes.extend(value);
        }
        assert_eq!(build_id_in_notes(&notes), Some(vec![7; 20]));
        assert_eq!(build_id_in_notes(&notes[..40]), None);
    }
}
