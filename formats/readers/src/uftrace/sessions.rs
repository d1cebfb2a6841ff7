//! Programs, threads and mappings: `task.txt` and `sid-*.map`.
//!
//! ```text
//! SESS timestamp=859.259592500 pid=7121 sid=1230a36eb70b997e exename="/opt/demo/calls"      a program: again after exec
//! TASK timestamp=859.259873408 tid=7121 pid=7121
//! FORK timestamp=859.336100122 pid=7126 ppid=7121
//! DLOP timestamp=859.3 tid=7121 sid=1230a36eb70b997e base=7f1c2000 libname="/usr/lib/libz.so"
//! ```

use hashbrown::HashMap;

use crate::files::Files;
use crate::lines::{Lines, hexadecimal, quoted, signed, unsigned, words};

/// Lines of task.txt, and of all maps.
const LINES_MAX: usize = 1 << 20;
/// Ancestors searched for a program.
const ANCESTORS_MAX: usize = 64;

/// A mapped file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Map<'a> {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) file_offset: u64,
    pub(super) protection: u32,
    pub(super) path: &'a [u8],
    /// In hexadecimal digits; empty if unknown.
    pub(super) build_id: &'a [u8],
    /// From when it is mapped, for a library that was opened later.
    pub(super) since: u64,
}

/// A program that a process runs.
#[derive(Debug)]
pub(super) struct Session<'a> {
    pub(super) time: u64,
    pub(super) pid: i32,
    sid: &'a [u8],
    pub(super) program: &'a [u8],
    pub(super) maps: Vec<Map<'a>>,
    /// Not the first program of its process.
    pub(super) is_exec: bool,
}

/// What happens to threads, in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change<'a> {
    /// A program begins: its place in the list.
    Program(usize),
    Thread {
        tid: i32,
        pid: i32,
    },
    Process {
        pid: i32,
        parent: i32,
    },
    Library(i32, Map<'a>),
}

/// All programs and threads.
#[derive(Debug, Default)]
pub(super) struct Sessions<'a> {
    pub(super) all: Vec<Session<'a>>,
    pub(super) changes: Vec<(u64, Change<'a>)>,
    /// Places of the programs of a process, by time.
    by_pid: HashMap<i32, Vec<usize>>,
    /// Process of each thread.
    pids: HashMap<i32, i32>,
    /// Parent of each process, and when it was created.
    parents: HashMap<i32, (i32, u64)>,
    /// Lines that could not be read: number and what they are.
    pub(super) unreadable: Vec<(u64, String)>,
}

