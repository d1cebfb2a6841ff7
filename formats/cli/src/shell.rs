//! Words for a shell.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

/// Adds a word in single quotes, in which a shell leaves every other byte as it is.
pub fn push_shell_word(text: &mut Vec<u8>, word: &OsStr) {
    text.push(b'\'');
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => text.extend_from_slice(b"'\\''"),
            byte => text.push(byte),
        }
    }
    text.push(b'\'');
}
