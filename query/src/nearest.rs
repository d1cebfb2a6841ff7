//! Names near to a wrong one.

/// Those of `names` that `wrong` was probably meant to be, the nearest first, at most four.
pub(crate) fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wrong = wrong.to_lowercase();
    let mut near: Vec<(usize, &str)> = Vec::new();
    for name in names {
        let lower = name.to_lowercase();
        // A name may stand behind its table or system.
        let last = lower.rsplit('.').next().unwrap_or(&lower);
        let steps = distance(&wrong, &lower).min(distance(&wrong, last));
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

/// How many letters must be inserted, removed, replaced or swapped with the next one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<_>, Vec<_>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut steps = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                steps = steps.min(before[j - 2] + 1);
            }
            row.push(steps);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
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
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "acb"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
