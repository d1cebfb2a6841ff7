//! Stacks that an input defines once.

use super::*;

/// A sample refers to a stack that the input has defined before; an ID without a stack is none.
#[test]
fn samples_refer_to_stacks_by_their_ids() {
    let chain = [NamedFrame {
        function: b"main",
        ..NamedFrame::default()
    }];
    let mut trace = Trace::new();
    trace.input("a", |sink| {
        send(sink, Event::Type(&clock()));
        send(
            sink,
            Event::Stack(StackDefinition {
                id: 7,
                time: None,
                pid: None,
                stack: Stack::Named(&chain),
            }),
        );
        for id in [7, 8, 7] {
            let sample = Sample {
                user_stack: Stack::Id(id),
                ..Sample::of(EventId(0))
            };
            send(sink, Event::Sample(&sample));
        }
    });
    let rows = trace.finish();
    assert_eq!(rows.of("samples", &["user_stack"]), ["1", "-", "1"]);
    assert_eq!(rows.stack("1"), "main");
}
