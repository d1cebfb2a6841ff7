//! What a stripped libruby does not name (Debian's): the loop over the instructions, its caller, the variable of each thread.
//!
//! ```text
//! 41 ff 64 24 10           jmp *0x10(%r12)                     the loop jumps to the next instruction 60 times or more; no other
//!                                                              function does so more than once
//! e8 dd ea ff ff           call vm_exec_core                   rb_vm_exec calls the loop
//! 66 48 8d 3d ec 45 22 00  data16 lea 0x2245ec(%rip),%rdi      rb_thread_current, which is exported, reads the variable by the
//! 66 66 48 e8 2c 42 e0 ff  data16 data16 rex.W call __tls_…    number and offset that the dynamic linker has written there
//! ```

use perfquet_events::bytes::Endian;

use super::super::process::Mapped;
use super::LOOP_MIN;

/// Code that is searched: libruby has 3 MB.
const CODE_BYTES_MAX: u64 = 16 << 20;
/// Jumps to the next instruction: from here on, it is the loop.
const JUMPS_MIN: usize = 30;
/// A smaller function only jumps to the loop.
const CALLER_MIN: u64 = 64;
/// Code of `rb_thread_current` in which the place is searched: it has 40 bytes.
const CONTEXT_CODE_BYTES: usize = 64;

/// Start and end of a function.
type Bounds = (u64, u64);

/// Returns the bounds of the callers of the loop, and of the loop.
pub(super) fn find_loop(file: &Mapped<'_>) -> Option<(Vec<Bounds>, Bounds)> {
    let mut functions = file.object.code_ranges();
    let mut rest = CODE_BYTES_MAX;
    functions.retain(|&(_, bytes)| {
        let is_within = bytes <= rest;
        rest -= if is_within { bytes } else { 0 };
        is_within
    });
    let code = |&(offset, bytes): &(u64, u64)| {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        file.object.code(offset, bytes)
    };
    let is_loop =
        |function: &&(u64, u64)| function.1 >= LOOP_MIN && jumps(code(function)) >= JUMPS_MIN;
    let mut loops = functions.iter().filter(is_loop);
    // Two would be something else.
    let (found, None) = (loops.next()?, loops.next()) else {
        return None;
    };
    let is_caller = |function: &&(u64, u64)| {
        let calls = code(function).windows(5).zip(function.0..);
        let to_loop = |(call, at): (&[u8], u64)| target(call, at) == Some(found.0);
        function.1 >= CALLER_MIN && { calls }.any(to_loop)
    };
    let in_process = |&(offset, bytes): &(u64, u64)| {
        let start = file.address_of(offset, libc::PROT_EXEC)?;
        Some((start, start.checked_add(bytes)?))
    };
    let callers: Vec<(u64, u64)> = functions
        .iter()
        .filter(is_caller)
        .filter_map(in_process)
        .collect();
    let found = in_process(found)?;
    (!callers.is_empty()).then_some((callers, found))
}

/// Number of jumps to an address in memory that a register points near to.
fn jumps(code: &[u8]) -> usize {
    let is_jump = |bytes: &[u8]| {
        matches!(
            bytes,
            [0xff, 0x64, 0x24, 8 | 16 | 24 | 32]
                | [0xff, 0x60..=0x63 | 0x65..=0x67, 8 | 16 | 24 | 32, _]
        )
    };
    code.windows(4).filter(|bytes| is_jump(bytes)).count()
}

/// Where a call leads to.
fn target(call: &[u8], at: u64) -> Option<u64> {
    let [0xe8, distance @ ..] = call else {
        return None;
    };
    let distance = Endian::Little.u32_at(distance, 0)? as i32;
    Some((at + 5).wrapping_add_signed(distance.into()))
}

/// Returns the address in the process of the number and offset of the variable.
pub(super) fn context_place(file: &Mapped<'_>) -> Option<u64> {
    let functions = file
        .object
        .functions_where(|name| name == b"rb_thread_current");
    let offset = functions.first()?.offset;
    let code = file.object.code(offset, CONTEXT_CODE_BYTES);
    let place = place_in(code, file.object.address_of(offset)?)?;
    file.relocated(place)
}

fn place_in(code: &[u8], address: u64) -> Option<u64> {
    const LOAD: [u8; 4] = [0x66, 0x48, 0x8d, 0x3d];
    const CALL: [u8; 4] = [0x66, 0x66, 0x48, 0xe8];
    let is_it = |bytes: &[u8]| bytes.starts_with(&LOAD) && bytes.get(8..) == Some(&CALL);
    let index = code.windows(12).position(is_it)?;
    let distance = Endian::Little.u32_at(code, index + 4)? as i32;
    let next = address + index as u64 + 8;
    Some(next.wrapping_add_signed(distance.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_libruby() {
        let code = [
            0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 0x08, 0x66, 0x48, 0x8d, 0x3d, 0xec, 0x45,
            0x22, 0x00, 0x66, 0x66, 0x48, 0xe8, 0x2c, 0x42, 0xe0, 0xff,
        ];
        // The bytes of rb_thread_main in Debian's 3.3.8, at 0x23b4bc.
        assert_eq!(place_in(&code, 0x23_b4bc), Some(0x45_fab8));
        assert_eq!(place_in(&code[..19], 0x23_b4bc), None);
        assert_eq!(target(&[0xe8, 0xdd, 0xea, 0xff, 0xff], 0x2000), Some(0xae2));
        assert_eq!(target(&[0xe9, 0xdd, 0xea, 0xff, 0xff], 0x2000), None);
        let jumping = [
            0x41, 0xff, 0x64, 0x24, 0x10, 0x41, 0xff, 0x65, 0x18, 0x90, 0xff, 0x60, 0x40, 0x90,
        ];
        assert_eq!(jumps(&jumping), 2);
    }
}
