//! A scenario: one page, `tests/vm/NAME.md`, with its requirements at the top, and its commands.
//!
//! ````text
//! # A parameter of a kernel function
//! <!-- kernels: 6.12 7.3 -->
//! <!-- elsewhere: fprobe events -->
//! <!-- boot: trace_event=initcall:* -->
//! <!-- programs: perf curl -->
//! <!-- prepare: cc -g -O1 -no-pie -o $DIR/probed record/tests/programs/probed.c -->
//! ```console
//! $ perfquet-record --kprobe 'tcp_sendmsg size' -o k.pqt -- curl …       in the virtual machine, as root
//! ```
//! ```console host
//! $ perfquet-query sql k.pqt "SELECT …"                                  here, on the results
//! ```
//! ````
//! All blocks for the machine run first, in order, then all for the host; both in a directory of the scenario, whose
//! files come from the machine to the host. `prepare` fills `$DIR` for the machine; `boot` adds kernel
//! parameters.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use super::cache::KERNELS;
use super::image;
use crate::place::root;
use crate::session::{Block, Comparison, Part, Step, directive, parts};

/// A page and its head.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Name of the file, without its extension.
    pub name: String,
    pub(crate) path: PathBuf,
    pub(crate) text: String,
    /// Its kernels; all by default.
    kernels: Vec<String>,
    /// The facility that other kernels lack.
    elsewhere: String,
    pub(crate) programs: Vec<String>,
    pub(crate) modules: Vec<String>,
    /// Commands of the host, before the machine starts.
    pub(crate) prepare: Vec<String>,
    /// Whether the machine's clock counts instructions.
    pub(crate) is_counting: bool,
    /// Whether it disturbs others, and needs a separate machine.
    pub(crate) is_alone: bool,
    /// Additional kernel parameters, for a separate machine.
    pub(crate) parameters: String,
}

/// Place where a block runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Machine,
    Host,
}

/// A part of the page, for one kernel.
pub(crate) enum Piece<'a> {
    /// Text that does not run.
    Text(String),
    Commands {
        block: Block<'a>,
        side: Side,
        comparison: Comparison,
        steps: Vec<Step>,
    },
}

/// Programs whose libraries enlarge the file system so much that scenarios without them boot separately.
const HEAVY: [&str; 2] = ["bpftrace", "python3"];

impl Scenario {
    fn read(path: PathBuf) -> Result<Scenario> {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let words = |name: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| directive(line, name));
            let words = lines.flat_map(str::split_whitespace);
            words.map(str::to_owned).collect()
        };
        let whole = |name: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| directive(line, name));
            lines.map(str::to_owned).collect()
        };
        let has = |name: &str| text.lines().any(|line| directive(line, name).is_some());
        Ok(Scenario {
            name: name.into_owned(),
            kernels: words("kernels"),
            elsewhere: whole("elsewhere").join(", "),
            programs: words("programs"),
            modules: words("modules"),
            prepare: whole("prepare"),
            is_counting: has("icount"),
            is_alone: has("alone") || has("boot"),
            parameters: whole("boot").join(" "),
            path,
            text,
        })
    }

    /// The reason for not running on this kernel.
    pub(crate) fn lacks(&self, kernel: &str) -> Option<String> {
        let runs = self.kernels.is_empty() || self.kernels.iter().any(|own| own == kernel);
        (!runs).then(|| self.elsewhere.clone())
    }

    /// A required program that this host lacks.
    pub(crate) fn missing_program(&self) -> Option<&str> {
        let missing = self
            .programs
            .iter()
            .find(|name| image::find(name).is_none());
        missing.map(String::as_str)
    }

    pub(crate) fn is_heavy(&self) -> bool {
        self.programs
            .iter()
            .any(|name| HEAVY.contains(&name.as_str()))
    }

    /// The page in order, for a kernel: a block below `<!-- on: 6.12 7.3 -->` is text on the others.
    pub(crate) fn pieces(&self, kernel: &str) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let mut comparison = Comparison::Exact;
        let mut is_here = true;
        for part in parts(&self.text) {
            match part {
                Part::Line(line) => {
                    if let Some(kernels) = directive(line, "on") {
                        is_here = kernels.split_whitespace().any(|own| own == kernel);
                    } else if directive(line, "varies").is_some() {
                        comparison = Comparison::Kind;
                    }
                    pieces.push(Piece::Text(format!("{line}\n")));
                }
                Part::Block(block) => {
                    let side = match block.info {
                        "console" => Some(Side::Machine),
                        "console host" => Some(Side::Host),
                        _ => None,
                    };
                    pieces.push(match side {
                        Some(side) if is_here => Piece::Commands {
                            steps: block.steps(),
                            block,
                            side,
                            comparison,
                        },
                        _ => Piece::Text(block.around(&block.text())),
                    });
                    (comparison, is_here) = (Comparison::Exact, true);
                }
            }
        }
        pieces
    }

    /// The commands for the machine, in order.
    pub(crate) fn commands(&self, kernel: &str) -> Vec<String> {
        let mut commands = Vec::new();
        for piece in self.pieces(kernel) {
            if let Piece::Commands {
                side: Side::Machine,
                steps,
                ..
            } = piece
            {
                commands.extend(steps.into_iter().map(|step| step.command));
            }
        }
        commands
    }
}

/// The scenarios with those names, or all, sorted by name.
pub fn scenarios(names: &[&str]) -> Result<Vec<Scenario>> {
    let folder = root().join("tests/vm");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "md") {
            found.push(Scenario::read(path)?);
        }
    }
    found.sort_by(|left, right| left.name.cmp(&right.name));
    for name in names {
        if !found.iter().any(|scenario| scenario.name == *name) {
            bail!("no scenario {name}: tests/vm/{name}.md is not there");
        }
    }
    found.retain(|scenario| names.is_empty() || names.contains(&scenario.name.as_str()));
    for scenario in &found {
        check(scenario)?;
    }
    Ok(found)
}

fn check(scenario: &Scenario) -> Result<()> {
    let page = scenario.path.display();
    for kernel in &scenario.kernels {
        if !KERNELS.contains(&kernel.as_str()) {
            bail!(
                "{page}: kernel {kernel}: the suite has {}",
                KERNELS.join(", ")
            );
        }
    }
    let is_limited = KERNELS
        .iter()
        .any(|kernel| scenario.lacks(kernel).is_some());
    if is_limited && scenario.elsewhere.is_empty() {
        bail!("{page}: a line `<!-- elsewhere: WHAT -->` must say what the other kernels lack");
    }
    Ok(())
}
