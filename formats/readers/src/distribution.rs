//! The bars of a distribution.
//!
//! ```text
//!            value  ------------- Distribution ------------- count
//!              < 0 |                                         0
//!                0 |@@@@@@@@@@@@@@@@@@@@                     1
//!              100 |@@@@@@@@@@@@@@@@@@@@                     1
//!           >= 200 |                                         0
//! ```
//! A label is where a bar begins. Its end depends on the function, which only the script names: `quantize` has powers
//! of two, and its negative labels name the end nearer to 0; `lquantize` has equal steps; `llquantize` ends at the next
//! label, and mirrors the negative ones. The drawn bars are rounded and not read.

use perfquet_events::event::{Action, Bucket};

use crate::lines::{signed, words};

/// The part before a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Value(i64),
    /// `< n`
    Below(i64),
    /// `>= n`
    AtLeast(i64),
    /// `<= n`
    AtMost(i64),
    /// `abs() < n`
    Near(i64),
}

/// One line of a distribution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) label: Label,
    pub(crate) count: i64,
}

/// The kinds of bar tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Head {
    /// `value  ---- Distribution ---- count`
    Distribution,
    /// `key  ---- Distribution ---- count` (agghist): each bar is a key with its value.
    Keys,
    /// `key  min .----. max | count` (aggpack): each line is a key with a small chart.
    Packed,
}

/// The kind of table that this heading begins.
pub(crate) fn head(line: &[u8]) -> Option<Head> {
    let line = line.trim_ascii();
    let is_distribution = line.ends_with(b"- count") && contains(line, b"- Distribution -");
    if is_distribution && line.starts_with(b"value ") {
        return Some(Head::Distribution);
    }
    if is_distribution && line.starts_with(b"key ") {
        return Some(Head::Keys);
    }
    let is_packed =
        line.starts_with(b"key ") && contains(line, b" min ") && line.ends_with(b"| count");
    is_packed.then_some(Head::Packed)
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    line.windows(part.len()).any(|window| window == part)
}

/// The label or key, and the count, of a line with a bar.
pub(crate) fn bar_parts(line: &[u8]) -> Option<(&[u8], i64)> {
    let line = line.trim_ascii();
    let blank = line.iter().rposition(|&byte| byte == b' ')?;
    let bar = line.get(..blank)?.trim_ascii_end();
    let count = line.get(blank + 1..)?;
    // A full bar leaves no space before its count, nor does a count below 0.
    let (bar, count) = match count
        .iter()
        .rposition(|byte| !byte.is_ascii_digit() && *byte != b'-')
    {
        Some(end) => (line.get(..blank + 2 + end)?, count.get(end + 1..)?),
        None => (bar, count),
    };
    let count = signed(count)?;
    let is_bar = |byte: &u8| matches!(byte, b'@' | b'|' | b' ' | 0xe2 | 0x80..=0x96);
    let end = bar.iter().rposition(|byte| !is_bar(byte))?;
    let (label, bar) = bar.split_at_checked(end + 1)?;
    bar.contains(&b'|').then_some((label, count))
}

/// A line of `-x aggpack`: the chart shows only heights, so all values are in one bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) range: Bucket,
}

/// `key  min : ▁▂▅█ : max | total`
pub(crate) fn packed(line: &[u8]) -> Option<Packed<'_>> {
    let text = line.trim_ascii();
    let bar = text.iter().rposition(|&byte| byte == b'|')?;
    let count = signed(text.get(bar + 1..)?.trim_ascii())?;
    let text = text.get(..bar)?.trim_ascii_end();
    let max_start = text.iter().rposition(|&byte| byte == b':')?;
    let high = signed(text.get(max_start + 1..)?.trim_ascii())?;
    let text = text.get(..max_start)?;
    let min_end = text.iter().rposition(|&byte| byte == b':')?;
    let text = text.get(..min_end)?.trim_ascii_end();
    let min_start = text
        .iter()
        .rposition(|&byte| byte == b' ')
        .map_or(0, |blank| blank + 1);
    let low = signed(text.get(min_start..)?)?;
    Some(Packed {
        key: text.get(..min_start)?,
        range: Bucket {
            low: Some(low),
            high: Some(high),
            count,
        },
    })
}

/// A line of a distribution.
pub(crate) fn bar(line: &[u8]) -> Option<Bar> {
    let (text, count) = bar_parts(line)?;
    let label = label(text)?;
    Some(Bar { label, count })
}

