//! A size on the command line.
//!
//! ```text
//! 16G     512M     100K     4096
//! ```

/// Reads a size in bytes; K, M, G and T are powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("expected a size such as 16G or 512M, found {text:?}");
    let (digits, shift) = match text.char_indices().next_back() {
        Some((end, unit)) if !unit.is_ascii_digit() => {
            let place = "KMGT".find(unit.to_ascii_uppercase()).ok_or_else(wrong)?;
            (&text[..end], 10 * (place as u32 + 1))
        }
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("100k"), Ok(100 << 10));
        assert_eq!(bytes("16G"), Ok(16 << 30));
        assert_eq!(bytes("1T"), Ok(1 << 40));
        for text in ["", "G", "1.5G", "-1", "16P", "99999999999T", "1é"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
