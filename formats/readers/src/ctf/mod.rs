//! The Common Trace Format (CTF) 1.8 and 2: traces of LTTng (kernel and programs), of `perf data convert --to-ctf`, barectf, DPDK and others.
//!
//! ```text
//! metadata    /* CTF 1.8 */ trace { … }; stream { event.header := struct event_header_large; … };
//!             event { name = "shop:order"; id = 26; stream_id = 0; fields := struct { integer { size = 32; … } _number; string _who; }; };
//! ch0_0       c1 1f fc c1 uuid[16] stream_id | timestamp_begin, timestamp_end, content_size, packet_size, cpu_id | event | event | …
//! event       u16 id = 26 | u32 time (low 32 bits) | context: i32 vpid, i32 vtid | i32 0 | "bob\0"
//! ```
//! The specification is at <https://diamon.org/ctf/v1.8.3/>. A trace is a directory with the file `metadata`, which describes the layout of all other
//! files. The input may be a directory with such directories below it, as sessions of LTTng are, or an archive (`.tar`, `.zip`, also compressed).
//!
//! - All traces of an input are merged by time. They need the same clock; otherwise each is an input.
//! - Kernel events of LTTng get the names, systems and fields of the kernel (`names.rs`), so that views and reports read them as those of perf.
//! - `vpid`, `vtid`, `procname`, `ip`, `callstack_*` and `cpu_id` become columns of every event. Without the thread, that of the last `sched_switch`.
//! - Structures become columns `a.b`, variants a column for each option, enumerations the number and `NAME_label`, other arrays JSON.
//! - `lttng_ust_cyg_profile` becomes calls; `lttng_ust_statedump:bin_info`, `lttng_ust_lib:load` and `lttng_ust_dl:dlopen` become mappings, too.
//! - Growing `events_discarded` and gaps in `packet_seq_num` become losses. A damaged packet is skipped up to the next magic number, and counted.
//! - The text that babeltrace and babeltrace2 print has the same rows (`text/`).
//! - CTF 2 (<https://diamon.org/ctf/>) has its metadata in JSON (`json.rs`), and the same packets.

mod bits;
mod decode;
mod emit;
mod files;
mod gaps;
mod json;
mod layout;
mod lexer;
mod metadata;
mod names;
mod packets;
mod parser;
mod read;
mod schema;
mod sniff;
#[cfg(test)]
mod tests;
mod text;

use perfquet_events::event::Sink;
use perfquet_events::{Error, Format, Input};

/// CTF 1.8 and 2.
pub const CTF: Format = Format {
    name: "ctf",
    about: "Common Trace Format 1.8 and 2 (LTTng, perf data convert, barectf): a directory, .tar or .zip, the text of babeltrace2",
    main_file: Some("**/metadata"),
    has_lines: true,
    sniff: sniff::sniff,
    read_file: read,
};

fn read(input: &mut Input, sink: &mut dyn Sink) -> Result<(), Error> {
    if text::is_details(input.head()) {
        return Err(Error::Unsupported {
            input: input.name().to_owned(),
            message: "this is the output of babeltrace2's component sink.text.details\nhint: print the trace with: babeltrace2 --clock-seconds TRACE"
                .to_owned(),
        });
    }
    match text::is_text(input.head()) {
        true => text::read(input, sink),
        false => read::read(input, sink),
    }
}

/// Identifies the clock of a trace by its metadata: times of traces with equal clocks can be compared. `None` if the metadata cannot be read.
pub fn clock_name(metadata: &[u8]) -> Option<String> {
    let metadata = metadata::parse(metadata).ok()?;
    Some(match metadata.clocks.first() {
        Some(clock) => match &clock.uuid {
            Some(uuid) => format!("{uuid} {}", clock.name),
            None => format!("{clock:?}"),
        },
        None => String::new(),
    })
}
