//! Lines and inlined functions of programs built for the test. Malicious files are read by a separate process, and so
//! are tested with the program that starts it: convert/tests/lines.rs.

use super::*;

fn with_lines() -> Options {
    Options {
        lines: Some(LineReader::InProcess),
        ..Options::default()
    }
}

#[test]
fn lines_and_inlined_functions() {
    for arguments in [
        &["-gz=none"][..],
        &["-gz=zlib"],
        &["-gz=none", "-gdwarf-4"],
        &["-gz=zlib", "-gdwarf-4"],
    ] {
        lines_and_inlined_functions_of(arguments, |_| true);
    }
    let pack = ["--compress-debug-sections=zstd", "program"];
    lines_and_inlined_functions_of(&["-gz=none"], |built| built.run("objcopy", &pack));
    let link = ["--add-gnu-debuglink=program.c", "program"];
    lines_and_inlined_functions_of(&["-gz=none"], |built| built.run("objcopy", &link));
}

fn lines_and_inlined_functions_of(arguments: &[&str], change: impl Fn(&Built) -> bool) {
    let Some(built) = Built::new(arguments).filter(change) else {
        return;
    };
    let (outer, length) = built.function("outer");
    let all: BTreeSet<_> = (0..length)
        .map(|inside| built.names(with_lines(), outer + inside, false))
        .map(|names| {
            let place = |name: &Name| {
                let file = name.file.as_deref().unwrap_or("").rsplit('/').next();
                format!(
                    "{} {}:{}",
                    name.function,
                    file.unwrap(),
                    name.line.unwrap_or(0)
                )
            };
            names.iter().map(place).collect::<Vec<_>>().join(" > ")
        })
        .collect();
    let inlined = "outer program.c:6 > inlined program.c:3".to_owned();
    assert!(all.contains(&inlined), "{all:#?}");
    assert!(all.contains("outer program.c:8"), "{all:#?}");
    // A second request for an open file.
    let path = built.program();
    let mut symbolizer = new_symbolizer(with_lines(), KernelFacts::default());
    let request = user_request(path.to_str().unwrap(), outer, false);
    let first = symbolizer.names(&[request]);
    assert!(first[0][0].line.is_some());
    assert_eq!(symbolizer.names(&[request]), first);
}

#[test]
fn code_with_split_debug_info_has_no_lines() {
    for arguments in [&["-gsplit-dwarf"][..], &["-gsplit-dwarf", "-gdwarf-4"]] {
        let Some(built) = Built::new(arguments) else {
            return;
        };
        let (outer, _) = built.function("outer");
        let path = built.program();
        let mut symbolizer = new_symbolizer(with_lines(), KernelFacts::default());
        let names = symbolizer.names(&[user_request(path.to_str().unwrap(), outer, false)]);
        assert_eq!((names[0].len(), names[0][0].line), (1, None));
        let without = symbolizer.report().without_line();
        let reason = "its debug info is in .dwo files, which are not read";
        assert_eq!(without[0].reason, reason, "{arguments:?}");

        // Next to code with debug info in the same file.
        let other = "int other(int x)\n{\n\treturn x * 3;\n}\n";
        fs::write(built.folder.path().join("other.c"), other).unwrap();
        built.run("cc", &["-c", "-g", "-O1", "-o", "other.o", "other.c"]);
        let all = ["-O1", "-g", "-o", "program", "program.c", "other.o"];
        built.run("cc", &[&all[..], arguments].concat());
        let line = |function| {
            let (offset, _) = built.function(function);
            let names = built.names(with_lines(), offset, false);
            (names[0].function.clone(), names[0].line.is_some())
        };
        assert_eq!(line("outer"), ("outer".to_owned(), false));
        assert_eq!(line("other"), ("other".to_owned(), true));
    }
}

#[test]
fn missing_debug_info_is_reported() {
    let Some(built) = Built::new(&["-g0"]) else {
        return;
    };
    let (outer, _) = built.function("outer");
    let path = built.program();
    let mut symbolizer = new_symbolizer(with_lines(), KernelFacts::default());
    symbolizer.names(&[user_request(path.to_str().unwrap(), outer, false)]);
    let sentence = without_line_sentence(&[symbolizer.report().clone()]);
    let expected = format!(
        "1 of 1 named frames have no line: 1 of them in {}, no debug info",
        path.display()
    );
    assert_eq!(sentence, Some(expected));
}
