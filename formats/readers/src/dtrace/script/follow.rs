//! The aggregation of the script that a printed key belongs to.
//!
//! ```text
//! @a[execname] = count(); @b[pid, execname] = sum(1); @c[execname] = quantize(2);
//!
//!   dd                  17        one key and a value: @a, the first that fits
//!
//!      95  dd            9        two keys: @b, the next that fits
//!
//!   dd                            a distribution: @c
//! ```
//! Aggregations are printed in the order of the script. The next one begins after a blank line, at a repeated key, or
//! at a key of another shape.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use perfquet_events::event::Action;

use super::super::emit::Key;
use super::{Aggregation, Script};

/// Maximum number of keys remembered per printing.
const KEYS_MAX: usize = 1 << 20;

/// The current position in the order of the script.
pub(in super::super) struct Follow {
    /// Indexes of aggregations in the order of printing.
    order: Vec<usize>,
    /// The position in `order`; `None` before the first.
    at: Option<usize>,
    hasher: RandomState,
    /// Keys of the current printing.
    seen: HashSet<u64>,
    /// How often each aggregation was printed.
    printings: Vec<u32>,
    /// The current printing with a format.
    format: Option<usize>,
}

impl Follow {
    pub(in super::super) fn new(script: &Script) -> Follow {
        // dtrace does not print an aggregation again at the end if `printa` printed it.
        let plain = script
            .printings
            .iter()
            .filter(|printing| printing.format.is_none());
        let mut order: Vec<usize> = plain
            .flat_map(|printing| printing.of.iter().copied())
            .collect();
        let is_printed = |index: &usize| {
            script
                .printings
                .iter()
                .any(|printing| printing.of.contains(index))
        };
        order.extend((0..script.aggregations.len()).filter(|index| !is_printed(index)));
        // Distributions have their own heading, whatever the format of their key.
        let has_bars = |index: &usize| script.aggregations.get(*index).is_some_and(is_of_bars);
        let formatted = script
            .printings
            .iter()
            .filter(|printing| printing.format.is_some());
        let formatted = formatted.flat_map(|printing| printing.of.iter().copied());
        order.extend(formatted.filter(has_bars));
        Follow {
            printings: vec![0; script.aggregations.len()],
            format: None,
            order,
            at: None,
            hasher: RandomState::new(),
            seen: HashSet::new(),
        }
    }

    /// The aggregation that a key belongs to, and the number of its printing. `is_new_block`: a blank line precedes the
    /// key, and its kind contains none.
    pub(in super::super) fn find<'s>(
        &mut self,
        script: &'s Script,
        key: &Key<'_>,
        is_distribution: bool,
        is_new_block: bool,
    ) -> Option<(&'s Aggregation, u32)> {
        let names: Vec<_> = key
            .stacks
            .iter()
            .map(|frames| {
                frames
                    .iter()
                    .map(|frame| {
                        (
                            frame.function,
                            frame.module,
                            frame.address,
                            frame.function_offset,
                        )
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        let hash = self.hasher.hash_one((&key.keys, names, is_distribution));
        let here = self.at.and_then(|at| self.one(script, at));
        let stays = here.is_some_and(|one| fits(one, key, is_distribution))
            && !is_new_block
            && !self.seen.contains(&hash);
        if !stays {
            self.at = self.next(script, key, is_distribution);
            self.seen.clear();
            self.format = None;
            let index = self.at.and_then(|at| self.order.get(at).copied());
            self.begin(index);
        }
        if self.seen.len() < KEYS_MAX {
            self.seen.insert(hash);
        }
        let index = *self.order.get(self.at?)?;
        Some((script.aggregations.get(index)?, self.printing(index)))
    }

    /// A line of the script's `printa` with this number, which has a format.
    pub(in super::super) fn formatted(&mut self, script: &Script, number: usize, keys: &[&[u8]]) {
        let hash = self.hasher.hash_one(keys);
        if self.format != Some(number) || self.seen.contains(&hash) {
            self.at = None;
            self.format = Some(number);
            self.seen.clear();
            let printing = script.printings.get(number);
            for index in printing.into_iter().flat_map(|printing| &printing.of) {
                self.begin(Some(*index));
            }
        }
        if self.seen.len() < KEYS_MAX {
            self.seen.insert(hash);
        }
    }

    fn begin(&mut self, index: Option<usize>) {
        if let Some(count) = index.and_then(|index| self.printings.get_mut(index)) {
            *count += 1;
        }
    }

    /// The current printing of an aggregation, from 0.
    pub(in super::super) fn printing(&self, index: usize) -> u32 {
        self.printings
            .get(index)
            .map_or(0, |count| count.saturating_sub(1))
    }

    fn one<'s>(&self, script: &'s Script, at: usize) -> Option<&'s Aggregation> {
        script.aggregations.get(*self.order.get(at)?)
    }

    /// The next matching aggregation after the current position, wrapping around.
    fn next(&self, script: &Script, key: &Key<'_>, is_distribution: bool) -> Option<usize> {
        let count = self.order.len();
        let start = self.at.map_or(0, |at| at + 1);
        (start..start + count)
            .map(|place| place % count.max(1))
            .find(|at| {
                self.one(script, *at)
                    .is_some_and(|one| fits(one, key, is_distribution))
            })
    }
}

fn fits(one: &Aggregation, key: &Key<'_>, is_distribution: bool) -> bool {
    one.texts == key.keys.len()
        && one.stacks.len() == key.stacks.len()
        && is_of_bars(one) == is_distribution
}

fn is_of_bars(one: &Aggregation) -> bool {
    matches!(
        one.action,
        Some(Action::Quantize | Action::Lquantize | Action::Llquantize)
    )
}
