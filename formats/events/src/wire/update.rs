//! Types of EVENT_UPDATE that perfquet-record adds to perf's 0 to 3. perf passes over types that it does not know.
//!
//! ```text
//! u64 type, u64 id of an event, text, NUL and padding
//! ```

/// The kernel's filter of the event.
pub const FILTER: u64 = 0x7071_0001;
/// The purpose of the event's hits, as [`Purpose`](crate::event::Purpose) writes it.
pub const PURPOSE: u64 = 0x7071_0002;
/// The rows to keep of the recording, as [`Selection`](crate::event::Selection) writes it.
pub const SELECTION: u64 = 0x7071_0003;
/// A function whose calls a BPF program reports, as [`CallFunction`](crate::event::CallFunction) writes it.
pub const FUNCTION: u64 = 0x7071_0004;
/// The scope of the recording: "system", "process 12".
pub const SCOPE: u64 = 0x7071_0005;
