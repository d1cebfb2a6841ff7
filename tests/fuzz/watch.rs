//! Runs code that may not panic, hang, or exceed its memory limits.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Besides the input: windows, arenas, zstd's window, rows not yet written.
const MEMORY_MAX: usize = 400 << 20;
/// For small files, such as golden files.
const TIME_MAX: Duration = Duration::from_secs(60);

/// Counts allocations, so that an unchecked length is detected.
struct Counting;

static ALLOCATED: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

#[expect(unsafe_code, reason = "an allocator can only be written so")]
// SAFETY: every call is passed to the system allocator with unchanged arguments.
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

/// Runs `work`; an error describes the failure.
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
