//! perf's own records, printed with `--show-mmap-events` and similar options.
//!
//! ```text
//! PERF_RECORD_COMM exec: ls:197/197             PERF_RECORD_FORK(198:198):(197:197)         PERF_RECORD_LOST lost 12
//! PERF_RECORD_MMAP2 220/220: [0x401000(0x1000) @ 0x1000 fe:00 7 0]: r-xp /w/workload
//! ```

use perfquet_events::event::{Comm, Event, Exit, Fork, Loss, Mapping, Space};
use perfquet_events::scan::{
    bare_hex, decimal, find, leading_decimal, prefixed_hex, rsplit_once, signed, split_once, trim,
    word,
};

/// The event of a record; `None` for records that are kept as text.
pub(super) fn event(text: &[u8], time: Option<i64>, cpu: Option<u32>) -> Option<Event<'_>> {
    let rest = text.strip_prefix(b"PERF_RECORD_")?;
    let end = rest
        .iter()
        .position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
        .unwrap_or(rest.len());
    let (name, rest) = rest.split_at_checked(end)?;
    match name {
        b"COMM" => comm(rest, time),
        b"FORK" => {
            let [pid, tid, parent_pid, parent_tid] = pairs(rest)?;
            Some(Event::Fork(Fork {
                time,
                pid,
                tid,
                parent_pid,
                parent_tid,
            }))
        }
        b"EXIT" => {
            let [pid, tid, ..] = pairs(rest)?;
            Some(Event::Exit(Exit {
                time,
                pid: Some(pid),
                tid,
                code: None,
            }))
        }
        b"LOST" | b"LOST_SAMPLES" => {
            let count = rest
                .split(|byte| matches!(byte, b' ' | b':'))
                .rev()
                .find_map(decimal);
            Some(Event::Loss(Loss {
                time,
                cpu,
                event: None,
                count,
                in_all: None,
                reason: "ring full",
            }))
        }
        b"MMAP" | b"MMAP2" => mapping(rest, time),
        _ => None,
    }
}

/// ` exec: ls:197/197`
fn comm(rest: &[u8], time: Option<i64>) -> Option<Event<'_>> {
    let (flags, rest) = split_once(rest, b": ")?;
    let (name, ids) = rsplit_once(rest, b":")?;
    let (pid, tid) = split_once(trim(ids), b"/")?;
    Some(Event::Comm(Comm {
        time,
        pid: Some(signed(pid)?.try_into().ok()?),
        tid: signed(tid)?.try_into().ok()?,
        comm: name,
        exec: trim(flags) == b"exec",
    }))
}

/// `(1:2):(3:4)`
fn pairs(text: &[u8]) -> Option<[i32; 4]> {
    let mut numbers = text
        .split(|byte| !byte.is_ascii_digit() && *byte != b'-')
        .filter(|digits| !digits.is_empty())
        .map(signed);
    let mut next = || i32::try_from(numbers.next()??).ok();
    Some([next()?, next()?, next()?, next()?])
}

/// ` 220/220: [0x401000(0x1000) @ 0x1000 fe:00 7 0]: r-xp /w/workload`
fn mapping(rest: &[u8], time: Option<i64>) -> Option<Event<'_>> {
    let (ids, rest) = split_once(rest, b": [")?;
    let (pid, tid) = split_once(trim(ids), b"/")?;
    let pid: i32 = signed(pid)?.try_into().ok()?;
    let (range, rest) = split_once(rest, b"]: ")?;
    let open = find(range, b'(')?;
    let start = prefixed_hex(range.get(..open)?)?;
    let (length, range) = split_once(range.get(open + 1..)?, b") @ ")?;
    let (offset, details) = word(range)?;
    let file_offset = prefixed_hex(offset).or_else(|| decimal(offset))?;
    let (protection, path) = word(rest)?;
    let mut words = details
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty());
    let device = words.next().and_then(|device| {
        let (major, minor) = split_once(device, b":")?;
        Some((
            u32::try_from(bare_hex(major)?).ok()?,
            u32::try_from(bare_hex(minor)?).ok()?,
        ))
    });
    let inode = words
        .next()
        .and_then(|inode| Some(leading_decimal(inode)?.0));
    let bits = [(b'r', 1), (b'w', 2), (b'x', 4)];
    let protection = bits
        .iter()
        .filter(|(letter, _)| protection.contains(letter))
        .fold(0, |all, (_, bit)| all | bit);
    Some(Event::Mapping(Mapping {
        time,
        pid,
        tid: signed(tid)?.try_into().ok()?,
        space: if pid < 0 { Space::Kernel } else { Space::User },
        start,
        length: prefixed_hex(length)?,
        file_offset,
        path: trim(path),
        build_id: None,
        device,
        inode,
        protection: Some(protection),
        flags: None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records() {
        let event = |text: &'static str| event(text.as_bytes(), Some(5), None);
        assert!(matches!(
            event("PERF_RECORD_COMM exec: a b:c:197/198"),
            Some(Event::Comm(Comm {
                pid: Some(197),
                tid: 198,
                exec: true,
                comm: b"a b:c",
                ..
            }))
        ));
        assert!(matches!(
            event("PERF_RECORD_COMM: x:1/1"),
            Some(Event::Comm(Comm { exec: false, .. }))
        ));
        assert!(matches!(
            event("PERF_RECORD_FORK(198:199):(197:196)"),
            Some(Event::Fork(Fork {
                pid: 198,
                tid: 199,
                parent_pid: 197,
                parent_tid: 196,
                ..
            }))
        ));
        assert!(matches!(
            event("PERF_RECORD_EXIT(1:2):(3:4)"),
            Some(Event::Exit(Exit {
                pid: Some(1),
                tid: 2,
                ..
            }))
        ));
        assert!(matches!(
            event("PERF_RECORD_LOST lost 12"),
            Some(Event::Loss(Loss {
                count: Some(12),
                ..
            }))
        ));
        let Some(Event::Mapping(mapping)) =
            event("PERF_RECORD_MMAP2 220/221: [0x401000(0x1000) @ 0x2000 fe:01 7 0]: r-xp /w/a b")
        else {
            panic!("a mapping");
        };
        assert_eq!(
            (mapping.start, mapping.length, mapping.file_offset),
            (0x40_1000, 0x1000, 0x2000)
        );
        assert_eq!(
            (mapping.device, mapping.inode, mapping.protection),
            (Some((0xfe, 1)), Some(7), Some(5))
        );
        assert_eq!(mapping.path, b"/w/a b");
        assert!(event("PERF_RECORD_SWITCH OUT").is_none());
    }
}
