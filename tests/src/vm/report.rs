//! The table of facilities, by kernel.
//!
//! ```text
//! scenario          6.1    6.12  7.3
//! kprobe-arguments  ok     ok    ok
//! fprobe            lacks  ok    ok    6.1 lacks fprobe events
//! ```

use super::scenario::Scenario;

/// The result of a scenario on a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As in its page.
    Fine,
    /// The kernel lacks a facility.
    Lacks(String),
    /// This host lacks a requirement.
    Skipped(String),
    /// The difference.
    Failed(String),
}

/// A result in the table.
#[derive(Debug)]
pub struct Cell {
    /// Name of the scenario.
    pub scenario: String,
    /// "6.12"
    pub kernel: String,
    /// Its result.
    pub verdict: Verdict,
}

/// All results.
#[derive(Debug)]
pub struct Report {
    /// The columns.
    pub kernels: Vec<String>,
    /// Unordered.
    pub cells: Vec<Cell>,
}

impl Cell {
    pub(crate) fn new(scenario: &Scenario, kernel: &str, verdict: Verdict) -> Cell {
        Cell {
            scenario: scenario.name.clone(),
            kernel: kernel.to_owned(),
            verdict,
        }
    }
}

impl Report {
    /// The differences of every failed scenario.
    pub fn failures(&self) -> Vec<&str> {
        let failures = self.cells.iter().filter_map(|cell| match &cell.verdict {
            Verdict::Failed(what) => Some(what.as_str()),
            _ => None,
        });
        failures.collect()
    }

    /// The reasons for scenarios that did not run here.
    pub fn skipped(&self) -> Vec<String> {
        let skipped = self.cells.iter().filter_map(|cell| match &cell.verdict {
            Verdict::Skipped(why) => Some(format!("{} on {}: {why}", cell.scenario, cell.kernel)),
            _ => None,
        });
        skipped.collect()
    }

    /// The table, one line per scenario.
    pub fn table(&self) -> Vec<String> {
        let mut names: Vec<&str> = self
            .cells
            .iter()
            .map(|cell| cell.scenario.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        let widest = names
            .iter()
            .map(|name| name.len())
            .max()
            .unwrap_or(0)
            .max(8);
        let mut lines = vec![line(
            "scenario",
            widest,
            self.kernels.iter().map(String::as_str),
            "",
        )];
        for name in names {
            let of = |kernel: &String| {
                let mut cells = self.cells.iter();
                cells.find(|cell| cell.scenario == name && cell.kernel == *kernel)
            };
            let words = self.kernels.iter().map(|kernel| match of(kernel) {
                Some(cell) => word(&cell.verdict),
                None => "-",
            });
            let reasons: Vec<String> = self
                .kernels
                .iter()
                .filter_map(|kernel| match &of(kernel)?.verdict {
                    Verdict::Lacks(what) => Some(format!("{kernel} lacks {what}")),
                    Verdict::Skipped(why) => Some(format!("{kernel}: {why}")),
                    Verdict::Fine | Verdict::Failed(_) => None,
                })
                .collect();
            lines.push(line(name, widest, words, &reasons.join("; ")));
        }
        lines
    }
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Fine => "ok",
        Verdict::Lacks(_) => "lacks",
        Verdict::Skipped(_) => "skipped",
        Verdict::Failed(_) => "FAILED",
    }
}

fn line<'a>(
    name: &str,
    widest: usize,
    words: impl Iterator<Item = &'a str>,
    reason: &str,
) -> String {
    let words: String = words.map(|word| format!("  {word:<7}")).collect();
    format!("{name:<widest$}{words}  {reason}")
        .trim_end()
        .to_owned()
}

#[test]
fn table_reports_the_reason() {
    let cell = |kernel: &str, verdict| Cell {
        scenario: "fprobe".to_owned(),
        kernel: kernel.to_owned(),
        verdict,
    };
    let report = Report {
        kernels: ["6.1", "6.12", "7.3"].map(str::to_owned).to_vec(),
        cells: vec![
            cell("6.12", Verdict::Fine),
            cell("6.1", Verdict::Lacks("fprobe events".to_owned())),
            cell("7.3", Verdict::Failed("differs".to_owned())),
        ],
    };
    assert_eq!(
        report.table(),
        [
            "scenario  6.1      6.12     7.3",
            "fprobe    lacks    ok       FAILED   6.1 lacks fprobe events",
        ]
    );
    assert_eq!(report.failures(), ["differs"]);
}
