//! Whether code has frame pointers, by how its functions begin.

/// `push rbp; mov rbp, rsp`
const PROLOGUE: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
/// Maximum number of bytes per prologue in code with frame pointers; twice the average of Go and V8.
const BYTES_PER_PROLOGUE: usize = 2048;
/// Number of bytes of code searched for prologues.
const SEARCHED_BYTES: usize = 1 << 20;

/// Whether the functions of code begin with setting up a frame pointer.
pub(in super::super) fn has_prologues<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> bool {
    let (mut prologues, mut searched) = (0, 0);
    for code in pieces {
        let code = code.get(..SEARCHED_BYTES - searched).unwrap_or(code);
        prologues += code
            .windows(PROLOGUE.len())
            .filter(|window| *window == PROLOGUE)
            .count();
        searched += code.len();
    }
    prologues > 0 && prologues * BYTES_PER_PROLOGUE >= searched
}
