//! What the packets contain, with a time each: sorted before they become events.
//!
//! ```text
//! 1001000   an event of CPU 0's bundle        1300000   a slice that begins, on sequence 5        1375000   a loss
//! ```

/// What an entry is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item<'a> {
    /// An event of a bundle.
    Ftrace { cpu: u32, body: &'a [u8] },
    /// A compact switch of a CPU.
    Switch {
        cpu: u32,
        state: i64,
        tid: i32,
        priority: i32,
        comm: &'a [u8],
    },
    /// A compact wake-up.
    Waking {
        cpu: u32,
        tid: i32,
        target: i32,
        priority: i32,
        comm: &'a [u8],
    },
    /// `duration`: -1 if the end is unknown.
    Track {
        body: &'a [u8],
        state: u32,
        defaults: u32,
        thread: u32,
        duration: i64,
    },
    Sample {
        body: &'a [u8],
        state: u32,
        defaults: u32,
        sequence: u32,
    },
    /// `packet`: the number of its data.
    Statistics { packet: u64, body: &'a [u8] },
    Loss {
        cpu: Option<u32>,
        count: Option<u64>,
        reason: &'static str,
    },
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) time: i64,
    /// Of two calls that begin at the same time, the longer one encloses the other.
    pub(super) rank: i64,
    pub(super) item: Item<'a>,
}
