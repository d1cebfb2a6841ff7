//! Journals that are read while they are written.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use perfquet_events::event::{Event, Sink};
use perfquet_events::{Error, Input};

use super::Pipe;
use crate::perf_data::PERF_DATA;

#[test]
fn a_growing_journal_is_read_round_by_round() {
    /// Continues writing once the first sample has been emitted; reading everything before emitting anything would
    /// deadlock.
    struct Waiting(Arc<AtomicBool>, usize);
    impl Sink for Waiting {
        fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
            if let Event::Sample(_) = event {
                self.1 += 1;
                self.0.store(true, Ordering::Release);
            }
            Ok(())
        }
    }
    let mut pipe = Pipe::new();
    pipe.selection("max_events=3");
    pipe.sample(1, &[]);
    pipe.round();
    pipe.sample(2, &[]);
    pipe.round();
    let first_part = pipe.bytes.len();
    pipe.sample(3, &[]);
    pipe.round();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_owned();
    let seen = Arc::new(AtomicBool::new(false));
    let finished = Arc::new(AtomicBool::new(false));
    let (first, second) = pipe.bytes.split_at(first_part);
    // Longer than the head that `Input` waits for.
    let padding: Vec<u8> = {
        let mut pipe = Pipe { bytes: Vec::new() };
        (0..100).for_each(|_| pipe.words(82, &[0; 7]));
        pipe.bytes
    };
    file.write_all(first).unwrap();
    file.write_all(&padding).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !seen.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            file.write_all(second).unwrap();
            finished.store(true, Ordering::Release);
        });
        let settled = Arc::new(AtomicU64::new(u64::MAX));
        let mut input = Input::following(&path, settled, Arc::clone(&finished)).unwrap();
        let mut sink = Waiting(Arc::clone(&seen), 0);
        PERF_DATA.read(&mut input, &mut sink).unwrap();
        assert_eq!(sink.1, 3);
    });
}

/// The first record with a time is emitted long before a mebibyte has come.
#[test]
fn a_slow_journal_is_read_from_its_first_sample_on() {
    struct Seeing(Arc<AtomicBool>);
    impl Sink for Seeing {
        fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
            if let Event::Sample(_) = event {
                self.0.store(true, Ordering::Release);
            }
            Ok(())
        }
    }
    let mut pipe = Pipe::new();
    // Longer than the head that `Input` waits for.
    (0..100).for_each(|_| pipe.words(82, &[0; 7]));
    pipe.sample(1, &[]);
    pipe.round();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_owned();
    file.write_all(&pipe.bytes).unwrap();
    let (seen, finished) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let was_seen = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for time in 2..2_000 {
                if seen.load(Ordering::Acquire) {
                    break;
                }
                let mut next = Pipe { bytes: Vec::new() };
                next.sample(time, &[]);
                next.round();
                file.write_all(&next.bytes).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            let was_seen = seen.load(Ordering::Acquire);
            finished.store(true, Ordering::Release);
            was_seen
        });
        let settled = Arc::new(AtomicU64::new(u64::MAX));
        let mut input = Input::following(&path, settled, Arc::clone(&finished)).unwrap();
        input.set_prompt();
        PERF_DATA
            .read(&mut input, &mut Seeing(Arc::clone(&seen)))
            .unwrap();
        writer.join().unwrap()
    });
    assert!(was_seen);
}
