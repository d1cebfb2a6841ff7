//! Names similar to a misspelled one.

use strsim::osa_distance;

/// Returns up to four of `names` that are similar to `wrong`, the nearest first.
pub(crate) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong = wrong.to_lowercase();
    let mut near: Vec<(usize, &str)> = Vec::new();
    for name in names {
        let lower = name.to_lowercase();
        // A name may follow its table or system.
        let last = lower.rsplit('.').next().unwrap_or(&lower);
        let steps = osa_distance(&wrong, &lower).min(osa_distance(&wrong, last));
        let part =
            wrong.len() >= 3 && (lower.contains(&wrong) || last.len() >= 3 && wrong.contains(last));
        let allowed = (wrong.chars().count() / 3).max(1);
        if steps <= allowed {
            near.push((steps * 2, name));
        } else if part {
            near.push((allowed * 2 + 1, name));
        }
    }
    near.sort();
    near.dedup_by_key(|(_, name)| *name);
    near.into_iter().take(4).map(|(_, name)| name).collect()
}

/// The text of a hint with valid names: `use comm`, `use one of: pid, tid`.
pub(crate) fn suggestion(names: &[&str]) -> String {
    match names {
        [only] => format!("use {only}"),
        names => format!("use one of: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names() {
        let tables = [
            "samples",
            "sched_switch",
            "sched.sched_switch",
            "sched_wakeup",
            "stacks",
            "threads",
        ];
        assert_eq!(nearest("sample", tables), ["samples"]);
        assert_eq!(
            nearest("shced_switch", tables),
            ["sched.sched_switch", "sched_switch"]
        );
        assert_eq!(nearest("stack", tables), ["stacks"]);
        assert_eq!(nearest("xyz", tables), [""; 0]);
        assert_eq!(
            nearest("switch", tables),
            ["sched.sched_switch", "sched_switch"]
        );
    }

    #[test]
    fn suggestions() {
        assert_eq!(suggestion(&["comm"]), "use comm");
        assert_eq!(suggestion(&["pid", "tid"]), "use one of: pid, tid");
    }
}
