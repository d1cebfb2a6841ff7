//! Bars of `lquantize` and `llquantize`, shared by in-kernel aggregation and queries.
//!
//! Arguments that DTrace's compiler rejects are errors here. (libdtrace, dt_cc.c: `dt_compile_agg` of lquantize and llquantize)

/// Maximum number of bars. DTrace stores the number in 16 bits.
pub const MOST_BARS: i64 = 65_535;

/// Returns the number of bars of `lquantize(x, low, high, step)` between its two ends. The error states what was expected.
pub fn levels(low: i64, high: i64, step: i64) -> Result<i64, String> {
    if step < 1 {
        return Err(format!("expected a step of at least 1, found {step}"));
    }
    match high.checked_sub(low).map(|width| width / step) {
        Some(levels @ 1..=MOST_BARS) => Ok(levels),
        _ => Err(format!(
            "expected 1 to {MOST_BARS} steps of {step} between {low} and {high}"
        )),
    }
}

/// Returns the lower bounds of the bars of `llquantize(x, factor, low, high, steps)`: `steps` per magnitude from `factor ^ low` up
/// to `factor ^ (high + 1)`. Negative values mirror them. The error states what was expected.
pub fn magnitudes(factor: i64, low: i64, high: i64, steps: i64) -> Result<Vec<i64>, String> {
    let wrong = |text: &str| Err(text.to_owned());
    if !(2..=MOST_BARS).contains(&factor) {
        return wrong("expected a factor from 2 to 65535");
    }
    if low < 0 || high < low {
        return wrong("expected magnitudes from 0 up, the lower before the higher");
    }
    if !(1..=MOST_BARS).contains(&steps) {
        return wrong("expected 1 to 65535 steps per magnitude");
    }
    let power = |exponent: i64| factor.checked_pow(u32::try_from(exponent).ok()?);
    let (Some(first), Some(second), Some(last)) = (
        power(low),
        power(low.saturating_add(1)),
        power(high.saturating_add(1)),
    ) else {
        return wrong("the highest magnitude exceeds 64 bits");
    };
    if steps < factor && factor % steps != 0 {
        return wrong("fewer steps than the factor must divide it evenly");
    }
    if steps > factor {
        let divided = if low == 0 { factor * factor } else { second };
        if steps % factor != 0 || divided % steps != 0 {
            return wrong(
                "more steps than the factor must be a multiple of it and divide the first magnitude that has as many values",
            );
        }
    }
    if (high - low + 1) * steps > MOST_BARS {
        return wrong("more than 65535 bars");
    }
    let mut edges = vec![first];
    let mut magnitude = low;
    // The lowest magnitude has fewer values than steps: a bar for each.
    if low == 0 && steps > factor {
        edges.extend(2..=factor);
        magnitude += 1;
    }
    while magnitude <= high {
        // Cannot overflow: it is at most `last`.
        let width = power(magnitude + 1).unwrap_or(last) / steps;
        edges.extend((steps / factor + 1..=steps).map(|step| step * width));
        magnitude += 1;
    }
    Ok(edges)
}
