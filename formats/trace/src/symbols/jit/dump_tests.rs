//! Generated dumps: of both byte orders, growing, damaged.

use proptest::prelude::*;

use super::*;

/// A dump under construction.
struct Made {
    bytes: Vec<u8>,
    big: bool,
}

impl Made {
    fn new(big: bool, flags: u64) -> Made {
        let mut made = Made {
            bytes: Vec::new(),
            big,
        };
        made.numbers(&[0x4a69_5444, 1, 40, 62, 0, 4711]);
        made.words(&[5, flags]);
        made
    }

    fn numbers(&mut self, numbers: &[u32]) {
        for number in numbers {
            let bytes = match self.big {
                true => number.to_be_bytes(),
                false => number.to_le_bytes(),
            };
            self.bytes.extend(bytes);
        }
    }

    fn words(&mut self, words: &[u64]) {
        for word in words {
            let bytes = match self.big {
                true => word.to_be_bytes(),
                false => word.to_le_bytes(),
            };
            self.bytes.extend(bytes);
        }
    }

    fn load(&mut self, time: u64, address: u64, index: u64, name: &str, code: &[u8]) {
        let bytes = 56 + name.len() + 1 + code.len();
        self.numbers(&[0, bytes as u32]);
        self.words(&[time]);
        self.numbers(&[4711, 4711]);
        self.words(&[address, address, code.len() as u64, index]);
        self.bytes.extend(name.as_bytes());
        self.bytes.push(0);
        self.bytes.extend(code);
    }

    fn moved(&mut self, time: u64, from: u64, to: u64, bytes: u64, index: u64) {
        self.numbers(&[1, 64]);
        self.words(&[time]);
        self.numbers(&[4711, 4711]);
        self.words(&[to, from, to, bytes, index]);
    }

    fn lines(&mut self, time: u64, address: u64, lines: &[(u64, u32, &[u8])]) {
        let entries: usize = lines.iter().map(|(_, _, file)| 16 + file.len() + 1).sum();
        self.numbers(&[2, 32 + entries as u32]);
        self.words(&[time, address, lines.len() as u64]);
        for (address, line, file) in lines {
            self.words(&[*address]);
            self.numbers(&[*line, 0]);
            self.bytes.extend(*file);
            self.bytes.push(0);
        }
    }

    fn write(&self, path: &Path) {
        std::fs::write(path, &self.bytes).unwrap();
    }
}

fn made(big: bool) -> Made {
    let mut made = Made::new(big, 0);
    let lines: [(u64, u32, &[u8]); 3] = [
        (0x1000, 7, b"a.js"),
        (0x1004, 8, b"\xff"),
        (0x1008, 3, b"b.js"),
    ];
    made.lines(9, 0x1000, &lines);
    made.load(10, 0x1000, 1, "first", &[0xc3; 16]);
    made.load(20, 0x2000, 2, "second", &[0x90; 8]);
    // The memory is reused.
    made.load(30, 0x1008, 3, "third", &[0xcc; 4]);
    made.moved(40, 0x2000, 0x3000, 8, 2);
    made
}

/// Function, offset in it, file, line.
type Named = (String, Option<u64>, Option<String>, Option<u32>);

fn name(dump: &Dump, offset: u64) -> Option<Named> {
    let name = dump.name(offset, offset)?;
    Some((name.function, name.function_offset, name.file, name.line))
}

#[test]
fn code_is_distinguished_by_time_and_named_by_offset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jit-4711.dump");
    for big in [false, true] {
        made(big).write(&path);
        let mut follower = Follower::open(path.to_str().unwrap(), &Options::default()).unwrap();
        assert_eq!(follower.next_until(9), None);
        let first = follower.next_until(25).unwrap();
        assert_eq!((first.time, first.address, first.bytes), (10, 0x1000, 16));
        let second = follower.next_until(25).unwrap();
        assert_eq!(second.address, 0x2000);
        assert_eq!(follower.next_until(25), None);
        let third = follower.next_until(100).unwrap();
        let moved = follower.next_until(100).unwrap();
        assert_eq!((moved.address, moved.offset), (0x3000, second.offset));
        assert_eq!(follower.next_until(100), None);

        let mut dump = Dump::open(&path).unwrap();
        let line = |file: &str, line| (Some(file.to_owned()), Some(line));
        let in_first = |at: u64, (file, line)| Some(("first".to_owned(), Some(at), file, line));
        assert_eq!(name(&dump, first.offset), in_first(0, line("a.js", 7)));
        assert_eq!(name(&dump, first.offset + 5), in_first(5, line("a.js", 8)));
        assert_eq!(
            name(&dump, first.offset + 15),
            in_first(15, line("b.js", 3))
        );
        assert_eq!(name(&dump, first.offset + 16), None);
        assert_eq!(name(&dump, third.offset).unwrap().0, "third");
        assert_eq!(name(&dump, 0), None);
        // By address alone, the last one counts.
        assert_eq!(dump.name_at(0x1008, 0x1009).unwrap().function, "third");
        assert_eq!(
            dump.name_at(0x1008, 0x1009).unwrap().function_offset,
            Some(1)
        );
        assert_eq!(dump.name_at(0x2007, 0x2007).unwrap().function, "second");
        assert_eq!(dump.name_at(0x2008, 0x2008), None);
    }
}

#[test]
fn growing_jitdump_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jit-1.dump");
    let whole = made(false);
    let cut = whole.bytes.len() - 70;
    std::fs::write(&path, &whole.bytes[..cut]).unwrap();
    let mut follower = Follower::open(path.to_str().unwrap(), &Options::default()).unwrap();
    assert_eq!(std::iter::from_fn(|| follower.next_until(100)).count(), 2);
    whole.write(&path);
    let more = (0..2 * CALLS_PER_LOOK).filter_map(|_| follower.next_until(100));
    assert_eq!(more.count(), 2);
}

#[test]
fn other_files_are_rejected_as_jitdumps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jit-1.dump");
    let text = path.to_str().unwrap().to_owned();
    let open = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Follower::open(&text, &Options::default()).err()
    };
    assert!(open(b"").unwrap().contains("shorter"));
    assert!(open(&[0; 100]).unwrap().contains("no jitdump"));
    assert!(
        open(&Made::new(false, 1).bytes)
            .unwrap()
            .contains("CPU's counter")
    );
    let mut other = Made::new(false, 0).bytes;
    other[4] = 2;
    assert!(open(&other).unwrap().contains("another version"));
    assert_eq!(open(&Made::new(false, 0).bytes), None);
    std::fs::remove_file(&path).unwrap();
    assert!(Follower::open(&text, &Options::default()).is_err());
    std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
    assert!(Follower::open(&text, &Options::default()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any bytes, both readers terminate.
    #[test]
    fn damage(places in prop::collection::vec((40usize..400, any::<u8>()), 0..20), cut in 40usize..500) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jit-1.dump");
        let mut bytes = made(false).bytes;
        let length = bytes.len();
        for (place, value) in places {
            bytes[place % length] = value;
        }
        bytes.truncate(cut);
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(mut follower) = Follower::open(path.to_str().unwrap(), &Options::default()) {
            prop_assert!(std::iter::from_fn(|| follower.next_until(u64::MAX)).count() < 100);
        }
        if let Ok(mut dump) = Dump::open(&path) {
            for offset in 0..length as u64 {
                dump.name(offset, offset);
            }
            dump.name_at(0x1004, 0x1004);
        }
    }
}
