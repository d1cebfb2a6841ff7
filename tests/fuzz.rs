//! Damaged inputs for every reader: golden files with bytes changed, removed, doubled, moved between files.
//!
//! A reader may refuse what it is given, and may find nothing in it; it may not panic, hang, or take more memory
//! than the input and its own bounds account for. `PERFQUET_FUZZ_SECONDS` says for how long (`cargo xtask fuzz` sets it);
//! without it, a fixed number of them is tried, the same in every run. What fails is written to a file, and the seed is printed.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use perfquet_formats::event::{Event, Fields, Sink};
use perfquet_formats::event_format::Plan;
use perfquet_formats::{Error, FORMATS, Format, Input};
use perfquet_tests::root;

/// Beside the input: windows, arenas, zstd's window.
const MEMORY_MAX: usize = 400 << 20;
/// For the small files that golden files are.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Damaged inputs of each format, unless it is said for how long.
const ROUNDS: u64 = 250;

/// Counts what is allocated, so that an unchecked length shows.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator can only be written so")]
// SAFETY: every call goes to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = ALLOCATED.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// xorshift64*: repeatable from its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Looks at everything that an event holds, as the importer would.
#[derive(Default)]
struct Touch {
    plans: Vec<Plan>,
    sum: u64,
}

impl Sink for Touch {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Event::Type(declared) = event {
            self.plans
                .push(Plan::new(&declared.fields, declared.big_endian));
        }
        if let Event::Sample(sample) = event {
            let plan = self
                .plans
                .get(sample.event.0 as usize)
                .expect("declared before");
            if let Fields::Raw(payload) = sample.fields {
                for op in plan.ops() {
                    self.sum += format!("{:?}", op.decode(payload)).len() as u64;
                }
            }
        }
        self.sum += format!("{event:?}").len() as u64;
        Ok(())
    }
}

/// Golden files by format.
fn seeds(format: &Format) -> Vec<Vec<u8>> {
    let folder = format.name.replace(['.', '-', ' '], "_");
    let folder = root().join("formats/src").join(folder).join("golden");
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        let name = path.to_string_lossy();
        path.is_file() && !name.contains(".snap") && !name.ends_with("README.md")
    });
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap())
        .collect()
}

/// Numbers at which readers break.
const INTERESTING: [u64; 12] = [
    0,
    1,
    7,
    8,
    16,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
];

fn mutate(bytes: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    for _ in 0..1 + random.below(12) {
        let length = bytes.len();
        let place = random.below(length);
        match random.below(8) {
            0 => bytes.truncate(place),
            1 | 2 => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = random.next() as u8;
                }
            }
            3 => {
                if let Some(byte) = bytes.get_mut(place) {
                    *byte ^= 1 << random.below(8);
                }
            }
            4 => {
                // A whole number, aligned as most formats have them.
                let width = [2, 4, 8][random.below(3)];
                let place = place / width * width;
                let number = INTERESTING[random.below(INTERESTING.len())].to_le_bytes();
                if let Some(target) = bytes.get_mut(place..place + width) {
                    target.copy_from_slice(&number[..width]);
                }
            }
            5 => {
                let end = (place + random.below(64)).min(length);
                bytes.drain(place.min(end)..end);
            }
            6 => {
                let end = (place + random.below(256)).min(length);
                let piece = bytes[place.min(end)..end].to_vec();
                let target = random.below(length);
                bytes.splice(target.min(length)..target.min(length), piece);
            }
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let start = random.below(other.len());
                let end = (start + random.below(512)).min(other.len());
                let target = place.min(bytes.len());
                bytes.splice(target..target, other[start..end].iter().copied());
            }
        }
    }
}

/// Reads one input; an error is text about what went wrong with the reader itself.
fn try_input(format: &Format, bytes: &[u8]) -> Result<(), String> {
    let before = ALLOCATED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(|| {
        if let Ok(mut input) = Input::from_bytes("fuzz", bytes) {
            let _ = (format.sniff)(input.head());
            let _ = (format.read)(&mut input, &mut Touch::default());
        }
    }));
    let used = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        return Err(format!("panic: {}", text.unwrap_or("?")));
    }
    if used > MEMORY_MAX {
        return Err(format!("{} MiB of memory", used >> 20));
    }
    if start.elapsed() > TIME_MAX {
        return Err(format!("{:.1} s", start.elapsed().as_secs_f64()));
    }
    Ok(())
}

#[test]
fn no_reader_fails_on_damaged_input() {
    let seconds = std::env::var("PERFQUET_FUZZ_SECONDS");
    let seconds: Option<f64> = seconds
        .ok()
        .map(|text| text.parse().expect("a number of seconds"));
    let seed = std::env::var("PERFQUET_FUZZ_SEED");
    let seed = seed.map_or(0x9e37_79b9_7f4a_7c15, |text| {
        text.parse().expect("a number")
    });
    let with_seeds: Vec<_> = FORMATS
        .iter()
        .map(|format| (*format, seeds(format)))
        .filter(|(_, seeds)| !seeds.is_empty())
        .collect();
    assert!(!with_seeds.is_empty());
    let end = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds));
    let mut random = Random(seed);
    let (mut count, mut rounds) = (0u64, 0);
    while end.map_or(rounds < ROUNDS, |end| Instant::now() < end) {
        rounds += 1;
        for (format, seeds) in &with_seeds {
            let case = random.0;
            let mut bytes = seeds[random.below(seeds.len())].clone();
            mutate(&mut bytes, seeds, &mut random);
            count += 1;
            if let Err(reason) = try_input(format, &bytes) {
                let path = std::env::temp_dir().join(format!("perfquet-fuzz-{case}"));
                std::fs::write(&path, &bytes).unwrap();
                panic!(
                    "{}: {reason}; input {}, PERFQUET_FUZZ_SEED={case}",
                    format.name,
                    path.display()
                );
            }
        }
    }
    println!("{count} damaged inputs, {} formats", with_seeds.len());
}
