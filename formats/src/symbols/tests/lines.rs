//! Lines and inlined functions: of programs made on the spot, and of files made to do harm.

use super::*;

#[test]
fn lines_and_inlined_functions() {
    let Some(built) = Built::new(&["-gz=zlib"]) else {
        return;
    };
    let (outer, length) = built.function("outer");
    let with_lines = || Options {
        lines: true,
        ..Options::default()
    };
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
}

#[test]
fn damaged_files_and_lines_do_no_harm() {
    let Some(built) = Built::new(&[]) else { return };
    let whole = fs::read(built.program()).unwrap();
    let (outer, _) = built.function("outer");
    let elf = Elf::open(&built.program()).unwrap();
    let debug_info = elf.contents(b".debug_info").unwrap().to_vec();
    let start = whole
        .windows(debug_info.len())
        .position(|part| part == debug_info)
        .unwrap();
    let damaged = built.folder.path().join("damaged");
    let mut state = 1_u64;
    for round in 0..60 {
        let mut bytes = whole.clone();
        for _ in 0..20 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            bytes[start + (state >> 33) as usize % debug_info.len()] = (state >> 20) as u8;
        }
        let path = damaged.with_extension(round.to_string());
        fs::write(&path, bytes).unwrap();
        let options = Options {
            lines: true,
            ..Options::default()
        };
        let mut symbolizer = new_symbolizer(options, KernelFacts::default());
        let names = symbolizer.names(&[user_request(path.to_str().unwrap(), outer, false)]);
        // The symbol table is whole: the name stays.
        assert_eq!(as_printed(&names[0]).as_deref(), Some("outer+0x0"));
    }
}

/// The names at `main` of a program of which the debug info is written by hand, and why there is no line.
fn of_assembler(info: &str, more: &str) -> Option<(Vec<Name>, Option<String>)> {
    let built = Built::new(&[])?;
    let code = format!(
        ".file \"made.c\"\n.text\n.globl main\n.type main,@function\nmain:\n.file 1 \"made.c\"\n.loc 1 7\n ret\n.Lend:\n\
         .size main,.-main\n\
         .section .debug_abbrev,\"\",@progbits\n\
         .uleb128 1,0x11\n.byte 1\n.uleb128 0x11,1,0x12,7,0x10,0x17,0,0\n\
         .uleb128 2,0x1d\n.byte 0\n.uleb128 0x55,0x17,0x31,0x13,0x59,0xb,0,0\n\
         .uleb128 3,0x2e\n.byte 0\n.uleb128 0x31,0x13,0,0\n\
         .uleb128 4,0x0b\n.byte 1\n.uleb128 0,0\n.byte 0\n\
         .section .debug_info,\"\",@progbits\n.Linfo:\n.long .Linfo_end-.Lversion\n.Lversion:\n.value 4\n.long 0\n.byte 8\n\
         .uleb128 1\n.quad main\n.quad .Lend-main\n.long .Lline\n{info}\n.byte 0\n.Linfo_end:\n\
         .section .debug_line,\"\",@progbits\n.Lline:\n{more}\n.section .note.GNU-stack,\"\",@progbits\n"
    );
    fs::write(built.folder.path().join("program.s"), code).unwrap();
    if !built.run("cc", &["-o", "program", "program.s"]) {
        return None;
    }
    let (main, _) = built.function("main");
    let options = Options {
        lines: true,
        ..Options::default()
    };
    let path = built.program();
    let mut symbolizer = new_symbolizer(options, KernelFacts::default());
    let names = symbolizer.names(&[user_request(path.to_str().unwrap(), main, false)]);
    let without = symbolizer.report().without_line();
    let reason = without.first().map(|module| module.reason.to_owned());
    Some((names[0].clone(), reason))
}

