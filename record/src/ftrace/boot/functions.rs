//! The kernel parameters that trace functions from the start of a tracer on.
//!
//! ```text
//! --function-graph do_one_initcall --max-depth 2 --min-duration 500us
//! ftrace=function_graph ftrace_graph_filter=do_one_initcall ftrace_graph_max_depth=2 tracing_thresh=500
//! ```

use perfquet_cli::glob_matches;
use perfquet_events::event::Selection;

use super::super::options::FunctionOptions;
use super::super::plan::{Plan, Tracer};
use super::super::refusal;
use crate::failure::{Failure, misuse, similar};
use crate::sys::kallsyms;
use crate::sys::tracefs::Tracefs;

/// Functions that have been entered when the graph tracer starts, so that it sees neither their entries nor their exits.
const ENTERED_BEFORE: [&str; 9] = [
    "start_kernel",
    "x86_64_start_kernel",
    "setup_arch",
    "rest_init",
    "kernel_init",
    "kernel_init_freeable",
    "do_basic_setup",
    "do_initcalls",
    "do_initcall_level",
];

/// Returns the parameters for the requested functions; none if there are none.
pub(crate) fn parameters(
    tracefs: &Tracefs,
    options: &FunctionOptions,
    selection: &Selection,
) -> Result<Vec<String>, Failure> {
    let Some(plan) = options.plan(selection)? else {
        return Ok(Vec::new());
    };
    refusal::check(tracefs, plan.tracer)?;
    check_names(&plan)?;
    let mut parameters = vec![format!("ftrace={}", plan.tracer.name())];
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            parameters.push(format!("{name}={value}"));
        }
    };
    add("ftrace_filter", plan.watched().join(","));
    add("ftrace_graph_filter", plan.roots.join(","));
    let depth = plan.max_depth.map(|depth| depth.to_string());
    add("ftrace_graph_max_depth", depth.unwrap_or_default());
    add("tracing_thresh", threshold(&plan, selection)?);
    Ok(parameters)
}

/// Returns the minimum duration in the kernel's unit, microseconds. Nothing drops short calls later, so it is not rounded.
fn threshold(plan: &Plan, selection: &Selection) -> Result<String, Failure> {
    let Some(least) = selection.min_duration.filter(|least| *least > 0) else {
        return Ok(String::new());
    };
    if plan.tracer == Tracer::Function {
        return Err(
            misuse("--min-duration: calls of --function have no durations")
                .hint("use --function-graph"),
        );
    }
    match least % 1000 {
        0 => Ok((least / 1000).to_string()),
        _ => Err(misuse(
            "--min-duration: the kernel's threshold has whole microseconds",
        )),
    }
}

/// Fails for functions that the kernel would silently ignore while it boots: unknown ones, those of modules, and those that the
/// graph tracer cannot see. Functions of the init section exist only during the boot, but their names remain.
fn check_names(plan: &Plan) -> Result<(), Failure> {
    let names: Vec<&String> = plan.roots.iter().chain(&plan.only).collect();
    if names.is_empty() {
        return Ok(());
    }
    let known = kallsyms::kernel_functions();
    for name in names {
        if plan.tracer == Tracer::Graph && ENTERED_BEFORE.contains(&name.as_str()) {
            return Err(misuse(format!(
                "{name} is entered before the function graph tracer starts (core_initcall)"
            ))
            .hint("use --function-graph '*' or do_one_initcall"));
        }
        // No names: they are hidden from this user.
        if !known.is_empty() && !known.iter().any(|known| glob_matches(name, known)) {
            return Err(misuse(format!(
                "{name} is no function of this kernel without its modules"
            ))
            .hint(similar(name, known, "perfquet-record --functions PATTERN")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_whole_microseconds() {
        let of = |tracer, least| {
            let selection = Selection {
                min_duration: least,
                ..Selection::default()
            };
            threshold(&Plan::of(tracer), &selection).map_err(|failure| failure.to_string())
        };
        assert_eq!(of(Tracer::Graph, Some(500_000)), Ok("500".into()));
        assert_eq!(of(Tracer::Graph, None), Ok(String::new()));
        assert!(of(Tracer::Graph, Some(1_500)).is_err());
        assert!(of(Tracer::Function, Some(500_000)).is_err());
    }

    #[test]
    fn functions_before_the_tracer_are_refused() {
        let plan = Plan {
            roots: vec!["start_kernel".into()],
            ..Plan::of(Tracer::Graph)
        };
        let failure = check_names(&plan).unwrap_err();
        assert!(failure.to_string().contains("core_initcall"), "{failure}");
    }
}
