//! `/proc`: processes, their threads, their mappings.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use perfquet_trace::symbols::limits::MAPPINGS_BYTES_MAX;

use crate::sys::clock;

/// A process or thread of `/proc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Task {
    /// Name: at most 15 bytes, any but NUL.
    pub(crate) comm: Vec<u8>,
    /// `R`, `S`, … `Z`, `X`
    pub(crate) state: u8,
    /// Process of its creator.
    pub(crate) parent: i32,
}

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Map<'a> {
    /// First address.
    pub(crate) start: u64,
    /// First address past the end.
    pub(crate) end: u64,
    /// PROT_*
    pub(crate) protection: u32,
    /// MAP_*
    pub(crate) flags: u32,
    /// Offset in the file.
    pub(crate) file_offset: u64,
    /// Device.
    pub(crate) device: (u32, u32),
    /// Inode.
    pub(crate) inode: u64,
    /// Path, or a name in brackets, or nothing.
    pub(crate) path: &'a [u8],
}

/// Bytes of a file of `/proc` that are read at once.
const PIECE_BYTES: usize = 4096;

/// Reads a file about a process, up to a limit; `None` if the process has ended. A short read is the last one, since the kernel
/// makes these files in one piece: three system calls, of which a recorder makes some for each new process, in place of six.
pub(crate) fn read_file(path: &str, most: usize) -> Option<Vec<u8>> {
    let mut file = fs::File::open(path).ok()?;
    let mut bytes = vec![0; PIECE_BYTES.min(most)];
    let mut length = 0;
    loop {
        let room = bytes.get_mut(length..).unwrap_or_default();
        let (read, wanted) = (file.read(room).ok()?, room.len());
        length += read;
        if read < wanted || length >= most {
            bytes.truncate(length);
            return Some(bytes);
        }
        bytes.resize((2 * length).min(most), 0);
    }
}

/// Longest list of kernel threads, lines of statistics and lists of cgroups.
const LINES_BYTES_MAX: usize = 1 << 20;

/// Threads of the kernel, which have neither files nor mappings; empty if they are not known.
pub(crate) fn kernel_threads() -> Vec<i32> {
    // kthreadd, in the first namespace.
    const PARENT: i32 = 2;
    let is_it =
        task(PARENT, PARENT).is_some_and(|task| task.comm == b"kthreadd" && task.parent == 0);
    if !is_it {
        return Vec::new();
    }
    let children = read_file(
        &format!("/proc/{PARENT}/task/{PARENT}/children"),
        LINES_BYTES_MAX,
    );
    let children = String::from_utf8(children.unwrap_or_default()).unwrap_or_default();
    let children = children
        .split_whitespace()
        .filter_map(|child| child.parse().ok());
    std::iter::once(PARENT).chain(children).collect()
}

/// Pids of all processes.
pub(crate) fn processes() -> Vec<i32> {
    numbers("/proc")
}

/// Returns the TIDs of a process; empty if it has ended.
pub(crate) fn threads(pid: i32) -> Vec<i32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// The process that a thread belongs to.
pub(crate) fn process_of(tid: i32) -> Option<i32> {
    status(tid, "Tgid:")?.first()?.parse().ok()
}

/// The user that a process has the rights of.
pub(crate) fn user_of(pid: i32) -> Option<u32> {
    // Real, effective, saved, of files.
    status(pid, "Uid:")?.get(1)?.parse().ok()
}

/// The words after a name in `/proc/PID/status`.
fn status(pid: i32, name: &str) -> Option<Vec<String>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let words = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(words.split_whitespace().map(str::to_owned).collect())
}

/// Which files a process sees: the names of its mounts and of its root.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct View {
    mounts: PathBuf,
    root: PathBuf,
}

/// Returns the view of a process; `None` if it has ended, or is not accessible.
pub(crate) fn view_of(pid: i32) -> Option<View> {
    Some(View {
        mounts: fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()?,
        root: fs::read_link(format!("/proc/{pid}/root")).ok()?,
    })
}

/// The number that a process has in its own namespace.
pub(crate) fn number_inside(pid: i32) -> Option<i32> {
    status(pid, "NSpid:")?.last()?.parse().ok()
}

/// Whether processes have the numbers here that they have outside of all containers.
pub(crate) fn has_the_machines_numbers() -> bool {
    // PROC_PID_INIT_INO (include/linux/proc_ns.h)
    const FIRST: &str = "pid:[4026531836]";
    let own = fs::read_link("/proc/self/ns/pid");
    own.is_ok_and(|own| own.as_os_str() == FIRST)
}

/// Adds the processes that these have started, and those that they have.
pub(crate) fn add_descendants(pids: &mut Vec<i32>) {
    add_descendants_if(pids, |_| true);
}

