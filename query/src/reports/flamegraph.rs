//! `flamegraph`: an image of all stacks; the width of a frame is its share of the weight.
//!
//! Stacks are merged by name first. Frames narrower than a tenth of a pixel are merged into their
//! callers, so that the cost depends on the image, not on the number of stacks.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use perfquet_trace::count::counted;
use perfquet_trace::function_name::without_arguments;

use super::event_weight::EventChoice;
use super::folding::{Folded, Weighted};
use super::paths::Paths;
use super::row_source::has_rows;
use super::stored_aggregates;
use crate::commands::Subcommand;
use crate::failure::Misuse;
use crate::limits::Limits;
use crate::render::flame::{Flame, KERNEL, Merged, Node};
use crate::render::{Answered, Form, Section, Shape};
use crate::report::{self, Report};
use crate::session::Session;
use crate::settings::{Image, Traces};
use crate::stacks::{Forest, Frames, Tree};
use crate::text::harmless;
use crate::trace::Trace;

pub(super) const REPORT: Subcommand = report::subcommand::<Flamegraph>();

/// Draw a flame graph, or print folded stacks
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Draw the samples
  perfquet-query flamegraph a.pqt -o a.svg
  # Draw a time range by thread name
  perfquet-query flamegraph a.pqt --by comm --time 1s..2s > a.svg
  # Draw where threads block
  perfquet-query flamegraph a.pqt --event sched:sched_switch --where 'prev_state = 1' -o blocked.svg
  # Draw the self time of calls
  perfquet-query flamegraph t.pqt --weight duration -o t.svg
  # Print folded stacks
  perfquet-query flamegraph a.pqt --folded | less")]
struct Flamegraph {
    #[command(flatten)]
    traces: Traces,
    /// Group the stacks by KEY, as the bottom frame
    #[arg(long, value_enum, value_name = "KEY")]
    by: Option<By>,
    /// Frame width [default: period; duration if the trace has only calls]
    #[arg(long, value_enum, value_name = "WEIGHT")]
    weight: Option<Weight>,
    /// Title of the image
    #[arg(long, help_heading = "Output", value_name = "TEXT")]
    title: Option<String>,
    /// Image width in pixels [default: width of the window]
    #[arg(long, help_heading = "Output", value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(200..=100_000))]
    width: Option<u32>,
    /// Print folded stacks, one per line, instead of an image
    #[arg(long, help_heading = "Output", conflicts_with = "format")]
    folded: bool,
    #[command(flatten)]
    choice: EventChoice,
    #[command(flatten)]
    image: Image,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Weight {
    /// Sampling period; 1 for other events
    Period,
    /// 1 for each sample or event
    Count,
    /// Self time of calls in nanoseconds
    Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Thread name
    Comm,
    /// Process ID
    Pid,
    /// Thread ID
    Tid,
    /// CPU
    Cpu,
    /// Trace
    Trace,
}

impl Report for Flamegraph {
    const NAME: &'static str = "flamegraph";

