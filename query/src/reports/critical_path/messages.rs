//! Messages between two recorded processes: which send call a thread waited for.
//!
//! ```text
//! a   send ── sleeps ─────────────── recv 32 bytes     bytes 65 to 96 of the connection
//! b        recv ── runs ── send 32                     bytes 65 to 96: this one
//! ```
//! A connection is that of another trace if both have the same addresses and ports, the other way around. Which send a byte is of
//! follows from the sums of bytes: they start with an unknown difference, since a recording may begin later than the connection. The
//! difference is known at an *anchor*: a thread sleeps in a receive call, so nothing is buffered, and the other end has not sent anything
//! for longer than the network takes, before the sleep began or while it lasted: a message under way would have ended it.

use std::collections::HashMap;
use std::net::Ipv6Addr;

use anyhow::Result;
use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type, Int64Type};

use perfquet::Session;
use perfquet::stacks::strings;

/// Nanoseconds within which a host delivers what one of its processes sends to another.
const LOCAL: i64 = 1_000_000;
/// The same, between hosts.
const REMOTE: i64 = 1_000_000_000;

const SENDS: &str = "events/sock/sock_send_length";
const RECEIVES: &str = "events/sock/sock_recv_length";
const PORTS: [(&str, &str); 2] = [
    (
        "events/tcp/tcp_rcv_space_adjust",
        "tcp.tcp_rcv_space_adjust",
    ),
    (
        "events/sock/inet_sock_set_state",
        "sock.inet_sock_set_state",
    ),
];

/// The events that tell who sends what to whom.
pub(super) const NEEDED: &str =
    "sock:sock_send_length,sock:sock_recv_length,tcp:tcp_rcv_space_adjust";

/// A send or receive call that transferred bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Transfer {
    /// Its end, on the timeline.
    pub(super) time: i64,
    pub(super) tid: i32,
    pub(super) bytes: i64,
    /// Of the connection in this direction, before it.
    before: i64,
}

/// One end of a connection.
#[derive(Debug, Default)]
pub(super) struct End {
    pub(super) sends: Vec<Transfer>,
    receives: Vec<Transfer>,
}

/// The own and the other address of a connection: `127.0.0.1:80`.
pub(super) type Addresses = (String, String);

/// What a thread does with sockets, in the order of time.
#[derive(Debug, Clone)]
struct Step {
    time: i64,
    /// Index in the receives of the end; `None` if it is a send.
    received: Option<usize>,
    end: Option<Addresses>,
}

/// The connections of a trace.
#[derive(Debug, Default)]
pub(super) struct Connections {
    pub(super) ends: HashMap<Addresses, End>,
    steps: HashMap<i32, Vec<Step>>,
}

/// A sleep that ended in a receive call: begin and end, and index of the call in the receives of the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) begin: i64,
    pub(super) end: i64,
    pub(super) place: usize,
}

/// A receive call after a wait.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) addresses: Addresses,
    place: usize,
}

/// Where the message comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    /// By this call.
    Sent(Transfer),
    /// By a call that was not recorded: before the recording began, or after it ended.
    Unrecorded,
    /// By one of the threads that used this end: the sums of bytes have no anchor, or contradict each other.
    OneOf(Vec<i32>),
}

impl Connections {
    /// Reads those of a trace that is open alone; none if their events were not recorded.
    pub(super) fn read(session: &Session) -> Result<Connections> {
        let mut found = Connections::default();
        if !session.has_rows(SENDS) || !session.has_rows(RECEIVES) {
            return Ok(found);
        }
        let addresses = addresses(session)?;
        let sql = "SELECT aligned(time) AS time, CAST(tid AS INT) AS tid, CAST(sk AS TEXT) AS sk, CAST(ret AS BIGINT) AS ret, is_send FROM (\
                   SELECT time, tid, sk, ret, true AS is_send FROM sock.sock_send_length WHERE ret > 0 \
                   UNION ALL SELECT time, tid, sk, ret, false AS is_send FROM sock.sock_recv_length WHERE ret > 0 AND flags & 2 = 0) \
                   WHERE tid IS NOT NULL AND time IS NOT NULL ORDER BY time";
        let mut answer = session.query(sql)?;
        while let Some(batch) = answer.next_batch()? {
            let number = |column: usize| batch.column(column).as_primitive::<Int64Type>();
            let (times, bytes) = (number(0), number(3));
            let tids = batch.column(1).as_primitive::<Int32Type>();
            let sockets = strings(&cast(batch.column(2), &DataType::Utf8View)?)?;
            let is_send = batch.column(4).as_boolean();
            for row in 0..batch.num_rows() {
                let end = addresses.get(sockets.value(row)).and_then(Option::as_ref);
                found.add(
                    times.value(row),
                    tids.value(row),
                    bytes.value(row),
                    is_send.value(row),
                    end,
                );
            }
        }
        Ok(found)
    }

