//! The panel of code has what `annotate` prints, and says which functions have none.

use std::path::Path;
use std::process::Command;

use perfquet_tests::{bin, kept_code, needs, root};

use super::keys::browsed;
use super::{opened, output, report};

fn recorded(directory: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let program = directory.join("program");
    let compiled = Command::new("cc")
        .args(["-O1", "-g", "-o"])
        .arg(&program)
        .arg(root().join("tests/oracle/annotated.c"))
        .status();
    assert!(compiled.unwrap().success());
    let trace = directory.join("a.pqt");
    let mut record = Command::new(bin("perfquet-record"));
    record.args(["-F", "997", "-e", "cpu-clock", "-o"]);
    output(record.arg(&trace).arg("--").arg(&program));
    (program, trace)
}

fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A click on a function shows its lines with the percentages of the command below them.
#[test]
fn code_on_a_page_is_that_of_annotate() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (program, trace) = recorded(directory.path());
    let page = report(directory.path(), &[&trace]);
    let found = browsed(
        &page,
        &[
            "open view=sandwich&function=mix",
            "text #code pre",
            "text #code .command",
            "open view=sandwich&function=no_such_function",
            "text #code .body > div",
            "size 700 dark",
            "size 1400 light",
        ],
    );
    let annotated = |function: &str| {
        let mut command = Command::new(bin("perfquet-query"));
        command
            .arg("annotate")
            .arg(&trace)
            .args(["-e", "cpu-clock"]);
        output(command.arg(function).env("LC_ALL", "C.UTF-8"))
    };
    assert_eq!(found[1], words(&annotated("mix")));
    assert!(found[1].starts_with("mix: ") && found[1].contains("x ^= x << 13"));
    let command = format!("--event=cpu-clock --module={} mix", program.display());
    assert!(found[2].contains(&command), "{}", found[2]);
    assert!(found[4].contains("the command below prints that of no_such_function"));
    assert_eq!(found[5..7], ["overflow none", "overflow none"]);

    // Without the program, the page says why there is no code; `--code 0` has no panel.
    std::fs::remove_file(&program).unwrap();
    let page = report(directory.path(), &[&trace]);
    let shown = opened(&page, "view=sandwich&function=mix");
    let reason = format!("mix in {} is not shown: no file found", program.display());
    assert!(shown.contains(&reason), "{shown}");
    let none = directory.path().join("none.html");
    let mut without = Command::new(bin("perfquet-query"));
    output(
        without
            .arg("report")
            .arg(&trace)
            .args(["--code", "0", "-o"])
            .arg(&none),
    );
    assert!(!opened(&none, "").contains("<section id=\"code\""));
}

/// Code that the recorder kept is on a page, with its origin.
#[test]
fn kept_code_is_on_a_page() {
    if !needs::met(&["Chromium with puppeteer"]) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = kept_code::trace(directory.path());
    let page = report(directory.path(), &[&trace]);
    let shown = opened(&page, "view=sandwich&function=countdown");
    for line in [
        "code kept by the recorder at 3.013 s",
        "(2 versions): 24 samples before then may be of earlier code",
        "7fa8c4d4f043",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
}
