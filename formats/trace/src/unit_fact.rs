//! Facts with the units of sampled values, of formats that declare them: `pprof.unit.cpu` = `nanoseconds`; and the aggregation whose
//! values are times.

/// Name of the aggregation of `perfquet-record --off-cpu`. Its values are nanoseconds.
pub const OFF_CPU: &str = "off-cpu";

const PREFIXES: [&str; 2] = ["pprof.unit.", "speedscope.unit."];

/// Returns the event whose unit a fact is; `None` if it is another fact.
pub fn event(fact: &str) -> Option<&str> {
    PREFIXES.iter().find_map(|prefix| fact.strip_prefix(prefix))
}

#[cfg(test)]
mod tests {
    use super::event;

    #[test]
    fn names_of_facts() {
        assert_eq!(event("pprof.unit.alloc_space"), Some("alloc_space"));
        assert_eq!(event("speedscope.unit.cpu"), Some("cpu"));
        assert_eq!(event("pprof.time_ns"), None);
    }
}
