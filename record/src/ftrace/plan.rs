//! The functions to trace, and where: in an instance, or only at the top level of tracefs.

use perfquet_events::event::{Context, Selection};

/// The kernel's tracers of functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracer {
    /// `function`: each entry.
    Function,
    /// `function_graph`: entries and exits.
    Graph,
}

impl Tracer {
    /// The option that makes it record arguments.
    pub(super) fn args_option(self) -> &'static str {
        match self {
            Tracer::Function => "options/func-args",
            Tracer::Graph => "options/funcgraph-args",
        }
    }

    /// Returns the kernel's name of the tracer.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tracer::Function => "function",
            Tracer::Graph => "function_graph",
        }
    }
}

/// The functions to trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) tracer: Tracer,
    /// Functions that are followed into their callees; empty for every function.
    pub(super) roots: Vec<String>,
    /// Only these are recorded; empty: all.
    pub(super) only: Vec<String>,
    pub(super) max_depth: Option<u32>,
    /// Minimum duration in the kernel: shorter calls are dropped, and the others have no entry.
    pub(super) min_duration_us: Option<u64>,
    /// Whether functions in hardware interrupts are excluded.
    pub(super) without_interrupts: bool,
    /// Whether arguments are recorded.
    pub(super) has_args: bool,
}

impl Plan {
    /// A plan that traces every function.
    pub(super) fn of(tracer: Tracer) -> Plan {
        Plan {
            tracer,
            roots: Vec::new(),
            only: Vec::new(),
            max_depth: None,
            min_duration_us: None,
            without_interrupts: false,
            has_args: false,
        }
    }

    /// Functions that the kernel has to watch; empty: all. With a depth of 1 these are the roots themselves: watching all
    /// would slow down the whole system for nothing.
    pub(super) fn watched(&self) -> &[String] {
        match (self.only.as_slice(), self.max_depth) {
            ([], Some(1)) => &self.roots,
            (only, _) => only,
        }
    }

    /// Returns the feature that an instance does not support, if any. One root at depth 1 equals watching that
    /// function; several roots may call each other.
    pub(super) fn needs_top(&self) -> Option<&'static str> {
        let is_alone = self.max_depth == Some(1) && self.only.is_empty() && {
            let has_wildcard = |name: &String| name.contains(['*', '?', '[']);
            self.roots.len() == 1 && !self.roots.iter().any(has_wildcard)
        };
        match self {
            Plan {
                min_duration_us: Some(_),
                ..
            } => Some("a least duration (tracing_thresh)"),
            _ if is_alone => None,
            Plan {
                max_depth: Some(_), ..
            } => Some("a depth (max_graph_depth)"),
            Plan { roots, .. } if !roots.is_empty() => {
                Some("following a function into its callees (set_graph_function)")
            }
            _ => None,
        }
    }

    /// Moves filters of the selection into the kernel where that has no other cost.
    pub(super) fn select(mut self, selection: &Selection) -> Plan {
        let least_us = selection
            .min_duration
            .and_then(|least| u64::try_from(least / 1000).ok());
        // An instance with a few functions is better than the top, and their short calls are not too many.
        let is_many = self.watched().is_empty();
        if self.tracer == Tracer::Graph && is_many {
            self.min_duration_us = least_us.filter(|us| *us > 0);
        }
        let is_without = |context| {
            selection
                .contexts
                .is_some_and(|contexts| !contexts.has(context))
        };
        self.without_interrupts = is_without(Context::Irq) && is_without(Context::Nmi);
        self
    }

    /// Events that a call makes in the ring.
    pub(super) fn events_of_a_call(&self) -> u64 {
        match (self.tracer, self.min_duration_us) {
            (Tracer::Graph, None) => 2,
            (Tracer::Graph, Some(_)) | (Tracer::Function, _) => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use perfquet_events::event::Contexts;

    use super::*;

    #[test]
    fn instance_is_used_if_possible() {
        let plan = |roots: &[&str], max_depth| Plan {
            roots: roots.iter().map(|&root| root.to_owned()).collect(),
            max_depth,
            ..Plan::of(Tracer::Graph)
        };
        assert_eq!(plan(&[], None).needs_top(), None);
        assert_eq!(plan(&["ksys_write"], Some(1)).needs_top(), None);
        assert_eq!(plan(&["ksys_write"], Some(1)).watched(), ["ksys_write"]);
        for (roots, depth) in [
            (&["ksys_write"][..], Some(2)),
            (&["ksys_write"], None),
            (&["vfs_*"], Some(1)),
            (&["ksys_write", "vfs_write"], Some(1)),
            (&[], Some(3)),
        ] {
            assert!(plan(roots, depth).needs_top().is_some(), "{roots:?}");
        }
        assert!(plan(&["ksys_write"], Some(2)).watched().is_empty());
    }

    #[test]
    fn short_calls_are_dropped_in_the_kernel_if_possible() {
        let selection = Selection {
            min_duration: Some(10_000),
            contexts: Some(
                Contexts::default()
                    .with(Context::Task)
                    .with(Context::Softirq),
            ),
            ..Selection::default()
        };
        let all = Plan::of(Tracer::Graph).select(&selection);
        assert_eq!(
            (all.min_duration_us, all.without_interrupts),
            (Some(10), true)
        );
        assert!(all.needs_top().is_some());
        assert_eq!(all.events_of_a_call(), 1);
        let few = Plan {
            only: vec!["vfs_read".into()],
            ..Plan::of(Tracer::Graph)
        };
        let few = few.select(&selection);
        assert_eq!((few.min_duration_us, few.needs_top()), (None, None));
        let plain = Plan::of(Tracer::Graph).select(&Selection::default());
        assert_eq!(plain, Plan::of(Tracer::Graph));
    }
}
