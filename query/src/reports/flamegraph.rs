//! `flamegraph`: a picture of all stacks, the width of a box being the share of time.
//!
//! Stacks are merged by name first, and boxes that would be narrower than a tenth of a pixel are left to their
//! callers, so that the picture takes the time of what is seen, not of what was recorded.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{ArgMatches, Args, ValueEnum};

use super::folding::Folded;
use super::subject::{Choice, Subject};
use crate::commands::{Subcommand, arguments};
use crate::failure::Misuse;
use crate::render;
use crate::render::svg::{self, Picture};
use crate::render::text::{grouped, harmless};
use crate::session::Session;
use crate::settings::{Limits, Traces};
use crate::stacks::{Forest, Tree};

pub(super) const REPORT: Subcommand = Subcommand::new::<Flamegraph>("flamegraph", run);

/// Draw a flame graph of all stacks
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perfquet-query flamegraph a.pqt -o a.svg
  perfquet-query flamegraph a.pqt --by comm --time 1s..2s > a.svg
  perfquet-query flamegraph a.pqt --event sched:sched_switch --where 'prev_state = 1' -o blocked.svg
  perfquet-query flamegraph a.pqt --folded | less                 the stacks as text instead")]
struct Flamegraph {
    #[command(flatten)]
    traces: Traces,
    /// File to write; stdout if not given
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Add a box below all stacks of the same
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Title of the picture
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Width of the picture in pixels; it fits itself to the window if not given
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(200..=100_000))]
    width: Option<u32>,
    /// Write folded stacks, one per line, instead of a picture
    #[arg(long)]
    folded: bool,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Thread name
    Comm,
    /// Process
    Pid,
    /// Thread
    Tid,
    /// CPU
    Cpu,
    /// Trace
    Trace,
}

fn run(matches: &ArgMatches) -> Result<()> {
    let graph: Flamegraph = arguments(matches)?;
    if graph.output.is_none() && !graph.folded && render::is_terminal() {
        bail!(Misuse(
            "a picture is not for a terminal\nhint: -o FILE.svg".to_owned()
        ));
    }
    let session = Session::open(&graph.traces.traces, &graph.limits)?;
    let condition = graph.choice.filters.condition(&session)?;
    let subject = graph.choice.subject(&session)?;
    let key = graph.by.map(|by| match by {
        By::Comm => "comm",
        By::Pid => "arrow_cast(pid, 'Utf8View')",
        By::Tid => "arrow_cast(tid, 'Utf8View')",
        By::Cpu => "arrow_cast('CPU ' || cpu, 'Utf8View')",
        By::Trace => "trace",
    });
    let folded = Folded::query(
        &session,
        &subject,
        &condition,
        key.filter(|_| graph.by != Some(By::Trace)),
    )?;
    if folded.weight == 0 {
        bail!("nothing to draw: no row of {} fits", subject.name);
    }
    if folded
        .rows
        .iter()
        .all(|row| row.kernel == 0 && row.user == 0)
    {
        bail!(
            "nothing to draw: {} was recorded without stacks\nhint: record with -g",
            subject.name
        );
    }
    let merged = Merged::new(&session.forest, &folded, graph.by == Some(By::Trace))?;
    let pixels = graph.width.unwrap_or(svg::USUAL_WIDTH);
    // In the text every stack counts; in the picture only what can be seen.
    let least = if graph.folded {
        1
    } else {
        (folded.weight as f64 * svg::NARROWEST_PIXELS / f64::from(pixels)) as u64
    };
    let lines = merged.lines(least);
    let out: Box<dyn Write> = match &graph.output {
        Some(path) => Box::new(BufWriter::new(
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?,
        )),
        None => render::stdout(),
    };
    if graph.folded {
        return write_lines(out, &lines);
    }
    svg::write(out, &lines, &picture(&graph, &session, &subject, &folded))?;
    let place = graph
        .output
        .as_ref()
        .map(|path| format!(" to {}", path.display()))
        .unwrap_or_default();
    eprintln!(
        "{}: {} samples drawn{place}",
        subject.name,
        grouped(folded.samples)
    );
    Ok(())
}

fn write_lines(mut out: Box<dyn Write>, lines: &[String]) -> Result<()> {
    for line in lines {
        writeln!(out, "{}", line.replace("_[k]", ""))?;
    }
    Ok(out.flush()?)
}

fn picture(graph: &Flamegraph, session: &Session, subject: &Subject, folded: &Folded) -> Picture {
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
    Picture {
        title: graph
            .title
            .clone()
            .unwrap_or_else(|| format!("{names}: {}", subject.name)),
        subtitle: format!("{} samples", grouped(folded.samples)),
        count_name: if subject.weight == "1" {
            "events"
        } else {
            subject.unit
        }
        .to_owned(),
        width: graph.width,
    }
}

/// All stacks merged by the names of their frames. Node 0 is the root of all.
struct Merged {
    nodes: Vec<Node>,
    names: Vec<String>,
}

