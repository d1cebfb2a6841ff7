//! The state of each key: its last rows, its first row, its number of rows.

use std::mem::size_of;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt64Array};
use datafusion::error::Result;

use super::super::gather::Place;
use super::functions::Function;
use super::rows::{NOWHERE, Rows};
use super::running::{Batch, Running};

/// The last n rows of each key: a ring for each.
#[derive(Debug)]
pub(super) struct Rings {
    pub(super) n: usize,
    places: Vec<Place>,
    /// Position of the oldest row in each ring, if rings have several rows.
    oldest: Vec<u32>,
}

impl Rings {
    pub(super) fn new(n: usize) -> Rings {
        Rings {
            n,
            places: Vec::new(),
            oldest: Vec::new(),
        }
    }

    pub(super) fn resize(&mut self, keys: usize) {
        self.places.resize(keys * self.n, NOWHERE);
        if self.n > 1 {
            self.oldest.resize(keys, 0);
        }
    }

    /// The n-th row before the next one.
    #[inline]
    pub(super) fn oldest(&self, key: u32) -> Place {
        match self.n {
            1 => self.places[key as usize],
            n => self.places[key as usize * n + self.oldest[key as usize] as usize],
        }
    }

    /// Adds a row. Returns the one that leaves.
    #[inline]
    pub(super) fn push(&mut self, key: u32, place: Place) -> Place {
        let key = key as usize;
        match self.n {
            1 => std::mem::replace(&mut self.places[key], place),
            n => {
                let oldest = &mut self.oldest[key];
                let at = key * n + *oldest as usize;
                *oldest = (*oldest + 1) % n as u32;
                std::mem::replace(&mut self.places[at], place)
            }
        }
    }

    /// Updates the place of a row of a key.
    pub(super) fn moved(&mut self, key: u32, from: Place, to: Place) {
        let key = key as usize;
        for place in &mut self.places[key * self.n..(key + 1) * self.n] {
            if *place == from {
                *place = to;
            }
        }
    }

    pub(super) fn places(&mut self) -> &mut [Place] {
        &mut self.places
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.len() * size_of::<Place>() + self.oldest.len() * size_of::<u32>()
    }
}

/// The state of one column of the result.
#[derive(Debug)]
pub(super) enum State {
    Rings(Rings),
    /// One row of each key.
    One(Vec<Place>),
    Counts(Vec<u64>),
    Running(Running),
    /// There is none.
    Nothing,
}

impl State {
    pub(super) fn of(function: &Function) -> State {
        match function {
            Function::Lag { n, .. } => State::Rings(Rings::new(*n)),
            Function::First { .. } | Function::Latest { .. } => State::One(Vec::new()),
            Function::RowNumber => State::Counts(Vec::new()),
            Function::Running { aggregate, .. } => State::Running(Running::of(*aggregate)),
            Function::Lead { .. } | Function::Same { .. } => State::Nothing,
        }
    }

    /// The values of a batch, which is `block` of `rows`; `None` if they are not known yet. `ends`: the ends of its groups of
    /// rows of the same time, if any function counts them together.
    pub(super) fn values(
        &mut self,
        function: &Function,
        (keys, ends): (&[u32], Option<&[usize]>),
        count: usize,
        (block, args): (u32, &[ArrayRef]),
        rows: &mut Rows,
    ) -> Result<Option<ArrayRef>> {
        let place = |row: usize| Place {
            block,
            row: row as u32,
        };
        match (self, function) {
            (
                State::Rings(rings),
                Function::Lag {
                    arg,
                    default,
                    skips_nulls,
                    ..
                },
            ) => {
                rings.resize(count);
                let nulls = args[*arg].logical_nulls().filter(|_| *skips_nulls);
                let places: Vec<Place> = (keys.iter().enumerate())
                    .map(|(row, &key)| match &nulls {
                        Some(nulls) if nulls.is_null(row) => rings.oldest(key),
                        _ => rings.push(key, place(row)),
                    })
                    .collect();
                rows.gather(*arg, &places, default).map(Some)
            }
            (State::One(firsts), Function::First { arg, skips_nulls }) => {
                firsts.resize(count, NOWHERE);
                let nulls = args[*arg].logical_nulls().filter(|_| *skips_nulls);
                let places: Vec<Place> = (keys.iter().enumerate())
                    .map(|(row, &key)| {
                        let first = &mut firsts[key as usize];
                        let counts = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
                        if *first == NOWHERE && counts {
                            *first = place(row);
                        }
                        *first
                    })
                    .collect();
                let null = arrow::array::new_null_array(args[*arg].data_type(), 1);
                rows.gather(*arg, &places, &null).map(Some)
            }
            (State::One(latest), Function::Latest { arg }) => {
                latest.resize(count, NOWHERE);
                let nulls = args[*arg].logical_nulls();
                let places: Vec<Place> = (keys.iter().enumerate())
                    .map(|(row, &key)| {
                        if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                            latest[key as usize] = place(row);
                        }
                        latest[key as usize]
                    })
                    .collect();
                let null = arrow::array::new_null_array(args[*arg].data_type(), 1);
                rows.gather(*arg, &places, &null).map(Some)
            }
            (State::Counts(counts), _) => {
                counts.resize(count, 0);
                let number = |&key: &u32| {
                    counts[key as usize] += 1;
                    counts[key as usize]
                };
                let numbers: UInt64Array = keys.iter().map(number).collect();
                Ok(Some(Arc::new(numbers)))
            }
            (
                State::Running(running),
                Function::Running {
                    arg, with_peers, ..
                },
            ) => {
                let ends = ends.filter(|_| *with_peers);
                let batch = Batch { keys, ends };
                running.values(batch, count, &args[*arg]).map(Some)
            }
            (_, Function::Same { arg }) => Ok(Some(Arc::clone(&args[*arg]))),
            _ => Ok(None),
        }
    }

    /// The rows that the state refers to.
    pub(super) fn places(&mut self) -> &mut [Place] {
        match self {
            State::Rings(rings) => rings.places(),
            State::One(places) => places,
            State::Counts(_) | State::Running(_) | State::Nothing => &mut [],
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            State::Rings(rings) => rings.bytes(),
            State::One(places) => places.len() * size_of::<Place>(),
            State::Counts(counts) => counts.len() * size_of::<u64>(),
            State::Running(running) => running.bytes(),
            State::Nothing => 0,
        }
    }
}
