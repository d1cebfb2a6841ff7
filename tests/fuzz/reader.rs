//! A reader alone: bytes → events, each of which is looked at as the importer would.

use perfquet_events::event::{Event, Fields, Sink};
use perfquet_events::event_format::Plan;
use perfquet_events::{Error, Format, Input};

use crate::watch::watch;

/// Looks at everything that an event holds, as the importer would.
#[derive(Default)]
struct Touch {
    plans: Vec<Plan>,
    sum: u64,
}

impl Sink for Touch {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Event::Type(declared) = event {
            self.plans
                .push(Plan::new(&declared.fields, declared.big_endian));
        }
        if let Event::Sample(sample) = event {
            let plan = self
                .plans
                .get(sample.event.0 as usize)
                .expect("declared before");
            if let Fields::Raw(payload) = sample.fields {
                for op in plan.ops() {
                    self.sum += format!("{:?}", op.decode(payload)).len() as u64;
                }
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
            let _ = (format.read)(&mut input, &mut Touch::default());
        }
    })
}
