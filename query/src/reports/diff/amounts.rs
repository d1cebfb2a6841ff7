//! Numbers by run or slice, of which most may be missing: of thousands of runs, few call a given function.

/// Numbers by run or slice; those that are missing are zero or unknown.
#[derive(Debug, Clone, Default)]
pub(super) struct Amounts(Vec<(u32, f64)>);

impl Amounts {
    /// Adds to the number of a run.
    pub(super) fn add(&mut self, run: usize, value: f64) {
        let run = run as u32;
        match self.0.last_mut() {
            Some((last, sum)) if *last == run => *sum += value,
            _ => self.0.push((run, value)),
        }
    }

    /// Subtracts from the number of a run, of which nothing negative remains. The numbers must be settled.
    pub(super) fn subtract(&mut self, run: usize, value: f64) {
        let place = self.0.binary_search_by_key(&(run as u32), |&(run, _)| run);
        if let Some((_, sum)) = place.ok().and_then(|place| self.0.get_mut(place)) {
            *sum = (*sum - value).max(0.0);
        }
    }

    /// Adds the numbers of others.
    pub(super) fn merge(&mut self, others: &Amounts) {
        self.0.extend(&others.0);
        self.settle();
    }

    /// Brings the numbers into the order of the runs, each once: sums do not depend on the order in which they were found.
    pub(super) fn settle(&mut self) {
        self.0.sort_by_key(|&(run, _)| run);
        self.0.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 += next.1;
            }
            is_same
        });
    }

    /// The numbers that are known, with their runs.
    pub(super) fn known(&self) -> impl Iterator<Item = (usize, f64)> {
        self.0.iter().map(|&(run, value)| (run as usize, value))
    }

    /// Whether none is known.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all are zero.
    pub(super) fn are_zero(&self) -> bool {
        self.0.iter().all(|&(_, value)| value == 0.0)
    }

    /// Their sum.
    pub(super) fn sum(&self) -> f64 {
        self.0.iter().map(|&(_, value)| value).sum()
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The numbers of all runs, zero where they are missing.
    pub(super) fn dense(&self, runs: usize) -> Vec<f64> {
        let mut dense = vec![0.0; runs];
        for (run, value) in self.known() {
            if let Some(sum) = dense.get_mut(run) {
                *sum += value;
            }
        }
        dense
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_found_in_any_order_are_summed_by_run() {
        let mut amounts = Amounts::default();
        for (run, value) in [(3, 1.0), (3, 2.0), (0, 5.0), (3, 4.0)] {
            amounts.add(run, value);
        }
        assert_eq!(amounts.dense(4), [5.0, 0.0, 0.0, 7.0]);
        amounts.settle();
        assert_eq!(amounts.known().collect::<Vec<_>>(), [(0, 5.0), (3, 7.0)]);
        let mut others = Amounts::default();
        others.add(1, 2.0);
        others.merge(&amounts);
        assert_eq!(others.dense(4), [5.0, 2.0, 0.0, 7.0]);
        assert_eq!(others.sum(), 14.0);
        for (run, value) in [(3, 3.0), (0, 9.0), (2, 1.0)] {
            others.subtract(run, value);
        }
        assert_eq!(others.dense(4), [0.0, 2.0, 0.0, 4.0]);
    }
}
