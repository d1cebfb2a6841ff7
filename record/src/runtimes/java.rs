//! HotSpot's attach protocol, with which `jcmd` makes a JVM write a perf map (JDK 17).
//!
//! ```text
//! .attach_pid7 in /tmp, SIGQUIT                     the JVM starts to listen
//! .java_pid7   1\0 jcmd\0 Compiler.perfmap\0 \0 \0   →   0\n             /tmp/perf-7.map is written
//! ```
//! A JVM started with `-XX:+DisableAttachMechanism` prints a thread dump at SIGQUIT, and a process that does not handle the
//! signal dies. The signal is therefore sent only to a JVM whose performance counters allow attaching. (openjdk/jdk:
//! `src/hotspot/os/posix/attachListener_posix.cpp`, `src/hotspot/share/runtime/perfMemory`)

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use perfquet_events::bytes::{Cursor, Endian, before_nul};

use super::process::{Connection, Folder, Process, other};
use crate::sys::procfs;

/// Limit until a JVM listens. It looks for the file when the signal arrives.
const LONGEST_START: Duration = Duration::from_secs(2);
const BETWEEN_LOOKS: Duration = Duration::from_millis(10);
/// An answer is a line or two.
const ANSWER_MAX: u64 = 1 << 20;
/// HotSpot's own file is 32 KiB.
const COUNTERS_MAX: u64 = 1 << 20;

/// Makes the JVM write `/tmp/perf-PID.map`.
pub(super) fn write_map(process: &Process, until: Instant) -> io::Result<()> {
    let answer = request(process, "Compiler.perfmap", until)?;
    match answer.split_once('\n') {
        Some(("0", _)) => Ok(()),
        // java.lang.IllegalArgumentException: Unknown diagnostic command
        Some((_, text)) if text.contains("Unknown diagnostic command") => {
            Err(other("JDK 17 or later is required"))
        }
        _ => Err(other("the JVM failed to write one")),
    }
}

/// Whether compiled code keeps frame pointers; `None` if the JVM does not answer.
pub(super) fn keeps_frame_pointers(process: &Process, until: Instant) -> Option<bool> {
    let answer = request(process, "VM.flags", until).ok()?;
    let (status, flags) = answer.split_once('\n')?;
    (status == "0").then(|| flags.contains("-XX:+PreserveFramePointer"))
}

