//! Begins and ends of slices, paired; the columns of markers.
//!
//! ```text
//! SLICE_BEGIN work  (track 7, time 100)       a call of 50 ns in the thread of track 7
//! SLICE_END         (track 7, time 150)
//! ```
//! They are paired here, because a track need not be a thread.

use hashbrown::HashMap;
use perfquet_events::event::FieldType;

use super::entry::Item;
use super::interned::Interned;
use super::packets::Contents;
use super::tracks::{COLUMNS_MAX, Phase, TrackEvent, arguments};
use crate::protobuf::{Message, Value};

/// Names of markers with a table each.
const MARKERS_MAX: usize = 4000;

/// Category and name of a marker.
pub(super) type MarkerKey<'a> = (&'a [u8], &'a [u8]);

/// What pairing has found.
#[derive(Default)]
pub(super) struct Pairs<'a> {
    /// Columns of markers.
    pub(super) markers: HashMap<MarkerKey<'a>, Vec<(Vec<u8>, FieldType)>>,
    pub(super) ends_alone: u64,
    pub(super) unread: u64,
}

/// Gives each begin of a call its duration, and finds the columns of markers.
pub(super) fn pair<'a>(contents: &mut Contents<'a>) -> Pairs<'a> {
    let mut pairs = Pairs::default();
    let mut open: HashMap<(u8, u64, &'a [u8]), Vec<usize>> = HashMap::new();
    let mut ends = Vec::new();
    for (place, entry) in contents.entries.iter().enumerate() {
        let Some((event, body, state)) = contents.track_event(&entry.item) else {
            continue;
        };
        match event.phase {
            Phase::Begin => open.entry(event.key()).or_default().push(place),
            Phase::End => match open.get_mut(&event.key()).and_then(Vec::pop) {
                Some(begin) => ends.push((begin, entry.time)),
                None => pairs.ends_alone += 1,
            },
            Phase::Instant => {
                let key = (event.category, event.name);
                let is_full = pairs.markers.len() >= MARKERS_MAX;
                if is_full && !pairs.markers.contains_key(&key) {
                    continue;
                }
                let columns = pairs.markers.entry(key).or_default();
                for (name, value) in arguments(body, state) {
                    note(columns, name, value.kind());
                }
            }
            Phase::Complete | Phase::Counter => {}
            Phase::Unread => pairs.unread += 1,
        }
    }
    for (begin, end) in ends {
        let Some(entry) = contents.entries.get_mut(begin) else {
            continue;
        };
        if let Item::Track { duration, .. } = &mut entry.item {
            *duration = end.saturating_sub(entry.time).max(0);
        }
    }
    pairs
}

fn note(columns: &mut Vec<(Vec<u8>, FieldType)>, name: Vec<u8>, kind: FieldType) {
    let is_full = columns.len() >= COLUMNS_MAX;
    match columns.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) if *known == kind => {}
        Some((_, known)) => *known = FieldType::Text,
        None if is_full => {}
        None => columns.push((name, kind)),
    }
}

impl<'a> Contents<'a> {
    /// The event of an entry on a track, its body, and its interned data.
    pub(super) fn track_event(
        &self,
        item: &Item<'a>,
    ) -> Option<(TrackEvent<'a>, &'a [u8], &Interned<'a>)> {
        let Item::Track {
            body,
            state,
            defaults,
            thread,
            ..
        } = *item
        else {
            return None;
        };
        let state = self.states.get(state as usize)?;
        let defaults = self.defaults.get(defaults as usize)?;
        let thread = self.threads.get(thread as usize).copied()?;
        let event = TrackEvent::of(body, state, defaults, thread, &self.tracks);
        Some((event, body, state))
    }

    /// Counters of an event beside its own: their tracks and values.
    pub(super) fn extra_counters(&self, item: &Item<'a>) -> Vec<(u64, f64)> {
        let Item::Track { body, defaults, .. } = *item else {
            return Vec::new();
        };
        let (mut tracks, mut double_tracks) = (Vec::new(), Vec::new());
        let (mut values, mut double_values) = (Vec::new(), Vec::new());
        for field in Message::new(body, 0).map_while(Result::ok) {
            match (field.number, field.value) {
                (31, found) => tracks.extend(found.numbers()),
                (45, found) => double_tracks.extend(found.numbers()),
                (12, found) => values.extend(found.numbers().map(|v| v.cast_signed() as f64)),
                (46, Value::Fixed64(bits)) => double_values.push(f64::from_bits(bits)),
                _ => {}
            }
        }
        if let Some(defaults) = self.defaults.get(defaults as usize) {
            if tracks.is_empty() {
                tracks.clone_from(&defaults.extra_tracks);
            }
            if double_tracks.is_empty() {
                double_tracks.clone_from(&defaults.extra_double_tracks);
            }
        }
        let ints = tracks.into_iter().zip(values);
        ints.chain(double_tracks.into_iter().zip(double_values))
            .collect()
    }
}
