//! Formats of real kernels with synthetic payloads, formats of the running kernel, and random formats.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::event::{FieldPlace, FieldType, Fields, Layout, Payload, Plan, Value};
use crate::event_format::EventFormat;

fn field(name: &str, declaration: &str, kind: FieldType, offset: u32, size: u32) -> Field {
    Field {
        name: name.into(),
        kind,
        layout: Some(Layout {
            offset,
            size,
            place: match declaration.split(' ').next() {
                Some("__data_loc") => FieldPlace::DataLoc,
                Some("__rel_loc") => FieldPlace::RelLoc,
                _ => FieldPlace::Inline,
            },
        }),
        declaration: declaration.into(),
    }
}

/// Fields of every kind: `a` 5, `b` -2, `s` "text", `d` "dynamic", `l` a list, `m` six bytes, `p` a pointer.
fn fields() -> Vec<Field> {
    vec![
        field("a", "u32 a", FieldType::UInt(4), 8, 4),
        field("b", "int b", FieldType::Int(4), 12, 4),
        field("s", "char s[8]", FieldType::Text, 16, 8),
        field("d", "__data_loc char[] d", FieldType::Text, 24, 4),
        field("l", "__data_loc u16[] l", FieldType::UIntList(2), 28, 4),
        field("m", "u8 m[6]", FieldType::Binary, 32, 6),
        field("p", "void * p", FieldType::UInt(8), 40, 8),
    ]
}

fn payload() -> Vec<u8> {
    let mut payload = vec![0; 8];
    payload.extend(5u32.to_le_bytes());
    payload.extend((-2i32).to_le_bytes());
    payload.extend(b"text\0xyz");
    payload.extend((48u32 | 8 << 16).to_le_bytes());
    payload.extend((56u32 | 6 << 16).to_le_bytes());
    payload.extend([0, 0x11, 0x22, 0x33, 0x44, 0xff, 0, 0]);
    payload.extend(0xffff_ffff_8100_0010u64.to_le_bytes());
    payload.extend(b"dynamic\0");
    payload.extend([1, 0, 2, 0, 0x34, 0x12]);
    payload
}

