//! Reports unreadable data in bounded volume: the first problems of each kind individually, the rest as a number.

use perfquet_events::Error;
use perfquet_events::event::{Event, Place, Problem, Sink};

/// Problems of each kind reported individually.
const REPORTED_MAX: u64 = 16;

/// Counts problems by kind.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    /// Kind, and number of problems.
    kinds: Vec<(&'static str, u64)>,
}

/// Reports numbers of things in the whole input, without those that are 0.
pub(crate) fn report_totals(
    sink: &mut dyn Sink,
    totals: impl IntoIterator<Item = (u64, String)>,
) -> Result<(), Error> {
    for (count, message) in totals {
        if count > 0 {
            sink.event(Event::Problem(Problem {
                place: Place::Whole,
                count,
                message: &message,
            }))?;
        }
    }
    Ok(())
}

impl Problems {
    /// Reports one problem; `message` is formatted only if needed.
    #[cold]
    pub(crate) fn report(
        &mut self,
        sink: &mut dyn Sink,
        place: Place,
        kind: &'static str,
        message: impl FnOnce() -> String,
    ) -> Result<(), Error> {
        let count = match self.kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                self.kinds.push((kind, 1));
                1
            }
        };
        if count > REPORTED_MAX {
            return Ok(());
        }
        sink.event(Event::Problem(Problem {
            place,
            count: 1,
            message: &message(),
        }))
    }

    /// Reports the number of problems not reported individually.
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        for (kind, count) in self.kinds.drain(..) {
            if count > REPORTED_MAX {
                sink.event(Event::Problem(Problem {
                    place: Place::Whole,
                    count: count - REPORTED_MAX,
                    message: &format!("{kind}: more of the same"),
                }))?;
            }
        }
        Ok(())
    }
}
