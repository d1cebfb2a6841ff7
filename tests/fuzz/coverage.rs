//! Edge coverage of a case, if the library was built to count it.
//!
//! `cargo xtask fuzz` builds the crates of `formats` with LLVM's counters (`tests/fuzz/instrument.sh`): one byte per
//! edge. They register themselves through the function below. Without them, all cases are equally good.

use std::sync::Mutex;

/// Start and length of the counters.
static COUNTERS: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Called by instrumented code before `main`, for each of its modules.
#[expect(unsafe_code, reason = "LLVM calls it by this name")]
// SAFETY: no other symbol has this name; LLVM reserves it for this hook.
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

/// The coverage so far.
pub(crate) struct Coverage {
    /// For each edge, the count classes seen, one bit each.
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

    /// Whether the library counts edges.
    pub(crate) fn is_there(&self) -> bool {
        !self.seen.is_empty()
    }

    /// Whether the counters have new coverage; resets them.
    #[expect(unsafe_code, reason = "the counters are LLVM's")]
    pub(crate) fn take(&mut self) -> bool {
        let mut is_new = false;
        let mut seen = self.seen.iter_mut();
        for (start, length) in COUNTERS.lock().unwrap().iter() {
            // SAFETY: LLVM registered these bytes as its counters, which live as long as the program.
            let counters = unsafe { std::slice::from_raw_parts_mut(*start as *mut u8, *length) };
            for (counter, seen) in counters.iter_mut().zip(&mut seen) {
                let count = std::mem::take(counter);
                if count == 0 {
                    continue;
                }
                // AFL's classes of counts: 1, 2, 3, 4…, 8…, 16…, 32…, 128…
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
