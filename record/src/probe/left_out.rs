//! Matches of a pattern that the kernel rejects: skipped and reported, unless nothing remains.

use std::fmt::Display;

/// Of those left out.
const MOST_NAMED: usize = 8;

/// The names, and why the first was rejected.
pub(crate) struct LeftOut<E> {
    names: Vec<String>,
    first: Option<E>,
}

impl<E> Default for LeftOut<E> {
    fn default() -> LeftOut<E> {
        LeftOut {
            names: Vec::new(),
            first: None,
        }
    }
}

impl<E: Display> LeftOut<E> {
    /// One more.
    pub(crate) fn add(&mut self, name: &str, why: E) {
        log::info!("{name}: {why:#}");
        self.names.push(name.to_owned());
        self.first.get_or_insert(why);
    }

    /// Tells them, where some others were `taken`; `cannot` is what they cannot.
    ///
    /// # Errors
    ///
    /// Why the first was rejected, if all were.
    pub(crate) fn tell(self, pattern: &str, taken: usize, cannot: &str) -> Result<(), E> {
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
            "{pattern}: {count} of {} {cannot}: {shown}{more}",
            count + taken
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_left_is_an_error() {
        let left_out = |names: &[&str]| {
            let mut left_out = LeftOut::default();
            for name in names {
                left_out.add(name, format!("no {name}"));
            }
            left_out
        };
        let tell = |names: &[&str], taken| left_out(names).tell("a*", taken, "cannot be probed");
        assert_eq!(tell(&[], 0), Ok(()));
        assert_eq!(tell(&["a1", "a2"], 1), Ok(()));
        assert_eq!(tell(&["a1", "a2"], 0), Err("no a1".to_owned()));
    }
}
