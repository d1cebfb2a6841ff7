//! Settings of the memory allocator, so that memory used temporarily is returned to the system during long recordings.

#![expect(unsafe_code, reason = "mallopt")]

/// Returns large blocks to the system as soon as they are free, and lets all threads share one arena.
///
/// By default, glibc gives each thread its own arena, and keeps freed blocks of up to 32 MiB there. Of symbol tables
/// and buffers that used at most 92 MB at one time, 250 MB stayed resident after half an hour.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        /// Setting it also keeps glibc from raising it.
        const LARGE_BYTES: libc::c_int = 256 << 10;
        const ARENAS: libc::c_int = 2;
        // SAFETY: no memory is involved. Without success more stays resident.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
            libc::mallopt(libc::M_ARENA_MAX, ARENAS);
        }
    }
}
