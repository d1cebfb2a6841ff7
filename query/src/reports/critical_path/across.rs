//! The critical path over several traces: a wait for a message of another trace is the path of its sender.
//!
//! ```text
//! a   T  ██ sleeps in a receive call ─────────── ██
//! b   W        ████ sends                             the path of a until then is that of W, and then that of the message
//! →      T     W (of b)       in flight           T
//! ```
//! The wait stays on the path where the sender is not certain, with what is known of it.

use std::collections::HashMap;

use anyhow::{Result, bail};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{Int32Type, Int64Type};

use perfquet::failure::Misuse;
use perfquet::stacks::strings;
use perfquet::unit::in_fitting_unit;
use perfquet::{Session, Trace};

use super::messages::{Addresses, Connections, NEEDED, Origin, Received, Wait};

/// Maximum number of threads that wait for one another.
const DEEPEST: i32 = 64;

/// A part of the path, on the timeline.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) depth: i32,
    /// Number of the trace.
    pub(super) trace: usize,
    pub(super) tid: i32,
    pub(super) comm: Option<String>,
    pub(super) state: Option<String>,
    pub(super) why: Option<String>,
    pub(super) waker_comm: Option<String>,
    waker_context: Option<String>,
    pub(super) interrupt: Option<String>,
}

/// The state of a message on its way.
const IN_FLIGHT: &str = "in flight";

struct Side<'s> {
    trace: &'s Trace,
    session: Session,
    connections: Connections,
    /// Parts of the path of each thread over the whole recording.
    paths: HashMap<i32, Vec<Part>>,
    /// Begins of the sleeps of each thread.
    sleeps: HashMap<i32, Vec<i64>>,
    /// Of each thread that received something: its sleeps that ended in a receive call of one connection.
    waits: HashMap<i32, Vec<(Wait, Addresses)>>,
}

/// The traces that a path leads through.
pub(super) struct Across<'s> {
    sides: Vec<Side<'s>>,
}

impl<'s> Across<'s> {
    pub(super) fn open(session: &'s Session) -> Result<Across<'s>> {
        let mut sides = Vec::new();
        for trace in session.traces() {
            if trace.placement.is_none() {
                bail!(Misuse(format!(
                    "{}: how its clock relates to that of {} is not known\nhint: align them with: perfquet-query align",
                    trace.name,
                    session.traces()[0].name
                )));
            }
            let alone = session.alone_on_timeline(trace)?;
            let connections = Connections::read(&alone)?;
            if connections.ends.is_empty() {
                log::warn!(
                    "{}: no messages of connections: the path does not lead to or from it\nhint: record with -e {NEEDED}",
                    trace.name
                );
            }
            sides.push(Side {
                trace,
                session: alone,
                connections,
                paths: HashMap::new(),
                sleeps: HashMap::new(),
                waits: HashMap::new(),
            });
        }
        Ok(Across { sides })
    }

    /// The session of one trace.
    pub(super) fn session(&self, trace: usize) -> &Session {
        &self.sides[trace].session
    }

    /// The path of a thread between two times of the timeline, in order.
    pub(super) fn path(&mut self, trace: usize, tid: i32, range: (i64, i64)) -> Result<Vec<Part>> {
        let mut parts = Vec::new();
        self.follow(trace, tid, range, 0, &mut parts)?;
        Ok(parts)
    }

    fn follow(
        &mut self,
        trace: usize,
        tid: i32,
        (from, to): (i64, i64),
        depth: i32,
        parts: &mut Vec<Part>,
    ) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        self.load(trace, tid)?;
        let own = &self.sides[trace].paths[&tid];
        let first = own.partition_point(|part| part.end <= from);
        let own: Vec<Part> = own[first..]
            .iter()
            .take_while(|part| part.begin < to)
            .cloned()
            .collect();
        // What the recording of the other trace does not cover.
        let unknown = |begin: i64, end: i64| Part {
            begin,
            end,
            depth,
            trace,
            tid,
            comm: None,
            state: None,
            why: None,
            waker_comm: None,
            waker_context: None,
            interrupt: None,
        };
        let mut time = from;
        for part in own {
            let (begin, end) = (part.begin.max(time), part.end.min(to));
            if begin > time {
                parts.push(unknown(time, begin));
            }
            self.part(part, (begin, end), depth, parts)?;
            time = end;
        }
        if time < to {
            parts.push(unknown(time, to));
        }
        Ok(())
    }