    fn add(&mut self, time: i64, tid: i32, bytes: i64, is_send: bool, end: Option<&Addresses>) {
        let mut received = None;
        if let Some(addresses) = end {
            let end = self.ends.entry(addresses.clone()).or_default();
            let all = match is_send {
                true => &mut end.sends,
                false => &mut end.receives,
            };
            let before = all.last().map_or(0, |last| last.before + last.bytes);
            received = (!is_send).then_some(all.len());
            all.push(Transfer {
                time,
                tid,
                bytes,
                before,
            });
        }
        self.steps.entry(tid).or_default().push(Step {
            time,
            received,
            end: end.cloned(),
        });
    }

    /// What a thread receives after a wait that ended at `woken` and before it sleeps again, by connection: first that with which it
    /// begins. Nothing if it begins with something else.
    pub(super) fn received_after(
        &self,
        tid: i32,
        woken: i64,
        sleeps: Option<i64>,
    ) -> Vec<Received> {
        let steps = self.steps.get(&tid).map_or(&[][..], Vec::as_slice);
        let steps = &steps[steps.partition_point(|step| step.time < woken)..];
        let awake = steps
            .iter()
            .take_while(|step| sleeps.is_none_or(|sleeps| step.time <= sleeps));
        let mut found: Vec<Received> = Vec::new();
        for (number, step) in awake.enumerate() {
            let received = step.received.zip(step.end.clone());
            match received {
                Some((place, addresses))
                    if !found.iter().any(|known| known.addresses == addresses) =>
                {
                    found.push(Received { addresses, place });
                }
                None if number == 0 => break,
                Some(_) | None => {}
            }
        }
        found
    }

    /// Whether a thread sends or receives anything.
    pub(super) fn has_thread(&self, tid: i32) -> bool {
        self.steps.contains_key(&tid)
    }

    /// Finds the send call of another trace whose first byte is that of a receive call here. `waits` are the sleeps of this trace that
    /// ended in a receive call on the connection. `error` is that of the alignment of the two.
    pub(super) fn origin(
        &self,
        received: &Received,
        other: &End,
        waits: &[Wait],
        error: i64,
        is_one_host: bool,
    ) -> Origin {
        let Some(end) = self.ends.get(&received.addresses) else {
            return Origin::Unrecorded;
        };
        let threads = || {
            let mut tids: Vec<i32> = other.sends.iter().map(|send| send.tid).collect();
            tids.sort_unstable();
            tids.dedup();
            Origin::OneOf(tids)
        };
        let quiet = if is_one_host { LOCAL } else { REMOTE };
        let quiet = quiet.saturating_add(error);
        // The end of a sleep may be known only by the next time that the thread runs, which is later.
        let asleep = error.clamp(0, i64::MAX / 4) + REMOTE;
        let mut known: Option<i64> = None;
        for wait in waits {
            let Some(receive) = end.receives.get(wait.place) else {
                continue;
            };
            // Of a long sleep, what was sent long before its end had been received before: it would have ended it. The call that sent it may
            // have returned during the sleep.
            let is_long = wait.end.saturating_sub(wait.begin) >= 2 * asleep;
            let until = match is_long {
                true => wait.end - asleep,
                false => wait.begin,
            };
            let sent = other.sends.partition_point(|send| send.time <= until);
            // A long send call may have been delivered in part before it returned: then more is sent than is received here.
            let is_whole = other
                .sends
                .get(sent)
                .is_some_and(|next| next.bytes <= receive.bytes);
            if !is_whole {
                continue;
            }
            let last = sent.checked_sub(1).and_then(|last| other.sends.get(last));
            let nothing_is_under_way =
                |last: &&Transfer| is_long || last.time.saturating_add(quiet) <= wait.begin;
            let Some(last) = last.filter(nothing_is_under_way) else {
                continue;
            };
            let difference = last.before + last.bytes - receive.before;
            match known {
                None => known = Some(difference),
                Some(known) if known == difference => {}
                Some(_) => return threads(),
            }
        }
        let (Some(difference), Some(receive)) = (known, end.receives.get(received.place)) else {
            return threads();
        };
        let byte = receive.before + difference;
        let after = other
            .sends
            .partition_point(|send| send.before + send.bytes <= byte);
        match other.sends.get(after).filter(|send| send.before <= byte) {
            // A message is not received before it is sent; its call may return a little later.
            Some(send) if send.time <= receive.time.saturating_add(quiet) => Origin::Sent(*send),
            Some(_) => threads(),
            None => Origin::Unrecorded,
        }
    }
}

