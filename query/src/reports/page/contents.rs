//! The contents of a page, reduced until the page fits: light frames, short stretches and adjacent slots are merged.

use anyhow::Result;
use serde_json::{Value, json};

use perfquet::Session;
use perfquet::unit::in_fitting_unit;

use super::calls::Calls;
use super::cells::{Threads, fitting_steps};
use super::profiles::{self, MOST_NODES, Profile, Untimed};
use super::sides::Side;
use super::trees::Names;
use super::{LEAST_SLOTS, changes, facts, tracks};
use crate::filter::Filters;
use crate::render::columns::Columns;
use crate::render::grid::ROWS;
use crate::render::page::PageData;

/// Maximum number of bytes of a page, for mail.
const LARGEST: usize = 5_000_000;
/// A page has at least this part of the usual limits, even if that makes it larger.
const SMALLEST_PART: usize = 64;

/// A page that is limited to this part of the usual limits has no counters over time.
const LEAST_PART_OF_LINES: usize = 8;

/// All that a page shows.
pub(super) struct Contents<'s> {
    /// The traces of the page's time; none for a difference.
    pub(super) sides: Vec<Side<'s>>,
    /// None for two traces.
    pub(super) time: Option<Time>,
    pub(super) profiles: Vec<Profile>,
    /// The side of each profile.
    pub(super) of_profiles: Vec<usize>,
    /// What `diff` finds between two traces.
    pub(super) changes: Vec<Value>,
    /// The profiles within the usual limits, until they are written.
    pub(super) pruned: Option<Pruned>,
    pub(super) untimed: Vec<Untimed>,
    /// The side of each of them.
    pub(super) of_untimed: Vec<usize>,
    /// Counters, aggregates and numbers of events; null for two traces.
    pub(super) summaries: Value,
    /// Counters over time; null without any.
    pub(super) lines: Value,
    /// Instructions and source lines of the hottest functions, or null.
    pub(super) code: Value,
    pub(super) calls: Option<Calls>,
    /// With the number of the side.
    pub(super) tracks: Vec<(usize, tracks::Found)>,
    pub(super) threads: Threads,
}

/// The time of a trace, in nanoseconds.
pub(super) struct Time {
    pub(super) length: i64,
    /// A row of the grid.
    pub(super) shortest: i64,
    /// The unit of selections: one or more rows of the grid.
    pub(super) slot: i64,
    /// A column of the grid.
    pub(super) column: i64,
}

/// Profiles with a limited number of frames.
pub(super) struct Pruned {
    profiles: Vec<Profile>,
    /// A sentence for each profile of which frames were merged into `[light frames]`.
    omitted: Vec<String>,
}

impl Pruned {
    /// Merges the lightest frames beyond a part of the usual limit.
    pub(super) fn of(profiles: &[Profile], part: usize) -> Pruned {
        let nodes = MOST_NODES / part / profiles.len().max(1);
        let mut omitted = Vec::new();
        let profiles = profiles.iter();
        Pruned {
            profiles: profiles
                .map(|profile| profile.pruned(nodes, &mut omitted))
                .collect(),
            omitted,
        }
    }

    /// Number of slots to join, as of [`fitting_steps`].
    fn steps(&self, rows: i64, longest: i64, part: usize) -> i64 {
        let cells: Vec<_> = self.profiles.iter().map(|profile| &profile.cells).collect();
        fitting_steps(&cells, rows, longest, part)
    }

    /// Number of rows of the grid to join to a slot, at most `longest`.
    pub(super) fn rows_of_slot(&self, longest: i64) -> i64 {
        self.steps(ROWS, longest, 1)
    }

    /// Joins `steps` slots to one.
    pub(super) fn coarsen(&mut self, steps: i64, slot: i64) {
        for profile in &mut self.profiles {
            profile.coarsen(steps, slot);
        }
    }
}