/// Like [`add_descendants`], without the processes for which `is_wanted` returns false, and what only these have started.
pub(crate) fn add_descendants_if(pids: &mut Vec<i32>, is_wanted: impl Fn(i32) -> bool) {
    let mut known: HashSet<i32> = pids.iter().copied().collect();
    let mut next = 0;
    while let Some(&pid) = pids.get(next) {
        next += 1;
        for tid in threads(pid) {
            // Absent in kernels without CONFIG_PROC_CHILDREN.
            let children = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children"));
            let children = children.unwrap_or_default();
            let children = children
                .split_whitespace()
                .filter_map(|child| child.parse().ok());
            pids.extend(children.filter(|child| known.insert(*child) && is_wanted(*child)));
        }
    }
}

/// Returns the start time of a process, in ticks since boot. PID and start time identify a process until reboot.
pub(crate) fn start_ticks(pid: i32) -> Option<u64> {
    stat_fields(pid, [22]).map(|[start]| start)
}

/// Returns the age of a process with this start time.
pub(crate) fn age(start_ticks: u64) -> Duration {
    // USER_HZ is 100 on x86-64 and aarch64 (include/uapi/asm-generic/param.h).
    let start = Duration::from_millis(start_ticks.saturating_mul(10));
    Duration::from_nanos(clock::since_boot()).saturating_sub(start)
}

/// Returns the CPU time of all threads of a process, in ticks.
pub(crate) fn cpu_ticks(pid: i32) -> Option<u64> {
    stat_fields(pid, [14, 15]).map(|[user, system]| user + system)
}

/// Numbers of `/proc/PID/stat`, counted as in proc_pid_stat(5), from 3.
fn stat_fields<const N: usize>(pid: i32, numbers: [usize; N]) -> Option<[u64; N]> {
    let stat = read_file(&format!("/proc/{pid}/stat"), LINES_BYTES_MAX)?;
    // The name may hold anything, even brackets: fields are counted from after it.
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let fields = String::from_utf8_lossy(&stat[end + 1..]).into_owned();
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let mut values = [0; N];
    for (value, number) in values.iter_mut().zip(numbers) {
        *value = fields.get(number - 3)?.parse().ok()?;
    }
    Some(values)
}

/// Whether a process handles a signal itself.
pub(crate) fn catches(pid: i32, signal: i32) -> bool {
    let caught =
        status(pid, "SigCgt:").and_then(|words| u64::from_str_radix(words.first()?, 16).ok());
    caught.is_some_and(|caught| caught >> (signal - 1) & 1 == 1)
}

/// Whether a thread still runs: exists and is no zombie.
pub(crate) fn is_alive(tid: i32) -> bool {
    task(tid, tid).is_some_and(|task| !matches!(task.state, b'Z' | b'X'))
}

/// Whether a process still has a running thread. Its first may have ended before the others.
pub(crate) fn is_process_alive(pid: i32) -> bool {
    threads(pid)
        .into_iter()
        .any(|tid| task(pid, tid).is_some_and(|task| !matches!(task.state, b'Z' | b'X')))
}

/// Returns a thread; `None` if it has ended.
pub(crate) fn task(pid: i32, tid: i32) -> Option<Task> {
    parse_stat(&read_file(
        &format!("/proc/{pid}/task/{tid}/stat"),
        LINES_BYTES_MAX,
    )?)
}

/// The CPU time of a process per time since its start; more than 1 with several busy threads.
pub(crate) fn cpu_share(pid: i32) -> Option<f64> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    // From the state on, which is the third: utime, stime, starttime (proc_pid_stat(5)).
    let number =
        |place: usize| -> Option<f64> { rest.split_whitespace().nth(place - 3)?.parse().ok() };
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    /// USER_HZ, the same on all architectures but one (include/asm-generic/param.h).
    const TICKS_PER_SECOND: f64 = 100.0;
    // A process of a few milliseconds is not the busiest.
    let age = (uptime * TICKS_PER_SECOND - number(22)?).max(TICKS_PER_SECOND);
    Some((number(14)? + number(15)?) / age)
}

/// Reads `/proc/PID/maps` into `buffer`, up to a limit; empty for kernel threads and inaccessible processes.
pub(crate) fn read_maps(pid: i32, buffer: &mut Vec<u8>) {
    buffer.clear();
    if let Ok(file) = fs::File::open(format!("/proc/{pid}/maps")) {
        // If the process ends during the read, the part read so far is kept.
        let _ = file.take(MAPPINGS_BYTES_MAX).read_to_end(buffer);
        if buffer.len() as u64 == MAPPINGS_BYTES_MAX {
            log::info!("process {pid} has too many mappings: the last ones are omitted");
            let whole = buffer.iter().rposition(|&byte| byte == b'\n');
            buffer.truncate(whole.map_or(0, |end| end + 1));
        }
    }
}

/// The lines of a maps file.
pub(crate) fn parse_maps(text: &[u8]) -> impl Iterator<Item = Map<'_>> {
    text.split(|&byte| byte == b'\n').filter_map(parse_map)
}

