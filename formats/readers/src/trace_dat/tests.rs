//! Golden files, whole and damaged; files built here in forms that no available recorder writes; random damage.

use perfquet_events::bytes::Endian;
use perfquet_events::{Guess, Input};
use proptest::prelude::*;

use super::TRACE_DAT;
use super::test_file::*;
use crate::golden::*;

/// The events as text, without the names of functions, of which every file has hundreds.
fn without_symbols(text: &str) -> String {
    let is_symbol = |line: &&str| line.starts_with("Symbol(");
    let count = text.lines().filter(is_symbol).count();
    let lines: Vec<String> = text
        .lines()
        .filter(|line| !is_symbol(line))
        .map(readable)
        .collect();
    format!("{}\n{count} symbols\n", lines.join("\n"))
}

/// `Bytes([100, 100])` as `Bytes("dd")`.
fn readable(line: &str) -> String {
    let mut parts = line.split("Bytes([");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (numbers, rest) = part.split_once(']').unwrap();
        let bytes = numbers.split(", ").filter_map(|number| number.parse().ok());
        let bytes: Vec<u8> = bytes.collect();
        text += &format!("Bytes({:?}{rest}", String::from_utf8_lossy(&bytes));
    }
    text
}

#[test]
fn golden() {
    for path in golden_files("trace_dat") {
        assert_golden(&path, &without_symbols(&read_golden(&TRACE_DAT, &path)));
        assert_recognized(&TRACE_DAT, &path);
    }
}

/// The events of a file, one per line, without facts and symbols.
fn events(bytes: &[u8]) -> Vec<String> {
    let text = read_bytes(&TRACE_DAT, bytes);
    let is_listed = |line: &&str| !line.starts_with("Symbol(") && !line.starts_with("Fact(");
    text.lines().filter(is_listed).map(readable).collect()
}

/// The events that are hits.
fn hits(bytes: &[u8]) -> Vec<String> {
    let mut lines = events(bytes);
    lines.retain(|line| {
        ["sample", "enter", "leave", "call", "Loss"]
            .iter()
            .any(|kind| line.starts_with(kind))
    });
    lines
}

