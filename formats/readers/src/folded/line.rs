//! One line → its stack and its counts.
//!
//! ```text
//! noploop;main 274.10 415   →   "noploop;main", 2741 × 10⁻¹, 415
//! ```

/// A count: `digits` × 10^-`decimals`, without trailing zeros after the decimal point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    digits: u64,
    pub(super) decimals: u32,
}

impl Count {
    /// The count in units of 10^-`decimals`; `None` if it is finer, or too large for a column.
    pub(super) fn in_units(self, decimals: u32) -> Option<u64> {
        let zeros = decimals.checked_sub(self.decimals)?;
        let value = self.digits.checked_mul(10u64.checked_pow(zeros)?)?;
        (value <= i64::MAX as u64).then_some(value)
    }
}

/// Splits `line` before its last number.
pub(super) fn split_count(line: &[u8]) -> Option<(&[u8], Count)> {
    let line = line.trim_ascii_end();
    let blank = line.iter().rposition(|byte| matches!(byte, b' ' | b'\t'))?;
    let (stack, number) = line.split_at_checked(blank)?;
    Some((stack, count(number.get(1..)?)?))
}

fn count(text: &[u8]) -> Option<Count> {
    let point = text.iter().position(|&byte| byte == b'.');
    let (whole, fraction) = match point {
        Some(point) => (text.get(..point)?, text.get(point + 1..)?),
        None => (text, &[][..]),
    };
    if whole.is_empty() || (point.is_some() && fraction.is_empty()) {
        return None;
    }
    let zeros = fraction
        .iter()
        .rev()
        .take_while(|&&byte| byte == b'0')
        .count();
    let fraction = fraction.get(..fraction.len() - zeros)?;
    let mut digits = 0u64;
    for byte in whole.iter().chain(fraction) {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        digits = digits.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(Count {
        digits,
        decimals: u32::try_from(fraction.len()).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: Option<(&str, u64, u32)>) {
        let found = split_count(line.as_bytes());
        let expected = expected
            .map(|(stack, digits, decimals)| (stack.as_bytes(), Count { digits, decimals }));
        assert_eq!(found, expected, "{line}");
    }

    #[test]
    fn counts() {
        check("a;b 12", Some(("a;b", 12, 0)));
        check("a;b 12\r", Some(("a;b", 12, 0)));
        check("a b;c d 12.50", Some(("a b;c d", 125, 1)));
        check("a 19.0", Some(("a", 19, 0)));
        check(" 5", Some(("", 5, 0)));
        check("a 18446744073709551616", None);
        check("a 12V.43", None);
        check("a 1.2.3", None);
        check("a -5", None);
        check("a .5", None);
        check("a 5.", None);
        check("12", None);
        check("", None);
    }

    #[test]
    fn units() {
        let count = count(b"31.23").unwrap();
        assert_eq!(count.in_units(3), Some(31230));
        assert_eq!(count.in_units(1), None);
        assert_eq!(
            super::count(b"9223372036854775808").unwrap().in_units(0),
            None
        );
        assert_eq!(
            super::count(b"9223372036854775807").unwrap().in_units(1),
            None
        );
    }
}
