//! Strings of arguments at their limit.

use perfquet_events::event::*;

use super::play;
use crate::normalize::tests::Trace;

/// Arguments that are all distinct: their strings are forgotten, the open calls are not.
#[test]
fn open_calls_outlive_distinct_arguments() {
    let mut trace = Trace::new();
    trace.input("test", |sink| {
        play(sink, "> 1 around tid=5");
        for number in 0..1500_i64 {
            let arg = format!("{number:060000}");
            let common = Common {
                time: Some(10 * number + 2),
                tid: Some(5),
                ..Common::default()
            };
            let inside = Enter {
                common,
                function: Function::named(b"inside"),
                args: &[arg.as_bytes()],
                ..Enter::default()
            };
            sink.event(Event::Enter(&inside)).unwrap();
            play(sink, &format!("< {} inside tid=5", 10 * number + 5));
        }
        play(sink, "< 20000 around tid=5");
    });
    let rows = trace.finish();
    assert_eq!(rows.counts.calls, 1501);
    assert!(rows.of("problems", &["message"]).is_empty());
    let columns = ["function", "duration", "self_time", "depth", "parent_id"];
    let calls = rows.of("calls", &columns);
    let inside = calls.iter().filter(|row| *row == "inside 3 3 1 1");
    assert_eq!(inside.count(), 1500, "{:?}", calls.last());
    let around = "around 19999 15499 0 -".to_owned();
    assert!(calls.contains(&around), "{:?}", calls.last());
}
