//! Numbers of threads in formats whose processes and threads may have any ID.
//!
//! ```text
//! pid 7, tid 8                         8, as the kernel's
//! pid 7, tid "worker"                  1073741824, with the name "worker"
//! pid 7, tid 140634577741504           1073741825, with the name "140634577741504"
//! pid 9, tid 8                         1073741826, with the name "8": another thread than that of process 7
//! ```
//! The kernel's numbers end at 2^22. Calls are paired by the number, so each thread needs its own.

use std::borrow::Cow;

use hashbrown::{HashMap, HashSet};
use perfquet_events::Error;
use perfquet_events::event::{Comm, Event, Fact, Sink};

use crate::json::{integer, text};

/// The first number that is not the input's.
pub(crate) const FIRST: i32 = 1 << 30;
/// Maximum number of processes and threads with their own numbers.
const MAX: usize = 1 << 20;

/// An ID of the input.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Id<'a> {
    Missing,
    Number(i32),
    Other(Cow<'a, [u8]>),
}

impl<'a> Id<'a> {
    /// Of a JSON value.
    fn of(value: Option<&'a [u8]>) -> Id<'a> {
        let Some(value) = value else {
            return Id::Missing;
        };
        let number = integer(value).or_else(|| whole(value));
        match number.and_then(|number| i32::try_from(number).ok()) {
            Some(number) if number >= 0 => Id::Number(number),
            _ if matches!(value, b"null" | b"\"\"") => Id::Missing,
            _ => Id::Other(text(value)),
        }
    }
}

/// The value of `7.0`, which is the number 7 in JSON.
fn whole(value: &[u8]) -> Option<i64> {
    let number: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
    let is_whole = number.fract() == 0.0 && number.abs() < f64::from(i32::MAX);
    is_whole.then_some(number as i64)
}

/// The JSON of a process and of a thread.
type Written<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// A process and one of its threads.
type Identity<'a> = (Id<'a>, Id<'a>);

/// The processes and threads of an input. First, all are noted; then each has a number.
#[derive(Debug, Default)]
pub(crate) struct ThreadNumbers<'a> {
    /// The process whose thread has that number.
    owners: HashMap<i32, Id<'a>>,
    /// Those without a number of their own, in the order of their first events.
    others: Vec<Identity<'a>>,
    /// All numbers of the input: none of them is given to another.
    taken: HashSet<i32>,
    numbers: HashMap<Identity<'a>, Option<i32>>,
    /// The identity in the event before.
    last: Option<Written<'a>>,
}

impl<'a> ThreadNumbers<'a> {
    /// Notes the process and thread of an event, as JSON.
    pub(crate) fn note(&mut self, pid: Option<&'a [u8]>, tid: Option<&'a [u8]>) {
        if self.last == Some((pid, tid)) {
            return;
        }
        self.last = Some((pid, tid));
        let (pid, tid) = identity(pid, tid);
        for id in [&pid, &tid] {
            if let Id::Number(number) = id
                && self.taken.len() < MAX
            {
                self.taken.insert(*number);
            }
        }
        if matches!(pid, Id::Other(_)) {
            self.add((pid.clone(), Id::Missing));
        }
        match &tid {
            Id::Missing => {}
            Id::Other(_) => self.add((pid, tid)),
            Id::Number(number) => {
                let is_full = self.owners.len() >= MAX;
                match self.owners.get(number) {
                    None if !is_full => {
                        self.owners.insert(*number, pid);
                    }
                    Some(owner) if *owner == pid || pid == Id::Missing => {}
                    Some(Id::Missing) => {
                        self.owners.insert(*number, pid);
                    }
                    _ => self.add((pid, tid)),
                }
            }
        }
    }

    /// Notes the process and thread of a call. Calls without any are of one more thread: they nest.
    pub(crate) fn note_call(&mut self, pid: Option<&'a [u8]>, tid: Option<&'a [u8]>) {
        match identity(pid, tid) {
            NOBODY => self.add(NOBODY),
            _ => self.note(pid, tid),
        }
    }

    fn add(&mut self, identity: Identity<'a>) {
        if self.others.len() < MAX && !self.numbers.contains_key(&identity) {
            self.numbers.insert(identity.clone(), None);
            self.others.push(identity);
        }
    }

    /// Gives numbers to all that have none, and emits their IDs as names.
    pub(crate) fn emit(&mut self, format: &str, sink: &mut dyn Sink) -> Result<(), Error> {
        let mut next = FIRST;
        let others = std::mem::take(&mut self.others);
        for identity in &others {
            while self.taken.contains(&next) {
                next = next.saturating_add(1);
            }
            self.numbers.insert(identity.clone(), Some(next));
            next = next.saturating_add(1);
        }
        for identity in &others {
            let (pid, tid) = identity;
            let Some(number) = self.numbers.get(identity).copied().flatten() else {
                continue;
            };
            let is_process = *tid == Id::Missing;
            let name = match if is_process { pid } else { tid } {
                Id::Other(name) => name.to_vec(),
                Id::Number(number) => number.to_string().into_bytes(),
                Id::Missing => continue,
            };
            sink.event(Event::Comm(Comm {
                time: None,
                pid: if is_process {
                    Some(number)
                } else {
                    self.process(pid)
                },
                tid: number,
                comm: &name,
                exec: false,
            }))?;
        }
        if !others.is_empty() {
            let unnamed = match others.contains(&NOBODY) {
                true => "; one of them has the calls without an ID",
                false => "",
            };
            sink.event(Event::Fact(Fact::Other {
                name: &format!("{format}.threads_numbered"),
                value: &format!(
                    "{} from {FIRST} on: IDs that the kernel does not use, or that threads of two processes have{unnamed}",
                    others.len()
                ),
            }))?;
        }
        Ok(())
    }