impl Received {
    /// Index of the receive call of its end.
    pub(super) fn place(&self) -> usize {
        self.place
    }
}

/// The addresses of each socket, by the address of the kernel's struct; `None` if it was that of several connections.
fn addresses(session: &Session) -> Result<HashMap<String, Option<Addresses>>> {
    let mut found: HashMap<String, Option<Addresses>> = HashMap::new();
    for (table, name) in PORTS {
        if !session.has_rows(table) {
            continue;
        }
        let sql = format!(
            "SELECT DISTINCT CAST(skaddr AS TEXT), encode(saddr_v6, 'hex'), CAST(sport AS TEXT), encode(daddr_v6, 'hex'), CAST(dport AS TEXT) FROM {name} \
             WHERE sport <> 0 AND dport <> 0"
        );
        for batch in session.collect(&sql)? {
            let text = |column: usize| strings(&cast(batch.column(column), &DataType::Utf8View)?);
            let texts = [text(0)?, text(1)?, text(2)?, text(3)?, text(4)?];
            for row in 0..batch.num_rows() {
                if texts.iter().any(|text| text.is_null(row)) {
                    continue;
                }
                let [socket, from, from_port, to, to_port] =
                    texts.each_ref().map(|text| text.value(row));
                let addresses = (address(from, from_port), address(to, to_port));
                found
                    .entry(socket.to_owned())
                    .and_modify(|known| {
                        if known.as_ref() != Some(&addresses) {
                            *known = None;
                        }
                    })
                    .or_insert(Some(addresses));
            }
        }
    }
    Ok(found)
}

