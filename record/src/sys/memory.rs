//! How this process gets its memory, so that what it needed once does not stay with it for hours.

#![expect(unsafe_code, reason = "mallopt")]

/// Gives large blocks back as soon as they are free, and has all threads share what is left of small ones.
///
/// By itself glibc gives each thread its own arena, and keeps blocks of up to 32 MiB there once it has seen such:
/// of symbol tables and buffers that come and go, 92 MB at most at one time, 250 MB stayed resident after half an hour.
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