/// The part before a bar.
pub(crate) fn label(text: &[u8]) -> Option<Label> {
    let mut words = words(text);
    let first = words.next()?;
    let label = match first {
        b"<" => Label::Below(signed(words.next()?)?),
        b">=" => Label::AtLeast(signed(words.next()?)?),
        b"<=" => Label::AtMost(signed(words.next()?)?),
        b"abs()" => {
            words.next().filter(|word| *word == b"<")?;
            Label::Near(signed(words.next()?)?)
        }
        number => Label::Value(signed(number)?),
    };
    words.next().is_none().then_some(label)
}

/// The buckets of the bars; `action` if the script names the function.
pub(crate) fn buckets(bars: &[Bar], action: Option<Action>) -> Vec<Bucket> {
    let steps = Steps::of(bars, action);
    (0..bars.len())
        .filter_map(|place| {
            let bar = bars.get(place)?;
            let before = place.checked_sub(1).and_then(|before| bars.get(before));
            let (low, high) = steps.range(bar.label, before, bars.get(place + 1));
            let count = bar.count;
            Some(Bucket { low, high, count })
        })
        .collect()
}

/// The widths of the bars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Steps {
    /// Powers of two.
    Double,
    /// Equal; `None`: only one label is printed.
    Equal(Option<i64>),
    /// Up to the next label.
    Labels,
}

impl Steps {
    pub(crate) fn of(bars: &[Bar], action: Option<Action>) -> Steps {
        let values: Vec<i64> = bars
            .iter()
            .filter_map(|bar| match bar.label {
                Label::Value(value) => Some(value),
                _ => None,
            })
            .collect();
        let mut steps = values.windows(2).map(|pair| match pair {
            [low, high] => high.checked_sub(*low).filter(|step| *step > 0),
            _ => None,
        });
        let step = steps.next().flatten();
        let is_equal = steps.all(|other| other == step) && (values.len() < 2 || step.is_some());
        match action {
            Some(Action::Quantize) => return Steps::Double,
            Some(Action::Lquantize) => return Steps::Equal(step),
            Some(Action::Llquantize) => return Steps::Labels,
            _ => {}
        }
        let is_power = |value: &i64| value.unsigned_abs().is_power_of_two() || *value == 0;
        let has_ends = bars.len() > values.len();
        let has_mirror = bars
            .iter()
            .any(|bar| matches!(bar.label, Label::AtMost(_) | Label::Near(_)));
        if has_mirror {
            Steps::Labels
        } else if !has_ends && is_doubling(&values) && values.iter().all(is_power) {
            Steps::Double
        } else if is_equal {
            Steps::Equal(step)
        } else {
            Steps::Labels
        }
    }

    /// The first value of a bar, and the first value past its end.
    fn range(
        self,
        label: Label,
        before: Option<&Bar>,
        after: Option<&Bar>,
    ) -> (Option<i64>, Option<i64>) {
        let value = match label {
            Label::Value(value) => value,
            Label::Below(end) => return (None, Some(end)),
            Label::AtLeast(start) => return (Some(start), None),
            Label::AtMost(last) => return (None, last.checked_add(1)),
            Label::Near(end) => {
                return (
                    end.checked_neg().and_then(|low| low.checked_add(1)),
                    Some(end),
                );
            }
        };
        match self {
            Steps::Double => match value {
                0 => (Some(0), Some(1)),
                1.. => (Some(value), value.checked_mul(2)),
                // The last bar includes everything below it.
                _ => (
                    value
                        .checked_mul(2)
                        .filter(|low| *low > i64::MIN)
                        .map(|low| low + 1),
                    Some(value + 1),
                ),
            },
            Steps::Equal(step) => {
                let next = step.and_then(|step| value.checked_add(step));
                (Some(value), next.or(after.and_then(Bar::start)))
            }
            Steps::Labels if value < 0 => {
                let low = before.and_then(|bar| match bar.label {
                    Label::Value(before) | Label::AtMost(before) => before.checked_add(1),
                    Label::Below(end) => Some(end),
                    Label::AtLeast(_) | Label::Near(_) => None,
                });
                (low, value.checked_add(1))
            }
            Steps::Labels if value == 0 => (Some(0), Some(1)),
            Steps::Labels => (Some(value), after.and_then(Bar::start)),
        }
    }
}

impl Bar {
    /// The first value of the bar, if its label gives it.
    fn start(&self) -> Option<i64> {
        match self.label {
            Label::Value(value) | Label::AtLeast(value) => Some(value),
            Label::Below(_) | Label::AtMost(_) | Label::Near(_) => None,
        }
    }
}

