//! A reader alone: bytes → events, each checked like in the importer.

use perfquet_events::event::{Event, Sink};
use perfquet_events::{Error, Format, Input};

use crate::watch::watch;

/// Reads all parts of an event, like the importer.
#[derive(Default)]
struct Touch {
    /// Number of fields of each declared event.
    fields: Vec<usize>,
    sum: u64,
}

impl Sink for Touch {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Event::Type(declared) = event {
            self.fields.push(declared.fields.len());
        }
        if let Event::Sample(sample) = event {
            let count = self
                .fields
                .get(sample.event.0 as usize)
                .expect("declared before");
            for field in 0..*count {
                self.sum += format!("{:?}", sample.fields.value(field)).len() as u64;
            }
        }
        self.sum += format!("{event:?}").len() as u64;
        Ok(())
    }
}

/// Reads one input.
pub(crate) fn try_reader(format: &Format, bytes: &[u8]) -> Result<(), String> {
    watch(|| {
        if let Ok(mut input) = Input::from_bytes("fuzz", bytes) {
            let _ = (format.sniff)(input.head());
            let _ = format.read(&mut input, &mut Touch::default());
        }
    })
}
