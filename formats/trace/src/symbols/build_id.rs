//! Build IDs: comparison, and conversion to paths.
//!
//! ```text
//! 93ac61ec5a8eb1396f9fbd350e3169a558528a40  →  .build-id/93/ac61ec5a8eb1396f9fbd350e3169a558528a40
//! ```
//! perf pads shorter IDs (16 bytes of MD5) with zeros to 20, so trailing zeros are ignored.

use std::fmt::Write;

/// Whether two IDs are the same.
pub(super) fn equal(one: &[u8], other: &[u8]) -> bool {
    let one = unpadded(one);
    !one.is_empty() && one == unpadded(other)
}

/// Without zeros at the end.
pub(super) fn unpadded(id: &[u8]) -> &[u8] {
    let zeros = id.iter().rev().take_while(|&&byte| byte == 0).count();
    id.get(..id.len() - zeros).unwrap_or_default()
}

/// The ID in hexadecimal.
pub(super) fn hex(id: &[u8]) -> String {
    let mut text = String::with_capacity(id.len() * 2);
    for byte in id {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The directory and file below `.build-id`.
pub(super) fn directory_and_file(id: &[u8]) -> Option<(String, String)> {
    // MD5, padded by perf. (One SHA-1 ID in 2^32 ends this way by itself.)
    let id = match id {
        [short @ .., 0, 0, 0, 0] if short.len() == 16 => short,
        _ => id,
    };
    // An ID of padding alone, or a name longer than any file system allows, has no path.
    let (first, rest) = id.split_first()?;
    if rest.is_empty() || id.len() > 64 || unpadded(id).is_empty() {
        return None;
    }
    Some((hex(&[*first]), hex(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_does_not_count() {
        assert!(equal(&[1, 2, 3], &[1, 2, 3, 0, 0]));
        assert!(equal(&[1, 2, 0], &[1, 2, 0]));
        assert!(!equal(&[1, 2], &[1, 2, 3]));
        assert!(!equal(&[0, 0], &[0, 0]));
        assert!(!equal(&[], &[]));
    }

    #[test]
    fn becomes_a_path() {
        let expected = Some(("93".to_owned(), "ac61".to_owned()));
        assert_eq!(directory_and_file(&[0x93, 0xac, 0x61]), expected);
        let mut padded = vec![7; 16];
        padded.extend([0; 4]);
        assert_eq!(directory_and_file(&padded), directory_and_file(&[7; 16]));
        assert_eq!(directory_and_file(&[0x93]), None);
        assert_eq!(directory_and_file(&[0; 20]), None);
        assert_eq!(directory_and_file(&[1; 100]), None);
    }
}
