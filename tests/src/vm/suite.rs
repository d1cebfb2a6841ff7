//! Running scenarios: assigns them to machines, and collects the results.
//!
//! One boot runs all scenarios of a kernel that do not disturb each other. If the machine dies in one of them, that one
//! has failed, and the rest gets a new machine.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cache::{self, Kernel, Qemu};
use super::image::Image;
use super::machine::{Clock, Ended, Machine};
use super::report::{Cell, Report, Verdict};
use super::scenario::{Piece, Scenario, Side};
use crate::place::{root, target_directory};
use crate::session::shell;

/// Number of boot attempts until the init process runs.
const TRIES: u32 = 3;

/// Commands for a machine outside scenarios.
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) programs: Vec<String>,
    /// In the directory of the commands.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    pub(crate) commands: Vec<String>,
    pub(crate) clock: Clock,
}

/// The result of a job.
pub(crate) struct Done {
    /// Status and output of each command.
    pub(crate) results: Vec<(i32, String)>,
    /// Files left by the commands.
    pub(crate) directory: PathBuf,
}

/// Common to all machines.
struct Suite {
    qemu: Qemu,
    /// The recorder under test, stripped, if there is one.
    recorder: Option<PathBuf>,
    folder: PathBuf,
}

/// The parts that this host lacks for any machine, with the command that provides them.
pub fn missing() -> Option<String> {
    let packages = cache::missing_packages();
    if !packages.is_empty() {
        return Some(install(&packages));
    }
    cache::qemu().err().map(|error| format!("{error:#}"))
}

fn install(packages: &[&str]) -> String {
    let packages = packages.join(" ");
    format!("apt-get install --no-install-recommends {packages}")
}

/// Runs the scenarios on the kernels, with this recorder.
pub fn run(scenarios: &[Scenario], kernels: &[&str], recorder: &Path) -> Result<Report> {
    let suite = Suite::new(Some(recorder))?;
    // Each machine uses one CPU of the host.
    let cells = std::thread::scope(|scope| {
        let running: Vec<_> = kernels
            .iter()
            .map(|kernel| scope.spawn(|| suite.on(kernel, scenarios)))
            .collect();
        let joined = running.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        joined.collect::<Result<Vec<Vec<Cell>>>>()
    })?;
    Ok(Report {
        kernels: kernels.iter().map(|&kernel| kernel.to_owned()).collect(),
        cells: cells.into_iter().flatten().collect(),
    })
}

/// Runs a job in a separate machine.
pub(crate) fn run_job(job: &Job, version: &str, recorder: Option<&Path>) -> Result<Done> {
    let suite = Suite::new(recorder)?;
    let kernel = cache::kernel(version)?
        .with_context(|| format!("needs the kernel: {} {version}", cache::FETCH))?;
    let folder = suite.empty(&job.name)?;
    let files = folder.join("files");
    fs::create_dir_all(&files)?;
    for (name, content) in &job.files {
        fs::write(files.join(name), content)?;
        fs::set_permissions(files.join(name), fs::Permissions::from_mode(0o755))?;
    }
    let mut image = suite.image(&kernel)?;
    place(&job.name, &job.commands, &job.programs, &files, &mut image)?;
    let ended = suite.boot(&kernel, &folder, &image, (job.clock, ""))?;
    if let Some(trouble) = ended.trouble {
        bail!("{trouble}");
    }
    let results = folder.join("vm/results").join(&job.name);
    let numbers = 0..job.commands.len();
    Ok(Done {
        results: numbers
            .map(|number| of_the_machine(&results, number))
            .collect(),
        directory: folder.join("root").join(&job.name),
    })
}