    /// Adds a part of a thread's path, or that of the thread whose message it waits for.
    fn part(
        &mut self,
        part: Part,
        (begin, end): (i64, i64),
        depth: i32,
        parts: &mut Vec<Part>,
    ) -> Result<()> {
        let woken = part.end;
        let mut own = Part {
            begin,
            end,
            depth: part.depth.saturating_add(depth),
            ..part
        };
        let found = match self.is_wait(&own) {
            true => self.sender(own.trace, own.tid, woken)?,
            false => None,
        };
        let Some(found) = found else {
            parts.push(own);
            return Ok(());
        };
        match found {
            Sender::Known {
                trace,
                tid,
                time,
                about,
            } if own.depth < DEEPEST => {
                // The wake-up is in the send call, which may return later.
                let sent = time.clamp(begin, end);
                self.follow(trace, tid, (begin, sent), own.depth + 1, parts)?;
                own.begin = sent;
                own.state = Some(IN_FLIGHT.to_owned());
                own.why = Some(about);
            }
            Sender::Known { about, .. } | Sender::Unknown { about } => own.why = Some(about),
        }
        if own.begin < own.end {
            parts.push(own);
        }
        Ok(())
    }

    /// Whether a thread sleeps, and no thread of its trace wakes it.
    fn is_wait(&self, part: &Part) -> bool {
        let state = part.state.as_deref();
        let is_timer = |name: &str| name.to_ascii_lowercase().contains("timer");
        matches!(state, Some("interruptible" | "uninterruptible"))
            && part.waker_context.as_deref() != Some("task")
            && !part.interrupt.as_deref().is_some_and(is_timer)
    }

    /// Who sent the message that ended a wait; `None` if it was none.
    fn sender(&mut self, trace: usize, tid: i32, woken: i64) -> Result<Option<Sender>> {
        self.sides[trace].read_sleeps(tid)?;
        let own = &self.sides[trace];
        let mut all = own.received(tid, woken);
        if all.len() > 1 {
            let from: Vec<&str> = all.iter().map(|one| one.addresses.1.as_str()).collect();
            let about = format!("message from one of {}", from.join(", "));
            return Ok(Some(Sender::Unknown { about }));
        }
        let Some(received) = all.pop() else {
            return Ok(None);
        };
        let (here, there) = &received.addresses;
        let other_end = (there.clone(), here.clone());
        let waits: Vec<Wait> = own
            .waits
            .values()
            .flatten()
            .filter(|(_, addresses)| *addresses == received.addresses)
            .map(|(wait, _)| *wait)
            .collect();
        for (number, other) in self.sides.iter().enumerate() {
            let Some(end) = other.connections.ends.get(&other_end) else {
                continue;
            };
            let name = &other.trace.name;
            let errors = [own, other].map(|side| side.trace.placement.and_then(|at| at.error));
            let [Some(one), Some(two)] = errors else {
                let about = format!(
                    "message from {there} in {name}; the error of the alignment is not known"
                );
                return Ok(Some(Sender::Unknown { about }));
            };
            let error = one.saturating_add(two);
            let is_one_host = ["host", "clock.boot_id"].iter().all(|fact| {
                own.trace.fact(fact).is_some() && own.trace.fact(fact) == other.trace.fact(fact)
            });
            let origin = own
                .connections
                .origin(&received, end, &waits, error, is_one_host);
            return Ok(Some(match origin {
                Origin::Sent(send) => Sender::Known {
                    trace: number,
                    tid: send.tid,
                    time: send.time,
                    about: format!("message from {there}"),
                },
                Origin::Unrecorded => Sender::Unknown {
                    about: format!(
                        "message from {there} in {name}, sent while it was not recorded"
                    ),
                },
                Origin::OneOf(tids) => {
                    let tids: Vec<String> = tids.iter().map(ToString::to_string).collect();
                    Sender::Unknown {
                        about: format!(
                            "message from {there} in {name}, by a send that is not certain: of {}",
                            tids.join(", ")
                        ),
                    }
                }
            }));
        }
        Ok(Some(Sender::Unknown {
            about: format!("message from {there}, whose end no trace has"),
        }))
    }

