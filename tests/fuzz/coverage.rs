//! Which edges of the library a case went over, where it was built to count them.
//!
//! `cargo xtask fuzz` builds the crates of `formats` with LLVM's counters (`tests/fuzz/instrument.sh`): one byte per edge. They
//! announce themselves by the function below. Without them every case is as good as another.

use std::sync::Mutex;

/// Where counters are: start and length.
static COUNTERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Called by instrumented code before `main`, for each of its parts.
#[expect(unsafe_code, reason = "LLVM calls it by this name")]
// SAFETY: nothing else has this name; it is a hook that LLVM reserves for this.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_8bit_counters_init(start: *mut u8, end: *mut u8) {
    let (start, end) = (start as usize, end as usize);
    if let Ok(mut counters) = COUNTERS.lock()
        && end > start
        && !counters.contains(&(start, end - start))
    {
        counters.push((start, end - start));
    }
}

/// What was met so far.
pub(crate) struct Coverage {
    /// Of each edge, the classes of counts that were met, one bit each.
    seen: Vec<u8>,
    pub(crate) edges: u64,
}

impl Coverage {
    pub(crate) fn new() -> Coverage {
        let total = COUNTERS
            .lock()
            .unwrap()
            .iter()
            .map(|(_, length)| length)
            .sum();
        Coverage {
            seen: vec![0; total],
            edges: 0,
        }
    }

    /// Whether the library counts at all.
    pub(crate) fn is_there(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Whether the counters hold something new; sets them to zero.
    #[expect(unsafe_code, reason = "the counters are LLVM's")]
    pub(crate) fn take(&mut self) -> bool {
        let mut is_new = false;
        let mut seen = self.seen.iter_mut();
        for (start, length) in COUNTERS.lock().unwrap().iter() {
            // SAFETY: LLVM announced these bytes as its counters, which live as long as the program.
            let counters = unsafe { std::slice::from_raw_parts_mut(*start as *mut u8, *length) };
            for (counter, seen) in counters.iter_mut().zip(&mut seen) {
                let count = std::mem::take(counter);
                if count == 0 {
                    continue;
                }
                // Classes of counts, as AFL has them: 1, 2, 3, 4…, 8…, 16…, 32…, 128…
                let class = match count {
                    1..=3 => 1 << (count - 1),
                    4..=7 => 8,
                    8..=15 => 16,
                    16..=31 => 32,
                    32..=127 => 64,
                    _ => 128u8,
                };
                if *seen & class == 0 {
                    self.edges += u64::from(*seen == 0);
                    *seen |= class;
                    is_new = true;
                }
            }
        }
        is_new
    }
}
