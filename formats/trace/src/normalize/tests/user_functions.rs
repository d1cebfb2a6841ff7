//! Functions of programs that an input gives by their addresses.

use super::*;

/// The name is that of the code mapped there in the process; without a mapping, the address.
#[test]
fn addresses_of_user_functions_are_named_by_their_mappings() {
    let mut trace = Trace::new();
    trace.input("a", |sink| {
        send(
            sink,
            Event::Symbol(Symbol {
                module: Some(b"/bin/sh"),
                start: 0x200,
                length: 0x100,
                name: b"named",
                line: None,
            }),
        );
        send(sink, mapping(4, 0x1000, b"/bin/sh"));
        for (time, pid, address) in [
            (1, 4, 0x1000),
            (2, 4, 0x1ff0),
            (3, 5, 0x1000),
            (4, 4, 0x1000),
        ] {
            let common = Common {
                time: Some(time),
                pid: Some(pid),
                tid: Some(pid),
                ..Common::default()
            };
            let function = Function::Address {
                space: Space::User,
                address,
            };
            send(
                sink,
                Event::Enter(&Enter {
                    common,
                    function,
                    ..Enter::default()
                }),
            );
            send(
                sink,
                Event::Leave(&Leave {
                    common,
                    function,
                    ..Leave::default()
                }),
            );
        }
    });
    let rows = trace.finish();
    assert_eq!(
        rows.of("calls", &["pid", "function", "module"]),
        [
            "4 named /bin/sh",
            "4 0x1ff0 /bin/sh",
            "5 0x1000 -",
            "4 named /bin/sh"
        ]
    );
}
