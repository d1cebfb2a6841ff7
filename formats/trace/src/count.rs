//! Counts in messages: digits in groups of three, and nouns that agree with the number.
//!
//! ```text
//! 1 event    1,417 events    2 stack nodes
//! ```

/// Formats a whole number with a comma between thousands: `1,234,567`.
pub fn grouped(number: impl Into<u128>) -> String {
    let digits = number.into().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with its noun, whose plural ends with "s" or "es": `1 event`, `1,417 events`, `2 addresses`.
pub fn counted(count: impl Into<u128>, noun: &str) -> String {
    let count = count.into();
    let plural = match (count, noun.ends_with('s')) {
        (1, _) => "",
        (_, false) => "s",
        (_, true) => "es",
    };
    format!("{} {noun}{plural}", grouped(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators() {
        let check = |number: u64, expected: &str| assert_eq!(grouped(number), expected);
        check(0, "0");
        check(999, "999");
        check(1_000, "1,000");
        check(1_234_567, "1,234,567");
    }

    #[test]
    fn nouns_agree_with_their_number() {
        let check = |count: u64, expected: &str| assert_eq!(counted(count, "event"), expected);
        check(0, "0 events");
        check(1, "1 event");
        check(2, "2 events");
        check(1_417, "1,417 events");
        assert_eq!(counted(1u64, "address"), "1 address");
        assert_eq!(counted(2u64, "address"), "2 addresses");
    }
}