fn print_values(source: &str, fields: &[Field], values: Fields<'_>) -> String {
    let format = PrintFormat::new(source, fields);
    let names = |address: u64| {
        (address >= 0xffff_ffff_8100_0000)
            .then(|| ("startup_64".to_owned(), address - 0xffff_ffff_8100_0000))
    };
    let record = Record {
        fields,
        values,
        big_endian: false,
    };
    let mut out = Vec::new();
    format.print(&record, Some(&names), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// A payload, decoded by the layout of the fields while printing.
fn raw_fields(bytes: &[u8]) -> Fields<'_> {
    static PLAN: LazyLock<Plan> = LazyLock::new(Plan::default);
    Fields::Raw(Payload { bytes, plan: &PLAN })
}

/// Checks the output of the payload, and of the same values typed as in tables.
fn check(source: &str, expected: &str) {
    let fields = fields();
    let raw = payload();
    assert_eq!(
        print_values(source, &fields, raw_fields(&raw)),
        expected,
        "{source} (raw)"
    );
    let typed = [
        Value::UInt(5),
        Value::Int(-2),
        Value::Bytes(b"text"),
        Value::Bytes(b"dynamic"),
        Value::UIntList(&[1, 2, 0x1234]),
        Value::Bytes(&[0, 0x11, 0x22, 0x33, 0x44, 0xff]),
        Value::UInt(0xffff_ffff_8100_0010),
    ];
    assert_eq!(
        print_values(source, &fields, Fields::Values(&typed)),
        expected,
        "{source} (typed)"
    );
}

#[test]
fn values_and_operators() {
    check(
        r#""a=%u b=%d s=%s d=%s", REC->a, REC->b, REC->s, __get_str(d)"#,
        "a=5 b=-2 s=text d=dynamic",
    );
    check(
        r#""%d %d %d", REC->a + 2 * 3, (REC->a + 2) * 3, -REC->a"#,
        "11 21 -5",
    );
    check(r#""%s", REC->b < 0 ? "negative" : "positive""#, "negative");
    check(
        r#""%llx %lx %x", (u64)REC->b, (unsigned long)REC->a << 4, (u8)REC->b"#,
        "fffffffffffffffe 50 fe",
    );
    check(
        r#""%d %d", REC->a && !REC->b, REC->a == 5 || REC->a / 0"#,
        "0 1",
    );
    check(
        r#""%d", ({ int x = (REC->a); int y = (3); ((x) < (y) ? (x) : (y)); })"#,
        "3",
    );
    check(r#""%d %d", REC->a ?: 7, 0 ?: 7"#, "5 7");
    check(
        r#""%d %zu", __builtin_expect(!!(REC->a > 4), 0), sizeof(u64) / sizeof(REC->a)"#,
        "1 2",
    );
    check(r#""%lx", (unsigned long)-4095"#, "fffffffffffff001");
    check(r#""100%% %s" " joined", "literal""#, "100% literal joined");
    check(
        r#""%u.%03lu", __print_ns_to_secs(1500000002), __print_ns_without_secs(1500000002)"#,
        "1.500000002",
    );
    check(r#""%s", TIMER_SOFTIRQ ? "known" : "unknown""#, "known");
}

#[test]
fn names_and_flags() {
    check(
        r#""%s", __print_symbolic(REC->a, { 1, "ONE" }, { 5, "FIVE" })"#,
        "FIVE",
    );
    check(r#""%s", __print_symbolic(REC->a, { 1, "ONE" })"#, "0x5");
    check(
        r#""%s", __print_symbolic(REC->b, { -1, "EPERM" }, { -2, "ENOENT" })"#,
        "ENOENT",
    );
    check(
        r#""%s", __print_symbolic(REC->a, { 5, "FIVE" }, { -1, ((void *)0) })"#,
        "FIVE",
    );
    check(
        r#""%s", __print_symbolic(REC->a, { UNKNOWN_ENUM, "X" })"#,
        "0x5",
    );
    check(
        r#""%s", __print_flags(REC->a, "|", { (1UL << 0), "A" }, { 2, "B" }, { 4, "C" })"#,
        "A|C",
    );
    check(r#""%s", __print_flags(REC->a, "|", { 1, "A" })"#, "A|0x4");
    check(
        r#""<%s>", __print_flags(REC->a & 2, "|", { 1, "A" }, { 0, "NONE" })"#,
        "<>",
    );
    check(
        r#""%-6s|%6s|%.2s", __print_symbolic(REC->a, { 5, "FIVE" }), "ab", REC->s"#,
        "FIVE  |    ab|te",
    );
    check(
        r#""%.*s|%*d|%-*d|", 3, __get_str(d), 4, REC->a, 3, REC->a"#,
        "dyn|   5|5  |",
    );
}

#[test]
fn arrays_and_pointers() {
    check(
        r#""%s", __print_array(__get_dynamic_array(l), __get_dynamic_array_len(l) / 2, 2)"#,
        "{0x1,0x2,0x1234}",
    );
    check(
        r#""%s %s", __print_hex(REC->m, 6), __print_hex_str(REC->m, 2)"#,
        "00 11 22 33 44 ff 0011",
    );
    check(
        r#""%d %x", REC->m[2], ((u16 *)__get_dynamic_array(l))[2]"#,
        "34 1234",
    );
    check(r#""%x", *((u16 *)REC->m)"#, "1100");
    check(
        r#""%pM %pm", REC->m, REC->m"#,
        "00:11:22:33:44:ff 0011223344ff",
    );
    check(
        r#""%p %pS %ps %ps", REC->p, (void *)REC->p, REC->p, REC->a"#,
        "0xffffffff81000010 startup_64+0x10 startup_64 0x5",
    );
    check(r#""%*ph|%4phC", 3, REC->m, REC->m"#, "00 11 22|00:11:22:33");
    check(
        r#""%s %*pbl", __get_cpumask(l), 16, __get_dynamic_array(l)"#,
        "0,17,34,36-37,41,44 0",
    );
    check(r#""%c%c", 'o', __get_str(d)[0]"#, "od");
}

#[test]
fn falls_back_to_pairs() {
    let pairs = "[FAILED TO PARSE] a=5 b=-2 s=text d=dynamic l=ARRAY[01, 00, 02, 00, 34, 12] \
                 m=ARRAY[00, 11, 22, 33, 44, ff] p=0xffffffff81000010";
    check(r#""%u", jiffies_to_msecs(REC->a)"#, pairs);
    check(r#""%u", REC->missing"#, pairs);
    check(r#""%u %u", REC->a"#, pairs);
    check(r#""%u", role.level"#, pairs);
    check(r#""unfinished"#, pairs);
    check("", pairs);
}

#[test]
fn short_payloads_print_zeros() {
    let fields = fields();
    let source = r#""%u %d %s %s %p", REC->a, REC->b, REC->s, __get_str(d), REC->p"#;
    assert_eq!(
        print_values(source, &fields, raw_fields(&payload()[..14])),
        "5 0   (nil)"
    );
    assert_eq!(print_values(source, &fields, Fields::None), "0 0   (nil)");
}

#[test]
fn big_endian_payloads() {
    let fields = [
        field("a", "u32 a", FieldType::UInt(4), 0, 4),
        field("d", "__rel_loc u16[] d", FieldType::UIntList(2), 4, 4),
    ];
    let mut raw = vec![0, 0, 1, 2];
    raw.extend((2u32 | 4 << 16).to_be_bytes());
    raw.extend([9, 9, 0, 1, 0, 2]);
    let format = PrintFormat::new(
        r#""%x %s", REC->a, __print_array(__get_rel_dynamic_array(d), 9, sizeof(u16))"#,
        &fields,
    );
    let record = Record {
        fields: &fields,
        values: raw_fields(&raw),
        big_endian: true,
    };
    let mut out = Vec::new();
    format.print(&record, None, &mut out);
    assert_eq!(String::from_utf8(out).unwrap(), "102 {0x1,0x2}");
}

#[test]
fn hostile_formats_are_bounded() {
    let fields = fields();
    let raw = payload();
    let nested = format!("\"%d\", {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let negated = format!("\"%d\", {}1", "-".repeat(100_000));
    let chain = format!("\"%d\", 1{}", "+1".repeat(100_000));
    let elvis = format!("\"%d\", {}1{}", "(".repeat(28), "?:2)".repeat(28));
    let wide = format!(
        "\"{}\", {}",
        "%9999999d".repeat(5_000),
        vec!["1"; 5_000].join(",")
    );
    for source in [nested, negated, chain, elvis, wide] {
        assert!(print_values(&source, &fields, raw_fields(&raw)).len() <= MAX_OUTPUT_BYTES);
    }
}

/// Every format of the running kernel: at least 95% are evaluated, and zeros crash none.
#[test]
fn formats_of_the_running_kernel() {
    if !crate::needs::met(&["tracefs"]) {
        return;
    }
    let systems = std::fs::read_dir("/sys/kernel/tracing/events").unwrap();
    let (mut count, mut failures) = (0, Vec::new());
    for system in systems.flatten() {
        let Ok(events) = std::fs::read_dir(system.path()) else {
            continue;
        };
        for event in events.flatten() {
            let Ok(text) = std::fs::read(event.path().join("format")) else {
                continue;
            };
            let format = EventFormat::parse(&text, 8).unwrap();
            let source = format.print_format.unwrap();
            let print = PrintFormat::new(&source, &format.fields);
            count += 1;
            if let Some(failure) = print.failure() {
                failures.push(format!("{}: {failure}", format.name));
            }
            for length in [0, 9, 64, 4096] {
                let payload = vec![0xff; length];
                let record = Record {
                    fields: &format.fields,
                    values: raw_fields(&payload),
                    big_endian: false,
                };
                print.print(&record, None, &mut Vec::new());
            }
        }
    }
    assert!(count > 0, "no format is readable");
    println!("{} of {count} formats are printed as pairs", failures.len());
    assert!(
        failures.len() * 20 <= count,
        "{} of {count}: {failures:#?}",
        failures.len()
    );
}

fn source() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "REC->a",
        "REC->b",
        "REC->s",
        "REC->l",
        "REC->m",
        "REC->p",
        "REC",
        "->",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ";",
        "?",
        ":",
        "=",
        "+",
        "-",
        "*",
        "/",
        "%",
        "<<",
        ">>",
        "&&",
        "~",
        "!",
        "&",
        "(u8)",
        "(unsigned long)",
        "(u16 *)",
        "sizeof",
        "int x =",
        "x",
        "({",
        "})",
        "__get_str(d)",
        "__get_dynamic_array(l)",
        "__print_flags(",
        "__print_symbolic(",
        "__print_array(",
        "__print_hex(",
        "\"text\"",
        "'c'",
        "0x7f",
        "18446744073709551615",
        "1",
        "0",
        "{ 1, \"one\" }",
    ]);
    let conversion = prop::sample::select(vec![
        "%d", "%llx", "%s", "%p", "%pS", "%*d", "%.*s", "%pI4", "%pI6c", "%pISpc", "%*ph", "%*pbl",
        "%pU", "%c", "%", "%pM", "text", "%-08lx", "%99d",
    ]);
    (
        prop::collection::vec(conversion, 0..5),
        prop::collection::vec(piece, 0..30),
    )
        .prop_map(|(conversions, pieces)| {
            format!("\"{}\", {}", conversions.join(" "), pieces.join(" "))
        })
}

proptest! {
    #[test]
    fn random_formats_never_panic(source in source(), payload in prop::collection::vec(any::<u8>(), 0..80)) {
        print_values(&source, &fields(), raw_fields(&payload));
    }

    #[test]
    fn random_text_never_panics(source in "\\PC*", payload in prop::collection::vec(any::<u8>(), 0..80)) {
        print_values(&source, &fields(), raw_fields(&payload));
        print_values(&format!("\"{source}\""), &fields(), raw_fields(&payload));
    }
}