/// Debug info is most of a program, and would have to be unpacked in the machine.
fn strip(from: &Path, to: &Path) -> Result<()> {
    let stripped = Command::new("strip").arg("-o").arg(to).arg(from).status();
    if !stripped.is_ok_and(|status| status.success()) {
        fs::copy(from, to).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

impl Suite {
    fn new(recorder: Option<&Path>) -> Result<Suite> {
        let packages = cache::missing_packages();
        if !packages.is_empty() {
            bail!("{}", install(&packages));
        }
        let folder = target_directory().join("vm");
        fs::create_dir_all(&folder)?;
        let stripped = folder.join("perfquet-record");
        if let Some(recorder) = recorder {
            strip(recorder, &stripped)?;
        }
        Ok(Suite {
            qemu: cache::qemu()?,
            recorder: recorder.map(|_| stripped),
            folder,
        })
    }

    fn empty(&self, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// An emulated machine on a busy host is late now and then, so a failed scenario is repeated once, with a report.
    fn on(&self, version: &str, scenarios: &[Scenario]) -> Result<Vec<Cell>> {
        let mut cells = self.once(version, scenarios)?;
        let has_failed = |name: &str, cells: &[Cell]| {
            let failed = |cell: &Cell| matches!(cell.verdict, Verdict::Failed(_));
            cells
                .iter()
                .any(|cell| cell.scenario == name && failed(cell))
        };
        let again: Vec<Scenario> = scenarios
            .iter()
            .filter(|scenario| has_failed(&scenario.name, &cells))
            .cloned()
            .collect();
        if again.is_empty() {
            return Ok(cells);
        }
        for cell in self.once(version, &again)? {
            let first = cells.iter().find(|first| first.scenario == cell.scenario);
            if let Some(Verdict::Failed(why)) = first.map(|first| &first.verdict) {
                println!(
                    "{} on {version} failed, and was tried again:\n{why}",
                    cell.scenario
                );
            }
            cells.retain(|first| first.scenario != cell.scenario);
            cells.push(cell);
        }
        Ok(cells)
    }

    fn once(&self, version: &str, scenarios: &[Scenario]) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        let mut machines: BTreeMap<_, Vec<&Scenario>> = BTreeMap::new();
        let kernel = cache::kernel(version)?;
        for scenario in scenarios {
            let mut without = |verdict| cells.push(Cell::new(scenario, version, verdict));
            if let Some(what) = scenario.lacks(version) {
                without(Verdict::Lacks(what));
            } else if kernel.is_none() {
                let fetch = cache::FETCH;
                without(Verdict::Skipped(format!(
                    "needs the kernel: {fetch} {version}"
                )));
            } else if let Some(program) = scenario.missing_program() {
                without(Verdict::Skipped(format!("needs {program}")));
            } else {
                let own = scenario.is_alone.then_some(&scenario.name);
                let key = (
                    own,
                    scenario.is_counting,
                    scenario.is_heavy(),
                    &scenario.modules,
                );
                machines.entry(key).or_default().push(scenario);
            }
        }
        let Some(kernel) = kernel else {
            return Ok(cells);
        };
        let folder = self.empty(version)?;
        for scenarios in machines.into_values() {
            self.in_machines(&kernel, &folder, scenarios, &mut cells)?;
        }
        Ok(cells)
    }

    /// Scenarios for one kind of machine; uses another machine if one breaks.
    fn in_machines(
        &self,
        kernel: &Kernel,
        folder: &Path,
        mut waiting: Vec<&Scenario>,
        cells: &mut Vec<Cell>,
    ) -> Result<()> {
        let mut tries = 0;
        while !waiting.is_empty() {
            let ended = self.boot_scenarios(kernel, folder, &waiting)?;
            tries += 1;
            let (ran, rest): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .partition(|scenario| ended.finished.contains(&scenario.name));
            waiting = rest;
            for scenario in ran {
                let verdict = judge(scenario, kernel, folder)?;
                cells.push(Cell::new(scenario, &kernel.version, verdict));
            }
            let trouble = ended.trouble.unwrap_or_default();
            if let Some(name) = ended.interrupted {
                tries = 0;
                waiting.retain(|scenario| {
                    let is_it = scenario.name == name;
                    if is_it {
                        let verdict = Verdict::Failed(format!("{name}: {trouble}"));
                        cells.push(Cell::new(scenario, &kernel.version, verdict));
                    }
                    !is_it
                });
            } else if tries >= TRIES {
                for scenario in std::mem::take(&mut waiting) {
                    let when = if ended.is_ready { "began" } else { "started" };
                    let reason = format!("the machine never {when}: {trouble}");
                    cells.push(Cell::new(
                        scenario,
                        &kernel.version,
                        Verdict::Failed(reason),
                    ));
                }
            }
        }
        Ok(())
    }

    fn boot_scenarios(
        &self,
        kernel: &Kernel,
        folder: &Path,
        scenarios: &[&Scenario],
    ) -> Result<Ended> {
        let mut image = self.image(kernel)?;
        for scenario in scenarios {
            let files = folder.join("files").join(&scenario.name);
            prepare(scenario, &files)?;
            let commands = scenario.commands(&kernel.version);
            place(
                &scenario.name,
                &commands,
                &scenario.programs,
                &files,
                &mut image,
            )?;
            for module in &scenario.modules {
                if !image.module(kernel, module)? {
                    bail!(
                        "{}: {} has no module {module}",
                        scenario.name,
                        kernel.release
                    );
                }
            }
        }
        let clock = match scenarios.iter().any(|scenario| scenario.is_counting) {
            true => Clock::Instructions { cpus: 2 },
            false => Clock::Hosts,
        };
        let parameters = scenarios.first().map_or("", |first| &first.parameters);
        self.boot(kernel, folder, &image, (clock, parameters))
    }

    /// Contents of every machine with this kernel.
    fn image(&self, kernel: &Kernel) -> Result<Image> {
        let mut image = Image::new(&root().join("tests/vm/init"))?;
        if let Some(recorder) = &self.recorder {
            image.program_at(recorder, "usr/bin/perfquet-record")?;
        }
        // Linux 6.1 has the ports as modules, later kernels have them built in.
        for module in ["virtio_pci", "virtio_console"] {
            image.module(kernel, module)?;
        }
        Ok(image)
    }

    fn boot(
        &self,
        kernel: &Kernel,
        folder: &Path,
        image: &Image,
        (clock, parameters): (Clock, &str),
    ) -> Result<Ended> {
        let file_system = folder.join("initramfs");
        let machine = Machine {
            qemu: &self.qemu,
            kernel,
            file_system_bytes: image.write(&file_system)?,
            file_system: &file_system,
            clock,
            parameters,
            folder,
        };
        let ended = machine.run()?;
        // A damaged file is noticed when it is read.
        let _ = Command::new("tar")
            .args([
                "--extract",
                "--ignore-zeros",
                "--no-same-owner",
                "--file",
                "out",
            ])
            .current_dir(folder)
            .output();
        Ok(ended)
    }
}

/// Fills the directory of files for the machine.
fn prepare(scenario: &Scenario, files: &Path) -> Result<()> {
    fs::create_dir_all(files)?;
    for command in &scenario.prepare {
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(root())
            .env("DIR", files)
            .output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("{}: {command}: {}", scenario.name, stderr.trim());
        }
    }
    Ok(())
}

/// Adds commands with their programs and files to the file system, where its init finds them.
fn place(
    name: &str,
    commands: &[String],
    programs: &[String],
    files: &Path,
    image: &mut Image,
) -> Result<()> {
    let here = format!("vm/scenarios/{name}");
    for (number, command) in commands.iter().enumerate() {
        image.text(&format!("{here}/steps/{number:03}"), command);
    }
    for program in programs {
        image.program(program)?;
    }
    image.folder(files, &format!("{here}/files"))
}

/// Compares the output of the machine, and runs the commands for the host on its files.
fn judge(scenario: &Scenario, kernel: &Kernel, folder: &Path) -> Result<Verdict> {
    let results = folder.join("vm/results").join(&scenario.name);
    let directory = folder.join("root").join(&scenario.name);
    let page = format!("{}.md on {}", scenario.name, kernel.version);
    let (mut updated, mut wrong) = (String::new(), Vec::new());
    let mut number = 0;
    for piece in scenario.pieces(&kernel.version) {
        let (block, side, comparison, steps) = match piece {
            Piece::Text(text) => {
                updated += &text;
                continue;
            }
            Piece::Commands {
                block,
                side,
                comparison,
                steps,
            } => (block, side, comparison, steps),
        };
        let mut lines = String::new();
        for step in steps {
            let (status, output) = match side {
                Side::Host => shell::run(&step.command, &directory),
                Side::Machine => {
                    number += 1;
                    of_the_machine(&results, number - 1)
                }
            };
            let (text, differs) = step.compare(&page, status, &output, comparison);
            lines += &text;
            wrong.extend(differs);
        }
        updated += &block.around(&lines);
    }
    let left = fs::read_to_string(results.join("left"));
    match left.as_deref().map(str::trim) {
        Ok("") => {}
        Ok(left) => wrong.push(format!("{page}: leftovers in the kernel:\n{left}\n")),
        Err(error) => wrong.push(format!("{page}: the results are damaged: {error}\n")),
    }
    if std::env::var_os("PERFQUET_UPDATE").is_some() && updated != scenario.text {
        fs::write(&scenario.path, updated)?;
    }
    Ok(match wrong.is_empty() {
        true => Verdict::Fine,
        false => Verdict::Failed(wrong.join("\n")),
    })
}

fn of_the_machine(results: &Path, number: usize) -> (i32, String) {
    let read = |what: &str| fs::read(results.join(format!("{number:03}.{what}")));
    let status = read("status").unwrap_or_default();
    let status = String::from_utf8_lossy(&status).trim().parse();
    match (status, read("output")) {
        (Ok(status), Ok(output)) => (status, String::from_utf8_lossy(&output).into_owned()),
        _ => (-1, "the machine has no result of this command".to_owned()),
    }
}
