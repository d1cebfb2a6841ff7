//! What could not be read, told without flooding: the first of each kind one by one, the rest as a number.

use perfquet_events::Error;
use perfquet_events::event::{Event, Place, Problem, Sink};

/// Told one by one, of each kind.
const TOLD_MAX: u64 = 16;

/// Counts problems by kind.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    /// Kind, how many in all.
    kinds: Vec<(&'static str, u64)>,
}

impl Problems {
    /// Tells one problem; `message` is only made if it will be told.
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
        if count > TOLD_MAX {
            return Ok(());
        }
        sink.event(Event::Problem(Problem {
            place,
            count: 1,
            message: &message(),
        }))
    }

    /// Reports the number of those not reported individually.
    pub(crate) fn finish(&mut self, sink: &mut dyn Sink) -> Result<(), Error> {
        for (kind, count) in self.kinds.drain(..) {
            if count > TOLD_MAX {
                sink.event(Event::Problem(Problem {
                    place: Place::Whole,
                    count: count - TOLD_MAX,
                    message: &format!("{kind}: more of the same"),
                }))?;
            }
        }
        Ok(())
    }
}
