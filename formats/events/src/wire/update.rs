//! Types of EVENT_UPDATE that perfquet-record adds to perf's 0 to 3. perf ignores unknown types.
//!
//! ```text
//! u64 type, u64 id of an event, text, NUL and padding
//! ```

/// Kernel filter of the event.
pub const FILTER: u64 = 0x7071_0001;
/// Purpose of the event's hits, as encoded by [`Purpose`](crate::event::Purpose).
pub const PURPOSE: u64 = 0x7071_0002;
/// Selection of rows to keep, as encoded by [`Selection`](crate::event::Selection).
pub const SELECTION: u64 = 0x7071_0003;
/// A function whose calls a BPF program reports, as encoded by [`CallFunction`](crate::event::CallFunction).
pub const FUNCTION: u64 = 0x7071_0004;
/// Scope of the recording: "system", "process 12".
pub const SCOPE: u64 = 0x7071_0005;
/// Number of complete and incomplete user stacks, as text; at the end of a recording.
pub const USER_STACKS: u64 = 0x7071_0006;
/// Perf maps of runtimes, as text; at the end of a recording.
pub const RUNTIMES: u64 = 0x7071_0007;
/// Symbol of a module: `u64 start, u32 length, u32 line`, then name, file and module, each with its NUL.
pub const SYMBOL: u64 = 0x7071_0008;
/// ID of the boot, as in `/proc/sys/kernel/random/boot_id`.
pub const BOOT: u64 = 0x7071_0009;
/// Moments on the clock of the recording and on the wall's, `TIME=WALL TIME=WALL …` in nanoseconds; at the end of a recording.
pub const MOMENTS: u64 = 0x7071_000a;
/// Ranges of time that were recorded, `BEGIN..END BEGIN..END …` in nanoseconds of the clock of the recording; at its end.
pub const RECORDED: u64 = 0x7071_000b;