impl<'s> Contents<'s> {
    pub(super) fn of_difference(
        session: &Session,
        filters: &Filters,
        events: &[String],
        omitted: &mut Vec<String>,
    ) -> Result<Contents<'s>> {
        Ok(Contents {
            sides: Vec::new(),
            time: None,
            profiles: Vec::new(),
            of_profiles: Vec::new(),
            pruned: None,
            untimed: profiles::difference(session, filters, events, omitted)?,
            of_untimed: Vec::new(),
            changes: changes::of(session, filters, events, omitted)?,
            summaries: Value::Null,
            lines: Value::Null,
            code: Value::Null,
            calls: None,
            tracks: Vec::new(),
            threads: Threads::default(),
        })
    }

    /// The data of a page that has `axes` of them. The limits are halved until it is small enough.
    pub(super) fn fitted(
        &mut self,
        head: &Value,
        omitted: &[String],
        axes: usize,
    ) -> Result<PageData> {
        let mut part = 1;
        loop {
            let data = self.limited(head, omitted, part)?;
            if data.size_of_page() <= LARGEST / axes || part >= SMALLEST_PART {
                return Ok(data);
            }
            part *= 2;
        }
    }

    /// The data within a part of the limits.
    fn limited(&mut self, head: &Value, omitted: &[String], part: usize) -> Result<PageData> {
        let mut omitted = omitted.to_vec();
        let (mut names, mut columns) = (Names::default(), Columns::default());
        let mut pruned = match self.pruned.take().filter(|_| part == 1) {
            Some(pruned) => pruned,
            None => Pruned::of(&self.profiles, part),
        };
        omitted.append(&mut pruned.omitted);
        let mut data = head.clone();
        let (mut joined, mut slot, mut rows) = (1, 1, 1);
        if let Some(time) = &self.time {
            // Grains of tracks divide every fifth or tenth slot.
            joined = match part {
                1 => 1,
                _ => pruned.steps(1, time.length / time.slot / LEAST_SLOTS, part),
            };
            slot = time.slot;
            let slot = slot * joined;
            rows = (time.column / slot).max(1);
            if slot > time.shortest {
                omitted.push(format!(
                    "times are those of slots of {}, not of single samples",
                    in_fitting_unit(slot as f64)
                ));
            }
            data["length"] = json!(time.length);
            data["slot"] = json!(slot);
            data["column"] = json!(time.column);
            data["losses"] = facts::loss_times(&self.sides, slot)?;
        }
        pruned.coarsen(joined, slot);
        let of = |side: &[usize], number: usize| side.get(number).copied();
        let mut all: Vec<Value> = Vec::new();
        for (number, profile) in pruned.profiles.into_iter().enumerate() {
            let json = profile.json(&mut names, &mut columns);
            all.push(self.named(json, of(&self.of_profiles, number)));
        }
        for (number, stacks) in self.untimed.iter().enumerate() {
            let json = stacks.json(MOST_NODES / part, &mut names, &mut columns, &mut omitted);
            all.push(self.named(json, of(&self.of_untimed, number)));
        }
        data["profiles"] = json!(all);
        data["changes"] = json!(self.changes);
        data["summaries"] = self.summaries.clone();
        data["lines"] = match part < LEAST_PART_OF_LINES {
            true => self.lines.clone(),
            false => Value::Null,
        };
        if part >= LEAST_PART_OF_LINES && !self.lines.is_null() {
            omitted.push("counters over time: the page would be too large".to_owned());
        }
        data["code"] = self.code.clone();
        let calls = self.calls.as_ref();
        data["calls"] = json!(calls.map(|calls| calls.json(
            (joined, rows),
            part,
            &mut names,
            &mut columns,
            &mut omitted
        )));
        let sides = &self.sides;
        let mut tracks: Vec<_> = (self.tracks.drain(..))
            .map(|(side, found)| (sides[side].name, side, found))
            .collect();
        data["tracks"] = tracks::json(
            &mut tracks,
            part,
            &mut self.threads,
            &mut columns,
            &mut omitted,
        );
        let tracks = tracks.into_iter();
        self.tracks = tracks.map(|(_, side, found)| (side, found)).collect();
        data["threads"] = self.threads.json();
        data["names"] = names.json();
        data["omitted"] = json!(omitted);
        PageData::pack(&data, &columns)
    }

    /// Stacks of one of several traces have its name and number.
    fn named(&self, mut stacks: Value, side: Option<usize>) -> Value {
        if let (Some(number), 2..) = (side, self.sides.len()) {
            let name = stacks["name"].as_str().unwrap_or_default();
            stacks["name"] = json!(format!("{}: {name}", self.sides[number].name));
            stacks["trace"] = json!(number);
        }
        stacks
    }
}
