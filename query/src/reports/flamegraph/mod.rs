//! `flamegraph`: a picture of all stacks; the width of a frame is its share of the weight.
//!
//! Stacks are merged by function first. Frames too narrow to see are not drawn, so the cost depends on the picture, not on
//! the number of stacks.

mod sources;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};

use self::sources::Source;
use perfquet::Session;
use perfquet::failure::Misuse;

use super::boxes::{By, Groups};
use super::event_weight::EventChoice;
use crate::commands::Subcommand;
use crate::limits::Limits;
use crate::render::flame::{Compared, Flame, Look};
use crate::render::{Answered, Form, Section, Shape};
use crate::report::{self, Report};
use crate::settings::{Image, Traces};

pub(super) const REPORT: Subcommand = report::subcommand::<Flamegraph>();

/// Draw a flame graph, as an image or on the terminal
// One struct, because each field is an option with its help.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  # Show the samples on the terminal
  perfquet-query flamegraph a.pqt
  # Draw the samples
  perfquet-query flamegraph a.pqt -o a.svg
  # Draw a time range by thread name
  perfquet-query flamegraph a.pqt --by comm --time 1s..2s -o a.svg
  # Draw who calls the hottest functions
  perfquet-query flamegraph a.pqt --reverse -o callers.svg
  # Draw where threads block
  perfquet-query flamegraph a.pqt --event sched:sched_switch --where 'prev_state = 1' -o blocked.svg
  # Draw the self time of calls
  perfquet-query flamegraph t.pqt --weight duration -o t.svg
  # Draw where threads wait, by their names
  perfquet-query flamegraph a.pqt --from off_cpu
  # Draw the stacks of a query
  perfquet-query flamegraph a.pqt --sql 'SELECT name, user_stack, duration FROM syscalls'
  # Compare two traces
  perfquet-query flamegraph before.pqt after.pqt --diff -o change.svg
  # Print folded stacks
  perfquet-query flamegraph a.pqt --folded | less")]
pub(super) struct Flamegraph {
    #[command(flatten)]
    traces: Traces,
    /// Draw the stacks that this query returns
    ///
    /// The last column is the weight. The other columns are stack IDs, folded stacks or names, from the outermost frame inward.
    #[arg(long, value_name = "QUERY", conflicts_with_all = ["by", "weight", "reverse", "diff", "event"])]
    sql: Option<String>,
    /// Draw the stacks of this table or view, such as off_cpu
    ///
    /// The weight is the duration of the rows, or their number if they have none. The outermost frames are thread names.
    #[arg(long, value_name = "TABLE", conflicts_with_all = ["sql", "by", "weight", "reverse", "diff", "event"])]
    from: Option<String>,
    /// Group by these keys; comma-separated [default: process, if there are several]
    #[arg(long, value_enum, value_name = "KEY", value_delimiter = ',')]
    by: Vec<By>,
    /// Frame width [default: period; duration if the trace has only calls]
    #[arg(long, value_enum, value_name = "WEIGHT")]
    weight: Option<Weight>,
    /// Merge the stacks from their leaves, with callers above
    #[arg(long)]
    reverse: bool,
    /// Compare two traces, BEFORE and AFTER
    ///
    /// The width of a frame is the mean of its shares in both traces; its color is the change.
    #[arg(long)]
    diff: bool,
    /// Show stacks without their outer frames in place
    ///
    /// By default, they are under a separate frame of each program, [incomplete stacks].
    #[arg(long)]
    keep_incomplete: bool,
    /// Maximum number of levels; 0 for all [default: all; 24 on a terminal]
    #[arg(long, help_heading = "Output", value_name = "N")]
    depth: Option<u32>,
    /// Draw the root at the bottom, with flames above it
    #[arg(long, help_heading = "Output", conflicts_with = "icicle")]
    flame: bool,
    /// Draw the root at the top, as by default
    #[arg(long, help_heading = "Output")]
    icicle: bool,
    /// Color frames by kind of code or by module
    #[arg(long, help_heading = "Output", value_enum, value_name = "MEANING", default_value_t = Color::Kind)]
    color: Color,
    /// Title of the image
    #[arg(long, help_heading = "Output", value_name = "TEXT")]
    title: Option<String>,
    /// Image width in pixels [default: width of the window]
    #[arg(long, help_heading = "Output", value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(200..=100_000))]
    width: Option<u32>,
    /// Draw with characters [default: if stdout is a terminal]
    #[arg(long, help_heading = "Output", conflicts_with_all = ["format", "folded", "output"])]
    text: bool,
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
enum Color {
    /// Kernel, program, library, inlined or generated code
    Kind,
    /// Modules
    Module,
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
        let shape = match (self.folded, self.text, form.shape) {
            (true, _, _) => Shape::Folded,
            (_, true, _) => Shape::Drawing,
            (_, _, Shape::Svg) => Shape::SvgOrDrawing,
            (_, _, shape) => shape,
        };
        Ok(Form { shape, ..form })
    }

    fn answer<'s>(&self, session: &'s Session) -> Result<Answered<'s>> {
        if self.diff && session.traces().len() != 2 {
            bail!(Misuse(format!(
                "--diff: expected two traces, found {}",
                session.traces().len()
            )));
        }
        let groups = Groups::new(&self.by)?;
        if groups.keys.contains(&By::Trace) && (session.traces().len() == 1 || self.diff) {
            bail!(Misuse(
                "--by trace: requires more than one trace, and no --diff".to_owned()
            ));
        }
        let source = sources::source(self, session)?;
        let boxes = source.boxes(self, session, &groups)?;
        let summary = format!("{}: {}", boxes.name, boxes.amount());
        let compared = self.diff.then(|| Compared {
            name: session.traces()[0].name.clone(),
            samples: matches!(source, Source::Events)
                .then_some((boxes.now.count, boxes.before.count)),
        });
        let flame = Flame {
            title: self.title(session, &boxes.name),
            source: boxes.name.clone(),
            subtitle: match &compared {
                Some(_) => format!(
                    "before: {}; after: {}; width: mean of both shares",
                    boxes.amount_of(boxes.before),
                    boxes.amount_of(boxes.now)
                ),
                None => summary.clone(),
            },
            notes: boxes.notes,
            tree: boxes.tree,
            unit: boxes.unit,
            compared,
            look: Look {
                width: self.width,
                is_reversed: self.reverse,
                is_icicle: !self.flame,
                by_module: self.color == Color::Module,
                is_off_cpu: boxes.is_off_cpu,
                levels: self.depth.map(|depth| match depth {
                    0 => u32::MAX,
                    depth => depth,
                }),
            },
        };
        Ok(Answered::new(Section::Flame(flame)).with_summary(summary))
    }
}

impl Flamegraph {
    fn title(&self, session: &Session, event: &str) -> String {
        if let Some(title) = &self.title {
            return title.clone();
        }
        let names: Vec<&str> = session
            .traces()
            .iter()
            .map(|trace| trace.name.as_str())
            .collect();
        let names = match names.as_slice() {
            [before, after] if self.diff => format!("{before} → {after}"),
            names if names.len() <= 3 => names.join(", "),
            names => format!("{} traces", names.len()),
        };
        let reversed = if self.reverse { ", callers above" } else { "" };
        let condition = self.choice.filters.words();
        let condition = condition.map_or_else(String::new, |words| format!(", {words}"));
        format!("{names}: {event}{reversed}{condition}")
    }
}
