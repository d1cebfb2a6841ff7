//! The fact with the ranges of time that were recorded: limited to what rows are kept of.

use perfquet_events::event::*;

use super::{Rows, TimeRange, Trace, clock, send};
use crate::recorded::RANGES;

/// What the recorder says at the end.
fn recorded(sink: &mut dyn Sink, value: &str) {
    let name = RANGES;
    send(sink, Event::Fact(Fact::Other { name, value }));
}

fn samples(sink: &mut dyn Sink, times: std::ops::Range<i64>) {
    send(sink, Event::Type(&clock()));
    for time in times {
        let sample = Sample {
            time: Some(time),
            ..Sample::of(EventId(0))
        };
        send(sink, Event::Sample(&sample));
    }
}

/// The fact of a trace.
fn fact(rows: &Rows) -> Option<String> {
    let facts = &rows.directory.manifest().facts;
    facts.other.get(RANGES).cloned()
}

/// The fact of a trace of one input.
fn kept(mut trace: Trace, feed: impl FnOnce(&mut dyn Sink)) -> Option<String> {
    trace.input("a", feed);
    fact(&trace.finish())
}

#[test]
fn a_selection_limits_what_was_recorded() {
    let select = |selection: Selection| {
        kept(Trace::new(), |sink| {
            send(sink, Event::Selection(&selection));
            samples(sink, 100..120);
            recorded(sink, "50..200 300..400");
        })
    };
    let all = select(Selection::default());
    assert_eq!(all.as_deref(), Some("50..200 300..400"));
    let delayed = select(Selection {
        begin: Some(110),
        ..Selection::default()
    });
    assert_eq!(delayed.as_deref(), Some("110..200 300..400"));
    let stopped = select(Selection {
        begin: Some(110),
        stop_after: Some(5),
        ..Selection::default()
    });
    assert_eq!(stopped.as_deref(), Some("110..115"));
    // No start trigger fired.
    let waiting = select(Selection {
        waits: true,
        ..Selection::default()
    });
    assert_eq!(waiting, None);
    // After the last row that is kept, nothing counts.
    let few = |most: u64| {
        select(Selection {
            max_events: Some(most),
            ..Selection::default()
        })
    };
    assert_eq!(few(20), None);
    assert!(few(21).is_some());
}

#[test]
fn a_range_of_an_import_limits_what_was_recorded() {
    let mut trace = Trace::new();
    trace.time = Some(TimeRange {
        start: Some(5),
        end: Some(15),
    });
    let range = kept(trace, |sink| {
        samples(sink, 100..120);
        recorded(sink, "50..200");
    });
    assert_eq!(range.as_deref(), Some("105..115"));
}

#[test]
fn several_recordings_have_no_common_time() {
    let of_inputs = |is_one_recording: bool| {
        let mut trace = Trace::new();
        trace.output.is_one_recording = is_one_recording;
        trace.input("a", |sink| recorded(sink, "50..200"));
        trace.input("b", |_| ());
        fact(&trace.finish())
    };
    assert_eq!(of_inputs(true).as_deref(), Some("50..200"));
    assert_eq!(of_inputs(false), None);
}