impl<'a> Sessions<'a> {
    pub(super) fn of(files: &'a Files, folder: &str) -> Sessions<'a> {
        let mut sessions = Sessions::default();
        let by_name: HashMap<&str, usize> = (0..files.len())
            .filter_map(|file| Some((files.name(file).strip_prefix(folder)?, file)))
            .collect();
        let Some(&tasks) = by_name.get("task.txt") else {
            return sessions;
        };
        for line in Lines::of(files.bytes(tasks)).take(LINES_MAX) {
            if sessions.line(line.text).is_none() && !line.text.trim_ascii().is_empty() {
                sessions.unreadable.push((line.number, quoted(line.text)));
            }
        }
        sessions.changes.sort_by_key(|(time, _)| *time);
        let mut left = LINES_MAX;
        for session in &mut sessions.all {
            let name = format!("sid-{}.map", String::from_utf8_lossy(session.sid));
            if let Some(&file) = by_name.get(name.as_str()) {
                maps(files.bytes(file), &mut session.maps, &mut left);
            }
        }
        for list in sessions.by_pid.values_mut() {
            list.sort_by_key(|&place| sessions.all.get(place).map_or(0, |session| session.time));
            for &place in list.iter().skip(1) {
                if let Some(session) = sessions.all.get_mut(place) {
                    session.is_exec = true;
                }
            }
        }
        sessions.libraries();
        sessions
    }

    /// Reads a line of task.txt.
    fn line(&mut self, line: &'a [u8]) -> Option<()> {
        let value = |name: &str| {
            let mut words = words(line);
            words.find_map(|word| word.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        };
        let id = |name: &str| i32::try_from(signed(value(name)?)?).ok();
        let time = nanoseconds(value("timestamp")?)?;
        match line.get(..4)? {
            b"SESS" => {
                let place = self.all.len();
                let pid = id("pid").or(id("tid"))?;
                self.all.push(Session {
                    time,
                    pid,
                    sid: value("sid")?,
                    program: in_quotes(line, b"exename=\"")?,
                    maps: Vec::new(),
                    is_exec: false,
                });
                self.by_pid.entry(pid).or_default().push(place);
                self.pids.entry(pid).or_insert(pid);
                self.changes.push((time, Change::Program(place)));
            }
            b"TASK" => {
                let (tid, pid) = (id("tid")?, id("pid")?);
                self.pids.insert(tid, pid);
                self.changes.push((time, Change::Thread { tid, pid }));
            }
            b"FORK" => {
                let (pid, parent) = (id("pid")?, id("ppid")?);
                self.pids.insert(pid, pid);
                self.parents.insert(pid, (parent, time));
                self.changes.push((time, Change::Process { pid, parent }));
            }
            b"DLOP" => {
                let sid = value("sid")?;
                let session = self.all.iter().rev().find(|session| session.sid == sid)?;
                let start = hexadecimal(value("base")?)?;
                let map = Map {
                    start,
                    end: start,
                    file_offset: 0,
                    protection: 5,
                    path: in_quotes(line, b"libname=\"")?,
                    build_id: b"",
                    since: time,
                };
                self.changes.push((time, Change::Library(session.pid, map)));
            }
            _ => return None,
        }
        Some(())
    }

    /// Adds libraries that were opened later to the programs. Where they end is not recorded: at the next mapping.
    fn libraries(&mut self) {
        for place in 0..self.changes.len() {
            let Some(&(time, Change::Library(pid, mut map))) = self.changes.get(place) else {
                continue;
            };
            let Some(session) = self.program(pid, time).and_then(|at| self.all.get_mut(at)) else {
                continue;
            };
            let known = session.maps.iter().map(|other| other.start);
            let next = known.filter(|start| *start > map.start).min();
            map.end = next.unwrap_or(u64::MAX);
            session.maps.push(map);
            session.maps.sort_by_key(|map| map.start);
            if let Some(change) = self.changes.get_mut(place) {
                change.1 = Change::Library(pid, map);
            }
        }
    }

    pub(super) fn pid(&self, tid: i32) -> Option<i32> {
        self.pids.get(&tid).copied()
    }

    /// The program that a thread runs at a time.
    pub(super) fn program(&self, tid: i32, time: u64) -> Option<usize> {
        let mut pid = self.pid(tid)?;
        let mut time = time;
        for _ in 0..ANCESTORS_MAX {
            if let Some(list) = self.by_pid.get(&pid) {
                let begun = |&place: &usize| {
                    let session = self.all.get(place);
                    session.is_some_and(|session| session.time <= time)
                };
                let after = list.partition_point(begun);
                // A record may be a little older than the line of its program.
                let is_forked = self.parents.contains_key(&pid);
                let place = match after.checked_sub(1) {
                    None if !is_forked => Some(0),
                    place => place,
                };
                if let Some(place) = place {
                    return list.get(place).copied();
                }
            }
            // A forked child runs that of its parent.
            let &(parent, forked) = self.parents.get(&pid)?;
            pid = self.pid(parent).unwrap_or(parent);
            time = time.min(forked);
        }
        None
    }

    /// When the next program of a process begins.
    pub(super) fn next_program(&self, tid: i32, time: u64) -> u64 {
        let list = self.pid(tid).and_then(|pid| self.by_pid.get(&pid));
        let times = list.into_iter().flatten();
        let times = times.filter_map(|&place| Some(self.all.get(place)?.time));
        times.filter(|next| *next > time).min().unwrap_or(u64::MAX)
    }
}

impl<'a> Session<'a> {
    /// The mapping of an address at a time.
    pub(super) fn map(&self, address: u64, time: u64) -> Option<&Map<'a>> {
        let after = self.maps.partition_point(|map| map.start <= address);
        let before = self.maps.get(..after)?;
        let mut maps = before.iter().rev().take(8);
        maps.find(|map| address < map.end && map.since <= time)
    }
}

/// `/proc/PID/maps`, whose lines of one file follow each other.
fn maps<'a>(file: &'a [u8], maps: &mut Vec<Map<'a>>, left: &mut usize) {
    for line in Lines::of(file) {
        if *left == 0 {
            break;
        }
        *left -= 1;
        let Some(map) = parse_map(line.text) else {
            continue;
        };
        match maps.last_mut().filter(|last| last.path == map.path) {
            Some(last) => last.end = last.end.max(map.end),
            None => maps.push(map),
        }
    }
    maps.sort_by_key(|map| map.start);
}

fn parse_map(line: &[u8]) -> Option<Map<'_>> {
    let mut words = words(line);
    let range = words.next()?;
    let dash = memchr::memchr(b'-', range)?;
    let flags = words.next()?;
    let file_offset = hexadecimal(words.next()?)?;
    let bit = |letter, value| if flags.contains(&letter) { value } else { 0 };
    // Device and inode are not recorded.
    let (_, _) = (words.next()?, words.next()?);
    let start = memchr::memmem::find(line, b" /").or(memchr::memmem::find(line, b" ["))? + 1;
    let path = line.get(start..)?;
    let (path, build_id) = match memchr::memmem::rfind(path, b" build-id:") {
        Some(at) => (path.get(..at)?, path.get(at + 10..)?),
        None => (path, &b""[..]),
    };
    Some(Map {
        start: hexadecimal(range.get(..dash)?)?,
        end: hexadecimal(range.get(dash + 1..)?)?,
        file_offset,
        protection: bit(b'r', 1) | bit(b'w', 2) | bit(b'x', 4),
        path: path.trim_ascii_end(),
        build_id: build_id.trim_ascii(),
        since: 0,
    })
}

/// The text between a beginning and the last quote of a line.
fn in_quotes<'a>(line: &'a [u8], before: &[u8]) -> Option<&'a [u8]> {
    let start = memchr::memmem::find(line, before)? + before.len();
    let rest = line.get(start..)?;
    let end = memchr::memrchr(b'"', rest).unwrap_or(rest.len());
    rest.get(..end)
}

/// `518.466316475`
pub(super) fn nanoseconds(text: &[u8]) -> Option<u64> {
    let dot = memchr::memchr(b'.', text)?;
    let (seconds, decimals) = (text.get(..dot)?, text.get(dot + 1..)?);
    if decimals.len() > 9 {
        return None;
    }
    let missing = 9 - u32::try_from(decimals.len()).ok()?;
    let decimals = unsigned(decimals)? * 10_u64.pow(missing);
    unsigned(seconds)?
        .checked_mul(1_000_000_000)?
        .checked_add(decimals)
}
