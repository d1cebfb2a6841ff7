//! Bars of distributions: the bar of a value, the bounds of a bar, and its label in DTrace.
//!
//! ```text
//! quantize(x)                        powers of two:       …  -4  -2  -1  0  1  2  4  8  …
//! lquantize(x, 0, 100, 10)           equal steps:         < 0  0  10  20  …  90  >= 100
//! llquantize(x, 10, 0, 2, 10)        steps in powers:     0  1  2  …  9  10  20  …  90  100  …  >= 1000
//! histogram(x)                       steps of about 3 %, for percentiles
//! ```
//! Bar numbers grow with the values; bar 0 contains the value 0 if there are negative bars too.

use perfquet_events::event::bars;

/// A division of values into bars.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Bins {
    /// `quantize`: powers of two, as in libdtrace's DTRACE_QUANTIZE_BUCKETVAL.
    Powers,
    /// `lquantize`: `levels` bars of `step` from `low`, one below and one above.
    Steps {
        /// The lower bound of the first bar.
        low: i64,
        /// The width of a bar.
        step: i64,
        /// Number of bars between the two open ones.
        levels: i32,
    },
    /// `llquantize`: start values of the positive bars; negative bars mirror them.
    Edges(Vec<i64>),
    /// `histogram`: 32 bars for each power of two, single values for the smallest.
    Fine,
}

/// Bars of [`Bins::Fine`] for a power of two, as a power of two.
const FINE_BITS: u32 = 5;
/// Below this, [`Bins::Fine`] has one bar per value.
const FINE_EXACT: u64 = 2 << FINE_BITS;

impl Bins {
    /// The bars of `lquantize(x, low, high, step)`.
    pub fn steps(low: i64, high: i64, step: i64) -> Result<Bins, String> {
        let levels = bars::levels(low, high, step).map_err(|text| format!("lquantize: {text}"))?;
        Ok(Bins::Steps {
            low,
            step,
            levels: levels as i32,
        })
    }

    /// The bars of `llquantize(x, factor, low, high, steps)`: `steps` per magnitude.
    pub fn magnitudes(factor: i64, low: i64, high: i64, steps: i64) -> Result<Bins, String> {
        bars::magnitudes(factor, low, high, steps)
            .map(Bins::Edges)
            .map_err(|text| format!("llquantize: {text}"))
    }

    /// The bar of a value.
    #[inline]
    pub fn of(&self, value: i64) -> i32 {
        let mirrored = |bar: u32| {
            if value < 0 { -(bar as i32) } else { bar as i32 }
        };
        let size = value.unsigned_abs();
        match self {
            Bins::Powers => match size.checked_ilog2() {
                None => 0,
                // -2^63 shares the last bar.
                Some(power) => mirrored((power + 1).min(63)),
            },
            Bins::Steps { low, step, levels } => match value.checked_sub(*low) {
                _ if value < *low => 0,
                Some(above) => ((above / step).min(i64::from(*levels)) + 1) as i32,
                None => levels + 1,
            },
            Bins::Edges(edges) => {
                mirrored(edges.partition_point(|&edge| edge.unsigned_abs() <= size) as u32)
            }
            Bins::Fine => mirrored(if size < FINE_EXACT {
                size as u32
            } else {
                let power = size.ilog2();
                let step = (size >> (power - FINE_BITS)) as u32 & ((1 << FINE_BITS) - 1);
                FINE_EXACT as u32 + ((power - FINE_BITS - 1) << FINE_BITS) + step
            }),
        }
    }

    /// Distance of a value from the end of its bar in [`Bins::Fine`] that is nearer to 0.
    #[inline]
    pub fn fine_distance(value: i64) -> u64 {
        let size = value.unsigned_abs();
        match size.checked_ilog2() {
            Some(power) if size >= FINE_EXACT => size & ((1 << (power - FINE_BITS)) - 1),
            _ => 0,
        }
    }

    /// The value of a bar nearest to 0.
    pub fn nearest(&self, bar: i32) -> i64 {
        let (low, high) = self.range(bar);
        match bar {
            ..0 => high.map_or(i64::MIN, |high| high - 1),
            0.. => low.unwrap_or(0),
        }
    }

