//! The formats of the recorded tracepoints, as perf and trace-cmd keep them
//! (tools/perf/util/trace-event-info.c).
//!
//! ```text
//! 17 08 44 "tracing"  "0.6\0"  u8 big endian?  u8 bytes of a long  u32 page size
//! "header_page\0" u64 size, text      "header_event\0" u64 size, text
//! u32 formats of ftrace itself        u32 systems: name\0, u32 formats, each u64 size, text
//! u32 size, symbols                   u32 size, printk formats          u64 size, names of threads
//! ```

use std::collections::{BTreeMap, BTreeSet};

use crate::probe::tracepoint::Tracepoint;
use crate::sys::ring::page_bytes;
use crate::sys::tracefs::Tracefs;

/// The section, padded to 8 bytes.
pub(super) fn section<'a>(
    tracefs: &Tracefs,
    tracepoints: impl Iterator<Item = &'a Tracepoint>,
) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend([0x17, 0x08, 0x44]);
    out.extend(b"tracing0.6\0");
    out.push(u8::from(cfg!(target_endian = "big")));
    out.push(size_of::<libc::c_long>() as u8);
    out.extend((page_bytes() as u32).to_ne_bytes());
    for name in ["header_page", "header_event"] {
        out.extend(name.as_bytes());
        out.push(0);
        add_long(&mut out, &tracefs.file(&format!("events/{name}")));
    }
    out.extend(0u32.to_ne_bytes()); // ftrace's own entries: not recorded
    // Several events may have one name: the sites of a static probe.
    let mut systems: BTreeMap<&str, BTreeSet<(&str, &[u8])>> = BTreeMap::new();
    for tracepoint in tracepoints {
        let formats = systems.entry(&tracepoint.system).or_default();
        formats.insert((&tracepoint.name, &tracepoint.format));
    }
    out.extend((systems.len() as u32).to_ne_bytes());
    for (system, formats) in systems {
        out.extend(system.as_bytes());
        out.push(0);
        out.extend((formats.len() as u32).to_ne_bytes());
        for (_, format) in formats {
            add_long(&mut out, format);
        }
    }
    // Kernel symbols: perf has written none since 2015.
    out.extend(0u32.to_ne_bytes());
    let printk = tracefs.file("printk_formats");
    out.extend((printk.len() as u32).to_ne_bytes());
    out.extend(printk);
    // Thread names: COMM records have them.
    out.extend(0u64.to_ne_bytes());
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

fn add_long(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_ne_bytes());
    out.extend(text);
}
