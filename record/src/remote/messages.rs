//! What the recorder there prints to stderr, with the place of the trace as it is here.
//!
//! ```text
//! /var/tmp/perfquet-5f…/trace.pqt: 5,707 events, 0 lost, 131.86 KiB; next: perfquet-query top /var/tmp/perfquet-5f…/trace.pqt
//! a.pqt: 5,707 events, 0 lost, 131.86 KiB; next: perfquet-query top a.pqt
//! ```
//! From the first mention of that path on, messages wait until the trace is here, or is known to stay there.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

/// Maximum number of bytes that wait.
const MOST_HELD: usize = 1 << 20;

/// The relay of messages.
pub(super) struct Messages {
    state: Arc<Mutex<State>>,
    relay: Option<JoinHandle<()>>,
}

/// What has arrived and is not printed.
struct State {
    /// The path there. It contains a random number, so nothing else equals it.
    path: Vec<u8>,
    /// The path to print instead, once known.
    shown: Option<Vec<u8>>,
    pending: Vec<u8>,
}

impl Messages {
    /// Prints what arrives, until it mentions `path`.
    pub(super) fn relay(mut stderr: impl Read + Send + 'static, path: Vec<u8>) -> Messages {
        let state = Arc::new(Mutex::new(State {
            path,
            shown: None,
            pending: Vec::new(),
        }));
        let of_relay = Arc::clone(&state);
        let relay = thread::spawn(move || {
            let mut bytes = [0; 8192];
            while let Ok(length @ 1..) = stderr.read(&mut bytes) {
                print(&locked(&of_relay).take(&bytes[..length]));
            }
        });
        Messages {
            state,
            relay: Some(relay),
        }
    }

    /// Waits for the last message.
    pub(super) fn wait(&mut self) {
        // It panics only with stderr's lock poisoned, and then there is nobody to tell.
        let _ = self.relay.take().map(JoinHandle::join);
    }

    /// Prints the messages that waited, with this path.
    pub(super) fn release(&self, shown: &str) {
        let mut state = locked(&self.state);
        state.shown = Some(shown.as_bytes().to_vec());
        print(&state.take(b""));
        print(&std::mem::take(&mut state.pending));
    }
}

impl State {
    /// Adds bytes, and returns those that can be printed.
    fn take(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        let mut printed = Vec::new();
        while let Some(place) = place_of(&self.pending, &self.path) {
            printed.extend(self.pending.drain(..place));
            let Some(shown) = &self.shown else {
                if self.pending.len() > MOST_HELD {
                    printed.append(&mut self.pending);
                }
                return printed;
            };
            printed.extend_from_slice(shown);
            self.pending.drain(..self.path.len());
        }
        // The path may have begun.
        let begun = (1..self.path.len())
            .rev()
            .find(|&length| self.pending.ends_with(&self.path[..length]));
        let rest = self.pending.len() - begun.unwrap_or(0);
        printed.extend(self.pending.drain(..rest));
        printed
    }
}

fn place_of(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len())
        .position(|window| window == wanted)
}

fn print(bytes: &[u8]) {
    let _ = std::io::stderr().lock().write_all(bytes);
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> State {
        State {
            path: b"/x/aab".to_vec(),
            shown: None,
            pending: Vec::new(),
        }
    }

    #[test]
    fn messages_wait_from_the_path_on() {
        // However the bytes arrive.
        let text = b"one /x/aa /x/aac\nprompt: /x/aab: 3 events; next: top /x/aab\nafter";
        for size in 1..text.len() {
            let mut state = state();
            let before: Vec<u8> = text
                .chunks(size)
                .flat_map(|bytes| state.take(bytes))
                .collect();
            assert_eq!(
                before.escape_ascii().to_string(),
                "one /x/aa /x/aac\\nprompt: ",
                "{size}"
            );
            state.shown = Some(b"a".to_vec());
            let mut after = state.take(b"");
            after.append(&mut state.pending);
            assert_eq!(
                after.escape_ascii().to_string(),
                "a: 3 events; next: top a\\nafter",
                "{size}"
            );
        }
    }

    #[test]
    fn other_messages_do_not_wait() {
        let mut state = state();
        assert_eq!(state.take(b"password: "), b"password: ");
        assert_eq!(state.take(b"a/"), b"a");
        assert_eq!(state.take(b"b"), b"/b");
    }

    #[test]
    fn a_host_cannot_fill_the_memory() {
        let mut state = state();
        let mut printed = 0;
        for _ in 0..100 {
            printed += state
                .take(&[&b"/x/aab"[..], &[b'y'; 100_000]].concat())
                .len();
            assert!(state.pending.len() <= MOST_HELD);
        }
        assert!(printed > 8_000_000);
    }
}