    /// The smallest value of a bar and the first one past its end; `None` if open.
    pub fn range(&self, bar: i32) -> (Option<i64>, Option<i64>) {
        // For a bar of positive values: its first value and the next bar's.
        let mirrored = |range: &dyn Fn(u32) -> (u64, Option<u64>)| {
            let (low, high) = range(bar.unsigned_abs());
            let signed = |value: u64| i64::try_from(value).ok();
            if bar > 0 {
                (signed(low), high.and_then(signed))
            } else {
                let low = signed(low).map(|low| 1 - low);
                (high.and_then(signed).map(|high| 1 - high), low)
            }
        };
        match self {
            Bins::Powers if bar == 0 => (Some(0), Some(1)),
            Bins::Powers => mirrored(&|bar| (1 << (bar - 1), (bar < 63).then(|| 1 << bar))),
            Bins::Steps { low, step, levels } => {
                let edge = |bar: i32| Some(low + i64::from(bar - 1) * step);
                let below = (bar > 0).then(|| edge(bar)).flatten();
                (below, (bar <= *levels).then(|| edge(bar + 1)).flatten())
            }
            Bins::Edges(edges) if bar == 0 => (Some(1 - edges[0]), Some(edges[0])),
            Bins::Edges(edges) => mirrored(&|bar| {
                let edge = |bar: u32| edges.get(bar as usize).map(|edge| edge.unsigned_abs());
                (edge(bar - 1).unwrap_or(u64::MAX), edge(bar))
            }),
            Bins::Fine if bar == 0 => (Some(0), Some(1)),
            Bins::Fine => mirrored(&|bar| {
                let Some(above) = u64::from(bar).checked_sub(FINE_EXACT) else {
                    return (u64::from(bar), Some(u64::from(bar) + 1));
                };
                let shift = (above >> FINE_BITS) as u32 + 1;
                let step = (1 << FINE_BITS) + (above & ((1 << FINE_BITS) - 1));
                (step << shift, Some((step + 1) << shift))
            }),
        }
    }

    /// The lowest and the highest possible bar.
    pub fn limits(&self) -> (i32, i32) {
        match self {
            Bins::Powers => (-63, 63),
            Bins::Steps { levels, .. } => (0, levels + 1),
            Bins::Edges(edges) => (-(edges.len() as i32), edges.len() as i32),
            Bins::Fine => (self.of(i64::MIN), self.of(i64::MAX)),
        }
    }