    /// Reads the path of a thread.
    fn load(&mut self, trace: usize, tid: i32) -> Result<()> {
        let side = &mut self.sides[trace];
        if side.paths.contains_key(&tid) {
            return Ok(());
        }
        let path = side.read_path(trace, tid)?;
        side.paths.insert(tid, path);
        Ok(())
    }
}

enum Sender {
    Known {
        trace: usize,
        tid: i32,
        time: i64,
        about: String,
    },
    Unknown {
        about: String,
    },
}

impl Side<'_> {
    /// What ended a wait of a thread, if that were messages: a receive call of each connection.
    fn received(&self, tid: i32, woken: i64) -> Vec<Received> {
        let sleeps = self.sleeps.get(&tid).map_or(&[][..], Vec::as_slice);
        let next = sleeps.get(sleeps.partition_point(|&begin| begin < woken));
        self.connections.received_after(tid, woken, next.copied())
    }

    fn read_path(&self, trace: usize, tid: i32) -> Result<Vec<Part>> {
        let sql = format!(
            "SELECT aligned(time) AS time, aligned(time + duration) AS until, CAST(depth AS INT) AS depth, CAST(tid AS INT) AS tid, comm, state, why, \
             waker_comm, waker_context, interrupt FROM critical_path({tid}, NULL, NULL) ORDER BY 1"
        );
        let mut parts = Vec::new();
        let mut answer = self.session.query(&sql)?;
        while let Some(batch) = answer.next_batch()? {
            let time = |column: usize| batch.column(column).as_primitive::<Int64Type>();
            let id = |column: usize| batch.column(column).as_primitive::<Int32Type>();
            let (begins, ends, depths, tids) = (time(0), time(1), id(2), id(3));
            let texts: Result<Vec<_>> = (4..10)
                .map(|column| strings(batch.column(column)))
                .collect();
            let texts = texts?;
            for row in 0..batch.num_rows() {
                let text = |column: usize| {
                    let texts = &texts[column];
                    texts.is_valid(row).then(|| texts.value(row).to_owned())
                };
                parts.push(Part {
                    begin: begins.value(row),
                    end: ends.value(row),
                    depth: depths.value(row),
                    trace,
                    tid: tids.value(row),
                    comm: text(0),
                    state: text(1),
                    why: text(2),
                    waker_comm: text(3),
                    waker_context: text(4),
                    interrupt: text(5),
                });
            }
        }
        Ok(parts)
    }

    /// Reads the sleeps of a thread, and which receive calls ended them.
    fn read_sleeps(&mut self, tid: i32) -> Result<()> {
        if self.sleeps.contains_key(&tid) {
            return Ok(());
        }
        if !self.connections.has_thread(tid) {
            self.sleeps.insert(tid, Vec::new());
            return Ok(());
        }
        let sql = format!(
            "SELECT aligned(time) AS time, aligned(time + duration) AS until FROM thread_states \
             WHERE tid = {tid} AND state IN ('interruptible', 'uninterruptible') AND duration IS NOT NULL ORDER BY 1"
        );
        let mut sleeps: Vec<(i64, i64)> = Vec::new();
        for batch in self.session.collect(&sql)? {
            let time = |column: usize| batch.column(column).as_primitive::<Int64Type>();
            let (begins, ends) = (time(0), time(1));
            sleeps.extend(
                begins
                    .values()
                    .iter()
                    .copied()
                    .zip(ends.values().iter().copied()),
            );
        }
        let begins = sleeps.iter().map(|sleep| sleep.0).collect();
        self.sleeps.insert(tid, begins);
        let waits = sleeps.into_iter().filter_map(|(begin, end)| {
            let mut received = self.received(tid, end);
            let only = received.pop().filter(|_| received.is_empty())?;
            let place = only.place();
            Some((Wait { begin, end, place }, only.addresses))
        });
        let waits = waits.collect();
        self.waits.insert(tid, waits);
        Ok(())
    }
}

/// Notes how exact the borders between traces are.
pub(super) fn note_errors(traces: &[Trace]) {
    for trace in &traces[1..] {
        match trace.placement.and_then(|placement| placement.error) {
            Some(0) => {}
            Some(error) => log::warn!(
                "{}: borders of its parts may be wrong by {}, the error of the alignment",
                trace.name,
                in_fitting_unit(error as f64)
            ),
            None => log::warn!("{}: the error of its alignment is not known", trace.name),
        }
    }
}
