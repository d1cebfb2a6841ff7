//! Fields that are addresses of code.

use super::*;

/// A function at each of two addresses; the event prints one of them as a function.
#[test]
fn code_that_a_field_refers_to_has_a_frame() {
    let field = |name: &str, offset| Field {
        name: name.to_owned(),
        kind: FieldType::UInt(8),
        layout: Some(Layout {
            offset,
            size: 8,
            place: FieldPlace::Inline,
        }),
        declaration: format!("unsigned long {name}"),
    };
    let kmalloc = EventType {
        system: "kmem".into(),
        name: "kmalloc".into(),
        fields: vec![field("call_site", 0), field("ptr", 8)],
        print_format: Some(
            r#""call_site=%pS ptr=%p", (void *)REC->call_site, REC->ptr"#.to_owned(),
        ),
        ..EventType::default()
    };
    let (start, user) = (0xffff_ffff_8100_0000u64, 0x7fff_0000_1000u64);
    let mut trace = Trace::new();
    trace.input("a", |sink| {
        for (start, name) in [(start, b"grow"), (start + 0x100, b"free")] {
            let symbol = KernelSymbol {
                time: None,
                start,
                length: 0x100,
                name,
                gone: false,
            };
            send(sink, Event::KernelSymbol(symbol));
        }
        send(sink, Event::Type(&kmalloc));
        let plan = &Plan::new(&kmalloc.fields, false);
        // Twice from one place; from user space, where no kernel code is; from another place, as values.
        for (time, address) in [(10, start + 0x1c), (20, start + 0x1c), (30, user)] {
            let bytes = &[address.to_le_bytes(), (start + 0x120).to_le_bytes()].concat();
            let sample = Sample {
                fields: Fields::Raw(Payload { bytes, plan }),
                ..at(0, time, 3)
            };
            send(sink, Event::Sample(&sample));
        }
        let sample = Sample {
            fields: Fields::Values(&[Value::UInt(start + 8), Value::UInt(7)]),
            ..at(0, 40, 3)
        };
        send(sink, Event::Sample(&sample));
    });
    let rows = trace.finish();
    assert_eq!(rows.of("events/kmem/kmalloc", &["time"]).len(), 4);
    assert_eq!(
        rows.of("frames", &["function", "function_offset", "space"]),
        ["grow 28 kernel", "grow 8 kernel"]
    );
    assert_eq!(rows.of("stacks", &["stack_id"]), [""; 0]);
}