    fn traces(&self) -> Vec<PathBuf> {
        self.traces.traces.clone()
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn form(&self) -> Result<Form> {
        let form = self.image.form();
        Ok(match self.folded {
            true => Form {
                shape: Shape::Folded,
                ..form
            },
            false => form,
        })
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        let drawing = match source(self, session)? {
            Source::Events => from_events(self, session)?,
            Source::Aggregates => from_aggregates(self, session)?,
            Source::Calls => from_calls(self, session)?,
        };
        let total = counted(drawing.count, drawing.counted);
        let summary = format!("{}: {total}", drawing.name);
        let flame = Flame {
            title: title(self, session, &drawing.name),
            subtitle: total,
            stacks: drawing.merged,
            weight: drawing.weight,
            unit: drawing.unit,
            width: self.width,
        };
        Ok(Answered::new(Section::Flame(flame)).with_summary(summary))
    }
}

/// Source of the stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Events,
    /// Stacks that are already aggregated.
    Aggregates,
    Calls,
}

/// Returns the requested source; otherwise the first available of samples, stacks of stored aggregates, stacks of any
/// event, and calls.
fn source(graph: &Flamegraph, session: &Session) -> Result<Source> {
    if graph.weight == Some(Weight::Duration) {
        if graph.choice.event.is_some() {
            bail!(Misuse(
                "--weight duration: cannot be combined with --event".to_owned()
            ));
        }
        return Ok(Source::Calls);
    }
    if graph.choice.event.is_some() || has_rows(session, "samples") {
        return Ok(Source::Events);
    }
    if stored_aggregates::are_what_there_is(session, &graph.choice) {
        return Ok(Source::Aggregates);
    }
    let has_stacks = has_rows(session, "stacks");
    if !has_stacks && graph.weight.is_none() && has_rows(session, "calls") {
        return Ok(Source::Calls);
    }
    Ok(Source::Events)
}

/// Merged stacks with their labels.
struct Drawing {
    merged: Merged,
    /// Total weight.
    weight: u128,
    name: String,
    /// Unit of the weights.
    unit: &'static str,
    count: u64,
    /// Noun for the counted things, in the singular.
    counted: &'static str,
}

fn key(by: By) -> &'static str {
    match by {
        By::Comm => "comm",
        By::Pid => "arrow_cast(pid, 'Utf8View')",
        By::Tid => "arrow_cast(tid, 'Utf8View')",
        By::Cpu => "arrow_cast('CPU ' || cpu, 'Utf8View')",
        By::Trace => "trace",
    }
}

fn from_events(graph: &Flamegraph, session: &Session) -> Result<Drawing> {
    let condition = graph.choice.filters.condition(session)?;
    let mut subject = graph.choice.subject(session)?;
    if graph.weight == Some(Weight::Count) {
        subject.weight = "1";
    }
    let key = graph.by.filter(|&by| by != By::Trace).map(key);
    let folded = Folded::query(session, &subject, &condition, key)?;
    if folded.weight == 0 {
        graph.choice.fail_if_nothing_fits(session)?;
        bail!("no matching rows in {}", subject.name);
    }
    let unit = if subject.weight == "1" {
        "events"
    } else {
        subject.unit
    };
    let says = Says {
        name: subject.name,
        unit,
        counted: "sample",
        hint: "record with -g",
        naming: Naming::Functions,
    };
    drawing(graph, session, &folded, says)
}

fn from_aggregates(graph: &Flamegraph, session: &Session) -> Result<Drawing> {
    if graph.weight.is_some() || graph.by.is_some() {
        bail!(Misuse(
            "--weight, --by: not available for stacks that are already aggregated".to_owned()
        ));
    }
    let condition = graph.choice.filters.condition(session)?;
    let summed = stored_aggregates::stacks(session, &condition)?;
    if summed.folded.weight == 0 {
        bail!("no matching aggregates with stacks");
    }
    let name = "aggregations".to_owned();
    // Stacks recorded by perfquet look like those of samples.
    let is_own = |trace: &Trace| trace.formats.iter().any(|format| format == OWN);
    let naming = match session.traces.iter().all(is_own) {
        true => Naming::Functions,
        false => Naming::WithModules,
    };
    let says = Says {
        name,
        unit: stored_aggregates::unit_of(&summed),
        counted: "stack",
        hint: "aggregate by stack",
        naming,
    };
    drawing(graph, session, &summed.folded, says)
}

/// Format of perfquet's own recordings.
const OWN: &str = "perf.data";

/// Labels of a drawing, and the naming of its frames.
struct Says {
    name: String,
    unit: &'static str,
    counted: &'static str,
    hint: &'static str,
    naming: Naming,
}

/// Naming of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Naming {
    Functions,
    /// As printed by DTrace and folded by `stackcollapse.pl`: `genunix`copen`.
    WithModules,
}

fn drawing(graph: &Flamegraph, session: &Session, folded: &Folded, says: Says) -> Result<Drawing> {
    let is_bare = |row: &Weighted| row.kernel == 0 && row.user == 0;
    if folded.rows.iter().all(is_bare) {
        bail!(
            "{}: recorded without stacks\nhint: {}",
            says.name,
            says.hint
        );
    }
    Ok(Drawing {
        merged: merged(
            &session.forest,
            folded,
            graph.by == Some(By::Trace),
            says.naming,
        )?,
        weight: folded.weight,
        name: says.name,
        unit: says.unit,
        count: folded.samples,
        counted: says.counted,
    })
}