fn request(process: &Process, command: &str, until: Instant) -> io::Result<String> {
    let folder = process.temporary()?;
    let mut stream = connect(process, &folder, until)?;
    // Version 1, a command and three arguments.
    stream.write_all(format!("1\0jcmd\0{command}\0\0\0").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn connect(process: &Process, folder: &Folder, until: Instant) -> io::Result<Connection> {
    let socket = format!(".java_pid{}", process.inside);
    match process.connect(folder, &socket, until) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    if !is_attachable(process, folder) {
        return Err(other(
            "the JVM was started with -XX:+DisableAttachMechanism",
        ));
    }
    let trigger = folder.path(&format!(".attach_pid{}", process.inside));
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&trigger)?;
    let connected = wake(process, folder, &socket, until);
    // Most JVMs remove it themselves.
    let _ = fs::remove_file(&trigger);
    connected
}

/// Makes the JVM look for the file, and connects when it listens.
fn wake(
    process: &Process,
    folder: &Folder,
    socket: &str,
    until: Instant,
) -> io::Result<Connection> {
    let began = Instant::now();
    process.send(libc::SIGQUIT)?;
    loop {
        match process.connect(folder, socket, until) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result,
        }
        if began.elapsed() > LONGEST_START || Instant::now() >= until {
            return Err(other("the JVM does not answer"));
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

/// Whether the JVM starts to listen at SIGQUIT.
fn is_attachable(process: &Process, folder: &Folder) -> bool {
    if !procfs::catches(process.pid, libc::SIGQUIT) {
        return false;
    }
    match counters(process, folder).as_deref().map(can_attach) {
        Some(Some(says)) => says,
        _ => !may_be_disabled(process.pid),
    }
}

/// The JVM's performance counters, from the file that it shares.
fn counters(process: &Process, folder: &Folder) -> Option<Vec<u8>> {
    let users = folder.names().into_iter();
    let mut files = users
        .filter(|name| name.starts_with("hsperfdata_") && !name.contains('/'))
        .filter_map(|user| {
            let inside = folder.below(&user).ok()?;
            process.open(&inside, &process.inside.to_string()).ok()
        });
    let mut counters = Vec::new();
    files
        .next()?
        .take(COUNTERS_MAX)
        .read_to_end(&mut counters)
        .ok()?;
    Some(counters)
}

/// The first of the JVM's capabilities: attaching. `None` if the counters do not have it.
fn can_attach(counters: &[u8]) -> Option<bool> {
    // PerfDataPrologue: magic, byte order, version, accessible; used, overflow; time; first entry, number of entries.
    if counters.get(..4)? != [0xca, 0xfe, 0xc0, 0xc0] || counters.get(7) != Some(&1) {
        return None;
    }
    let endian = match counters.get(4)? {
        0 => Endian::Big,
        _ => Endian::Little,
    };
    let mut at = endian.u32_at(counters, 24)? as usize;
    for _ in 0..endian.u32_at(counters, 28)? {
        // PerfDataEntry: length, name, vector length; type, flags, unit, variability; data.
        let entry = counters.get(at..)?;
        let mut body = Cursor::new(entry, 0, endian);
        let length = body.u32().ok()? as usize;
        let name_at = body.u32().ok()? as usize;
        let count = body.u32().ok()?;
        body.u32().ok()?;
        let data_at = body.u32().ok()? as usize;
        if before_nul(entry.get(name_at..)?) == b"sun.rt.jvmCapabilities" {
            let can_attach = entry.get(data_at).map(|&byte| byte == b'1');
            return can_attach.filter(|_| count > 0);
        }
        at = at.checked_add(length.max(1))?;
    }
    None
}

/// Whether the JVM's options disable attaching, or come from files that are not read here.
fn may_be_disabled(pid: i32) -> bool {
    let read = |name: &str| fs::read(format!("/proc/{pid}/{name}"));
    let (Ok(arguments), Ok(environment)) = (read("cmdline"), read("environ")) else {
        return true;
    };
    let is_suspect = |word: &[u8]| {
        let has = |part: &[u8]| word.windows(part.len()).any(|piece| piece == part);
        has(b"DisableAttachMechanism")
            || has(b"-XX:Flags=")
            || has(b"-XX:VMOptionsFile=")
            || word.starts_with(b"@")
    };
    let mut arguments = arguments.split(|&byte| byte == 0);
    arguments.any(is_suspect) || environment.split(|&byte| byte == 0).any(is_suspect)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The counters of a JVM with some capabilities.
    fn counters_with(name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xca, 0xfe, 0xc0, 0xc0, 1, 2, 0, 1];
        bytes.resize(24, 0);
        bytes.extend(32u32.to_le_bytes());
        bytes.extend(2u32.to_le_bytes());
        for (name, value) in [(&b"a"[..], &b"x"[..]), (name, value)] {
            let data_at = 20 + name.len() + 1;
            let length = data_at + value.len();
            for number in [length, 20, value.len(), 0, data_at] {
                bytes.extend((number as u32).to_le_bytes());
            }
            bytes.extend(name);
            bytes.push(0);
            bytes.extend(value);
        }
        bytes
    }

    #[test]
    fn capabilities_say_whether_it_can_be_attached_to() {
        const NAME: &[u8] = b"sun.rt.jvmCapabilities";
        assert_eq!(can_attach(&counters_with(NAME, b"110")), Some(true));
        assert_eq!(can_attach(&counters_with(NAME, b"010")), Some(false));
        assert_eq!(can_attach(&counters_with(b"sun.rt.other", b"1")), None);
        let whole = counters_with(NAME, b"110");
        for end in 0..whole.len() - 3 {
            assert_eq!(can_attach(&whole[..end]), None, "{end}");
        }
        let mut endless = whole;
        endless[28..32].fill(0xff);
        endless[32..36].fill(0);
        assert_eq!(can_attach(&endless), None);
    }
}