    /// The label that DTrace prints for a bar. `lowest` is the first bar drawn.
    pub fn label(&self, bar: i32, lowest: i32) -> String {
        let (low, high) = self.range(bar);
        let outer = |value: Option<i64>| value.map(|value| value.to_string()).unwrap_or_default();
        match self {
            // Negative bars are labeled with the end nearer to 0.
            Bins::Powers | Bins::Fine if bar < 0 => outer(high.map(|high| high - 1)),
            Bins::Powers | Bins::Fine => outer(low),
            Bins::Steps { levels, .. } => match bar {
                0 => format!("< {}", outer(high)),
                bar if bar > *levels => format!(">= {}", outer(low)),
                _ => outer(low),
            },
            Bins::Edges(edges) => {
                let last = edges.len() as i32;
                match bar {
                    0 if edges[0] == 1 => "0".to_owned(),
                    0 if lowest >= 0 => format!("< {}", edges[0]),
                    0 => format!("abs() < {}", edges[0]),
                    bar if bar == -last => format!("<= {}", outer(high.map(|high| high - 1))),
                    bar if bar == last => format!(">= {}", outer(low)),
                    bar if bar < 0 => outer(high.map(|high| high - 1)),
                    _ => outer(low),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Bins> {
        vec![
            Bins::Powers,
            Bins::steps(0, 1000, 100).unwrap(),
            Bins::steps(-10, 10, 3).unwrap(),
            Bins::magnitudes(10, 0, 6, 20).unwrap(),
            Bins::magnitudes(4, 0, 1, 2).unwrap(),
            Bins::magnitudes(4, 4, 6, 32).unwrap(),
            Bins::magnitudes(10, 0, 3, 1).unwrap(),
            Bins::Fine,
        ]
    }

    #[test]
    fn every_value_is_in_the_range_of_its_bar() {
        let mut values = vec![i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1];
        for shift in 0..63 {
            for near in -2..=2 {
                values.extend([(1i64 << shift) + near, near - (1i64 << shift)]);
            }
        }
        values.extend(-300..300);
        values.extend((0..20).map(|n| 7_777_777_777i64 * n * n * n));
        for bins in all() {
            let (first, last) = bins.limits();
            for &value in &values {
                let bar = bins.of(value);
                assert!((first..=last).contains(&bar), "{bins:?} {value} {bar}");
                let (low, high) = bins.range(bar);
                assert!(
                    low.is_none_or(|low| low <= value) && high.is_none_or(|high| value < high),
                    "{bins:?} {value} {bar} {low:?} {high:?}"
                );
            }
            values.sort_unstable();
            assert!(values.is_sorted_by_key(|&value| bins.of(value)), "{bins:?}");
        }
    }

    #[test]
    fn bars_touch_each_other() {
        for bins in all() {
            let (first, last) = bins.limits();
            for bar in first..last {
                let (_, high) = bins.range(bar);
                assert_eq!(high, bins.range(bar + 1).0, "{bins:?} {bar}");
            }
        }
    }

    #[test]
    fn a_value_is_its_bar_and_the_distance() {
        for value in [
            0i64,
            5,
            -5,
            63,
            64,
            65,
            -65,
            12_345,
            -98_765_432,
            i64::MAX,
            -i64::MAX,
        ] {
            let bar = Bins::Fine.of(value);
            let distance = Bins::fine_distance(value) as i64;
            let nearest = Bins::Fine.nearest(bar);
            let found = if value < 0 {
                nearest - distance
            } else {
                nearest + distance
            };
            assert_eq!(found, value);
        }
    }

    #[test]
    fn fine_bars_are_narrow() {
        for value in [100i64, 12_345, 98_765_432, 1 << 40, i64::MAX / 3] {
            let (low, high) = Bins::Fine.range(Bins::Fine.of(value));
            let width = high.unwrap() - low.unwrap();
            assert!(width as f64 <= value as f64 / 31.0, "{value} {width}");
        }
    }

    #[test]
    fn labels_are_those_of_dtrace() {
        let labels = |bins: &Bins, first: i32| -> Vec<String> {
            let (low, high) = bins.limits();
            (first.max(low)..=high.min(first.max(low) + 12))
                .map(|bar| bins.label(bar, first.max(low)))
                .collect()
        };
        assert_eq!(
            labels(&Bins::Powers, -3)[..6],
            ["-4", "-2", "-1", "0", "1", "2"]
        );
        let steps = Bins::steps(0, 30, 10).unwrap();
        assert_eq!(labels(&steps, 0), ["< 0", "0", "10", "20", ">= 30"]);
        // The cases basicA and basicD of DTrace's own test of llquantize.
        let few = Bins::magnitudes(4, 0, 1, 2).unwrap();
        let expected = [
            "<= -16", "-8", "-4", "-2", "-1", "0", "1", "2", "4", "8", ">= 16",
        ];
        assert_eq!(labels(&few, -100), expected);
        let high = Bins::magnitudes(4, 4, 6, 32).unwrap();
        assert_eq!(
            labels(&high, -2)[..4],
            ["-288", "-256", "abs() < 256", "256"]
        );
        assert_eq!(labels(&high, 0)[..3], ["< 256", "256", "288"]);
    }

    #[test]
    fn arguments_rejected_by_dtrace_are_errors() {
        for wrong in [
            (1, 0, 1, 1),
            (10, 2, 1, 10),
            (10, 0, 30, 10),
            (10, 0, 3, 3),
            (10, 0, 3, 15),
            (10, 0, 3, 40),
            (2, 0, 62, 2),
        ] {
            let (factor, low, high, steps) = wrong;
            assert!(
                Bins::magnitudes(factor, low, high, steps).is_err(),
                "{wrong:?}"
            );
        }
        assert!(Bins::steps(0, 10, 0).is_err());
        assert!(Bins::steps(0, 10, 11).is_err());
        assert!(Bins::steps(0, 1_000_000, 1).is_err());
        assert!(Bins::steps(i64::MIN, i64::MAX, 1).is_err());
    }
}
