//! Runs something that may not panic, hang, or take more memory than its bounds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Beside the input: windows, arenas, zstd's window, rows that are not yet written.
const MEMORY_MAX: usize = 400 << 20;
/// For the small files that golden files are.
const TIME_MAX: Duration = Duration::from_secs(60);

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

/// Runs `work`; an error is text about what went wrong with it.
pub(crate) fn watch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let before = ALLOCATED.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let start = Instant::now();
    let result = catch_unwind(AssertUnwindSafe(work));
    let used = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    let result = result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("panic: {}", text.unwrap_or("?"))
    })?;
    if used > MEMORY_MAX {
        return Err(format!("{} MiB of memory", used >> 20));
    }
    if start.elapsed() > TIME_MAX {
        return Err(format!("{:.1} s", start.elapsed().as_secs_f64()));
    }
    Ok(result)
}
