//! The results of all requests: a fact of the trace, and hints.

use std::collections::BTreeSet;

use super::Known;
use super::process::Runtime;

/// Processes named in a message.
const NAMED_MAX: usize = 4;
/// Processes named in the fact.
const FACTS_MAX: usize = 64;

/// The result for a recording.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// For the trace; empty if no process had a runtime.
    text: String,
    /// Processes of Node.js without a perf map.
    nodes: Vec<i32>,
    sentences: Vec<String>,
}

impl Summary {
    /// If the thread did not end in time.
    pub(super) fn late() -> Summary {
        let sentence = "runtimes took too long to write their perf maps";
        Summary {
            text: sentence.to_owned(),
            nodes: Vec::new(),
            sentences: vec![sentence.to_owned()],
        }
    }

    pub(super) fn of<'a>(known: impl Iterator<Item = &'a Known>) -> Summary {
        let all: Vec<&Known> = known.collect();
        let mut facts: Vec<String> = all
            .iter()
            .take(FACTS_MAX)
            .map(|known| fact(known))
            .collect();
        if all.len() > FACTS_MAX {
            facts.push(format!("{} more", all.len() - FACTS_MAX));
        }
        let is_unnamed = |known: &&&Known| known.runtime == Runtime::Node && !known.has_map;
        Summary {
            text: facts.join("; "),
            nodes: all
                .iter()
                .filter(is_unnamed)
                .map(|known| known.pid)
                .collect(),
            sentences: sentences(&all),
        }
    }

    /// Results by process, for the trace.
    pub(crate) fn text(&self) -> Option<&str> {
        (!self.text.is_empty()).then_some(&self.text)
    }

    /// Messages about functions without names and stacks without callers. `named` are the processes of Node.js whose functions
    /// were read from their memory.
    pub(crate) fn sentences(&self, named: &BTreeSet<i32>) -> Vec<String> {
        let unnamed = self.nodes.iter().copied();
        let unnamed: Vec<i32> = unnamed.filter(|pid| !named.contains(pid)).collect();
        let of_node = (!unnamed.is_empty()).then(|| {
            format!(
                "functions of {} have no names; run node with --perf-basic-prof --interpreted-frames-native-stack",
                list(Runtime::Node, &unnamed)
            )
        });
        of_node
            .into_iter()
            .chain(self.sentences.iter().cloned())
            .collect()
    }
}

fn fact(known: &Known) -> String {
    let Known { pid, runtime, .. } = known;
    let name = runtime.name();
    match (known.has_map, &known.reason) {
        (true, _) => format!("{name} {pid}: perf map"),
        (false, Some(reason)) => format!("{name} {pid}: no perf map, {reason}"),
        (false, None) => format!("{name} {pid}: no perf map, the process ended before a request"),
    }
}

fn sentences(all: &[&Known]) -> Vec<String> {
    let of = |runtime: Runtime, is_it: &dyn Fn(&Known) -> bool| {
        let pids: Vec<i32> = all
            .iter()
            .filter(|known| known.runtime == runtime && is_it(known))
            .map(|known| known.pid)
            .collect();
        (!pids.is_empty()).then(|| list(runtime, &pids))
    };
    let mut sentences = Vec::new();
    if let Some(who) = of(Runtime::Java, &|known| {
        !known.has_map && known.reason.is_none()
    }) {
        sentences.push(format!(
            "functions of {who} have no names: it ended before a request; run java with -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit"
        ));
    }
    if let Some(who) = of(Runtime::DotNet, &|known| {
        !known.has_map && known.reason.is_none()
    }) {
        sentences.push(format!(
            "functions of {who} have no names: it ended before a request; set DOTNET_PerfMapEnabled=1"
        ));
    }
    for runtime in [Runtime::Java, Runtime::DotNet] {
        let refused = |known: &&&Known| known.runtime == runtime && !known.has_map;
        for known in all.iter().filter(refused).take(NAMED_MAX) {
            if let Some(reason) = &known.reason {
                let name = runtime.name();
                let pid = known.pid;
                sentences.push(format!("functions of {name} {pid} have no names: {reason}"));
            }
        }
    }
    if let Some(who) = of(Runtime::Java, &|known| {
        known.keeps_frame_pointers == Some(false)
    }) {
        sentences.push(format!(
            "stacks of {who} end at compiled code; run java with -XX:+PreserveFramePointer"
        ));
    }
    sentences
}

/// `java 12, 13 and 4 more`
fn list(runtime: Runtime, pids: &[i32]) -> String {
    let named: Vec<String> = pids.iter().take(NAMED_MAX).map(i32::to_string).collect();
    let more = match pids.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} {}{more}", runtime.name(), named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_counted() {
        assert_eq!(list(Runtime::Java, &[7]), "java 7");
        let pids: Vec<i32> = (1..8).collect();
        assert_eq!(list(Runtime::Node, &pids), "node 1, 2, 3, 4 and 3 more");
    }

    #[test]
    fn functions_that_were_read_have_names() {
        let summary = Summary {
            nodes: vec![3, 4, 5],
            sentences: vec!["another".to_owned()],
            ..Summary::default()
        };
        let said = summary.sentences(&[3, 5].into());
        assert!(
            said[0].starts_with("functions of node 4 have no names;"),
            "{said:?}"
        );
        assert_eq!(summary.sentences(&[3, 4, 5].into()), ["another"]);
    }
}