fn from_calls(graph: &Flamegraph, session: &Session) -> Result<Drawing> {
    let condition = graph.choice.filters.condition(session)?;
    if graph.by == Some(By::Trace) && session.traces.len() == 1 {
        bail!(Misuse(
            "--by trace: requires more than one trace".to_owned()
        ));
    }
    let paths = Paths::query(session, &condition, graph.by.map(key))?;
    let weight = paths.nodes.iter().map(|node| node.own).sum();
    if weight == 0 {
        bail!("no matching calls with a known duration");
    }
    let nodes = paths.nodes.iter().map(|node| Node {
        parent: node.parent,
        name: node.name,
        own: node.own,
    });
    let merged = Merged {
        nodes: nodes.collect(),
        names: paths.names.iter().map(|name| clean(name)).collect(),
    };
    Ok(Drawing {
        merged,
        weight,
        name: "calls".to_owned(),
        unit: "ns",
        count: paths.calls,
        counted: "call",
    })
}

fn title(graph: &Flamegraph, session: &Session, subject: &str) -> String {
    let names: Vec<&str> = session
        .traces
        .iter()
        .map(|trace| trace.name.as_str())
        .collect();
    let names = if names.len() <= 3 {
        names.join(", ")
    } else {
        format!("{} traces", names.len())
    };
    let usual = || format!("{names}: {subject}");
    graph.title.clone().unwrap_or_else(usual)
}

/// Merges the stacks of all traces by frame names.
fn merged(forest: &Forest, folded: &Folded, by_trace: bool, naming: Naming) -> Result<Merged> {
    let mut merge = Merge::default();
    merge.merged.nodes.push(Node {
        parent: 0,
        name: 0,
        own: 0,
    });
    for trace in 0..forest.len() {
        let tree = forest.tree(trace)?;
        let root = match by_trace {
            true => {
                let name = merge.name(&clean(forest.name(trace)));
                merge.child(0, name)
            }
            false => 0,
        };
        let names = merge.names_of_frames(&tree, naming);
        let mut places = CallValues {
            tree: &tree,
            names: &names,
            known: hashbrown::HashMap::new(),
        };
        for row in folded.rows.iter().filter(|row| row.trace == trace) {
            let base = match folded.keys.get(row.key as usize) {
                Some(key) => {
                    let parts = key
                        .split(stored_aggregates::PARTS)
                        .filter(|part| !part.is_empty());
                    parts.fold(root, |base, part| {
                        let name = merge.name(&clean(part));
                        merge.child(base, name)
                    })
                }
                None => root,
            };
            let user = places.of(&mut merge, base, row.user);
            let leaf = places.of(&mut merge, user, row.kernel);
            merge.merged.nodes[leaf as usize].own += row.weight;
        }
    }
    Ok(merge.merged)
}

/// A tree of names while it grows.
struct Merge {
    merged: Merged,
    children: hashbrown::HashMap<(u32, u32), u32>,
    name_ids: HashMap<String, u32>,
    /// Names of frames with an unknown function.
    unnamed: HashSet<u32>,
}

impl Default for Merge {
    fn default() -> Merge {
        let merged = Merged {
            nodes: Vec::new(),
            names: Vec::new(),
        };
        Merge {
            merged,
            children: hashbrown::HashMap::new(),
            name_ids: HashMap::new(),
            unnamed: HashSet::new(),
        }
    }
}

impl Merge {
    fn name(&mut self, name: &str) -> u32 {
        if let Some(&id) = self.name_ids.get(name) {
            return id;
        }
        let id = self.merged.names.len() as u32;
        self.merged.names.push(name.to_owned());
        self.name_ids.insert(name.to_owned(), id);
        id
    }

    fn child(&mut self, parent: u32, name: u32) -> u32 {
        let nodes = &mut self.merged.nodes;
        *self.children.entry((parent, name)).or_insert_with(|| {
            nodes.push(Node {
                parent,
                name,
                own: 0,
            });
            nodes.len() as u32 - 1
        })
    }