fn comm(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

/// A file with one of everything, and the events that it gives. One function, because it is a list of records.
fn one_of_everything(endian: Endian, long_size: usize) -> (TestFile, Vec<&'static str>) {
    let mut made = TestFile::new(endian, long_size);
    let long = |value: u64| made.long(value);
    let wakeup = |tid: i32| {
        let pid = made.u32(tid as u32 + 1);
        made.payload(WAKEUP, 0, tid, &[&comm("sh"), &pid])
    };
    let stack = |id, tid, first: u32, addresses: &[u64]| {
        let mut rest = made.u32(first);
        rest.resize(long_size, 0);
        addresses
            .iter()
            .for_each(|address| rest.extend(long(*address)));
        made.payload(id, 0, tid, &[&rest])
    };
    let entry = made.payload(ENTRY, 0x08, 7, &[&long(0x8000_1000), &made.u32(1)]);
    let exit = made.payload(
        EXIT,
        0,
        7,
        &[
            &long(0x8000_1000),
            &long(5),
            &made.u32(1),
            &made.u32(3),
            &made.u64(100),
            &made.u64(350),
        ],
    );
    let function = made.payload(
        FUNCTION,
        0x10,
        7,
        &[&long(0x8000_2004), &long(0x8000_3000), &long(2)],
    );
    let print = made.payload(PRINT, 0, 7, &[&long(0x8000_1000), b"hello\n\0"]);
    let long_print = made.payload(PRINT, 0, 7, &[&long(0x8000_1000), &[b'x'; 150], b"\0"]);
    let bprint = made.payload(
        BPRINT,
        0x40,
        7,
        &[
            &long(0x8000_1000),
            &long(0x8000_8000),
            &made.u32(-3i32 as u32),
            b"dd\0",
        ],
    );
    let first = made.page(
        1000,
        0,
        &[
            made.event(5, &wakeup(7)),
            made.event(2, &stack(KERNEL_STACK, 7, 2, &[0x8000_1000, 0x8000_3000])),
            made.event(1, &stack(USER_STACK, 7, 70, &[0x4000, 0x5000, 0, 0])),
            made.event(10, &entry),
            made.event(20, &exit),
            // 2^27 later.
            [made.head(30, 0), made.u32(1)].concat(),
            made.event(0, &function),
            made.event(4, &print),
            // A discarded event: its time still advances.
            [made.head(29, 6), made.u32(8), made.u32(0)].concat(),
            made.event(0, &bprint),
            // The stack of another thread.
            made.event(1, &stack(KERNEL_STACK, 8, 1, &[0x8000_3000])),
        ],
    );
    let absolute = 3u64 << 27 | 77;
    let second = made.page(
        (1 << 27) + 2000,
        3 << 30,
        &[
            [made.head(31, 77), made.u32(3)].concat(),
            made.event(1, &long_print),
            [made.head(29, 0), made.u32(0)].concat(),
        ],
    );
    let other = made.page(1006, 1 << 31, &[made.event(0, &wakeup(9))]);
    assert_eq!(absolute + 1, 402_653_262);
    made.buffers = vec![(
        "",
        "local",
        vec![(0, vec![first, second]), (1, vec![other])],
    )];
    let expected = vec![
        "sample 0 time=1005 cpu=0 pid=70 tid=7 kernel_stack=kernel [    0x80001000,    0x80003000,] \
         user_stack=user [    0x4000,    0x5000,] fields={comm=Bytes(\"sh\") pid=Int(8) common_flags=UInt(0) common_preempt_count=UInt(0)}",
        "Loss(Loss { time: Some(1006), cpu: Some(1), event: None, count: None, in_all: None, reason: \
         \"buffer overrun\" })",
        "sample 0 time=1006 cpu=1 tid=9 fields={comm=Bytes(\"sh\") pid=Int(10) common_flags=UInt(0) common_preempt_count=UInt(0)}",
        "enter time=1018 cpu=0 tid=7 function=\"vfs_read\" depth=1 context=irq",
        "Loss(Loss { time: Some(1038), cpu: Some(0), event: None, count: Some(3), in_all: None, reason: \
         \"return stack full\" })",
        "leave time=1038 cpu=0 tid=7 function=\"vfs_read\" depth=1 context=task duration=250 retval=5",
        "call time=134218766 cpu=0 tid=7 function=\"ext4_sync\" in \"ext4\" caller=\"schedule\" context=softirq \
         args=[\"arg1=0x2\"] leaf=true",
        "sample 1 time=134218770 cpu=0 tid=7 fields=[2147487744, \"hello\", \"vfs_read\", 0, 0]",
        "sample 2 time=134218776 cpu=0 tid=7 fields=[2147487744, \"%d of %s\", \"-3 of dd\", \
         \"vfs_read\", 64, 0]",
        "sample 3 time=134218777 cpu=0 tid=8 kernel_stack=kernel [    0x80003000,] fields=[0, 0]",
        "Loss(Loss { time: Some(402653262), cpu: Some(0), event: None, count: Some(9), in_all: None, reason: \
         \"buffer overrun\" })",
        "sample 1 time=402653262 cpu=0 tid=7 fields=[2147487744, \"x\", \"vfs_read\", 0, 0]",
    ];
    (made, expected)
}

#[track_caller]
fn assert_one_of_everything(bytes: &[u8], expected: &[&str]) {
    let hits = hits(bytes);
    let shortened: Vec<String> = hits
        .iter()
        .map(|line| line.replace(&"x".repeat(150), "x"))
        .collect();
    assert_eq!(shortened, expected);
    let problems: Vec<String> = events(bytes);
    assert!(
        !problems.iter().any(|line| line.starts_with("problem")),
        "{problems:?}"
    );
}

#[test]
fn all_shapes_give_the_same_events() {
    for endian in [Endian::Little, Endian::Big] {
        for long_size in [4, 8] {
            let (made, expected) = one_of_everything(endian, long_size);
            assert_one_of_everything(&made.version6(), &expected);
            for packer in ["none", "zlib", "zstd"] {
                assert_one_of_everything(&made.version7(packer), &expected);
            }
        }
    }
}

/// The golden file of a host not available here: as built by [`one_of_everything`].
#[test]
fn golden_files_that_are_made_are_fresh() {
    for (name, bytes) in [
        (
            "made-big-32-v6.dat",
            one_of_everything(Endian::Big, 4).0.version6(),
        ),
        (
            "made-big-64-zlib.dat",
            one_of_everything(Endian::Big, 8).0.version7("zlib"),
        ),
        ("made-instances-v6.dat", instances().version6()),
    ] {
        let path = golden_files("trace_dat")[0].with_file_name(name);
        if std::env::var_os("PERFQUET_UPDATE").is_some() {
            std::fs::write(&path, &bytes).unwrap();
        }
        assert!(
            std::fs::read(&path).unwrap() == bytes,
            "{name} is stale: set PERFQUET_UPDATE"
        );
    }
}

/// Two instances besides the top-level buffer; their times interleave.
fn instances() -> TestFile {
    let mut made = TestFile::new(Endian::Little, 8);
    made.page_size = 512;
    let page = |time| {
        let event = |delta, tid: i32| {
            let pid = made.u32(9);
            made.event(delta, &made.payload(WAKEUP, 0, tid, &[&comm("a b"), &pid]))
        };
        made.page(time, 0, &[event(0, time as i32), event(100, time as i32)])
    };
    let cpus = |one, two| vec![(0, vec![page(one)]), (1, vec![page(two)])];
    made.buffers = vec![
        ("", "local", cpus(1, 3)),
        ("i1", "local", cpus(2, 5)),
        ("i2", "local", cpus(6, 4)),
    ];
    made
}

#[test]
fn buffers_are_merged_by_time() {
    let made = instances();
    let expected = [1, 2, 3, 4, 5, 6, 101, 102, 103, 104, 105, 106];
    for bytes in [
        made.version6(),
        made.version7("none"),
        made.version7("zstd"),
    ] {
        let times: Vec<u64> = hits(&bytes)
            .iter()
            .map(|line| {
                line.split("time=")
                    .nth(1)
                    .unwrap()
                    .split(' ')
                    .next()
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect();
        assert_eq!(times, expected);
        let text = read_bytes(&TRACE_DAT, &bytes);
        assert!(
            text.contains("trace_cmd.instances\", value: \"i1 i2\""),
            "{text}"
        );
        let of = |time: &str| {
            let lines = hits(&bytes);
            let line = lines.into_iter().find(|line| line.contains(time));
            line.unwrap().split("fields=").nth(1).unwrap().to_owned()
        };
        assert_eq!(of("time=1 "), "[\"a b\", 9, 0, 0, NULL]");
        assert_eq!(of("time=105 "), "[\"a b\", 9, 0, 0, \"i1\"]");
    }
}

#[test]
fn stack_of_an_interrupt_is_not_attached_to_the_interrupted_event() {
    let mut made = TestFile::new(Endian::Little, 8);
    let wakeup = |flags| {
        let pid = made.u32(1);
        made.event(1, &made.payload(WAKEUP, flags, 7, &[&comm("x"), &pid]))
    };
    let stack = |flags, address| {
        let (size, address) = (made.u64(1), made.u64(address));
        made.event(1, &made.payload(KERNEL_STACK, flags, 7, &[&size, &address]))
    };
    const IRQ: u8 = 8;
    // An interrupt comes between an event and its stack.
    let page = made.page(
        0,
        0,
        &[wakeup(0), wakeup(IRQ), stack(IRQ, 0x10), stack(0, 0x20)],
    );
    made.buffers = vec![("", "local", vec![(0, vec![page])])];
    let stacks: Vec<bool> = hits(&made.version6())
        .iter()
        .map(|line| line.contains("kernel_stack"))
        .collect();
    assert_eq!(stacks, [false, true, true]);
}

#[test]
fn clocks_without_a_unit_have_no_time_but_an_order() {
    let mut made = instances();
    for buffer in &mut made.buffers {
        buffer.1 = "counter";
    }
    let lines = hits(&made.version7("none"));
    assert_eq!(lines.len(), 12);
    let tids: Vec<&str> = lines
        .iter()
        .map(|line| line.split("tid=").nth(1).unwrap())
        .collect();
    assert!(
        tids[0].starts_with("1 ") && tids[11].starts_with("6 "),
        "{tids:?}"
    );
    assert!(lines.iter().all(|line| !line.contains("time=")));
    assert!(lines[11].ends_with("\"i2\", 106]"), "{lines:?}");
}

#[test]
fn offsets_and_shifts_change_the_time() {
    let mut made = instances();
    made.options = vec![(7, b"1000\0".to_vec()), (1, b"0x10\0".to_vec())];
    let text = read_bytes(&TRACE_DAT, &made.version7("none"));
    assert!(text.contains("sample 0 time=1001 "), "{text}");
    assert!(text.contains("WallOffset(16000)"), "{text}");
    // A guest whose clock is 50 ns late on CPU 0.
    let mut shift = [made.u64(1), made.u32(0), made.u32(1), made.u32(1)].concat();
    shift.extend([made.u64(0), made.u64(50), made.u64(1)].concat());
    made.options = vec![(12, shift)];
    let text = read_bytes(&TRACE_DAT, &made.version6());
    assert!(
        text.contains("sample 0 time=51 cpu=0") && text.contains("sample 0 time=3 cpu=1"),
        "{text}"
    );
}

#[test]
fn lost_events_are_reported_once() {
    let (mut made, _) = one_of_everything(Endian::Little, 8);
    let stats = b"CPU: 0\nentries: 4\noverrun: 20\ncommit overrun: 0\ndropped events: 1\n\0";
    made.options = vec![(2, stats.to_vec())];
    let lines = hits(&made.version7("none"));
    let rest = "Loss(Loss { time: None, cpu: Some(0), event: None, count: Some(12), in_all: None, reason: \
                \"buffer overrun\" })";
    // 9 of the 21 were reported in a page.
    assert_eq!(
        lines.iter().filter(|line| *line == rest).count(),
        1,
        "{lines:?}"
    );
}

#[test]
fn file_without_its_last_options_keeps_its_events() {
    let (made, expected) = one_of_everything(Endian::Little, 8);
    for packer in ["none", "zlib", "zstd"] {
        let bytes = made.version7(packer);
        // The last section has the offsets of the events.
        let cut = &bytes[..bytes.len() - 60];
        let lines = hits(cut);
        assert_eq!(lines.len(), expected.len(), "{packer}: {lines:?}");
        assert!(
            lines[0].starts_with("sample 0 time=1005 pid=70"),
            "{lines:?}"
        );
        assert!(events(cut).iter().any(|line| line.starts_with("problem")));
    }
}

const GARBAGE: [u8; 64] = [0xa7; 64];

#[track_caller]
fn assert_same_hits(whole: &[u8], damaged: &[u8], what: &str) {
    assert_eq!(hits(damaged), hits(whole), "{what}");
    let is_reported = events(damaged)
        .iter()
        .any(|line| line.starts_with("problem"));
    assert!(is_reported, "{what}");
}

#[test]
fn garbage_in_the_head_loses_no_event() {
    for endian in [Endian::Little, Endian::Big] {
        for long_size in [4, 8] {
            let made = one_of_everything(endian, long_size).0;
            let versions = ["none", "zlib", "zstd"].map(|packer| (packer, made.version7(packer)));
            for (name, whole) in versions.into_iter().chain([("6", made.version6())]) {
                // Only the two heads identify a 32-bit kernel: one is lost, the other packed.
                if long_size == 4 && matches!(name, "zlib" | "zstd") {
                    continue;
                }
                let mut damaged = whole.clone();
                damaged[..64].copy_from_slice(&GARBAGE);
                assert_same_hits(&whole, &damaged, name);
            }
        }
    }
}

/// ID and offset of each section in a file built by a test.
fn sections(bytes: &[u8], packer: &str) -> Vec<(u16, usize)> {
    let packed = u8::from(packer != "none");
    let is_head = |place: &usize, id: u8| {
        let flags = if id == 0 { 0 } else { packed };
        bytes[*place..].starts_with(&[id, 0, flags, 0, 0, 0, 0, 0])
            && bytes[place + 8] | bytes[place + 9] > 0
            && bytes[place + 11..place + 16] == [0; 5]
    };
    let mut place = 18 + packer.len() + 13;
    let mut sections = Vec::new();
    for id in [16, 17, 18, 19, 20, 21, 0] {
        place = (place..bytes.len() - 16)
            .find(|place| is_head(place, id))
            .unwrap();
        sections.push((id.into(), place));
        place += 16;
    }
    sections
}

#[test]
fn heads_of_sections_and_of_options_are_not_needed() {
    let made = one_of_everything(Endian::Little, 8).0;
    for packer in ["none", "zlib", "zstd"] {
        let whole = made.version7(packer);
        for (id, place) in sections(&whole, packer) {
            let mut damaged = whole.clone();
            damaged[place..place + 16].copy_from_slice(&GARBAGE[..16]);
            assert_same_hits(&whole, &damaged, &format!("{packer}: section {id}"));
        }
        // No offset leads to the options.
        let mut damaged = whole.clone();
        let first_options = 18 + packer.len() + 5;
        damaged[first_options..first_options + 8].copy_from_slice(&GARBAGE[..8]);
        assert_same_hits(&whole, &damaged, packer);
        // The compression is not stated.
        let mut damaged = whole.clone();
        damaged[18] = b'?';
        assert_same_hits(&whole, &damaged, packer);
    }
}

#[test]
fn options_are_found_after_bytes_that_do_not_belong_there() {
    let made = one_of_everything(Endian::Little, 8).0;
    for packer in ["none", "zlib", "zstd"] {
        let whole = made.version7(packer);
        // Before the last section that is not events.
        let place = sections(&whole, packer)
            .into_iter()
            .map(|(_, place)| place)
            .max()
            .unwrap();
        for size in [1, 9, 64, 512] {
            let mut damaged = whole.clone();
            damaged.splice(place..place, std::iter::repeat_n(3, size));
            assert_same_hits(&whole, &damaged, &format!("{packer}: {size} more bytes"));
        }
    }
}

#[test]
fn chunks_are_counted_where_their_number_is_damaged() {
    let made = instances();
    for packer in ["zlib", "zstd"] {
        let whole = made.version7(packer);
        let pages = (512..whole.len()).step_by(512);
        let counts = pages.filter(|place| whole[*place..].starts_with(&[1, 0, 0, 0]));
        let counts: Vec<usize> = counts.collect();
        assert_eq!(counts.len(), 6);
        for place in counts {
            for number in [0, 0xff] {
                let mut damaged = whole.clone();
                damaged[place..place + 4].fill(number);
                assert_eq!(hits(&damaged), hits(&whole), "{packer}: {number} chunks");
            }
        }
    }
}

#[test]
fn events_without_their_format_keep_their_bytes() {
    let (made, expected) = one_of_everything(Endian::Little, 8);
    let whole = made.version7("zstd");
    for (id, place) in sections(&whole, "zstd") {
        if matches!(id, 17 | 18) {
            let mut damaged = whole.clone();
            damaged[place + 24..place + 40].copy_from_slice(&GARBAGE[..16]);
            let lines = hits(&damaged);
            assert!(lines.len() >= expected.len(), "{id}: {lines:?}");
        }
    }
}

#[test]
fn pages_of_a_killed_recorder_are_read_with_their_head() {
    let (mut made, expected) = one_of_everything(Endian::Little, 8);
    let cpus = std::mem::take(&mut made.buffers[0].2);
    made.buffers.clear();
    let folder = tempfile::tempdir().unwrap();
    let head = folder.path().join("trace-partial.dat");
    std::fs::write(&head, made.version7("zstd")).unwrap();
    for (cpu, pages) in &cpus {
        let name = format!("trace.dat.cpu{cpu}");
        std::fs::write(folder.path().join(name), pages.concat()).unwrap();
    }
    let text = as_text(&TRACE_DAT, &mut Input::open(&head).unwrap());
    let lines = text.lines().filter(|line| {
        ["sample", "enter", "leave", "call", "Loss"]
            .iter()
            .any(|kind| line.starts_with(kind))
    });
    assert_eq!(lines.count(), expected.len());
    // An instance of the same recording.
    std::fs::write(folder.path().join("trace.dat.i1.cpu0"), cpus[1].1.concat()).unwrap();
    let text = as_text(&TRACE_DAT, &mut Input::open(&head).unwrap());
    assert_eq!(text.matches("sample 0").count(), 3, "{text}");
    // Nothing of another recording.
    std::fs::write(folder.path().join("other.dat.cpu0"), cpus[1].1.concat()).unwrap();
    let text = as_text(&TRACE_DAT, &mut Input::open(&head).unwrap());
    assert!(text.contains("error"), "{text}");
}

/// perfquet-record writes a version 6 head that ends after its options, and puts the pages in hidden files.
#[test]
fn a_head_of_version_6_with_hidden_pages_beside_it() {
    let (mut made, expected) = one_of_everything(Endian::Little, 8);
    let whole = made.version6();
    let cpus = std::mem::take(&mut made.buffers[0].2);
    let tag = whole.windows(9).position(|part| part == b"flyrecord");
    let folder = tempfile::tempdir().unwrap();
    let head = folder.path().join("trace.dat");
    std::fs::write(&head, &whole[..tag.unwrap()]).unwrap();
    for (cpu, pages) in &cpus {
        let name = format!(".trace.dat.cpu{cpu}");
        std::fs::write(folder.path().join(name), pages.concat()).unwrap();
    }
    // Files of other recordings are ignored; an empty one belongs to a CPU without events.
    std::fs::write(folder.path().join("other.dat.cpu0"), "x").unwrap();
    std::fs::write(folder.path().join(".trace.dat.cpu9"), "").unwrap();
    let text = as_text(&TRACE_DAT, &mut Input::open(&head).unwrap());
    let lines = text.lines().filter(|line| {
        ["sample", "enter", "leave", "call", "Loss"]
            .iter()
            .any(|kind| line.starts_with(kind))
    });
    assert_eq!(lines.count(), expected.len(), "{text}");
    assert!(!text.contains("Problem"), "{text}");
    // An unreadable file is reported.
    let unreadable = folder.path().join(".trace.dat.cpu8");
    std::fs::create_dir(&unreadable).unwrap();
    let text = as_text(&TRACE_DAT, &mut Input::open(&head).unwrap());
    assert!(text.contains(".trace.dat.cpu8: "), "{text}");
    std::fs::remove_dir(&unreadable).unwrap();
    // No events at all: a recording without calls, not a damaged file.
    for (cpu, _) in &cpus {
        let name = format!(".trace.dat.cpu{cpu}");
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let text = as_text(&TRACE_DAT, &mut Input::open(&head).unwrap());
    assert!(
        !text.contains("error") && !text.contains("Problem"),
        "{text}"
    );
}

/// Latency tracers write the text of `trace` instead of a ring buffer.
#[test]
fn the_text_of_a_latency_tracer_is_read_as_such() {
    let text = b"# tracer: irqsoff\n#\n\
        \x20 dd-205     [000] d..2.     2.364069: vfs_read <-ksys_read\n";
    let made = instances();
    let bytes = made.version6();
    let tag = bytes
        .windows(10)
        .position(|window| window == b"flyrecord\0");
    let version6 = [&bytes[..tag.unwrap()], b"latency  \0", text].concat();
    // The options of version 7 name the section.
    let mut made = TestFile::new(Endian::Little, 8);
    for packer in ["none", "zstd"] {
        let whole = made.version7(packer);
        let body = made.packed_pages(packer, &[text.to_vec()]);
        let flags = made.u16(u16::from(packer != "none"));
        let section = [
            &made.u16(22)[..],
            &flags,
            &made.u32(0),
            &made.u64(body.len() as u64),
            &body,
        ];
        made.options = vec![(22, [&made.u64(0)[..], b"\0local\0"].concat())];
        // Its offset is known once the option is written.
        let place = made.version7(packer).len() as u64;
        made.options = vec![(22, [&made.u64(place)[..], b"\0local\0"].concat())];
        let bytes = [made.version7(packer), section.concat()].concat();
        assert!(bytes.len() > whole.len());
        for bytes in [&bytes, &version6] {
            let lines = hits(bytes);
            assert_eq!(lines.len(), 1, "{packer}: {:?}", events(bytes));
            assert!(lines[0].starts_with("call") && lines[0].contains("\"vfs_read\""));
        }
        made.options.clear();
    }
}

#[test]
fn many_buffers_at_one_offset_are_read_once() {
    let (mut made, _) = one_of_everything(Endian::Little, 8);
    let ours = made.options.len();
    let mut bytes = Vec::new();
    for _ in 0..2 {
        let tag = bytes.windows(10).position(|part| part == b"flyrecord\0");
        let start = made.u64(tag.unwrap_or(0) as u64);
        made.options.truncate(ours);
        for number in 0..5000 {
            let name = format!("b{number:04}\0");
            made.options
                .push((3, [&start[..], name.as_bytes()].concat()));
        }
        bytes = made.version6();
    }
    let text = read_bytes(&TRACE_DAT, &bytes);
    assert!(
        text.contains("more buffers than the file has room for"),
        "{text}"
    );
}

#[test]
fn pages_of_two_cpus_at_one_offset_are_read_once() {
    let (mut made, _) = one_of_everything(Endian::Little, 8);
    let pages = made.buffers[0].2[1].1.clone();
    made.buffers[0].2 = vec![(0, pages)];
    let mut bytes = made.version6();
    // The table of one CPU, changed to that of two.
    let table = bytes
        .windows(10)
        .position(|window| window == b"flyrecord\0")
        .unwrap()
        + 10;
    let entry = bytes[table..table + 16].to_vec();
    bytes[table + 16..table + 32].copy_from_slice(&entry);
    let count = bytes
        .windows(10)
        .position(|window| window == b"options  \0")
        .unwrap()
        - 4;
    bytes[count] = 2;
    let lines = events(&bytes);
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.starts_with("sample"))
            .count(),
        1
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("the pages of CPU 1 belong to another CPU"))
    );
}

#[test]
fn other_files_are_rejected_with_a_reason() {
    assert_eq!((TRACE_DAT.sniff)(b"\x17\x08\x44tracin"), Guess::No);
    let refused = |bytes: &[u8], reason: &str| {
        let text = read_bytes(&TRACE_DAT, bytes);
        assert!(text.contains(reason), "{text}");
    };
    refused(b"", "found nothing");
    refused(b"\x17\x08\x44tracing7", "truncated header");
    refused(
        b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0",
        "version \"0.6\", expected 6 or 7",
    );
    refused(
        b"\x17\x08\x44tracing8\0\0\x08\0\x10\0\0",
        "version \"8\", expected 6 or 7",
    );
    refused(
        b"\x17\x08\x44tracing6\0\0\x08\0\x10\0\0header_page\0",
        "found none",
    );
}

fn small_files() -> Vec<Vec<u8>> {
    let made = [
        one_of_everything(Endian::Little, 8).0,
        one_of_everything(Endian::Big, 4).0,
        instances(),
    ];
    let packed = |made: &TestFile| {
        vec![
            made.version6(),
            made.version7("none"),
            made.version7("zstd"),
        ]
    };
    made.iter().flat_map(packed).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300), version in "[67]") {
        let mut file = b"\x17\x08\x44tracing".to_vec();
        file.extend(version.as_bytes());
        file.push(0);
        file.extend(bytes);
        read_bytes(&TRACE_DAT, &file);
    }

    /// A part of a file gives a part of its events, in order.
    #[test]
    fn prefixes(part in 0.0..1.0f64) {
        for bytes in small_files() {
            // Their CPU, and the loss counted in a page, may be stated after the cut.
            let plain = |bytes: &[u8]| -> Vec<String> {
                let mut lines = hits(bytes);
                lines.retain(|line| !line.starts_with("Loss"));
                for line in &mut lines {
                    *line = line.replace("cpu=0 ", "").replace("cpu=1 ", "");
                }
                lines
            };
            let whole = plain(&bytes);
            let some = plain(&bytes[..(bytes.len() as f64 * part) as usize]);
            let mut rest = whole.iter();
            for line in &some {
                // Its stack, and with it the process, may be cut off; columns depend on the remaining buffers.
                let kind = |line: &str| -> Vec<String> {
                    let words = line.split(' ').enumerate();
                    let kept = words.filter(|(index, word)| {
                        *index == 0 || word.starts_with("time=") || word.starts_with("tid=")
                    });
                    kept.map(|(_, word)| word.to_owned()).collect()
                };
                prop_assert!(rest.any(|other| kind(other) == kind(line)), "{}", line);
            }
        }
    }

    /// Damaged bytes lose only the events that they cover; the reader continues.
    #[test]
    fn flips(places in prop::collection::vec((0.0..1.0f64, any::<u8>()), 1..40)) {
        for mut bytes in small_files() {
            let length = bytes.len() as f64;
            for (place, value) in &places {
                bytes[(length * place) as usize] = *value;
            }
            read_bytes(&TRACE_DAT, &bytes);
        }
    }

    /// Events come out in time order, and each CPU's events in theirs.
    #[test]
    fn merged_in_order(deltas in prop::collection::vec(prop::collection::vec(0u32..1000, 0..40), 1..5)) {
        let mut made = TestFile::new(Endian::Little, 8);
        let mut expected = Vec::new();
        let cpus = deltas.iter().enumerate().map(|(cpu, deltas)| {
            let mut time = 0;
            let events: Vec<Vec<u8>> = deltas.iter().map(|&delta| {
                time += delta;
                expected.push((time, cpu));
                let pid = made.u32(0);
                made.event(delta, &made.payload(WAKEUP, 0, 1, &[&comm("x"), &pid]))
            }).collect();
            // The kernel writes no page without an event.
            let pages = match events.is_empty() {
                true => Vec::new(),
                false => vec![made.page(0, 0, &events)],
            };
            (cpu as u32, pages)
        }).collect();
        expected.sort();
        made.buffers = vec![("", "local", cpus)];
        let expected: Vec<String> = expected.iter().map(|(time, cpu)| format!("sample 0 time={time} cpu={cpu} tid=1")).collect();
        let found: Vec<String> = hits(&made.version7("zstd")).iter().map(|line| line.split(" fields").next().unwrap().to_owned()).collect();
        prop_assert_eq!(found, expected);
    }
}
