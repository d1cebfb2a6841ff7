//! Divides the parts of a table into runs: parts that follow each other in time, so that each run is sorted as a whole.
//!
//! ```text
//! parts   0–10   3–7   10–20   8–30   NULL
//! runs    0–10 10–20      3–7 8–30      NULL         merged where a plan needs the order
//! ```

use std::sync::Arc;

use datafusion::scalar::ScalarValue;
use perfquet_trace::store::{Part, Root};

use crate::tables::stored_columns::StoredColumns;

/// One Parquet file.
#[derive(Debug, Clone)]
pub(crate) struct PartFile {
    /// What its path begins in.
    pub(crate) trace: Root,
    /// Its entry in the manifest.
    pub(crate) entry: Part,
    /// Values of the constant columns.
    pub(crate) constants: Vec<ScalarValue>,
    /// Number of threads of the trace; 0 if unknown.
    pub(crate) threads: u64,
    /// How its columns are stored.
    pub(crate) stored: Arc<StoredColumns>,
}

impl PartFile {
    /// Smallest and largest value of `time`.
    pub(crate) fn time(&self) -> Option<(i64, i64)> {
        self.entry.time_min.zip(self.entry.time_max)
    }
}

/// Divides sorted parts into runs, as few as possible.
pub(crate) fn by_time(mut parts: Vec<PartFile>) -> Vec<Vec<PartFile>> {
    // Rows without a time come first.
    parts.sort_by_key(|part| part.time().map(|(first, _)| first));
    let mut runs: Vec<Vec<PartFile>> = Vec::new();
    for part in parts {
        let before = |run: &Vec<PartFile>| run.last().and_then(|last| last.time());
        let fitting = runs.iter_mut().filter(|run| follows(before(run), &part));
        match fitting.max_by_key(|run| before(run)) {
            Some(run) => run.push(part),
            None => runs.push(vec![part]),
        }
    }
    runs
}

/// Whether all rows of a part come no earlier than those of a part with these times.
fn follows(before: Option<(i64, i64)>, part: &PartFile) -> bool {
    let Some((_, end)) = before else {
        // All rows before are without a time.
        return true;
    };
    // An older manifest does not say whether there are NULLs, which come first.
    part.entry.time_nulls == Some(0) && part.time().is_some_and(|(start, _)| end <= start)
}

/// Divides the longest runs until there are `count` runs, so that as many threads have work.
pub(crate) fn split(mut runs: Vec<Vec<PartFile>>, count: usize) -> Vec<Vec<PartFile>> {
    let bytes = |parts: &[PartFile]| parts.iter().map(|part| part.entry.bytes).sum::<u64>();
    while runs.len() < count {
        let several = runs.iter_mut().filter(|run| run.len() > 1);
        let Some(longest) = several.max_by_key(|run| bytes(run)) else {
            break;
        };
        let half = bytes(longest) / 2;
        let middle = (1..longest.len()).min_by_key(|&end| bytes(&longest[..end]).abs_diff(half));
        let rest = longest.split_off(middle.unwrap_or(1));
        runs.push(rest);
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    type Times = (Option<(i64, i64)>, Option<u64>);

    fn part((time, time_nulls): Times, bytes: u64) -> PartFile {
        PartFile {
            trace: Root::Directory(Path::new("").into()),
            threads: 0,
            stored: Arc::default(),
            entry: Part {
                rows: 1,
                bytes,
                time_min: time.map(|time| time.0),
                time_max: time.map(|time| time.1),
                time_nulls,
                ..Part::default()
            },
            constants: Vec::new(),
        }
    }

    fn check(parts: &[Times], expected: &[&[Option<(i64, i64)>]]) {
        let parts = parts.iter().map(|&times| part(times, 1)).collect();
        let times = |run: Vec<PartFile>| run.iter().map(PartFile::time).collect::<Vec<_>>();
        let found: Vec<_> = by_time(parts).into_iter().map(times).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn parts_of_a_run_follow_each_other() {
        let whole = |first, last| (Some((first, last)), Some(0));
        check(&[], &[]);
        check(
            &[whole(10, 20), whole(0, 10), whole(20, 20)],
            &[&[Some((0, 10)), Some((10, 20)), Some((20, 20))]],
        );
        check(
            &[whole(0, 10), whole(3, 7), whole(8, 30), whole(10, 20)],
            &[
                &[Some((0, 10)), Some((10, 20))],
                &[Some((3, 7)), Some((8, 30))],
            ],
        );
    }

    #[test]
    fn rows_without_a_time_come_first() {
        let whole = (Some((0, 10)), Some(0));
        check(&[whole, (None, Some(5))], &[&[None, Some((0, 10))]]);
        let with_nulls = (Some((20, 30)), Some(1));
        check(&[whole, with_nulls], &[&[Some((0, 10))], &[Some((20, 30))]]);
        let unknown = (Some((20, 30)), None);
        check(&[whole, unknown], &[&[Some((0, 10))], &[Some((20, 30))]]);
        check(&[unknown, (None, None)], &[&[None, Some((20, 30))]]);
    }

    #[test]
    fn long_runs_are_divided_by_bytes() {
        let sizes = |runs: Vec<Vec<u64>>, count| {
            let parts = |sizes: Vec<u64>| {
                let one = |bytes| part((None, None), bytes);
                sizes.into_iter().map(one).collect::<Vec<_>>()
            };
            let divided = split(runs.into_iter().map(parts).collect(), count);
            let bytes = |run: Vec<PartFile>| run.iter().map(|part| part.entry.bytes).collect();
            divided.into_iter().map(bytes).collect::<Vec<Vec<u64>>>()
        };
        assert_eq!(sizes(vec![], 4), Vec::<Vec<u64>>::new());
        assert_eq!(sizes(vec![vec![5, 1, 1, 1]], 2), [vec![5], vec![1, 1, 1]]);
        assert_eq!(sizes(vec![vec![1, 1], vec![9]], 2), [vec![1, 1], vec![9]]);
        assert_eq!(
            sizes(vec![vec![1, 1], vec![9]], 8),
            [vec![1], vec![9], vec![1]]
        );
    }
}
