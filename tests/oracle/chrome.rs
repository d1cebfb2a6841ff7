//! Chrome's trace events: the number of events of each phase, as a JSON parser counts them. An `E` that ends nothing is a problem.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use perfquet_events::event::{Event, Sink};
use perfquet_events::{Error, Input};
use perfquet_readers::chrome::CHROME;
use perfquet_tests::{foreign_corpus, root};

/// Events by kind.
type Counts = BTreeMap<&'static str, u64>;

#[derive(Default)]
struct Ours(Counts);

impl Sink for Ours {
    fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        let kind = match event {
            Event::Call(_) => "X",
            Event::Enter(_) => "B",
            Event::Leave(_) => "E",
            Event::Sample(_) => "hit",
            Event::Comm(_) => "name",
            Event::Problem(problem) if problem.message.ends_with("it ends nothing") => {
                *self.0.entry("E").or_default() += problem.count;
                return Ok(());
            }
            Event::Problem(_) => "problem",
            _ => return Ok(()),
        };
        *self.0.entry(kind).or_default() += 1;
        Ok(())
    }
}

/// The same by the crate serde_json.
fn expected(text: &[u8]) -> Counts {
    let json: serde_json::Value = serde_json::from_slice(text).unwrap();
    let events = json.get("traceEvents").unwrap_or(&json);
    let mut counts = Counts::new();
    for event in events.as_array().unwrap() {
        let kind = match event["ph"].as_str().unwrap() {
            "X" => "X",
            "B" => "B",
            "E" => "E",
            "M" if event["name"] == "process_name" || event["name"] == "thread_name" => "name",
            "M" => continue,
            _ => "hit",
        };
        *counts.entry(kind).or_default() += 1;
    }
    counts
}

fn compare(path: &Path) {
    let mut ours = Ours::default();
    CHROME
        .read(&mut Input::open(path).unwrap(), &mut ours)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut input = Input::open(path).unwrap();
    let text = input.whole().unwrap().unwrap();
    println!("{}: {:?}", path.display(), ours.0);
    let mut expected = expected(&text);
    // uftrace writes threads as processes, too: only the names of threads are theirs.
    let names = [&mut ours.0, &mut expected].map(|counts| counts.remove("name").unwrap_or(0));
    assert!(names[0] <= names[1], "{}: {names:?}", path.display());
    assert_eq!(names[0] > 0, names[1] > 0, "{}", path.display());
    assert_eq!(ours.0, expected, "{}", path.display());
}

#[test]
fn corpus_chrome() {
    let Some(folder) = foreign_corpus().map(|corpus| corpus.join("more/chrome")) else {
        return;
    };
    let mut files: Vec<PathBuf> = Vec::new();
    if folder.is_dir() {
        let entries = std::fs::read_dir(folder).unwrap();
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    files.sort();
    files.iter().for_each(|path| compare(path));
}

#[test]
fn exported_calls_come_back() {
    use std::process::Command;

    use perfquet_tests::bin;
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("t.json");
    let input = root().join("formats/readers/src/trace_dat/golden/graph-events.dat");
    let convert = |input: &Path, to: &[&str], output: &Path| {
        let status = Command::new(bin("perfquet-convert"))
            .arg(input)
            .args(to)
            .arg("-o")
            .arg(output)
            .output()
            .unwrap();
        assert!(status.status.success(), "{status:?}");
    };
    convert(&input, &["--to", "chrome"], &json);
    let (one, other) = (folder.path().join("a.pqt"), folder.path().join("b.pqt"));
    convert(&input, &[], &one);
    convert(&json, &[], &other);
    let answer = |trace: &Path, sql: &str| {
        let output = Command::new(bin("perfquet-query"))
            .arg("sql")
            .arg(trace)
            .args([sql, "--format", "csv"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    // Those without an exit are known by their name, and events by theirs.
    for sql in [
        "SELECT function, count(*), count(duration), sum(duration) FROM calls GROUP BY 1 ORDER BY 1",
        "SELECT event, count(*) FROM events GROUP BY 1 ORDER BY 1",
    ] {
        assert_eq!(answer(&one, sql), answer(&other, sql), "{sql}");
    }
}
