//! What every answer says of a trace that lacks events.
//!
//! ```text
//! 17,695 events were lost: numbers are too low; perfquet-query info says where
//! ```

use anyhow::Result;
use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int64Type};
use perfquet::Session;
use perfquet::sql::names::literal;
use perfquet_trace::count::counted;
use perfquet_trace::loss::{FILTER, LESS_RECORDED};

/// The condition of losses, or of times in which less was recorded, also because a filter was requested.
pub(crate) fn is_lost(lost: bool) -> String {
    let reasons: Vec<String> = LESS_RECORDED.iter().map(|reason| literal(reason)).collect();
    let less = format!(
        "(coalesce(reason, '') IN ({}) OR coalesce(reason, '') LIKE '%{FILTER}%')",
        reasons.join(", ")
    );
    match lost {
        true => format!("NOT {less}"),
        false => less,
    }
}

/// The sentence; `None` if nothing was lost.
pub(crate) fn note(session: &Session) -> Result<Option<String>> {
    if !session.has_rows("losses") {
        return Ok(None);
    }
    let sql = format!(
        "SELECT CAST(coalesce(sum(count), 0) AS BIGINT), count(*) FILTER (WHERE count IS NULL) FROM losses WHERE {}",
        is_lost(true)
    );
    let (mut known, mut unknown) = (0, 0);
    for batch in session.collect(&sql)? {
        for (place, sum) in [&mut known, &mut unknown].into_iter().enumerate() {
            let column = cast(batch.column(place), &DataType::Int64)?;
            let column = column.as_primitive::<Int64Type>();
            let values = (0..column.len()).filter(|&row| column.is_valid(row));
            *sum += values.map(|row| column.value(row)).sum::<i64>();
        }
    }
    let events = counted(known.unsigned_abs(), "event");
    let were = if known == 1 { "was" } else { "were" };
    let what = match (known, unknown) {
        (0, 0) => return Ok(None),
        (0, _) => "events were lost, how many is unknown".to_owned(),
        (_, 0) => format!("{events} {were} lost"),
        _ => format!("at least {events} {were} lost"),
    };
    Ok(Some(format!(
        "{what}: numbers may be too low; perfquet-query info lists the losses"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_and_requested_filters_are_no_losses() {
        let less = "(coalesce(reason, '') IN ('throttled', 'paused', 'resumed') OR coalesce(reason, '') LIKE '%filter%')";
        assert_eq!(is_lost(false), less);
        assert_eq!(is_lost(true), format!("NOT {less}"));
    }
}
