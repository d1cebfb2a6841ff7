//! The open sections of each thread: which of them an `E` ends.
//!
//! ```text
//! B main, B deep, E main     main ends; nobody saw the end of deep
//! B main, E                  main ends, as the innermost
//! B main, E work             work is not open: a problem
//! E work                     it began before the trace
//! ```

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashMap;

/// Open sections of a thread; the outermost are forgotten then.
const DEEPEST: usize = 8192;
/// Threads; all are forgotten then.
const THREADS_MAX: usize = 1 << 18;

/// The open sections.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// By thread, hashes of their names.
    threads: HashMap<Option<i32>, Vec<u64>>,
    state: RandomState,
    /// Ends of names that are not open, and the offset of the first.
    pub(super) unknown: (u64, u64),
}

/// The section that an `E` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Innermost,
    /// The innermost of this name.
    Named,
    /// None.
    Unknown,
}

impl Open {
    pub(super) fn begin(&mut self, tid: Option<i32>, name: &[u8]) {
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&tid) {
            self.threads.clear();
        }
        let open = self.threads.entry(tid).or_default();
        if open.len() >= DEEPEST {
            open.remove(0);
        }
        open.push(self.state.hash_one(name));
    }

    pub(super) fn end(&mut self, tid: Option<i32>, name: &[u8], offset: u64) -> End {
        let Some(open) = self.threads.get_mut(&tid).filter(|open| !open.is_empty()) else {
            // Before the trace; nothing else is open.
            return match name {
                b"" => End::Innermost,
                _ => End::Named,
            };
        };
        if name.is_empty() {
            open.pop();
            return End::Innermost;
        }
        let hash = self.state.hash_one(name);
        match open.iter().rposition(|&other| other == hash) {
            Some(place) => {
                open.truncate(place);
                End::Named
            }
            None => {
                let (count, first) = &mut self.unknown;
                if *count == 0 {
                    *first = offset;
                }
                *count += 1;
                End::Unknown
            }
        }
    }
}