    /// Like [`Merge::child`], but merges consecutive unnamed frames into one.
    fn child_of_frame(&mut self, parent: u32, name: u32) -> u32 {
        let is_same = parent != 0 && self.merged.nodes[parent as usize].name == name;
        if is_same && self.unnamed.contains(&name) {
            return parent;
        }
        self.child(parent, name)
    }

    /// The name of each frame, by frame ID; kernel frames have the suffix for their color.
    fn names_of_frames(&mut self, tree: &Tree, naming: Naming) -> Vec<u32> {
        let frames = &tree.frames;
        let mut known: HashMap<u32, u32> = HashMap::new();
        let mut names = vec![0];
        for frame in 1..=frames.len() as u32 {
            let same = frames.same_function(frame);
            let name = match known.get(&same) {
                Some(&name) => name,
                None => {
                    let mut text = match naming {
                        Naming::Functions => clean(&frames.name(frame)),
                        Naming::WithModules => clean(&with_module(&tree.frames, frame)),
                    };
                    if frames.is_kernel(frame) {
                        text.push_str(KERNEL);
                    }
                    let name = self.name(&text);
                    if frames.function(frame).is_none() && naming == Naming::Functions {
                        self.unnamed.insert(name);
                    }
                    known.insert(same, name);
                    name
                }
            };
            names.push(name);
        }
        names
    }
}

/// `genunix`copen`, `unix`0xfffffffffb800c91`: a frame as printed by DTrace, without its offset and the arguments of
/// C++.
fn with_module(frames: &Frames, frame: u32) -> String {
    let name = match (frames.function(frame), frames.place(frame)) {
        (Some(function), _) => without_arguments(function).to_owned(),
        (None, Some(address)) => format!("{address:#x}"),
        (None, None) => "-".to_owned(),
    };
    match (frames.module(frame), frames.function(frame)) {
        _ if frames.is_inlined(frame) => format!("{name}_[i]"),
        (Some(module), _) => format!("{module}`{name}"),
        (None, Some(function)) => function.to_owned(),
        (None, None) => name,
    }
}

/// Makes a name safe for folded stacks: no semicolon, nothing harmful to a terminal or XML.
fn clean(name: &str) -> String {
    harmless(name).replace(';', ":")
}

/// Positions of one tree's stacks among the merged ones.
struct CallValues<'a> {
    tree: &'a Tree,
    names: &'a [u32],
    /// By the merged node below, and the node of the tree.
    known: hashbrown::HashMap<(u32, u32), u32>,
}

impl CallValues<'_> {
    /// The merged node of `stack` on top of `base`.
    fn of(&mut self, merge: &mut Merge, base: u32, stack: u32) -> u32 {
        // Down to a known node, then up again.
        let mut path = Vec::new();
        let mut node = stack;
        let mut place = base;
        while node != 0 {
            if let Some(&known) = self.known.get(&(base, node)) {
                place = known;
                break;
            }
            path.push(node);
            node = self.tree.parent(node);
        }
        let mut frames = Vec::new();
        for &node in path.iter().rev() {
            frames.clear();
            frames.extend(self.tree.frames_of_node(node));
            for &frame in frames.iter().rev() {
                place = merge.child_of_frame(place, self.names[frame as usize]);
            }
            self.known.insert((base, node), place);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unnamed_frames_are_merged_into_one_box() {
        let mut merge = Merge::default();
        merge.merged.nodes.push(Node {
            parent: 0,
            name: 0,
            own: 0,
        });
        let (main, unknown) = (merge.name("main"), merge.name("[unknown]"));
        merge.unnamed.insert(unknown);
        let mut node = 0;
        for name in [main, unknown, unknown, unknown, main, main, unknown] {
            node = merge.child_of_frame(node, name);
        }
        let names = std::iter::successors(Some(node), |&node| {
            Some(merge.merged.nodes[node as usize].parent).filter(|&parent| parent != 0)
        });
        let names: Vec<&str> = names.map(|node| merge.merged.name_of(node)).collect();
        assert_eq!(names, ["[unknown]", "main", "main", "[unknown]", "main"]);
    }
}