struct Node {
    parent: u32,
    name: u32,
    /// What ended here.
    own: u64,
}

impl Merged {
    fn new(forest: &Forest, folded: &Folded, by_trace: bool) -> Result<Merged> {
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
            let names = merge.names_of_frames(&tree);
            let mut places = Places {
                tree: &tree,
                names: &names,
                known: hashbrown::HashMap::new(),
            };
            for row in folded.rows.iter().filter(|row| row.trace == trace) {
                let base = match folded.keys.get(row.key as usize) {
                    Some(key) => {
                        let name = merge.name(&clean(key));
                        merge.child(root, name)
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

    /// Folded stacks in the order of their names; what weighs less than `least` is added to its caller.
    fn lines(mut self, least: u64) -> Vec<String> {
        let mut totals: Vec<u64> = self.nodes.iter().map(|node| node.own).collect();
        for node in (1..self.nodes.len()).rev() {
            let parent = self.nodes[node].parent as usize;
            totals[parent] += totals[node];
            if totals[node] < least {
                self.nodes[parent].own += totals[node];
            }
        }
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); self.nodes.len()];
        for node in (1..self.nodes.len()).filter(|&node| totals[node] >= least) {
            children[self.nodes[node].parent as usize].push(node as u32);
        }
        for siblings in &mut children {
            siblings.sort_by(|&a, &b| self.name_of(b).cmp(self.name_of(a)));
        }
        let mut lines = Vec::new();
        // Depth first, with the length of the path before each node.
        let mut path = String::new();
        let mut pending = vec![(0u32, 0usize)];
        while let Some((node, length)) = pending.pop() {
            path.truncate(length);
            if node != 0 {
                if length > 0 {
                    path.push(';');
                }
                path.push_str(self.name_of(node));
            }
            let own = self.nodes[node as usize].own;
            if own > 0 {
                let name = if path.is_empty() { "[no stack]" } else { &path };
                lines.push(format!("{name} {own}"));
            }
            pending.extend(
                children[node as usize]
                    .iter()
                    .map(|&child| (child, path.len())),
            );
        }
        lines
    }

    fn name_of(&self, node: u32) -> &str {
        &self.names[self.nodes[node as usize].name as usize]
    }
}

/// A tree of names while it grows.
struct Merge {
    merged: Merged,
    children: hashbrown::HashMap<(u32, u32), u32>,
    name_ids: HashMap<String, u32>,
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

    /// The name of each frame, by frame id; the kernel's bear the mark that colours them.
    fn names_of_frames(&mut self, tree: &Tree) -> Vec<u32> {
        let frames = &tree.frames;
        let mut known: HashMap<u32, u32> = HashMap::new();
        let mut names = vec![0];
        for frame in 1..=frames.len() as u32 {
            let same = frames.same_function(frame);
            let name = match known.get(&same) {
                Some(&name) => name,
                None => {
                    let mut text = clean(&frames.name(frame));
                    if frames.is_kernel(frame) {
                        text.push_str("_[k]");
                    }
                    let name = self.name(&text);
                    known.insert(same, name);
                    name
                }
            };
            names.push(name);
        }
        names
    }
}

/// A name as it may stand in a folded stack: no semicolon, nothing that harms a terminal or XML.
fn clean(name: &str) -> String {
    harmless(name).replace(';', ":")
}

/// Where the stacks of one tree lie among the merged ones.
struct Places<'a> {
    tree: &'a Tree,
    names: &'a [u32],
    /// By the merged node below, and the node of the tree.
    known: hashbrown::HashMap<(u32, u32), u32>,
}

impl Places<'_> {
    /// The merged node of `stack` on top of `base`.
    fn of(&mut self, merge: &mut Merge, base: u32, stack: u32) -> u32 {
        // Down to a node that is known, then up again.
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
                place = merge.child(place, self.names[frame as usize]);
            }
            self.known.insert((base, node), place);
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(stacks: &[(&[&str], u64)]) -> Merged {
        let mut merge = Merge::default();
        merge.merged.nodes.push(Node {
            parent: 0,
            name: 0,
            own: 0,
        });
        for (stack, weight) in stacks {
            let mut node = 0;
            for frame in *stack {
                let name = merge.name(&clean(frame));
                node = merge.child(node, name);
            }
            merge.merged.nodes[node as usize].own += weight;
        }
        merge.merged
    }

    #[test]
    fn lines_are_sorted_and_nothing_is_lost() {
        let stacks: &[(&[&str], u64)] = &[
            (&["main", "b"], 5),
            (&["main", "a;x"], 3),
            (&["main"], 1),
            (&["main", "b", "c"], 2),
            (&[], 4),
        ];
        assert_eq!(
            merged(stacks).lines(1),
            [
                "[no stack] 4",
                "main 1",
                "main;a:x 3",
                "main;b 5",
                "main;b;c 2"
            ]
        );
        // The narrow ones go to their callers.
        assert_eq!(
            merged(stacks).lines(4),
            ["[no stack] 4", "main 4", "main;b 7"]
        );
    }
}
