//! Where samples hit code: the weight of each instruction, by function.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;
use perfquet::Session;

use crate::reports::event_weight::WeightedEvent;
use crate::reports::folding::Folded;

/// A function as the samples know it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) module: String,
    /// In hexadecimal.
    pub(super) build_id: Option<String>,
    /// Offset of its start in the module's file; for the kernel, an address.
    pub(super) start: u64,
}

/// Weight and number of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) weight: u128,
    pub(super) samples: u64,
}

impl Weight {
    pub(super) fn add(&mut self, other: Weight) {
        self.weight += other.weight;
        self.samples += other.samples;
    }

    /// Percentage of `all`.
    pub(super) fn percent_of(self, all: Weight) -> f64 {
        match all.weight {
            0 => 0.0,
            all => self.weight as f64 / all as f64 * 100.0,
        }
    }
}

/// A function's samples; one number per event everywhere.
#[derive(Debug, Clone, Default)]
pub(super) struct Hits {
    pub(super) total: Vec<Weight>,
    /// By offset of the instruction, as [`Function::start`].
    pub(super) places: BTreeMap<u64, Vec<Weight>>,
    /// Names of functions that are inlined where it was sampled.
    pub(super) inlined: HashSet<String>,
}

/// All functions in which samples hit.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    pub(super) functions: HashMap<Function, Hits>,
    /// Of each event, all samples.
    pub(super) total: Vec<Weight>,
    /// Of each event, the samples in code without a function, or without a place in a file.
    pub(super) unplaced: Vec<Weight>,
}

impl Sampled {
    /// Adds up the samples of events.
    pub(super) fn query(
        session: &Session,
        subjects: &[WeightedEvent],
        condition: &str,
    ) -> Result<Sampled> {
        let nothing = vec![Weight::default(); subjects.len()];
        let mut sampled = Sampled {
            functions: HashMap::new(),
            total: nothing.clone(),
            unplaced: nothing.clone(),
        };
        for (event, subject) in subjects.iter().enumerate() {
            let folded = Folded::query(session, subject, condition, None)?;
            for row in &folded.rows {
                let weight = Weight {
                    weight: row.weight,
                    samples: row.samples,
                };
                sampled.total[event].add(weight);
                let tree = session.forest().tree(row.trace)?;
                let leaf = if row.kernel != 0 {
                    row.kernel
                } else {
                    row.user
                };
                let frames: Vec<u32> = tree.frames_of_node(leaf).collect();
                let function = frames.last().and_then(|&frame| {
                    let place = tree.frames.place(frame)?;
                    let into = u64::try_from(tree.frames.function_offset(frame)?).ok()?;
                    let function = Function {
                        name: tree.frames.function(frame)?.to_owned(),
                        module: tree.frames.module(frame)?.to_owned(),
                        build_id: tree.frames.build_id(frame).map(str::to_owned),
                        start: place.checked_sub(into)?,
                    };
                    Some((function, place))
                });
                let Some((function, place)) = function else {
                    sampled.unplaced[event].add(weight);
                    continue;
                };
                let hits = sampled.functions.entry(function).or_default();
                hits.total.resize(subjects.len(), Weight::default());
                hits.total[event].add(weight);
                let at = hits.places.entry(place).or_insert_with(|| nothing.clone());
                at[event].add(weight);
                let inlined = frames.iter().rev().skip(1);
                let inlined = inlined.filter_map(|&frame| tree.frames.function(frame));
                hits.inlined.extend(inlined.map(str::to_owned));
            }
        }
        Ok(sampled)
    }

    /// The functions with their samples, the hottest first.
    pub(super) fn by_weight(&self) -> Vec<(&Function, &Hits)> {
        let mut all: Vec<_> = self.functions.iter().collect();
        all.sort_by(|(a, hot), (b, other)| {
            let weights = |hits: &Hits| -> Vec<u128> {
                hits.total.iter().map(|weight| weight.weight).collect()
            };
            weights(other).cmp(&weights(hot)).then_with(|| a.cmp(b))
        });
        all
    }
}
