//! Callgrind's files: self costs by file and function are those that callgrind_annotate prints.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use perfquet_events::event::{Event, Sink, Stack};
use perfquet_events::{Error, Input};
use perfquet_readers::callgrind::CALLGRIND;
use perfquet_tests::{needs, root};

/// Costs of the first event by `FILE:FUNCTION`.
#[derive(Default)]
struct Costs(BTreeMap<String, u64>);

impl Sink for Costs {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        match event {
            Event::Sample(sample) if sample.event.0 == 0 => {
                let Stack::Named([frame]) = sample.user_stack else {
                    panic!("expected one frame");
                };
                let name = |text: &[u8]| match text {
                    b"" => "???".to_owned(),
                    text => String::from_utf8_lossy(text).into_owned(),
                };
                let key = format!("{}:{}", name(frame.file), name(frame.function));
                *self.0.entry(key).or_default() += sample.period.unwrap();
            }
            Event::Problem(problem) => panic!("{}", problem.message),
            _ => {}
        }
        Ok(())
    }
}

/// Rows of callgrind_annotate: `3,270 ( 2.47%)  cg.c:leaf [/tmp/demo/cg]`.
fn annotated(file: &Path) -> BTreeMap<String, u64> {
    let output = Command::new("callgrind_annotate")
        .args(["--threshold=100", "--auto=no", "--show=Ir"])
        .arg(file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut costs = BTreeMap::new();
    let rows = text
        .lines()
        .skip_while(|line| !line.contains("file:function"))
        .skip(2);
    // A function without costs has a dot.
    let has_cost = |row: &&str| !row.trim_start().starts_with('.');
    for row in rows.take_while(|line| !line.is_empty()).filter(has_cost) {
        let (cost, rest) = row.split_once('(').unwrap();
        let (_, name) = rest.split_once(")").unwrap();
        let name = name.trim();
        let name = name.rsplit_once(" [").map_or(name, |(name, _)| name);
        *costs.entry(name.to_owned()).or_default() +=
            cost.trim().replace(',', "").parse::<u64>().unwrap();
    }
    costs
}

fn compare(file: &Path) {
    let mut ours = Costs::default();
    CALLGRIND
        .read(&mut Input::open(file).unwrap(), &mut ours)
        .unwrap();
    let theirs = annotated(file);
    println!(
        "{}: {} functions, {} Ir",
        file.display(),
        theirs.len(),
        theirs.values().sum::<u64>()
    );
    assert!(!theirs.is_empty());
    assert_eq!(ours.0, theirs, "{}", file.display());
}

#[test]
fn costs_are_those_of_callgrind_annotate() {
    if !needs::met(&["Valgrind"]) {
        return;
    }
    let golden = root().join("formats/readers/src/callgrind/golden");
    compare(&golden.join("cache.out"));
    compare(&golden.join("instructions.out"));
    // A program with hundreds of functions, some of them in several files by inlining.
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("true.out");
    let status = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            &format!("--callgrind-out-file={}", file.display()),
            "sort",
            "/dev/null",
        ])
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
    compare(&file);
}
