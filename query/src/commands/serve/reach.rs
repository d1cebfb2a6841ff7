//! Which stretches of time have calls that reach into a later window.
//!
//! ```text
//! time         |  a  |  b  |  c  |  d  |      buckets of equal length
//! latest end      9s    2s    3s    4s      of the calls that begin in them
//! window from 5s: only bucket a
//! ```
//! Tables are sorted by their begin, so rows that overlap a window may be anywhere before it. With the latest end of each
//! bucket, most of them need not be read.

use anyhow::Result;
use perfquet::Session;

use super::engine::{at, integers, stream};
use super::http::Peer;

const BUCKETS: i64 = 4096;
/// More stretches are read as one.
const MOST: usize = 64;

pub(super) struct Reach {
    /// Time of the first bucket.
    start: i64,
    length: i64,
    /// Latest end of the calls of each bucket.
    ends: Vec<i64>,
}

impl Reach {
    /// Of the table `calls`, from `start` to `end`.
    pub(super) fn of_calls(session: &Session, start: i64, end: i64) -> Result<Reach> {
        let length = (end.saturating_sub(start) / BUCKETS).saturating_add(1);
        let sql = format!(
            "SELECT (time - {start}) / {length}, max(time + duration) FROM calls WHERE time >= {start} GROUP BY 1"
        );
        let mut ends = Vec::new();
        stream(session, &sql, &Peer::NONE, |batch| {
            let (buckets, latest) = (integers(batch, 0)?, integers(batch, 1)?);
            for row in 0..batch.num_rows() {
                if let (Some(bucket), Some(latest)) = (at(&buckets, row), at(&latest, row))
                    && let Ok(bucket) = usize::try_from(bucket)
                    && bucket <= BUCKETS as usize
                {
                    if ends.len() <= bucket {
                        ends.resize(bucket + 1, i64::MIN);
                    }
                    ends[bucket] = latest;
                }
            }
            Ok(())
        })?;
        Ok(Reach {
            start,
            length,
            ends,
        })
    }

    /// Stretches of begins before `from` whose calls may end after it.
    pub(super) fn before(&self, from: i64) -> Vec<(i64, i64)> {
        let mut found: Vec<(i64, i64)> = Vec::new();
        for (bucket, &end) in self.ends.iter().enumerate() {
            let begin = self.start + bucket as i64 * self.length;
            if begin >= from {
                break;
            }
            if end <= from {
                continue;
            }
            let stop = (begin + self.length).min(from);
            match found.last_mut() {
                Some(last) if last.1 == begin => last.1 = stop,
                _ => found.push((begin, stop)),
            }
        }
        match (found.first(), found.last()) {
            (Some(first), Some(last)) if found.len() > MOST => vec![(first.0, last.1)],
            _ => found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_buckets_that_reach_are_read() {
        let reach = Reach {
            start: 100,
            length: 10,
            ends: vec![500, 115, i64::MIN, 160, 170, 151],
        };
        assert_eq!(reach.before(100), []);
        assert_eq!(reach.before(150), [(100, 110), (130, 150)]);
        assert_eq!(reach.before(155), [(100, 110), (130, 150)]);
        assert_eq!(reach.before(165), [(100, 110), (140, 150)]);
        assert_eq!(reach.before(500), []);
    }
}
