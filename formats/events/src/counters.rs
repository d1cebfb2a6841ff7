//! Names of the kernel's counters as perf writes them (tools/perf/util/parse-events.c, include/uapi/linux/perf_event.h).

/// Name and alias of each hardware counter, by its number (`enum perf_hw_id`); an empty alias is none.
pub const HARDWARE: [[&str; 2]; 10] = [
    ["cycles", "cpu-cycles"],
    ["instructions", ""],
    ["cache-references", ""],
    ["cache-misses", ""],
    ["branches", "branch-instructions"],
    ["branch-misses", ""],
    ["bus-cycles", ""],
    ["stalled-cycles-frontend", "idle-cycles-frontend"],
    ["stalled-cycles-backend", "idle-cycles-backend"],
    ["ref-cycles", ""],
];

/// Name and alias of each software event, by its number (`enum perf_sw_ids`); an empty alias is none.
pub const SOFTWARE: [[&str; 2]; 12] = [
    ["cpu-clock", ""],
    ["task-clock", ""],
    ["page-faults", "faults"],
    ["context-switches", "cs"],
    ["cpu-migrations", "migrations"],
    ["minor-faults", ""],
    ["major-faults", ""],
    ["alignment-faults", ""],
    ["emulation-faults", ""],
    ["dummy", ""],
    ["bpf-output", ""],
    ["cgroup-switches", ""],
];

/// Returns the number of a counter by its name or alias.
///
/// ```
/// use perfquet_events::counters::{SOFTWARE, number};
/// assert_eq!(number(&SOFTWARE, "faults"), Some(2));
/// assert_eq!(number(&SOFTWARE, "cycles"), None);
/// ```
pub fn number(names: &[[&str; 2]], name: &str) -> Option<usize> {
    let place = names.iter().position(|names| names.contains(&name));
    place.filter(|_| !name.is_empty())
}

/// Returns the name by number.
pub fn name(names: &[[&'static str; 2]], number: u64) -> Option<&'static str> {
    let place = usize::try_from(number).ok()?;
    names.get(place).map(|[name, _]| *name)
}
