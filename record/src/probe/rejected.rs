//! Matches of a pattern that the kernel rejects: skipped and reported, unless nothing remains.

use std::fmt::Display;

use perfquet_trace::count::grouped;

/// Maximum number of names in the message.
const MOST_NAMED: usize = 8;

/// The names, and the first rejection.
pub(crate) struct Rejected<E> {
    names: Vec<String>,
    first: Option<E>,
}

impl<E> Default for Rejected<E> {
    fn default() -> Rejected<E> {
        Rejected {
            names: Vec::new(),
            first: None,
        }
    }
}

impl<E: Display> Rejected<E> {
    /// Adds a rejected function.
    pub(crate) fn add(&mut self, name: &str, why: E) {
        log::info!("{name}: {why:#}");
        self.names.push(name.to_owned());
        self.first.get_or_insert(why);
    }

    /// Reports the rejected matches, if others were `taken`; `cannot` names the failed action.
    ///
    /// # Errors
    ///
    /// Returns the first rejection if all were rejected.
    pub(crate) fn report(self, pattern: &str, taken: usize, cannot: &str) -> Result<(), E> {
        let Some(first) = self.first else {
            return Ok(());
        };
        if taken == 0 {
            return Err(first);
        }
        let count = self.names.len();
        let shown = self.names[..count.min(MOST_NAMED)].join(", ");
        let more = if count > MOST_NAMED { ", …" } else { "" };
        log::warn!(
            "{pattern}: {} of {} {cannot}: {shown}{more}",
            grouped(count as u64),
            grouped((count + taken) as u64)
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_left_is_an_error() {
        let rejected = |names: &[&str]| {
            let mut rejected = Rejected::default();
            for name in names {
                rejected.add(name, format!("no {name}"));
            }
            rejected
        };
        let report =
            |names: &[&str], taken| rejected(names).report("a*", taken, "cannot be probed");
        assert_eq!(report(&[], 0), Ok(()));
        assert_eq!(report(&["a1", "a2"], 1), Ok(()));
        assert_eq!(report(&["a1", "a2"], 0), Err("no a1".to_owned()));
    }
}