    /// Whether a thread of that process has its own number. Without a process, it is that of any.
    fn is_own(&self, number: i32, pid: &Id<'a>) -> bool {
        let owner = self.owners.get(&number);
        *pid == Id::Missing || owner.is_none_or(|owner| owner == pid)
    }

    fn process(&self, pid: &Id<'a>) -> Option<i32> {
        match pid {
            Id::Missing => None,
            Id::Number(number) => Some(*number),
            Id::Other(_) => {
                let identity = (pid.clone(), Id::Missing);
                self.numbers.get(&identity).copied().flatten()
            }
        }
    }

    /// The numbers of a process and thread; `None` for what the event lacks.
    pub(crate) fn of(
        &self,
        pid: Option<&'a [u8]>,
        tid: Option<&'a [u8]>,
    ) -> (Option<i32>, Option<i32>) {
        let (pid, tid) = identity(pid, tid);
        let process = self.process(&pid);
        let thread = match &tid {
            Id::Missing => None,
            Id::Number(number) if self.is_own(*number, &pid) => Some(*number),
            _ => self.numbers.get(&(pid, tid)).copied().flatten(),
        };
        (process, thread)
    }

    /// The same of a call.
    pub(crate) fn of_call(
        &self,
        pid: Option<&'a [u8]>,
        tid: Option<&'a [u8]>,
    ) -> (Option<i32>, Option<i32>) {
        match identity(pid, tid) {
            NOBODY => (None, self.numbers.get(&NOBODY).copied().flatten()),
            _ => self.of(pid, tid),
        }
    }
}

/// Nobody is named.
const NOBODY: Identity<'static> = (Id::Missing, Id::Missing);

/// Some formats write the process only, for its first thread.
fn identity<'a>(pid: Option<&'a [u8]>, tid: Option<&'a [u8]>) -> Identity<'a> {
    let (pid, tid) = (Id::of(pid), Id::of(tid));
    match tid {
        Id::Missing => (pid.clone(), pid),
        tid => (pid, tid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Names(Vec<String>);

    impl Sink for Names {
        fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
            if let Event::Comm(comm) = event {
                let name = String::from_utf8_lossy(comm.comm);
                self.0.push(format!("{:?} {} {name}", comm.pid, comm.tid));
            }
            Ok(())
        }
    }

    #[test]
    fn each_thread_has_its_own_number() {
        let ids: [Written<'_>; 13] = [
            (None, Some(b"8")),
            (Some(b"7"), Some(b"8")),
            (Some(b"7"), Some(b"\"8\"")),
            (Some(b"7"), Some(b"8.0")),
            (Some(b"7"), Some(b"\"worker\"")),
            (Some(b"7"), Some(b"140634577741504")),
            (Some(b"9"), Some(b"8")),
            (Some(b"7"), Some(b"-1")),
            (Some(b"\"p\""), Some(b"\"worker\"")),
            (Some(b"7"), None),
            (None, None),
            (Some(b"1"), Some(b"1073741824")),
            (Some(b"7"), Some(b"1.5")),
        ];
        let mut numbers = ThreadNumbers::default();
        for (pid, tid) in ids {
            numbers.note(pid, tid);
        }
        let mut names = Names(Vec::new());
        numbers.emit("test", &mut names).unwrap();
        let found = ids.map(|(pid, tid)| numbers.of(pid, tid));
        let n = |number: i32| Some(FIRST + number);
        assert_eq!(
            found,
            [
                (None, Some(8)),
                (Some(7), Some(8)),
                (Some(7), Some(8)),
                (Some(7), Some(8)),
                (Some(7), n(1)),
                (Some(7), n(2)),
                (Some(9), n(3)),
                (Some(7), n(4)),
                (n(5), n(6)),
                (Some(7), Some(7)),
                (None, None),
                (Some(1), Some(FIRST)),
                (Some(7), n(7)),
            ]
        );
        assert_eq!(names.0[0], "Some(7) 1073741825 worker");
        assert_eq!(names.0[4], "Some(1073741829) 1073741829 p");
        assert_eq!(numbers.of_call(None, None), (None, None));
        let mut numbers = ThreadNumbers::default();
        numbers.note(Some(b"7"), None);
        numbers.note_call(None, Some(b"null"));
        numbers.emit("test", &mut Names(Vec::new())).unwrap();
        assert_eq!(numbers.of_call(None, None), (None, Some(FIRST)));
        assert_eq!(numbers.of(None, None), (None, None));
        assert_eq!(names.0[5], "Some(1073741829) 1073741830 worker");
    }
}
