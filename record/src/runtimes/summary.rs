//! The results of all requests: a fact of the trace, and hints.

use std::collections::BTreeSet;

use super::Known;
use super::process::Runtime;
use crate::user_stacks::Counts;

/// Processes named in a message.
const NAMED_MAX: usize = 4;
/// Processes named in the fact.
const FACTS_MAX: usize = 64;

/// The result for a recording.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// For the trace; empty if no process had a runtime.
    text: String,
    /// Processes of Node.js without a perf map, and JVMs without frame pointers.
    nodes: Vec<i32>,
    javas: Vec<i32>,
    sentences: Vec<String>,
}

impl Summary {
    /// If the thread did not end in time.
    pub(super) fn late() -> Summary {
        let sentence = "runtimes took too long to write their perf maps";
        Summary {
            text: sentence.to_owned(),
            nodes: Vec::new(),
            javas: Vec::new(),
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
        let is_unnamed = |known: &Known| known.runtime == Runtime::Node && !known.has_map;
        let pids = |is_it: &dyn Fn(&Known) -> bool| {
            let found = all.iter().filter(|known| is_it(known));
            found.map(|known| known.pid).collect()
        };
        Summary {
            text: facts.join("; "),
            nodes: pids(&is_unnamed),
            javas: pids(&|known| known.keeps_frame_pointers == Some(false)),
            sentences: sentences(&all),
        }
    }

    /// Results by process, for the trace.
    pub(crate) fn text(&self) -> Option<&str> {
        (!self.text.is_empty()).then_some(&self.text)
    }

    /// Messages about functions without names and stacks without callers. `known` are the user stacks that were walked in the
    /// kernel.
    pub(crate) fn sentences(&self, known: Option<&Counts>) -> Vec<String> {
        let missing = |all: &[i32], read: Option<&BTreeSet<i32>>| -> Vec<i32> {
            let is_read = |pid: &i32| read.is_some_and(|read| read.contains(pid));
            all.iter().copied().filter(|pid| !is_read(pid)).collect()
        };
        let of = |runtime, pids: Vec<i32>| (!pids.is_empty()).then(|| list(runtime, &pids));
        let unnamed = missing(&self.nodes, known.map(Counts::javascript));
        let of_node = of(Runtime::Node, unnamed).map(|who| {
            format!(
                "functions of {who} have no names; run node with --perf-basic-prof --interpreted-frames-native-stack"
            )
        });
        let cut = missing(&self.javas, known.map(Counts::generated));
        let of_java = of(Runtime::Java, cut).map(|who| {
            format!("stacks of {who} end at compiled code; run java with -XX:+PreserveFramePointer")
        });
        let others = self.sentences.iter().cloned();
        of_node.into_iter().chain(others).chain(of_java).collect()
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
    fn what_was_read_needs_no_option() {
        let summary = Summary {
            nodes: vec![3, 4, 5],
            javas: vec![6, 7],
            sentences: vec!["another".to_owned()],
            ..Summary::default()
        };
        let said = summary.sentences(Some(&Counts::of_read(&[3, 5], &[6])));
        assert!(
            said[0].starts_with("functions of node 4 have no names;"),
            "{said:?}"
        );
        assert!(said[2].starts_with("stacks of java 7 end at"), "{said:?}");
        let all = Counts::of_read(&[3, 4, 5], &[6, 7]);
        assert_eq!(summary.sentences(Some(&all)), ["another"]);
        assert_eq!(summary.sentences(None).len(), 3);
    }
}