/// An address with its port, from the hexadecimal digits of the 16 bytes that the kernel recorded, or of a text.
fn address(digits: &str, port: &str) -> String {
    let byte = |place: usize| u8::from_str_radix(digits.get(place..place + 2)?, 16).ok();
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map_while(byte).collect();
    let Ok(address) = <[u8; 16]>::try_from(bytes.as_slice()) else {
        return format!("{}:{port}", String::from_utf8_lossy(&bytes));
    };
    let address = Ipv6Addr::from(address);
    match address.to_ipv4_mapped() {
        Some(address) => format!("{address}:{port}"),
        None => format!("[{address}]:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(own: &str, other: &str) -> Addresses {
        (own.to_owned(), other.to_owned())
    }

    fn wait(begin: i64, end: i64, place: usize) -> Wait {
        Wait { begin, end, place }
    }

    /// `a` receives what `b` sends: three messages of 10 bytes, each 5 us later; the recording of `b` began two messages earlier.
    fn two() -> (Connections, Connections) {
        let (mut a, mut b) = (Connections::default(), Connections::default());
        let own = end("a:1", "b:2");
        let other = end("b:2", "a:1");
        for number in 0..5 {
            let time = number * 10_000_000;
            b.add(time, 20 + (number % 2) as i32, 10, true, Some(&other));
            if number >= 2 {
                a.add(time + 5_000, 10, 10, false, Some(&own));
            }
        }
        (a, b)
    }

    #[test]
    fn bytes_tell_which_call_sent_them() {
        let (a, b) = two();
        let other = &b.ends[&end("b:2", "a:1")];
        let received = a.received_after(10, 30_000_000, None).remove(0);
        assert_eq!(received.place, 1);
        // The wait for the second message began 4 ms after the first was received.
        let origin = a.origin(
            &received,
            other,
            &[wait(24_000_000, 30_000_000, 1)],
            100,
            true,
        );
        assert!(
            matches!(
                origin,
                Origin::Sent(Transfer {
                    time: 30_000_000,
                    tid: 21,
                    ..
                })
            ),
            "{origin:?}"
        );
        // Its begin is within what a message may take.
        let origin = a.origin(
            &received,
            other,
            &[wait(20_500_000, 30_000_000, 1)],
            100,
            true,
        );
        assert_eq!(origin, Origin::OneOf(vec![20, 21]));
        let origin = a.origin(
            &received,
            other,
            &[wait(24_000_000, 30_000_000, 1)],
            100,
            false,
        );
        assert_eq!(origin, Origin::OneOf(vec![20, 21]));
        // Anchors that contradict each other.
        let origin = a.origin(
            &received,
            other,
            &[
                wait(24_000_000, 30_000_000, 1),
                wait(24_000_000, 30_000_000, 2),
            ],
            100,
            true,
        );
        assert_eq!(origin, Origin::OneOf(vec![20, 21]));
    }

    /// A server on another host sleeps at once after each answer: its client pauses for longer than the network takes.
    #[test]
    fn a_sleep_that_no_message_ends_is_an_anchor() {
        let (mut a, mut b) = two();
        let (own, other) = (end("a:1", "b:2"), end("b:2", "a:1"));
        b.add(3_000_000_000, 21, 10, true, Some(&other));
        a.add(3_000_005_000, 10, 10, false, Some(&own));
        let received = a.received_after(10, 3_000_000_000, None).remove(0);
        let origin = |begin, until, error| {
            let waits = [wait(begin, until, received.place)];
            a.origin(&received, &b.ends[&other], &waits, error, false)
        };
        let is_sent = |origin| {
            matches!(
                origin,
                Origin::Sent(Transfer {
                    time: 3_000_000_000,
                    ..
                })
            )
        };
        assert!(is_sent(origin(40_006_000, 3_000_004_000, 1_000)));
        // Before the call returned that sent the last message.
        assert!(is_sent(origin(39_996_000, 3_000_004_000, 1_000)));
        // The sleep ends while the last message may be under way.
        let unknown = Origin::OneOf(vec![20, 21]);
        assert_eq!(origin(40_006_000, 1_000_000_000, 1_000), unknown);
        // Whether the next message was sent before the sleep is not certain.
        assert_eq!(origin(40_006_000, 3_000_004_000, 2_970_000_000), unknown);
    }

    #[test]
    fn what_follows_a_send_or_another_sleep_is_no_answer() {
        let (mut a, _) = two();
        assert!(
            a.received_after(10, 30_000_000, Some(30_001_000))
                .is_empty()
        );
        assert!(a.received_after(10, 50_000_000, None).is_empty());
        a.add(60_000_000, 10, 5, true, Some(&end("a:1", "b:2")));
        assert!(a.received_after(10, 50_000_000, None).is_empty());
        assert!(a.received_after(11, 0, None).is_empty());
    }

    #[test]
    fn a_part_of_a_long_message_is_no_anchor() {
        let (a, mut b) = two();
        let other = end("b:2", "a:1");
        b.ends.get_mut(&other).unwrap().sends[3].bytes = 1_000;
        let received = a.received_after(10, 30_000_000, None).remove(0);
        let origin = a.origin(
            &received,
            &b.ends[&other],
            &[wait(24_000_000, 30_000_000, 1)],
            100,
            true,
        );
        assert_eq!(origin, Origin::OneOf(vec![20, 21]));
    }

    #[test]
    fn addresses_are_read_as_bytes() {
        let mapped = "00000000000000000000ffff7f000001";
        assert_eq!(address(mapped, "80"), "127.0.0.1:80");
        let loopback = "00000000000000000000000000000001";
        assert_eq!(address(loopback, "80"), "[::1]:80");
        assert_eq!(address("686f7374", "80"), "host:80");
    }
}