/// …, -4, -2, -1, 0, 1, 2, 4, …
fn is_doubling(values: &[i64]) -> bool {
    values.windows(2).all(|pair| match pair {
        [low, high] if *low > 0 => low.checked_mul(2) == Some(*high),
        [low, high] if *high < 0 => high.checked_mul(2) == Some(*low),
        [low, high] => matches!((low, high), (-1, 0) | (0, 1)),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines → `low..high×count`.
    #[track_caller]
    fn check(lines: &str, action: Option<Action>, expected: &str) {
        let bars: Vec<Bar> = lines
            .lines()
            .map(|line| bar(line.as_bytes()).expect(line))
            .collect();
        let text = |end: Option<i64>| end.map_or("_".to_owned(), |end| end.to_string());
        let found: Vec<String> = buckets(&bars, action)
            .iter()
            .map(|bucket| {
                format!(
                    "{}..{}x{}",
                    text(bucket.low),
                    text(bucket.high),
                    bucket.count
                )
            })
            .collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn heads() {
        let line = b"           value  ------------- Distribution ------------- count    ";
        assert_eq!(head(line), Some(Head::Distribution));
        let line = b"             key  ------------- Distribution ------------- count    ";
        assert_eq!(head(line), Some(Head::Keys));
        assert_eq!(
            head(b"       key  min .------. max    | count"),
            Some(Head::Packed)
        );
        assert_eq!(head(b"  value"), None);
    }

    #[test]
    fn quantize() {
        check(
            " -4 |   0\n -2 |@@ 3\n -1 | 1\n 0 | 0\n 1 |@ 2\n 2 | 0\n 4 | 0",
            None,
            "-7..-3x0 -3..-1x3 -1..0x1 0..1x0 1..2x2 2..4x0 4..8x0",
        );
        check(
            "-4611686018427387904 |@ 5\n-2305843009213693952 | 2",
            None,
            "_..-4611686018427387903x5 -4611686018427387903..-2305843009213693951x2",
        );
        check("4611686018427387904 |@ 5", None, "4611686018427387904.._x5");
    }

    #[test]
    fn shapes_of_bars() {
        check(
            "  0                                         | 0\n  1 @@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@| -123",
            None,
            "0..1x0 1..2x-123",
        );
        check(
            "  -1     @@@@@| -123\n   0     |@@@@ 246",
            None,
            "-1..0x-123 0..1x246",
        );
        check(
            "  -1     @@@@@|-123\n   0     |@@@@4",
            None,
            "-1..0x-123 0..1x4",
        );
        check("  1 |████▌ 5", None, "1..2x5");
    }

    #[test]
    fn lquantize() {
        check(
            "-100 | 0\n0 |@ 1\n100 | 0",
            None,
            "-100..0x0 0..100x1 100..200x0",
        );
        check(
            "< 0 | 0\n0 |@ 1\n100 | 0\n>= 200 | 3",
            None,
            "_..0x0 0..100x1 100..200x0 200.._x3",
        );
        check(
            "< 0 | 0\n0 |@ 1\n>= 100 | 3",
            None,
            "_..0x0 0..100x1 100.._x3",
        );
        check("< 0 | 0\n0 |@ 1", None, "_..0x0 0.._x1");
        check(
            "0 | 0\n1 |@ 1\n2 | 0",
            Some(Action::Lquantize),
            "0..1x0 1..2x1 2..3x0",
        );
    }

    #[test]
    fn llquantize() {
        check(
            "<= -16 | 164\n-12 | 8\n-1 | 9\n0 | 1\n1 | 2\n8 | 3\n>= 12 | 4",
            None,
            "_..-15x164 -15..-11x8 -11..0x9 0..1x1 1..8x2 8..12x3 12.._x4",
        );
        check(
            "abs() < 10 | 3\n10 | 4\n20 | 5\n>= 100 | 0",
            None,
            "-9..10x3 10..20x4 20..100x5 100.._x0",
        );
        check(
            "< 1 | 0\n1 | 4\n5 | 5\n10 | 0",
            None,
            "_..1x0 1..5x4 5..10x5 10.._x0",
        );
    }

    #[test]
    fn packed_pictures() {
        let found = packed("  dtrace          32 : ▁▂▅█ : 4096  | 17".as_bytes()).unwrap();
        assert_eq!(found.key.trim_ascii(), b"dtrace");
        let (low, high, count) = (Some(32), Some(4096), 17);
        assert_eq!(found.range, Bucket { low, high, count });
        assert_eq!(packed(b"key  min .----. max | count"), None);
    }

    #[test]
    fn no_bars() {
        for line in [
            "",
            "  a |@ 1",
            "12",
            "1 2",
            "  0 |@@@ x",
            "< |@ 1",
            "abs() 3 |@ 1",
        ] {
            assert_eq!(bar(line.as_bytes()), None, "{line:?}");
        }
    }
}