#[test]
fn debug_info_written_by_hand() {
    let inlined = ".Lself:\n.uleb128 2\n.long .Lranges\n.long .Lself-.Linfo\n.byte 9\n";
    let ranges = ".section .debug_ranges,\"\",@progbits\n.Lranges:\n.quad 0,1\n.quad 0,0\n";
    let Some((names, reason)) = of_assembler(inlined, ranges) else {
        return;
    };
    assert_eq!(reason, None);
    let lines: Vec<_> = names
        .iter()
        .map(|name| (name.function.as_str(), name.line))
        .collect();
    // What is inlined is an instance of itself, without a name.
    assert_eq!(lines, [("main", Some(9)), ("[inlined]", Some(7))]);

    // Two that are each an instance of the other.
    let cycle = ".L1:\n.uleb128 3\n.long .L2-.Linfo\n.L2:\n.uleb128 3\n.long .L1-.Linfo\n\
                 .uleb128 2\n.long .Lranges\n.long .L1-.Linfo\n.byte 9\n";
    let (names, _) = of_assembler(cycle, ranges).unwrap();
    assert_eq!(names.len(), 2);

    // An entry that is beyond the end, and blocks in blocks.
    let beyond = ".uleb128 2\n.long .Lranges\n.long 0x7fffffff\n.byte 9\n";
    let (names, reason) = of_assembler(beyond, ranges).unwrap();
    assert_eq!(
        (names.len(), reason.as_deref()),
        (1, Some("its debug info is damaged"))
    );
    let deep = format!("{inlined}.rept 200000\n.uleb128 4\n.endr\n");
    let (names, _) = of_assembler(&deep, ranges).unwrap();
    assert_eq!(names[0].function, "main");
}

#[test]
fn debug_info_that_refers_to_itself_a_million_times_is_given_up() {
    // Each of many functions has the same many ranges.
    let many =
        ".Lself:\n.rept 20000\n.uleb128 2\n.long .Lranges\n.long .Lself-.Linfo\n.byte 9\n.endr\n";
    let ranges = ".section .debug_ranges,\"\",@progbits\n.Lranges:\n.rept 20000\n.quad 8,9\n.endr\n.quad 0,0\n";
    let Some((names, reason)) = of_assembler(many, ranges) else {
        return;
    };
    assert_eq!(names.len(), 1);
    assert_eq!(
        reason.as_deref(),
        Some("its debug info takes too long to read")
    );
}

#[test]
fn a_packed_section_that_promises_too_much_is_not_unpacked() {
    let Some(built) = Built::new(&["-gz=zlib"]) else {
        return;
    };
    let (outer, _) = built.function("outer");
    let mut bytes = fs::read(built.program()).unwrap();
    let elf = Elf::open(&built.program()).unwrap();
    let options = Options {
        lines: true,
        ..Options::default()
    };
    let mut changed = 0;
    for section in [".debug_info", ".debug_abbrev", ".debug_line", ".debug_str"] {
        // Elf64_Chdr: zlib, reserved, size.
        let Some(unpacked) = elf.contents(section.as_bytes()) else {
            continue;
        };
        let mut head = vec![1, 0, 0, 0, 0, 0, 0, 0];
        head.extend((unpacked.len() as u64).to_le_bytes());
        let Some(at) = bytes.windows(16).position(|window| window == head) else {
            continue;
        };
        bytes[at + 8..at + 16].copy_from_slice(&(i64::MAX as u64).to_le_bytes());
        changed += 1;
        let path = built.folder.path().join(format!("bomb{changed}"));
        fs::write(&path, &bytes).unwrap();
        let mut symbolizer = new_symbolizer(options.clone(), KernelFacts::default());
        let names = symbolizer.names(&[user_request(path.to_str().unwrap(), outer, false)]);
        assert_eq!(as_printed(&names[0]).as_deref(), Some("outer+0x0"));
        assert_eq!(names[0][0].line, None);
        assert_eq!(symbolizer.report().without_line().len(), 1);
    }
    assert!(changed > 0);
}

#[test]
fn a_program_without_debug_info_says_so() {
    let Some(built) = Built::new(&["-g0"]) else {
        return;
    };
    let (outer, _) = built.function("outer");
    let options = Options {
        lines: true,
        ..Options::default()
    };
    let path = built.program();
    let mut symbolizer = new_symbolizer(options, KernelFacts::default());
    symbolizer.names(&[user_request(path.to_str().unwrap(), outer, false)]);
    let sentence = without_line_sentence(&[symbolizer.report().clone()]);
    let expected = format!(
        "1 of 1 named frames have no line: 1 of them in {}, no debug info",
        path.display()
    );
    assert_eq!(sentence, Some(expected));
}