/// Parses `PID (COMM) STATE PPID …`. COMM may contain spaces and parentheses, so it ends at the last parenthesis.
fn parse_stat(stat: &[u8]) -> Option<Task> {
    let open = stat.iter().position(|&byte| byte == b'(')?;
    let close = stat.iter().rposition(|&byte| byte == b')')?;
    let comm = stat.get(open + 1..close)?.to_vec();
    let mut rest = stat.get(close + 2..)?.split(|&byte| byte == b' ');
    let state = *rest.next()?.first()?;
    let parent = std::str::from_utf8(rest.next()?).ok()?.parse().ok()?;
    Some(Task {
        comm,
        state,
        parent,
    })
}

/// `55d8a7c6e000-55d8a7c70000 r-xp 00002000 fd:00 1234   /usr/bin/cat`
fn parse_map(line: &[u8]) -> Option<Map<'_>> {
    let (range, rest) = word(line)?;
    let (permissions, rest) = word(rest)?;
    let (file_offset, rest) = word(rest)?;
    let (device, rest) = word(rest)?;
    let (inode, rest) = word(rest).unwrap_or((rest, b""));
    let (start, end) = pair(range, b'-')?;
    let (major, minor) = pair(device, b':')?;
    let mut protection = 0;
    for (letter, bit) in [
        (b'r', libc::PROT_READ),
        (b'w', libc::PROT_WRITE),
        (b'x', libc::PROT_EXEC),
    ] {
        if permissions.contains(&letter) {
            protection |= bit as u32;
        }
    }
    let shared = permissions.contains(&b's');
    Some(Map {
        start,
        end,
        protection,
        flags: if shared {
            libc::MAP_SHARED
        } else {
            libc::MAP_PRIVATE
        } as u32,
        file_offset: hexadecimal(file_offset)?,
        device: (major as u32, minor as u32),
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
        path: rest.trim_ascii_start(),
    })
}

fn word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|&byte| byte == b' ')?;
    Some((&text[..end], text[end..].trim_ascii_start()))
}

fn pair(text: &[u8], separator: u8) -> Option<(u64, u64)> {
    let at = text.iter().position(|&byte| byte == separator)?;
    Some((hexadecimal(&text[..at])?, hexadecimal(&text[at + 1..])?))
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, 16).ok()
}

fn numbers(folder: &str) -> Vec<i32> {
    let mut numbers: Vec<i32> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comm_with_parentheses() {
        let task = parse_stat(b"12 (a) b (c)) S 1 12 12 0").unwrap();
        assert_eq!(task.comm, b"a) b (c)");
        assert_eq!((task.state, task.parent), (b'S', 1));
        assert_eq!(parse_stat(b"12 (a"), None);
        assert_eq!(parse_stat(b""), None);
    }

    #[test]
    fn files_of_a_process_are_read_to_their_end() {
        let own = |name: &str| format!("/proc/self/{name}");
        for name in ["cmdline", "stat", "cgroup"] {
            let read = read_file(&own(name), 1 << 20).map(|read| read.len());
            assert_eq!(read, Some(fs::read(own(name)).unwrap().len()), "{name}");
        }
        // More than is read at once, and a limit.
        let mut child = std::process::Command::new("sh");
        let words = (0..5000).map(|word| format!("word{word}"));
        let child = child.args(["-c", "read _; exit"]).args(words);
        let mut child = child.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let cmdline = format!("/proc/{}/cmdline", child.id());
        while read_file(&cmdline, 1 << 20).is_some_and(|read| !read.starts_with(b"sh\0")) {
            std::thread::yield_now();
        }
        let whole = fs::read(&cmdline).unwrap();
        assert!(whole.len() > 8 * PIECE_BYTES);
        let parts =
            [1 << 20, PIECE_BYTES, 10_000, 3].map(|most| read_file(&cmdline, most).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(parts[0], whole);
        for (part, most) in parts[1..].iter().zip([PIECE_BYTES, 10_000, 3]) {
            assert_eq!(part, &whole[..most]);
        }
        assert_eq!(read_file("/proc/self/none", 10), None);
    }

    #[test]
    fn threads_of_the_kernel_have_no_program() {
        let threads = kernel_threads();
        assert!(!threads.contains(&(std::process::id() as i32)));
        for tid in threads {
            let program = fs::read_link(format!("/proc/{tid}/exe"));
            assert!(program.is_err(), "{tid}: {program:?}");
        }
    }

    #[test]
    fn maps() {
        let text = b"7f00-8f00 r-xp 00002000 fd:0a 1234                       /usr/bin/a b\n\
            8f00-9f00 rw-s 00000000 00:00 0 \nnonsense\n";
        let maps: Vec<Map<'_>> = parse_maps(text).collect();
        assert_eq!(maps.len(), 2);
        assert_eq!(maps[0].path, b"/usr/bin/a b");
        assert_eq!(
            (maps[0].start, maps[0].end, maps[0].file_offset),
            (0x7f00, 0x8f00, 0x2000)
        );
        assert_eq!((maps[0].device, maps[0].inode), ((0xfd, 10), 1234));
        assert_eq!(
            maps[0].protection,
            (libc::PROT_READ | libc::PROT_EXEC) as u32
        );
        assert_eq!(
            (maps[1].path, maps[1].flags),
            (&b""[..], libc::MAP_SHARED as u32)
        );
    }
}
