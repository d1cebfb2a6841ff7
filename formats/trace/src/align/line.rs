//! A line through points whose parts may be wrong.

use super::DRIFT_MAX;

/// Shorter spans tell no drift, in nanoseconds.
const DRIFT_SPAN: i64 = 10_000_000_000;

/// A line through points of time: `value + slope · (time − origin)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// The time at which the value is exact.
    pub origin: i64,
    /// At `origin`, in nanoseconds.
    pub value: i64,
    /// Parts per billion.
    pub slope: i64,
}

impl Line {
    /// The line whose slope and height are medians, after Theil and Sen: up to a quarter of the points may be anywhere. Points are in
    /// the order of time. Without a slope if they are within ten seconds. `None` without points.
    pub fn through(points: &[(i64, i64)]) -> Option<Line> {
        let (first, last) = (points.first()?, points.last()?);
        let origin = first.0.midpoint(last.0);
        let half = points.len() / 2;
        let mut slopes: Vec<i128> = Vec::new();
        if last.0.saturating_sub(first.0) > DRIFT_SPAN {
            let pairs = points.iter().zip(points.iter().skip(points.len() - half));
            slopes.extend(pairs.filter_map(|(early, late)| {
                let time = i128::from(late.0) - i128::from(early.0);
                let rise = i128::from(late.1) - i128::from(early.1);
                (time > 0).then(|| (rise * 1_000_000_000).div_euclid(time))
            }));
        }
        let slope = match slopes.is_empty() {
            true => 0,
            false => median(&mut slopes),
        };
        let slope = i64::try_from(slope).ok()?.clamp(-DRIFT_MAX, DRIFT_MAX);
        let flat = Line {
            origin,
            value: 0,
            slope,
        };
        let mut heights: Vec<i128> = points
            .iter()
            .map(|&(time, value)| i128::from(value) - flat.at(time))
            .collect();
        let value = i64::try_from(median(&mut heights)).ok()?;
        Some(Line { value, ..flat })
    }

    /// The value at a time.
    pub fn at(&self, time: i64) -> i128 {
        let since = i128::from(time) - i128::from(self.origin);
        i128::from(self.value) + (since * i128::from(self.slope)).div_euclid(1_000_000_000)
    }
}

/// The lower median; 0 of no values.
pub fn median(values: &mut [i128]) -> i128 {
    match values.len() {
        0 => 0,
        count => *values.select_nth_unstable((count - 1) / 2).1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_wrong_points_does_not_move_the_line() {
        let points = (0..1_000i64).map(|number| {
            let time = number * 1_000_000_000;
            let wrong = if number % 5 == 0 { 9_000_000_000 } else { 0 };
            (time, 40 + number * 3_000 + wrong)
        });
        let line = Line::through(&points.collect::<Vec<_>>()).unwrap();
        assert_eq!(line.slope, 3_000);
        assert!((line.at(0) - 40).abs() < 3, "{line:?}");
    }
}
