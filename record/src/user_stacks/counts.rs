//! Numbers of walked and copied stacks, and what is printed of them.

use std::collections::BTreeSet;

use perfquet_trace::count::counted;
use perfquet_trace::symbols::UnwindCounts;

use super::check::CheckCounts;
use super::interpreters::InterpreterCounts;
use crate::probe::stacks;

/// Numbers of walks and copies by result.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Walks in the kernel.
    pub(super) walked: UnwindCounts,
    /// Copies, unwound in user space.
    pub(super) copied: UnwindCounts,
    /// Walks cut where a table or list was missing, because the recorder got no time to read a copy.
    pub(super) not_copied: u64,
    /// Walks by programs that aggregate by stack.
    pub(super) aggregated: UnwindCounts,
    /// Stacks of these programs by frame pointers, because a table or list was missing.
    pub(super) by_frame_pointers: u64,
    /// Stacks with interpreted functions.
    pub(super) interpreted: InterpreterCounts,
    /// Processes of Node.js with names of functions.
    pub(super) javascript: BTreeSet<i32>,
    /// JVMs with rules of their code.
    pub(super) generated: BTreeSet<i32>,
    /// Walks compared with copies.
    pub(super) checks: CheckCounts,
    /// Stacks by frame pointers, recorded by the kernel, that reach the start of their thread, and that do not.
    pub(super) followed_whole: u64,
    pub(super) followed_cut: u64,
    /// Samples whose kernel stack another event has overwritten.
    pub(super) overwritten: u64,
}

impl Counts {
    /// Processes of Node.js whose functions were read from their memory.
    pub(crate) fn javascript(&self) -> &BTreeSet<i32> {
        &self.javascript
    }

    /// JVMs whose compiled code had unwind rules.
    pub(crate) fn generated(&self) -> &BTreeSet<i32> {
        &self.generated
    }

    /// Formats the counts for the trace.
    pub(crate) fn text(&self) -> String {
        let of = |what: &str, counts: &UnwindCounts| {
            format!(
                "{what} {}: {} complete, {} cut at missing memory, {} at code without unwind information, {} at an address outside of all code, {} at the maximum depth, {} not supported",
                counts.complete + counts.cut(),
                counts.complete,
                counts.memory_ended,
                counts.no_rule,
                counts.lost,
                counts.too_deep,
                counts.unsupported
            )
        };
        let kinds = [
            ("walked in the kernel", &self.walked),
            ("copied", &self.copied),
            ("walked for aggregates", &self.aggregated),
        ];
        let kinds = kinds.map(|(what, counts)| (what, counts, counts.complete + counts.cut()));
        let known = kinds.iter().filter(|(_, _, all)| *all > 0);
        let mut text: Vec<String> = known.map(|(what, counts, _)| of(what, counts)).collect();
        if self.by_frame_pointers > 0 {
            text.push(format!(
                "by frame pointers, before tables were loaded, {}",
                self.by_frame_pointers
            ));
        }
        if self.not_copied > 0 {
            text.push(format!(
                "cut before tables were loaded, without room for a copy, {}",
                self.not_copied
            ));
        }
        let mut text = match text.is_empty() {
            true => "none".to_owned(),
            false => text.join("; "),
        };
        for (language, counts) in self.interpreted.seen() {
            let (complete, incomplete) = (counts.complete, counts.incomplete);
            text += &format!(
                "; with {language} functions {}: {complete} complete, {incomplete} not",
                complete + incomplete
            );
        }
        if self.followed_whole + self.followed_cut > 0 {
            text += &format!(
                "; by frame pointers {}: {} reach the start of the thread",
                self.followed_whole + self.followed_cut,
                self.followed_whole
            );
        }
        text += &self.checks.text();
        if self.overwritten > 0 {
            text += &format!(
                "; kernel stacks with only their innermost frame {}",
                self.overwritten
            );
        }
        text
    }

    /// Returns messages about stacks whose outer frames are missing.
    pub(crate) fn sentences(&self) -> impl Iterator<Item = String> {
        let walked = stacks::cut_sentence("walked", &self.walked, 0);
        let copied = stacks::cut_sentence("copied", &self.copied, 0);
        let by_frame_pointers = self.by_frame_pointers;
        let aggregated = stacks::cut_sentence("aggregated", &self.aggregated, by_frame_pointers);
        walked
            .into_iter()
            .chain(copied)
            .chain(self.not_copied_sentence())
            .chain(aggregated)
            .chain(stacks::followed_sentence(
                self.followed_whole,
                self.followed_cut,
            ))
            .chain(self.checks.sentence())
            .chain(self.overwritten_sentence())
    }

    fn not_copied_sentence(&self) -> Option<String> {
        (self.not_copied > 0).then(|| {
            format!(
                "{} cut before unwind tables were loaded: their copies came faster than the recorder could read them",
                counted(self.not_copied, "user stack")
            )
        })
    }

    fn overwritten_sentence(&self) -> Option<String> {
        (self.overwritten > 0).then(|| {
            format!(
                "{} cut: the kernel overwrote all but the innermost frame when another recorded event hit while the user stack was walked; --call-graph dwarf keeps them",
                counted(self.overwritten, "kernel stack")
            )
        })
    }
}

#[cfg(test)]
impl Counts {
    /// Those of a recording that has read these processes.
    pub(crate) fn of_read(javascript: &[i32], generated: &[i32]) -> Counts {
        Counts {
            javascript: javascript.iter().copied().collect(),
            generated: generated.iter().copied().collect(),
            ..Counts::default()
        }
    }
}
